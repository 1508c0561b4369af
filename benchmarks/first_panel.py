"""`python -m benchmarks.first_panel [TRACE …]`: seconds until the Overview of a trace that was never read is there.

A TensorBoard with an empty cache and a browser that has the page open already; the time begins when the tab is asked
for. By default: the recordings of 23 and 815 MB in the folder that TB_TORCHCOMPILE_RECORDINGS names.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from selenium.webdriver import Chrome

import benchmarks  # noqa: F401  # knows where the tests' helpers are
from browser.processes import Servers, start_browser
from browser.tab import Tab

# What the page shows: whether its first sentence is there, and how far its progress bar is.
_SEEN = """
const heading = document.querySelector('.overview h1');
const bar = document.querySelector('[role=progressbar]');
return [!!heading && /per step|window|compil/i.test(heading.textContent), bar && bar.getAttribute('aria-valuenow')];
"""


def main() -> int:
    """Print one row per trace."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.first_panel", description=__doc__)
    parser.add_argument("traces", nargs="*", type=Path)
    options = parser.parse_args()
    if not options.traces and not os.environ.get("TB_TORCHCOMPILE_RECORDINGS"):
        parser.exit(message="left out: TB_TORCHCOMPILE_RECORDINGS names no folder with recordings\n")
    with tempfile.TemporaryDirectory(prefix="tb_torchcompile_first_") as name:
        print(f"{'MB':>6}{'s, tab open':>13}  steps of the progress bar    load average")
        for path in options.traces or _usual(Path(name)):
            _measure(path, Path(name))
    return 0


def _usual(folder: Path) -> Iterator[Path]:
    for name in ("recompiles", "densenet_train_815mb"):
        with tarfile.open(Path(os.environ["TB_TORCHCOMPILE_RECORDINGS"], f"{name}.tar.xz")) as packed:
            packed.extractall(folder, filter="data")
        yield next(folder.glob(f"{name}/*.trace.json"))
        shutil.rmtree(folder / name)


def _measure(path: Path, folder: Path) -> None:
    work = Path(tempfile.mkdtemp(dir=folder))
    (work / "logdir").mkdir()
    (work / "outputs").mkdir()
    shutil.copy(path, work / "logdir" / path.name)
    os.environ["TB_TORCHCOMPILE_CACHE"] = str(work / "cache")
    servers, driver = Servers(work / "outputs"), start_browser(work / "profile", work)
    try:
        seconds, shown = _first_sentence(driver, servers.start(work / "logdir"))
    finally:
        driver.quit()
        servers.stop_all()
    moved = f"{len(shown)} ({', '.join(shown[:: 1 + len(shown) // 6])} %)" if shown else "none"
    print(
        f"{path.stat().st_size / 1e6:>6.0f}{seconds:>13.2f}  {moved:<28} {os.getloadavg()[0]:.1f}", flush=True
    )


def _first_sentence(driver: Chrome, url: str) -> tuple[float, list[str]]:
    """Return the seconds until the sentence is there, and what the progress bar showed until then."""
    tab = Tab(driver, url)
    shown: list[str] = []
    driver.get(f"{url}#torch_compile&p.torch_compile.panel=overview")
    tab.enter()
    is_there = False
    while not is_there:
        is_there, percent = tab.script(_SEEN)
        if percent and percent not in shown:
            shown.append(percent)
        time.sleep(0.02)
    return float(tab.script("return performance.now()")) / 1000, shown


if __name__ == "__main__":
    sys.exit(main())
