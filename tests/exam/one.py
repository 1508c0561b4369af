"""One program, in a process of its own: built, timed without a profiler, and recorded."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, schedule

from exam.clock import timed, wait, warm_up
from exam.program import Machine, Program, Recorded, Step
from exam.programs import PROGRAMS
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
    activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * machine.cuda
    options: dict[str, Any] = {
        "activities": activities,
        "record_shapes": how.shapes,
        "with_stack": how.stacks,
    }
    if how.marked:
        cycle = schedule(wait=3, warmup=2, active=how.steps, repeat=1)
        with profile(schedule=cycle, on_trace_ready=handler, **options) as profiler:
            for _ in range(3 + 2 + how.steps + 2):
                step()
                profiler.step()
    else:
        with profile(on_trace_ready=handler, **options):
            for _ in range(how.steps):
                step()
    wait(machine)
