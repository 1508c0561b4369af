"""One rank of one job, in a process of its own: built, timed without a profiler, and recorded."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from exam.clock import timed, wait
from exam.jobs.catalogue import JOBS
from exam.jobs.job import Job, Rank
from exam.one import record, without_inductor
from exam.program import Step
from tb_torchcompile_plugin import tensorboard_trace_handler

BUILD_STEPS, WARM_UP_STEPS, QUICK_STEPS = 5, 5, 6
PATIENCE = timedelta(seconds=120)
PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Seat:
    """What the process of one rank does. Every rank runs as many steps as the others."""

    name: str
    mended: bool
    number: int
    size: int
    port: int
    cpu: bool
    quick: bool
    folder: Path | None  # of the recording; None where only the time is wanted

    def __call__(self, ready: Callable[[], None]) -> dict[str, Any]:
        """Builds, times and records; see `Child`."""
        end_with_parent()
        started, job, rank = time.perf_counter(), JOBS[self.name], self._join()
        if self.quick:
            without_inductor()
        handler = self._handler()
        torch.manual_seed(0)
        step = job.build(rank, self.mended)
        together(rank, step, BUILD_STEPS)
        answer: dict[str, Any] = {"setup_s": round(time.perf_counter() - started, 2)}
        ready()
        beside = nullcontext() if self.mended or job.beside is None else job.beside(rank)
        with beside:
            self._measure(job, rank, step, answer)
            if handler is not None:
                record(step, rank, job.recorded, handler)
            together(rank, step, 0)
        return answer

    def _join(self) -> Rank:
        """Makes this process a rank, as torchrun would."""
        names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
        values = (self.number, self.number, self.size, self.size, "127.0.0.1", self.port)
        os.environ.update({name: str(value) for name, value in zip(names, values)})
        device = torch.device("cpu") if self.cpu else torch.device("cuda", self.number)
        if self.cpu:
            dist.init_process_group("gloo", timeout=PATIENCE)
        else:
            torch.cuda.set_device(device)
            dist.init_process_group("nccl", timeout=PATIENCE, device_id=device)
        return Rank(device, self.quick, self.number, self.size)

    def _handler(self) -> Callable[[Any], None] | None:
        """Made before the model is first called, as users are told to do."""
        if self.folder is None:
            return None
        return tensorboard_trace_handler(str(self.folder), f"rank{self.number}")

    def _measure(self, job: Job, rank: Rank, step: Step, answer: dict[str, Any]) -> None:
        together(rank, step, WARM_UP_STEPS)
        answer["timing"] = timed(
            step, rank, min(QUICK_STEPS, job.timed_steps) if self.quick else job.timed_steps
        )
        together(rank, step, 0)
        answer["device"] = torch.cuda.get_device_name() if rank.cuda else "cpu"
        if job.note is not None:
            answer["notes"] = job.note(rank, answer["timing"])


def together(rank: Rank, step: Step, steps: int) -> None:
    """So many steps; no rank goes on before all have done them."""
    for _ in range(steps):
        step()
    wait(rank)
    dist.barrier()
    wait(rank)


def end_with_parent() -> None:
    """A rank that hangs does not outlive who started it."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
