"""A job of the exam: a program of several ranks, one planted cause, and a twin without it."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from benchmarks.diagnosis.program import PLAIN, Machine, Recorded, Step, planted_line

Build = Callable[["Rank", bool], Step]
Beside = Callable[["Rank"], AbstractContextManager[object]]


@dataclass(frozen=True)
class Rank(Machine):
    """One rank of a job, and where it runs."""

    number: int = 0
    size: int = 1


@dataclass(frozen=True)
class Job:
    """`build(rank, mended)` runs on every rank, and returns what one step of its loop does."""

    name: str
    family: str
    parallel: str  # ddp, fsdp2, tp; "" for none
    cause: str  # "" where nothing is wrong
    mending: str
    build: Build
    late_rank: int | None = None  # who makes the others wait; None: nobody, or each in turn
    recorded: Recorded = PLAIN
    timed_steps: int = 30
    beside: Beside | None = None  # what runs while the planted one is timed and recorded
    note: Callable[[Rank, dict[str, float]], dict[str, float]] | None = (
        None  # more to measure, from the timing
    )

    @property
    def healthy(self) -> bool:
        return not self.cause

    def described(self, backend: str, ranks: int) -> dict[str, Any]:
        """What the job says of itself, for `measured.json`."""
        said = ("name", "family", "parallel", "healthy", "cause", "mending", "late_rank")
        return {
            **{word: getattr(self, word) for word in said},
            "line": planted_line(self.name, self.build),
            "recorded": vars(self.recorded),
            "backend": backend,
            "ranks": ranks,
        }


JOBS: dict[str, Job] = {}


def job(family: str, parallel: str, cause: str, *, mending: str = "", **how: Any) -> Callable[[Build], Build]:
    """Registers the decorated function under its own name."""

    def register(build: Build) -> Build:
        name: str = build.__name__
        JOBS[name] = Job(name, family, parallel, cause, mending, build, **how)
        return build

    return register
