"""`python -m benchmarks.ranks [--ranks N]`: measure a job of N ranks by its digests, from the listing to the panel.

Writes the job first: digests of a recorded rank, with one slow rank, one slow host and one slow link planted. Then asks
a session for its listing and its report, and opens the panel in Chromium twice: in a TensorBoard that has just
started, and again. Prints CPU seconds, wall time, sizes of answers, the memory of TensorBoard, and the findings.
"""

from __future__ import annotations

import argparse
import gzip
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec
from selenium.webdriver import Chrome

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))  # it makes the synthetic job
from benchmarks.measure import pss_mb
from browser.processes import Servers, start_browser
from browser.tab import Tab
from many_ranks import write_job
from tb_torchcompile_plugin.api.read_queue import Progress
from tb_torchcompile_plugin.api.routes import ROUTES, poll
from tb_torchcompile_plugin.api.session import Session

Value = TypeVar("Value")
LIMIT_S, LIMIT_MB = 2, 300


def main() -> int:
    """Print the cost of a job of many ranks. Exit status 1 if it is over the limits."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ranks", description=__doc__)
    parser.add_argument("--ranks", type=int, default=4096)
    parser.add_argument("--no-browser", action="store_true", help="only ask the server's side")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["TB_TORCHCOMPILE_CACHE"] = str(folder / "cache")
        timed(
            f"{options.ranks:,} ranks written",
            lambda: write_job(folder / "logdir", options.ranks, traces=True),
        )
        sizes = [path.stat().st_size for path in (folder / "logdir").glob("*.digest.pb")]
        print(f"digests: {sum(sizes) / len(sizes) / 1000:.1f} kB each, at most {max(sizes) / 1000:.1f}")
        measure_server(folder / "logdir")
        return 0 if options.no_browser else measure_browser(folder)


def timed(name: str, function: Callable[[], Value]) -> Value:
    """Print what a call costs; return its value."""
    started, used = time.monotonic(), sum(os.times()[:2])
    value = function()
    print(f"{name:28}{sum(os.times()[:2]) - used:7.2f} CPU s{time.monotonic() - started:7.2f} s", flush=True)
    return value


def measure_server(logdir: Path) -> None:
    """Print what the server needs without a browser."""
    session = Session([("", str(logdir))])
    timed("listing", session.runs)
    again = timed("listing, again", session.runs)
    report = timed("the job, cold", lambda: job_of(session))
    timed("the job, warm", lambda: job_of(session))
    for name, answer in (("runs", again), ("job", report)):
        encoded = msgspec.json.encode(answer)
        print(
            f"answer {name:8}{len(encoded) / 1e6:7.2f} MB, {len(gzip.compress(encoded)) / 1e6:.2f} MB compressed"
        )
    print(getattr(report, "headline", ""))
    for row in getattr(report, "findings", []):
        print(f"  {row.rule}: {row.title}")
    session.close()


def job_of(session: Session) -> object:
    """Return the report of the job, once it is computed."""
    while isinstance(answer := poll(session, ROUTES["job"], {"run": "."}), Progress):
        time.sleep(0.02)
    return answer


def measure_browser(folder: Path) -> int:
    """Print what the panel costs in a browser. Return 1 if it is late, or TensorBoard too large."""
    (folder / "outputs").mkdir()
    servers, driver = Servers(folder / "outputs"), start_browser(folder / "profile", folder)
    try:
        url = servers.start(folder / "logdir")
        first = paint_s(driver, url)
        warm = paint_s(driver, url)
        memory = pss_mb(servers.pid(url))
    finally:
        driver.quit()
        servers.stop_all()
    print(
        f"painted after {first:.2f} s, again after {warm:.2f} s of the tab; TensorBoard holds {memory:.0f} MB"
    )
    print(f"load average {os.getloadavg()[0]:.2f}")
    return int(warm > LIMIT_S or memory > LIMIT_MB)


def paint_s(driver: Chrome, url: str) -> float:
    """Return the seconds from the navigation of the tab's own page to the verdict of the job."""
    tab = Tab(driver, url)
    driver.get("about:blank")
    driver.get(f"{url}#torch_compile&p.torch_compile.panel=ranks")
    tab.enter()
    while "a step takes" not in tab.text():  # the first finding's sentence
        time.sleep(0.02)
    return float(tab.script("return (performance.now())")) / 1000


if __name__ == "__main__":
    sys.exit(main())
