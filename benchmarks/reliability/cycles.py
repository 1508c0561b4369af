"""Train with the handler in one process, which must not grow: cycles of the profiler, and the steps between them.

A cycle is a step of a small compiled model that warms up and one that is recorded, a trace and a summary. A steady step
calls a trivial compiled function, the optimizer and a profiler that waits. They run as fast as they can, and each takes
10 ms by the clock that our code notes steps by.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np

_INTERVAL = 100  # cycles between two samples
_FILES_KEPT = 4  # so that the disk does not fill
_FLAT_MB = 1.0  # per 1,000 cycles, or in all steps after the first tenth
_STEP_NS = 10_000_000
_SAMPLES = 20  # of all steps


class Sample(NamedTuple):
    """The process after some cycles."""

    cycle: int
    rss_mb: float


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
    files = sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime)
    sizes = [path.stat().st_size for path in files if path.suffix == ".pb"]
    for path in files[:-_FILES_KEPT]:
        path.unlink()
    what = f"cycle {cycle:>6}" if cycle % (5 * _INTERVAL) == 0 else ""
    more = f"summary {sizes[-1] if sizes else 0} bytes, {cycle_ms:.1f} ms a cycle"
    return Sample(cycle, process_sample(what, more))


def process_sample(what: str, more: str) -> float:
    """Return the memory of this process in MB; print it with its descriptors and threads unless `what` is ""."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    rss_mb = pages * os.sysconf("SC_PAGE_SIZE") / 1e6
    descriptors, threads = (len(os.listdir(f"/proc/self/{kind}")) for kind in ("fd", "task"))
    if what:
        print(f"{what}: {rss_mb:8.1f} MB, {descriptors} descriptors, {threads} threads, {more}", flush=True)
    return rss_mb


def _slope(samples: list[Sample]) -> float:
    """Return MB per 1,000 cycles, by least squares."""
    cycles = np.array([sample.cycle for sample in samples], float)
    return (
        float(np.polyfit(cycles, [sample.rss_mb for sample in samples], 1)[0] * 1000)
        if len(samples) > 1
        else 0.0
    )


def run_steady(steps: int) -> int:
    """Print the memory of the process while it trains. Return 1 if it is not flat, or the steps are not noted right."""
    with tempfile.TemporaryDirectory(prefix="tb_torchcompile_steady_") as folder:
        sampled, noted = _train(Path(folder), steps)
    late = sampled[len(sampled) // 10 :]
    growth = max(late) - late[0]
    print(
        f"{steps:,} steps, {steps * _STEP_NS / 3.6e12:.1f} h of 10 ms each: {growth:+.3f} MB after the first tenth"
    )
    if is_wrong := noted != {_STEP_NS}:
        print(f"the summary has steps of {sorted(noted)} ns")
    return int(growth >= _FLAT_MB or is_wrong)


def _train(folder: Path, steps: int) -> tuple[list[float], set[int]]:
    """Return MB of the process at even distances, and the durations of steps that the summary at the end has."""
    import torch

    from tb_torchcompile_plugin.writer import step_notes
    from tb_torchcompile_plugin.writer.recorder import recorder

    handler = _handler(str(folder), stock=False)
    compiled = torch.compile(lambda x: x + 1, backend="eager")
    optimizer, batch, sampled = torch.optim.SGD([torch.zeros(1)]), torch.ones(1), list[float]()
    now_ns = time.time_ns()
    schedule = torch.profiler.schedule(wait=0, warmup=1, active=3, repeat=1)
    with (
        mock.patch.multiple(step_notes, perf_counter_ns=lambda: now_ns, time_ns=lambda: now_ns),
        torch.profiler.profile(schedule=schedule, on_trace_ready=handler) as prof,
    ):
        used_s, between = time.process_time(), max(1, steps // _SAMPLES)
        for step in range(1, steps + 1):
            compiled(batch)
            optimizer.step()
            now_ns += _STEP_NS
            prof.step()
            if step % between == 0:
                us = (time.process_time() - used_s) / between * 1e6
                sampled.append(process_sample(f"step {step:>9,}", f"{us:.1f} CPU µs a step"))
                used_s = time.process_time()
    return sampled, {*recorder().summary("full").steps.unrecorded_ns}
