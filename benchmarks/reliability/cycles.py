"""Cycles of the handler in one process, as a training that is profiled now and then for a day has them.

A small compiled model on the CPU; one cycle is a step that warms up and one that is recorded, a trace and a summary.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

_EVERY = 100  # cycles between two looks
_KEPT = 4  # files that stay, for the disk's sake
_FLAT_MB = 1.0  # a thousand cycles


class Look(NamedTuple):
    """The process after so many cycles."""

    cycle: int
    rss_mb: float
    descriptors: int
    threads: int
    summary_bytes: int
    cycle_ms: float


def run(cycles: int, *, stock: bool) -> int:
    """Prints a line now and then, and the slope of the second half. Returns 1 where memory is not flat."""
    with tempfile.TemporaryDirectory(prefix="tb_torchcompile_cycles_") as folder:
        looks = _cycles(Path(folder), cycles, _handler(folder, stock=stock))
    late = looks[len(looks) // 2 :]
    slope = _slope(late)
    print(f"{'torch' if stock else 'this'}: {cycles} cycles, {slope:+.3f} MB per 1,000 of the second half")
    return int(slope > _FLAT_MB)


def _handler(folder: str, *, stock: bool) -> Callable[[Any], None]:
    import torch

    from tb_torchcompile_plugin import tensorboard_trace_handler

    make = torch.profiler.tensorboard_trace_handler if stock else tensorboard_trace_handler
    handler: Callable[[Any], None] = make(folder, "w")
    return handler


def _cycles(folder: Path, cycles: int, handler: Callable[[Any], None]) -> list[Look]:
    import torch

    model = torch.compile(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1)))
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    batch, looks, begun = torch.randn(4, 8), list[Look](), time.monotonic()
    schedule = torch.profiler.schedule(wait=0, warmup=1, active=1)
    with torch.profiler.profile(schedule=schedule, on_trace_ready=handler) as prof:
        for step in range(2 * cycles):
            optimizer.zero_grad()
            model(batch).sum().backward()
            optimizer.step()
            prof.step()
            if (step + 1) % (2 * _EVERY) == 0:
                took_ms = (time.monotonic() - begun) / _EVERY * 1e3
                looks.append(_look(folder, (step + 1) // 2, took_ms))
                begun = time.monotonic()
    return looks


def _look(folder: Path, cycle: int, cycle_ms: float) -> Look:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    files = sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime)
    sizes = [path.stat().st_size for path in files if path.suffix == ".pb"]
    for path in files[:-_KEPT]:
        path.unlink()
    look = Look(
        cycle,
        pages * os.sysconf("SC_PAGE_SIZE") / 1e6,
        len(os.listdir("/proc/self/fd")),
        len(os.listdir("/proc/self/task")),
        sizes[-1] if sizes else 0,
        cycle_ms,
    )
    if cycle % (5 * _EVERY) == 0:
        print(
            f"cycle {look.cycle:>6}: {look.rss_mb:8.1f} MB, {look.descriptors} descriptors, {look.threads} threads, "
            f"summary {look.summary_bytes} bytes, {look.cycle_ms:.1f} ms a cycle",
            flush=True,
        )
    return look


def _slope(looks: list[Look]) -> float:
    """MB per 1,000 cycles, by least squares."""
    cycles = np.array([look.cycle for look in looks], float)
    return float(np.polyfit(cycles, [look.rss_mb for look in looks], 1)[0] * 1000) if len(looks) > 1 else 0.0
