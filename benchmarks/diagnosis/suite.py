"""Runs programs in batches and keeps what was measured."""

from __future__ import annotations

import json
import multiprocessing
import os
import platform
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.context import ForkContext, SpawnContext
from pathlib import Path
from typing import Any, Protocol

import torch
import torch._dynamo
import torch._inductor.compile_fx
import torch.profiler

from benchmarks.diagnosis.program import Program

BAD_FORK = "Cannot re-initialize CUDA in forked subprocess"


class Task(Protocol):
    """The work of one process: a program, or its mended twin."""

    @property
    def name(self) -> str: ...

    @property
    def mended(self) -> bool: ...

    def __call__(self, ready: Callable[[], None]) -> dict[str, Any]: ...


@dataclass
class Exam:
    """What was asked for, and the answers so far. `rows`: what the programs say of themselves, by name."""

    out: Path
    start: str
    cpu: bool
    limit: float
    rows: Mapping[str, dict[str, Any]]
    tasks: Callable[[str], Sequence[Task]]
    measured: dict[str, dict[str, Any]] = field(default_factory=dict)
    begun: float = field(default_factory=time.monotonic)

    def run(self, names: list[str]) -> bool:
        """Builds the programs side by side, then times and records one after the other. Whether any ran."""
        children = {job: self._child(job) for name in names for job in self.tasks(name)}
        ready = [(job, child, child.answer(self.limit)) for job, child in children.items()]
        if self.start == "fork" and any(BAD_FORK in answer.get("error", "") for *_, answer in ready):
            print("CUDA does not start in forked processes: each starts Python anew", flush=True)
            end(children.values())
            self.start = "spawn"
            return self.run(names)
        self._say(f"built {len(ready)}")
        try:
            for job, child, answer in ready:
                if "ready" in answer:
                    child.go()
                    answer = child.answer(self.limit)
                self._keep(job, answer)
        finally:
            end(children.values())
        self._say("timed " + " ".join(names))
        self.write()
        return any("planted" in self.measured[name] for name in names)

    def left_out(self, names: Iterable[str]) -> None:
        for name in names:
            self.measured[name] = {**self.rows[name], "errors": ["out of time"]}

    def write(self) -> None:
        """`measured.json`: the machine, and each program with its times."""
        document = {"machine": self._machine(), "programs": list(self.measured.values())}
        self.out.mkdir(parents=True, exist_ok=True)
        (self.out / "measured.json").write_text(json.dumps(document, indent=1) + "\n")

    def summed_up(self) -> str:
        failed = [row["name"] for row in self.measured.values() if "errors" in row]
        return f"{len(self.measured)} programs, {len(failed)} failed: {' '.join(failed)}"

    def _child(self, job: Task) -> Child:
        name = job.name + ("_mended" if job.mended else "")
        context = multiprocessing.get_context(self.start)
        return Child(context, name, self.out / "logs" / f"{name}.log", job)  # type: ignore[arg-type]  # `start` names a context that starts processes

    def _keep(self, job: Task, answer: dict[str, Any]) -> None:
        row = self.measured.setdefault(job.name, dict(self.rows[job.name]))
        twin = "mended" if job.mended else "planted"
        if "error" in answer:
            row.setdefault("errors", []).append(f"{twin}: {answer['error']}")
            self._say(f"FAILED {job.name} {twin}: {answer['error'][-600:]}")
            return
        timing = answer.get("timing", {})
        row[twin] = {**timing, "setup_s": answer["setup_s"]}
        if timing:
            row[f"{twin}_us"] = timing["step_us"]
        self._say(f"{job.name} {twin}: {timing.get('step_us', '–')} µs")

    def _machine(self) -> dict[str, str | None]:
        versions = {"torch": torch.__version__, "cuda": torch.version.cuda}
        return {"device": self._name_of_gpu() or "cpu", "python": platform.python_version(), **versions}

    def _name_of_gpu(self) -> str | None:
        # Asked only now: processes forked after CUDA has started cannot use it.
        return None if self.cpu else torch.cuda.get_device_name()

    def _say(self, text: str) -> None:
        print(f"{time.monotonic() - self.begun:6.1f} s  {text}", flush=True)


def described(program: Program) -> dict[str, Any]:
    """What the program says of itself, for `measured.json`."""
    return {
        "name": program.name,
        "family": program.family,
        "healthy": program.healthy,
        "blind": "blind" in program.build.__module__.split("."),
        "cause": program.cause,
        "also": list(program.also),
        "line": program.line,
        "mending": program.mending,
        "recorded": vars(program.recorded),
    }


def end(children: Iterable[Child]) -> None:
    for child in children:
        child.end()


Work = Callable[[Callable[[], None]], dict[str, Any]]  # calls its argument when it is ready


class Child:
    """One running piece of work. Its output goes to a log file."""

    def __init__(self, context: ForkContext | SpawnContext, name: str, log: Path, work: Work) -> None:
        self.name, self.log = name, log
        self._pipe, other = context.Pipe()
        self._process = context.Process(target=_child, args=(other, log, work), name=name)
        self._process.start()
        other.close()

    def answer(self, seconds: float) -> dict[str, Any]:
        """What it says next: {"ready": True}, its result, or {"error": text}. Ended when it takes longer."""
        try:
            if self._pipe.poll(seconds):
                return dict(self._pipe.recv())
            self.end()
            return {"error": f"no answer in {seconds:.0f} s"}
        except (EOFError, OSError):
            self.end()
            return {"error": f"ended with status {self._process.exitcode}: {self._last_words()}"}

    def has_spoken(self, seconds: float) -> bool:
        """Whether an answer comes within so many seconds."""
        return self._pipe.poll(seconds)

    def go(self) -> None:
        self._pipe.send("go")

    def end(self) -> None:
        """Ends it, if need be by force, and waits for it."""
        self._process.join(5)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    def _last_words(self) -> str:
        return self.log.read_text(errors="replace")[-800:] if self.log.exists() else ""


def _child(pipe: Connection, log: Path, work: Work) -> None:
    _redirect(log)

    def ready() -> None:
        pipe.send({"ready": True})
        pipe.recv()

    try:
        answer = work(ready)
    except BaseException:
        answer = {"error": traceback.format_exc()[-3000:]}
    pipe.send(answer)
    pipe.close()
    sys.stdout.flush()
    os._exit(0)  # workers of data loaders and threads of libraries do not hold it up


def _redirect(log: Path) -> None:
    log.parent.mkdir(parents=True, exist_ok=True)
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(file, 1)
    os.dup2(file, 2)
