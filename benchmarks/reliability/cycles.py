"""Run cycles of the handler in one process: as many as a training that is profiled now and then for a day.

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

_INTERVAL = 100  # cycles between two samples
_FILES_KEPT = 4  # so that the disk does not fill
_FLAT_MB = 1.0  # per 1,000 cycles


class Sample(NamedTuple):
    """The process after some cycles."""

    cycle: int
    rss_mb: float
    descriptors: int
    threads: int
    summary_bytes: int
    cycle_ms: float


def run(cycles: int, *, stock: bool) -> int:
    """Print a line every 500 cycles, and the slope of the second half. Return 1 if memory is not flat."""
    with tempfile.TemporaryDirectory(prefix="tb_torchcompile_cycles_") as folder:
        samples = _cycles(Path(folder), cycles, _handler(folder, stock=stock))
    late = samples[len(samples) // 2 :]
    slope = _slope(late)
    print(f"{'torch' if stock else 'this'}: {cycles} cycles, {slope:+.3f} MB per 1,000 of the second half")
    return int(slope > _FLAT_MB)


def _handler(folder: str, *, stock: bool) -> Callable[[Any], None]:
    import torch

    from tb_torchcompile_plugin import tensorboard_trace_handler

    make = torch.profiler.tensorboard_trace_handler if stock else tensorboard_trace_handler
    handler: Callable[[Any], None] = make(folder, "w")
    return handler


def _cycles(folder: Path, cycles: int, handler: Callable[[Any], None]) -> list[Sample]:
    import torch

    model = torch.compile(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1)))
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    batch, samples, started = torch.randn(4, 8), list[Sample](), time.monotonic()
    schedule = torch.profiler.schedule(wait=0, warmup=1, active=1)
    with torch.profiler.profile(schedule=schedule, on_trace_ready=handler) as prof:
        for step in range(2 * cycles):
            optimizer.zero_grad()
            model(batch).sum().backward()
            optimizer.step()
            prof.step()
            if (step + 1) % (2 * _INTERVAL) == 0:
                took_ms = (time.monotonic() - started) / _INTERVAL * 1e3
                samples.append(_sample(folder, (step + 1) // 2, took_ms))
                started = time.monotonic()
    return samples


def _sample(folder: Path, cycle: int, cycle_ms: float) -> Sample:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    files = sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime)
    sizes = [path.stat().st_size for path in files if path.suffix == ".pb"]
    for path in files[:-_FILES_KEPT]:
        path.unlink()
    sample = Sample(
        cycle,
        pages * os.sysconf("SC_PAGE_SIZE") / 1e6,
        len(os.listdir("/proc/self/fd")),
        len(os.listdir("/proc/self/task")),
        sizes[-1] if sizes else 0,
        cycle_ms,
    )
    if cycle % (5 * _INTERVAL) == 0:
        print(
            f"cycle {sample.cycle:>6}: {sample.rss_mb:8.1f} MB, {sample.descriptors} descriptors, "
            f"{sample.threads} threads, summary {sample.summary_bytes} bytes, {sample.cycle_ms:.1f} ms a cycle",
            flush=True,
        )
    return sample


def _slope(samples: list[Sample]) -> float:
    """Return MB per 1,000 cycles, by least squares."""
    cycles = np.array([sample.cycle for sample in samples], float)
    return (
        float(np.polyfit(cycles, [sample.rss_mb for sample in samples], 1)[0] * 1000)
        if len(samples) > 1
        else 0.0
    )
