"""All ranks of one job, planted or mended: started, watched, and ended together."""

from __future__ import annotations

import argparse
import multiprocessing
import shutil
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from exam.child import Child
from exam.exam import Exam, end
from exam.jobs.catalogue import JOBS
from exam.jobs.seat import Seat, end_with_parent

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
        context = multiprocessing.get_context("fork" if self.cpu else "spawn")  # torch may have started CUDA
        return Child(context, name, self.logs / f"{name}.log", seat)


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
