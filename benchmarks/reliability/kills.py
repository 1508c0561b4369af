"""Kill writers at random moments: each file is complete or absent afterwards, and the next start works.

The killed process is a fork of this one, which has imported all that it needs: no kill is wasted on imports.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

import benchmarks  # noqa: F401  # puts the tests' helpers on the path
from benchmarks.reliability.kinds import packed_files
from tb_torchcompile_plugin.analysis.compare.all_runs import CompileLine
from tb_torchcompile_plugin.api.indexing.index import attempt
from tb_torchcompile_plugin.cli.index import plan
from tb_torchcompile_plugin.compile_log.summary import load as load_summary
from tb_torchcompile_plugin.job.digest.file import load as load_digest
from tb_torchcompile_plugin.logdir.discovery import discover
from tb_torchcompile_plugin.logdir.filesystem import File, local_file
from tb_torchcompile_plugin.reader.cache import answers, cache, store
from tb_torchcompile_plugin.reader.cache.answers import AnswerSource
from tb_torchcompile_plugin.reader.trace.kineto import read_trace

_MAX_PRINTED = 5
_SMALL = 150_000  # bytes of a trace
_STEPS = 8
_ENDINGS = (".pt.trace.json", ".pt.trace.json.gz", ".pt.compile.pb", ".pt.digest.pb")


class Subject(Protocol):
    """A program that is killed."""

    def begin(self, folder: Path) -> None:
        """Prepare an empty folder before each kill."""

    def work(self) -> None:
        """Write files, in the process that is killed."""

    def check(self) -> Counter[str]:
        """Count the files. Raises AssertionError if one is incomplete, or the next start fails."""


def run(subjects: Sequence[str], count: int, seed: int) -> int:
    """Print a line for each subject. Return how many kills broke something."""
    makers: dict[str, Callable[[], Subject]] = {"cache": _Cache, "index": _Index, "handler": _Handler}
    return sum(_attack(makers[name](), count, seed) for name in subjects or makers)


def _attack(subject: Subject, count: int, seed: int) -> int:
    left, broken, usual = Counter[str](), list[str](), _usual_s(subject)
    for number in range(seed, seed + count):
        with tempfile.TemporaryDirectory(prefix="tb_torchcompile_kills_") as folder:
            subject.begin(Path(folder))
            killed = _killed(subject.work, random.Random(number).uniform(0, 1.1 * usual))
            left["killed" if killed else "had ended"] += 1
            try:
                left += subject.check()
            except Exception as error:
                broken.append(f"{number}: {type(error).__name__}: {error}")
    name = type(subject).__name__.strip("_").lower()
    counts = ", ".join(f"{number} {kind}" for kind, number in sorted(left.items()))
    print(f"{name:<8}{count:>6} kills within {1.1 * usual:.2f} s: {counts}; {len(broken)} broken", flush=True)
    for line in broken[:_MAX_PRINTED]:
        print(f"    {line}", flush=True)
    return len(broken)


def _usual_s(subject: Subject) -> float:
    """Return how long it takes when it is not killed: the median of five."""
    seconds = []
    for _ in range(5):
        with tempfile.TemporaryDirectory(prefix="tb_torchcompile_kills_") as folder:
            subject.begin(Path(folder))
            started = time.monotonic()
            assert not _killed(subject.work, None), "it fails without being killed"
            seconds.append(time.monotonic() - started)
    return statistics.median(seconds)


def _killed(work: Callable[[], None], after_s: float | None) -> bool:
    """Return whether it was killed; False if it had ended before."""
    if not (pid := os.fork()):
        _child(work)
    if after_s is not None:
        time.sleep(after_s)
        os.kill(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) != 0


def _child(work: Callable[[], None]) -> None:
    status = 1
    with contextlib.suppress(BaseException):
        work()
        status = 0
    os._exit(status)


class _Cache:
    """Parsed traces and answers, in a cache that holds all of them, or one and a half."""

    def __init__(self) -> None:
        self._traces = packed_files(".pt.trace.json", _SMALL)[:3]
        store.WORTH_STORING = 0
        self._number = 0

    def begin(self, folder: Path) -> None:
        self._number += 1
        self._root, self._paths = folder / "cache", [folder / f"{n}.json" for n in range(len(self._traces))]
        for path, data in zip(self._paths, self._traces):
            path.write_bytes(data)
        os.environ["TB_TORCHCOMPILE_CACHE"] = str(self._root)
        os.environ["TB_TORCHCOMPILE_CACHE_MAX_BYTES"] = str(10**9 if self._number % 2 else 300_000)

    def work(self) -> None:
        for path in self._paths:
            store.open_trace(str(path), workers=1)
            for number in range(20):
                answers.save(
                    f"line{number}",
                    CompileLine(None, None, number, 0, 0, 0),
                    AnswerSource((File(str(path), 1, 1),)),
                )

    def check(self) -> Counter[str]:
        left = Counter[str]()
        for entry in self._root.glob("*"):
            if entry.name.startswith(".tmp-"):
                left["temporary"] += 1
            elif entry.name != cache.ANSWERS:
                assert store._load(entry, "") is not None, f"the entry {entry.name} is incomplete"
                left["entries"] += 1
        for path in self._root.glob(f"{cache.ANSWERS}/*.msgpack"):
            *_, line = msgspec.msgpack.decode(path.read_bytes())
            assert msgspec.convert(line, CompileLine), f"the answer {path.name} is incomplete"
            left["answers"] += 1
        self._next_start()
        return left

    def _next_start(self) -> None:
        for path in self._paths:
            assert len(store.open_trace(str(path), workers=1)) == len(read_trace(str(path), workers=1))
        assert not [*self._root.glob(".tmp-*")], "temporary files were not removed"


class _Index:
    """Digests of a job: `tb-torchcompile index`, one trace after another."""

    def __init__(self) -> None:
        self._traces = packed_files(".pt.trace.json", _SMALL)[:3]

    def begin(self, folder: Path) -> None:
        self._folder = folder
        os.environ["TB_TORCHCOMPILE_CACHE_MAX_BYTES"] = "0"
        for number, data in enumerate(self._traces):
            (folder / f"w{number}.1.pt.trace.json").write_bytes(data)

    def work(self) -> None:
        for order in plan(str(self._folder))[0]:
            assert attempt(order).kind in ("written", "there already")

    def check(self) -> Counter[str]:
        left = _complete_files(self._folder)
        self.work()
        assert len([*self._folder.glob("*.pt.digest.pb")]) == len(self._traces)
        return left


class _Handler:
    """Traces and summaries of a profiled training."""

    def __init__(self) -> None:
        import torch._dynamo
        import torch.profiler  # noqa: F401  # so that no kill is wasted on the import

        self._number = 0

    def begin(self, folder: Path) -> None:
        self._folder, self._number = folder / "runs", self._number + 1

    def work(self) -> None:
        import torch

        from tb_torchcompile_plugin import tensorboard_trace_handler

        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # torch's profiler is talkative
        compiled = torch.compile(lambda x: torch.sin(x) + 1, backend="eager")
        handler = tensorboard_trace_handler(str(self._folder), "w", self._number % 2 == 0)
        schedule = torch.profiler.schedule(wait=0, warmup=1, active=1)
        with torch.profiler.profile(schedule=schedule, on_trace_ready=handler) as prof:
            for _ in range(_STEPS):
                compiled(torch.ones(2))
                prof.step()

    def check(self) -> Counter[str]:
        left = _complete_files(self._folder)
        before = left["traces"]
        assert not _killed(self.work, None), "the next start failed"
        again = _complete_files(self._folder)
        assert (
            again["traces"] == before + _STEPS // 2 and again["summaries"] >= left["summaries"] + _STEPS // 2
        )
        runs, notices = discover(str(self._folder))
        assert len(runs) == 1 and not notices
        return left


def _complete_files(folder: Path) -> Counter[str]:
    """Read and count them. Raises AssertionError if one is incomplete."""
    left = Counter[str]()
    for path in folder.glob("*"):
        if path.name.endswith(_ENDINGS[:2]):
            trace = read_trace(str(path), workers=1)
            assert not trace.notices, f"{path.name}: {trace.notices[0]}"
            left["traces"] += 1
        elif path.name.endswith(_ENDINGS[2]):
            load_summary(str(path))
            left["summaries"] += 1
        elif path.name.endswith(_ENDINGS[3]):
            file = local_file(str(path))
            assert file and load_digest(file)
            left["digests"] += 1
        else:
            left["temporary"] += 1
    return left
