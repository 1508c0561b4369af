"""One program, in a process of its own: built, timed without a profiler, and recorded."""

import argparse
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, schedule

from benchmarks.diagnosis.program import Machine, Program, Recorded, Step
from benchmarks.diagnosis.programs import PROGRAMS
from tb_torchcompile_plugin import tensorboard_trace_handler

WARM_UP_STEPS = 5
WARM_UP_SECONDS = 0.25
TIMED_SECONDS = 1.2
FEWEST, MOST = 20, 60
FEWEST_SLOW, SLOW = 8, 0.25  # steps of more than a quarter of a second: eight are enough


@dataclass(frozen=True)
class Job:
    """What one process does."""

    name: str
    mended: bool
    device: str
    quick: bool
    folder: Path | None  # of the recording; None where only the time is wanted

    def __call__(self, ready: Callable[[], None]) -> dict[str, Any]:
        """Times and records the program; see `Child`."""
        program, machine = PROGRAMS[self.name], Machine(torch.device(self.device), self.quick)
        os.environ.update({} if self.mended else program.environment)
        if self.quick:
            without_inductor()
        handler = self._handler(program)
        started = time.perf_counter()
        step = program.build(machine, self.mended)
        for _ in range(WARM_UP_STEPS):
            step()
        wait(machine)
        answer: dict[str, Any] = {"setup_s": round(time.perf_counter() - started, 2)}
        ready()
        seconds = warm_up(step, machine, 0 if self.quick else WARM_UP_SECONDS)
        answer["timing"] = timed(step, machine, 5 if self.quick else steps_for(seconds))
        if handler is not None:
            record(step, machine, program.recorded, handler)
        return answer

    def _handler(self, program: Program) -> Callable[[Any], None] | None:
        """Made before the model is first called, as users are told to do."""
        if self.folder is None:
            return None
        stock = torch.profiler.tensorboard_trace_handler
        make = stock if program.recorded.stock else tensorboard_trace_handler
        handler: Callable[[Any], None] = make(str(self.folder), self.name)
        return handler


def jobs(options: argparse.Namespace, name: str) -> list[Job]:
    """What is asked of one program: to be timed and recorded, and its twin to be timed."""
    out, device = options.out, "cpu" if options.cpu else "cuda"
    planted = Job(name, False, device, options.quick, out / "planted" / name)
    after = out / "mended" / name if options.mended_traces else None
    return [planted] if PROGRAMS[name].healthy else [planted, Job(name, True, device, options.quick, after)]


def without_inductor() -> None:
    """Dynamo and AOTAutograd alone: what remains can be compiled in milliseconds."""
    real: Any = torch.compile

    def quick(model: Any = None, *, mode: str | None = None, **options: Any) -> Any:
        if model is None:
            return partial(quick, **options)
        return real(model, **{**options, "backend": "aot_eager"})

    torch.compile = quick


def steps_for(seconds: float) -> int:
    """How many steps to time where one takes so long."""
    if seconds > SLOW:
        return FEWEST_SLOW
    return int(min(MOST, max(FEWEST, TIMED_SECONDS / max(seconds, 1e-6))))


def record(step: Step, machine: Machine, how: Recorded, handler: Callable[[Any], None]) -> None:
    """Profiles a few steps in the middle of a loop."""
    with profiler(machine, how, handler, wait=3) as recording:
        for _ in range(3 + 2 + how.steps + 2 if how.marked else how.steps):
            step()
            if how.marked:
                recording.step()
    wait(machine)


def profiler(machine: Machine, how: Recorded, handler: Callable[[Any], None], wait: int) -> profile:
    """One that waits for so many marked steps, warms up for two and records the rest."""
    return profile(
        activities=[ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * machine.cuda,
        schedule=schedule(wait=wait, warmup=2, active=how.steps, repeat=1) if how.marked else None,
        on_trace_ready=handler,
        record_shapes=how.shapes,
        with_stack=how.stacks,
    )


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
        return (float(b) - float(a)) * 1e6  # type: ignore[arg-type]  # both are floats if one is
    return float(a.elapsed_time(b)) * 1e3
