"""All ranks of one job, planted or mended: started, watched, and ended together; each in a process of its own."""

import argparse
import ctypes
import multiprocessing
import os
import shutil
import signal
import socket
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

from benchmarks.diagnosis.jobs.catalogue import JOBS
from benchmarks.diagnosis.jobs.job import Job, Rank
from benchmarks.diagnosis.one import record, timed, wait, without_inductor
from benchmarks.diagnosis.program import Step
from benchmarks.diagnosis.suite import Child, Exam, end
from tb_torchcompile_plugin import tensorboard_trace_handler

AFTER_ERROR_S = 4  # what the other ranks have left to say when one has failed
MARGIN_S = 15  # a job ends itself before it is ended


@dataclass(frozen=True)
class Twin:
    """A task of the exam: the process that starts the ranks."""

    name: str
    mended: bool
    ranks: int
    cpu: bool
    quick: bool
    limit: float
    logs: Path
    folder: Path | None

    def __call__(self, ready: Callable[[], None]) -> dict[str, Any]:
        """The times of the slowest rank; see `Child`."""
        end_with_parent()
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)  # of an earlier run
        port = free_port()
        seats = [self._child(number, port) for number in range(self.ranks)]
        try:
            said = answers(seats, self.limit - MARGIN_S)
            if failed := errors(said):
                return {"error": failed}
            ready()
            for seat in seats:
                seat.go()
            said = answers(seats, self.limit - MARGIN_S)
            failed = errors(said)
            return {"error": failed} if failed else slowest(said)
        finally:
            end(seats)

    def _child(self, number: int, port: int) -> Child:
        seat = Seat(self.name, self.mended, number, self.ranks, port, self.cpu, self.quick, self.folder)
        name = f"{self.name}{'_mended' * self.mended}_rank{number}"
        fork, spawn = multiprocessing.get_context("fork"), multiprocessing.get_context("spawn")
        return Child(fork if self.cpu else spawn, name, self.logs / f"{name}.log", seat)


def twins(options: argparse.Namespace, name: str) -> list[Twin]:
    """What is asked of one job: to be timed and recorded, and its twin to be timed."""
    out = options.out
    how = options.ranks, options.cpu, options.quick, options.limit, out / "logs"
    planted = Twin(name, False, *how, out / "jobs" / name)
    after = out / "jobs_mended" / name if options.mended_traces else None
    return [planted] if JOBS[name].healthy else [planted, Twin(name, True, *how, after)]


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def answers(seats: list[Child], seconds: float) -> list[dict[str, Any]]:
    """What each rank says next. When one fails, the others are not waited for long."""
    until, said = time.monotonic() + seconds, dict[int, dict[str, Any]]()
    while len(said) < len(seats) and time.monotonic() < until:
        for number, seat in enumerate(seats):
            if number not in said and seat.has_spoken(0.02):
                said[number] = seat.answer(1)
                if "error" in said[number]:
                    until = min(until, time.monotonic() + AFTER_ERROR_S)
    return [
        said.get(number, {"error": "no answer: hangs, or waits for another"}) for number in range(len(seats))
    ]


def errors(said: list[dict[str, Any]]) -> str:
    return "\n".join(f"rank {rank}: {one['error']}" for rank, one in enumerate(said) if "error" in one)


def slowest(said: list[dict[str, Any]]) -> dict[str, Any]:
    """The answer of the job: the timing of the rank whose steps took longest, and all of them by rank."""
    answer = max(said, key=lambda one: float(one["timing"]["step_us"]))
    by_rank = [one["timing"]["step_us"] for one in said]
    return {**answer, "timing": {**answer["timing"], "by_rank_us": by_rank}}


@dataclass
class JobExam(Exam):
    """Keeps what the ranks found out beside their times."""

    device: str = "cpu"

    def run(self, names: list[str]) -> bool:
        """One job that fails says nothing about the next: always goes on."""
        super().run(names)
        return True

    def _keep(self, job: Any, answer: dict[str, Any]) -> None:
        super()._keep(job, answer)
        self.device = answer.get("device", self.device)
        if notes := answer.get("notes"):
            self.measured[job.name].update(notes)
            self._say(f"{job.name}: {notes}")

    def _name_of_gpu(self) -> str | None:
        return self.device  # asked of a rank: this process forks, and must not start CUDA


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
