"""The time of a step: without a profiler, by the GPU's clock and the host's."""

from __future__ import annotations

import time
from itertools import pairwise
from statistics import median

import torch

from exam.program import Machine, Step

BLOCKS = 5  # the spread is that of the means of so many parts of the run


def warm_up(step: Step, machine: Machine, seconds: float) -> float:
    """Runs steps for a while; returns how long one takes, in seconds."""
    wait(machine)
    start, steps = time.perf_counter(), 0
    while steps < 2 or time.perf_counter() - start < seconds:
        step()
        steps += 1
        if time.perf_counter() - start < seconds:
            wait(machine)  # a host that runs ahead would not notice that the time is over
    wait(machine)
    return (time.perf_counter() - start) / steps


class Marks:
    """Marks between steps, from when it is made on."""

    def __init__(self, machine: Machine) -> None:
        wait(machine)
        self._machine = machine
        self._on_gpu, self._on_host = [mark(machine)], [time.perf_counter()]

    def add(self) -> int:
        """Marks the end of a step; returns how many there are."""
        self._on_gpu.append(mark(self._machine))
        self._on_host.append(time.perf_counter())
        return len(self._on_host) - 1

    def timing(self) -> dict[str, float]:
        """The µs of a step: by the marks on the GPU's stream, which follow the slower of host and GPU."""
        wait(self._machine)
        steps = len(self._on_host) - 1
        whole = (time.perf_counter() - self._on_host[0]) * 1e6 / steps
        gpu = [microseconds(a, b) for a, b in pairwise(self._on_gpu)]
        host = [(b - a) * 1e6 for a, b in pairwise(self._on_host)]
        blocks = sorted(means(gpu, max(1, steps // BLOCKS)))
        return {
            "step_us": round(median(blocks), 2),
            "low_us": round(blocks[0], 2),
            "high_us": round(blocks[-1], 2),
            "wall_us": round(whole, 2),
            "median_event_us": round(median(gpu), 2),
            "median_host_us": round(median(host), 2),
            "steps": steps,
        }


def timed(step: Step, machine: Machine, steps: int) -> dict[str, float]:
    """Runs so many steps and times them."""
    marks = Marks(machine)
    for _ in range(steps):
        step()
        marks.add()
    return marks.timing()


def means(values: list[float], size: int) -> list[float]:
    parts = [values[i : i + size] for i in range(0, len(values) - size + 1, size)]
    return [sum(part) / len(part) for part in parts]


def wait(machine: Machine) -> None:
    if machine.cuda:
        torch.cuda.synchronize()


def mark(machine: Machine) -> torch.cuda.Event | float:
    if not machine.cuda:
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def microseconds(a: torch.cuda.Event | float, b: torch.cuda.Event | float) -> float:
    if isinstance(a, float) or isinstance(b, float):
        return (float(b) - float(a)) * 1e6  # type: ignore[arg-type]
    return float(a.elapsed_time(b)) * 1e3
