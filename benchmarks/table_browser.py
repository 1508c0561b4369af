"""`python -m benchmarks.table_browser`: measure sorting and searching a table of 10,000 rows in a browser.

Writes a trace with that many operators and kernels, opens both panels in headless Chromium, clicks every header and
types a search letter by letter. Prints the time from the click or the key until the table is laid out again, until the
browser has painted it (never less than a frame, 16 ms), and the CPU time of the page: on a shared machine, only that
shows what the tab itself takes.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from selenium.webdriver import Chrome

from browser.processes import Servers, start_browser
from browser.tab import Tab

LIMIT_MS = 50
TABLES = {"operators": "Operators", "kernels": "Kernels"}  # panel → its table
SEARCHES = ("conv_7", "9", "layer_12 add")
# Does something at the start of a frame; answers when all that follows from it was laid out, and when it was painted.
MEASURE = """
    const [act, target, value, done] = arguments;
    requestAnimationFrame(() => setTimeout(async () => {
        const begun = performance.now();
        if (act === 'click') target.click();
        else {
            target.value = value;
            target.dispatchEvent(new Event('input', {bubbles: true}));
        }
        for (let i = 0; i < 5; i++) await null;
        document.body.offsetHeight;
        const laidOut = performance.now() - begun;
        requestAnimationFrame(() => setTimeout(() => done([laidOut, performance.now() - begun])));
    }));
"""


def main() -> int:
    """Print the cost of sorting and searching. Exit status 1 if it is over the limit."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.table_browser", description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["TB_TORCHCOMPILE_CACHE"] = str(folder / "cache")
        logdir, outputs = folder / "logdir", folder / "outputs"
        logdir.mkdir(), outputs.mkdir()
        (logdir / "w.1.pt.trace.json").write_text(json.dumps({"traceEvents": events(options.rows)}))
        driver, servers = start_browser(folder / "profile", folder), Servers(outputs)
        try:
            tab = Tab(driver, servers.start(logdir))
            slowest = max(measure(tab, panel, options.rows) for panel in TABLES)
            print(f"load average {os.getloadavg()[0]:.2f}")
            return int(slowest > LIMIT_MS)
        finally:
            driver.quit()
            servers.stop_all()


def events(rows: int) -> list[dict[str, Any]]:
    """Return an operator with a launch and a kernel of its own per row."""
    kinds = ("conv", "add", "mul", "norm")
    written = []
    for row in range(rows):
        name, at = f"layer_{row % 97}_{kinds[row % 4]}_{row}", 20 * row
        slices = (
            ("cpu_op", f"user::{name}", 1, 0, 15 + row % 7, {}),
            ("cuda_runtime", "cudaLaunchKernel", 1, 3, 5, {"correlation": row + 1}),
            (
                "kernel",
                f"kernel_{name}",
                0,
                8,
                1 + row % 11,
                {"correlation": row + 1, "device": 0, "stream": 7},
            ),
        )
        for cat, text, pid, start, dur, args in slices:
            written.append(
                {
                    "ph": "X",
                    "cat": cat,
                    "name": text,
                    "pid": pid,
                    "tid": pid or 7,
                    "ts": at + start,
                    "dur": dur,
                    "args": args,
                }
            )
    return written


def measure(tab: Tab, panel: str, rows: int) -> float:
    """Sort by each header twice and search in one panel's table. Return the 95th percentile of the CPU time, ms."""
    tab.load(panel=panel)
    table = f"table[aria-label='{TABLES[panel]}']"
    assert int(tab.one(table).get_attribute("aria-rowcount") or 0) > rows
    headers = len(tab.all(f"{table} thead button"))
    sorts = [
        _timed(tab.driver, "click", lambda at=at: tab.all(f"{table} thead button")[at])
        for at in range(headers)
        for _ in range(2)
    ]
    keys = [text[:length] for text in SEARCHES for length in range(len(text) + 1)]
    box = f"input[aria-label='Search in {TABLES[panel]}']"
    searches = [_timed(tab.driver, "type", lambda: tab.one(box), text) for text in keys]
    return max(_reported(panel, "sort", sorts), _reported(panel, "search", searches))


def _timed(
    driver: Chrome, act: str, target: Callable[[], Any], value: str = ""
) -> tuple[float, float, float]:
    element, before = target(), _cpu_ms(driver)
    laid_out, painted = driver.execute_async_script(MEASURE, act, element, value)
    return laid_out, painted, _cpu_ms(driver) - before


def _cpu_ms(driver: Chrome) -> float:
    """Of all tasks of the page's main thread so far."""
    driver.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})
    metrics = driver.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
    return 1000 * next(float(one["value"]) for one in metrics if one["name"] == "TaskDuration")


def _reported(panel: str, what: str, times: list[tuple[float, float, float]]) -> float:
    for name, values in zip(("laid out", "painted", "CPU"), zip(*times)):
        median, high, most = np.percentile(values, (50, 95, 100))
        print(
            f"{panel:10} {what:7} {name:9} median {median:6.1f}   p95 {high:6.1f}   "
            f"most {most:6.1f} ms ({len(values)})",
            flush=True,
        )
    return float(np.percentile([cpu for *_, cpu in times], 95))


if __name__ == "__main__":
    sys.exit(main())
