"""`python -m benchmarks.timeline_browser [TRACE]`: measure what the timeline of a trace costs in a browser.

Opens the timeline in Chromium twice, each time from a TensorBoard that has just started: on an empty cache, and again
on the cache of the first time. Prints when there was a progress bar and when everything in view was drawn, counted
from the navigation to TensorBoard, and how much of that its own page took before it opened the tab. Then holds the
keys that move and zoom, and prints for each frame how long its scripts ran and how long after the previous one it was
drawn, and the size of the page's heap. Without a trace it writes a synthetic one.

Chromium is headless here and draws without a GPU, so frames come no faster than its software draws them. What the tab
itself determines is the script time: below 16 ms per frame, it allows 60 frames per second.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from selenium.webdriver import ActionChains, Chrome

from benchmarks import synthetic
from browser.processes import Servers, start_browser
from browser.tab import Tab

CANVAS = "canvas[role='application']"
LIMIT_PAINT_S, LIMIT_SCRIPT_MS, LIMIT_HEAP_MB = 2, 16, 150
WATCH = """
    window.frames_ = [];
    const plain = window.requestAnimationFrame.bind(window);
    window.requestAnimationFrame = (draw) => plain((at) => {
        const begun = performance.now();
        draw(at);
        window.frames_.push([at, performance.now() - begun]);
    });
    const now = () => performance.timeOrigin + performance.now();
    const look = () => {
        if (document.querySelector("canvas[aria-busy='false']")) window.painted_ = now();
        else plain(look);
        const bar = document.querySelector("[role='progressbar'][aria-valuenow]");
        if (bar) (window.progress_ ??= []).push([now(), +bar.getAttribute('aria-valuenow')]);
    };
    plain(look);
"""
# Key held, seconds: zoom in, right, left, zoom out, and all of them once more.
TOUR = (("w", 2.0), ("d", 3.0), ("a", 3.0), ("s", 2.5), ("w", 4.0), ("d", 2.0), ("s", 5.0), ("a", 1.0))


def main() -> int:
    """Print the cost of a timeline in a browser. Exit status 1 if it is over the limits."""
    options = _options()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["TB_TORCHCOMPILE_CACHE"] = str(folder / "cache")
        logdir, outputs = folder / "logdir", folder / "outputs"
        logdir.mkdir(), outputs.mkdir()
        if options.trace:
            (logdir / Path(options.trace).name).symlink_to(Path(options.trace).resolve())
        else:
            synthetic.write(logdir / "synthetic.pt.trace.json", options.megabytes)
        driver, servers = start_browser(folder / "profile", folder), Servers(outputs)
        try:
            return measure(driver, servers, logdir)
        finally:
            driver.quit()
            servers.stop_all()


def measure(driver: Chrome, servers: Servers, logdir: Path) -> int:
    """Print all figures. Return 1 if one is over its limit."""
    driver.execute_cdp_cmd("Page.enable", {})
    driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": WATCH})
    opened(driver, servers, logdir, "empty cache")
    tab, paint_s = opened(driver, servers, logdir, "second start")
    script_ms = frames(tab)
    heap_mb = heap(driver)
    print(f"load average {os.getloadavg()[0]:.2f}")
    return int(paint_s > LIMIT_PAINT_S or script_ms > LIMIT_SCRIPT_MS or heap_mb > LIMIT_HEAP_MB)


def opened(driver: Chrome, servers: Servers, logdir: Path, what: str) -> tuple[Tab, float]:
    """Return the tab on the timeline of a TensorBoard that has just started, and its time to paint in s."""
    tab = Tab(driver, servers.start(logdir))
    driver.get("about:blank")
    driver.get(f"{tab.url}#torch_compile&p.torch_compile.panel=timeline")
    deadline = time.monotonic() + 300
    tab.enter()
    while not (painted := tab.script("return window.painted_")):
        assert time.monotonic() < deadline, tab.text()
        time.sleep(0.1)
    begun = tab.script("return parent.performance.timeOrigin")
    own = tab.script("return performance.timeOrigin")
    bar = [(at - begun) / 1000 for at, _ in tab.script("return window.progress_ ?? []")]
    progress = f"a progress bar from {bar[0]:.2f} to {bar[-1]:.2f} s, " if bar else ""
    print(
        f"{what:14} {progress}painted after {(painted - begun) / 1000:.2f} s:"
        f" {(own - begun) / 1000:.2f} s of TensorBoard's page, {(painted - own) / 1000:.2f} s of the tab",
        flush=True,
    )
    return tab, (painted - own) / 1000


def frames(tab: Tab) -> float:
    """Hold the keys of the tour. Return the 95th percentile of the script time per frame, ms."""
    canvas = tab.one(CANVAS)
    tab.script("arguments[0].focus()", canvas)
    time.sleep(1)
    tab.script("frames_.length = 0")
    before = _metrics(tab.driver)
    for key, seconds in TOUR:
        ActionChains(tab.driver).key_down(key).pause(seconds).key_up(key).perform()
    after = _metrics(tab.driver)
    times = np.array(tab.script("return frames_"))
    at, script = np.unique(times[:, 0]), times[:, 1]
    script = np.bincount(np.searchsorted(at, times[:, 0]), script)
    between = np.diff(at)
    between = between[between < 500]  # a key was let go
    for name, values in (("script a frame", script), ("frame to frame", between)):
        median, high, most = np.percentile(values, (50, 95, 100))
        print(
            f"{name:14} median {median:6.1f}   p95 {high:6.1f}   most {most:6.1f} ms ({len(values)} frames)"
        )
    every = (after["ScriptDuration"] - before["ScriptDuration"]) * 1000 / len(at)
    print(f"{'all scripts':14} {every:6.1f} ms a frame, decoding and keys included")
    return float(np.percentile(script, 95))


def heap(driver: Chrome) -> float:
    """Return the page's memory after the tour, MB: objects and buffers of answers, TensorBoard's own included."""
    used = driver.execute_cdp_cmd("Runtime.getHeapUsage", {})
    driver.execute_cdp_cmd("HeapProfiler.collectGarbage", {})
    kept = driver.execute_cdp_cmd("Runtime.getHeapUsage", {})
    for name, usage in (("heap", used), ("kept of it", kept)):
        objects, buffers = usage["usedSize"] / 1e6, usage.get("backingStorageSize", 0) / 1e6
        print(f"{name:14} {objects + buffers:6.1f} MB: {objects:.1f} objects, {buffers:.1f} buffers")
    return float(used["usedSize"] + used.get("backingStorageSize", 0)) / 1e6


def _metrics(driver: Chrome) -> dict[str, float]:
    driver.execute_cdp_cmd("Performance.enable", {})
    metrics: list[dict[str, Any]] = driver.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
    return {metric["name"]: metric["value"] for metric in metrics}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trace", nargs="?")
    parser.add_argument("--megabytes", type=float, default=300, help="of the synthetic trace")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
