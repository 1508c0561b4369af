"""`python -m benchmarks.timeline [TRACE]`: what a timeline of a trace costs the server, from its cache.

Opens the trace (reading it first where it is not in the cache), makes the index, then answers random windows with all
lanes, as the route does: rectangles, bytes, gzip. Windows have lengths from 10 µs to everything, evenly by their
logarithm, and places that are evenly spread. Without a trace it writes a synthetic one.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np
from isal import igzip

from benchmarks import synthetic
from tb_torchcompile_plugin.analysis.timeline.timeline import Timeline, encoded
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.cache.store import is_stored, open_trace

LIMIT_MS, LIMIT_KB = 50, 300
_SHORTEST_NS = 10_000

Value = TypeVar("Value")


def main() -> int:
    """Print the cost of a timeline. Exit status 1 if it is over the limits."""
    options = _options()
    if options.trace is not None:
        return measure(options.trace, options)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "synthetic.pt.trace.json"
        synthetic.write(path, options.megabytes)
        return measure(str(path), options)


def measure(path: str, options: argparse.Namespace) -> int:
    """Print what the timeline of one trace costs. Return 1 if windows cost more than the limits."""
    if not is_stored(path):
        print("reading it for the first time", flush=True)
        open_trace(path)
    trace = _timed("open from the cache", lambda: open_trace(path))
    timeline = _timed(f"index of {len(trace)} slices", lambda: Profile(trace, None).of(Timeline))
    layout = _timed("lanes", timeline.describe)
    _timed("first window", lambda: answer(timeline, layout.home[0], layout.home[1], options.width))
    return windows(timeline, options.windows, options.width)


def windows(timeline: Timeline, count: int, width: int) -> int:
    """Answer `count` random windows, and print what they cost. Return 1 if that is more than the limits."""
    draw = random.Random(1)
    first, last = 0, timeline.duration
    wall, cpu, plain, packed = [], [], [], []
    for _ in range(count):
        length = int(10 ** draw.uniform(np.log10(_SHORTEST_NS), np.log10(last - first)))
        start = draw.randint(first, last - length)
        started, started_cpu = time.perf_counter(), time.process_time()
        raw, small = answer(timeline, start, start + length, width)
        wall.append(1000 * (time.perf_counter() - started))
        cpu.append(1000 * (time.process_time() - started_cpu))
        plain.append(raw / 1000)
        packed.append(small / 1000)
    for name, values, unit in (
        ("wall", wall, "ms"),
        ("CPU", cpu, "ms"),
        ("gzip", packed, "kB"),
        ("plain", plain, "kB"),
    ):
        median, high, most = np.percentile(values, (50, 95, 100))
        print(f"{name:6} median {median:7.1f}   p95 {high:7.1f}   most {most:7.1f} {unit}")
    return int(bool(np.percentile(wall, 95) > LIMIT_MS or np.percentile(plain, 95) > LIMIT_KB))


def answer(timeline: Timeline, start: int, end: int, width: int) -> tuple[int, int]:
    """Return the bytes of the answer, plain and compressed as by the server."""
    body = encoded(timeline.window(start, end, width, range(len(timeline.lanes))), start, end, width)
    return len(body), len(igzip.compress(body, compresslevel=2, mtime=0))


def _timed(name: str, function: Callable[[], Value]) -> Value:
    started, started_cpu = time.perf_counter(), time.process_time()
    value = function()
    wall, cpu = time.perf_counter() - started, time.process_time() - started_cpu
    print(f"{name:32} {wall:6.2f} s {cpu:6.2f} CPU s", flush=True)
    return value


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trace", nargs="?")
    parser.add_argument("--megabytes", type=float, default=300, help="of the synthetic trace")
    parser.add_argument("--windows", type=int, default=200)
    parser.add_argument("--width", type=int, default=2000, help="pixels")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
