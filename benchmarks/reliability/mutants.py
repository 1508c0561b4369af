"""Run thousands of mutants: each is read and analysed in a process with limited memory and time.

A mutant is identified by its number: the same number and kind give the same bytes. One that breaks something is
reported by its number, and does not stop the others.
"""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.reliability import kinds as recordings
from benchmarks.reliability import requested, stored
from benchmarks.reliability.kinds import Check

# What makes the check of each kind, and its share of all mutants: cheap ones have the larger.
KINDS: dict[str, tuple[Callable[[], Check], float]] = {
    "traces": (recordings.traces, 12),
    "events": (recordings.events, 5),
    "logs": (recordings.logs, 10),
    "log_texts": (stored.log_texts, 10),
    "summaries": (recordings.summaries, 15),
    "digests": (recordings.digests, 10),
    "baselines": (stored.baselines, 10),
    "status_files": (stored.status_files, 10),
    "cache_files": (stored.cache_files, 8),
    "requests": (requested.requests, 10),
    "routes": (requested.routes, 0.2),  # each is some 40 requests
}
_BATCH = 200  # mutants per process
_MAX_CPU_S = 60  # per mutant; the load of the machine does not count
_MAX_WALL_S = 900  # per mutant, for one that only waits
_MAX_ADDRESS_SPACE = 3 << 30  # bytes
_MAX_PRINTED = 5


@dataclass
class Outcome:
    """The result of a batch."""

    outcomes: dict[str, int] = field(default_factory=dict)  # how many were read, or refused with a message
    broken: dict[str, str] = field(default_factory=dict)  # the error by number
    peak_mb: float = 0.0
    slowest_s: float = 0.0


def run(kinds: Sequence[str], count: int, seed: int, minutes: float) -> int:
    """Print a line for each kind, which stops after `minutes`. Return how many mutants broke something.

    count: of all these kinds together.
    """
    broken, chosen = 0, [*(kinds or KINDS)]
    shares = sum(KINDS[kind][1] for kind in chosen)
    for kind in chosen:
        until = time.monotonic() + 60 * minutes
        of_kind = Outcome()
        make_check, share = KINDS[kind]
        check, many = make_check(), max(1, round(count * share / shares))
        for first in range(seed, seed + many, _BATCH):
            _add(of_kind, _in_child(check, range(first, min(first + _BATCH, seed + many))))
            if time.monotonic() > until:
                break
        _print(kind, of_kind)
        broken += len(of_kind.broken)
    return broken


def _print(kind: str, of_kind: Outcome) -> None:
    count = sum(of_kind.outcomes.values()) + len(of_kind.broken)
    outcomes = ", ".join(f"{number:,} {name}" for name, number in sorted(of_kind.outcomes.items()))
    cost = f"at most {of_kind.peak_mb:.0f} MB, {of_kind.slowest_s:.1f} CPU s for one"
    print(f"{kind:<13}{count:>8,} mutants: {outcomes}; {len(of_kind.broken)} broken; {cost}", flush=True)
    for number, why in list(of_kind.broken.items())[:_MAX_PRINTED]:
        print(f"    {number}: {why}", flush=True)


def _add(whole: Outcome, part: Outcome) -> None:
    whole.outcomes = dict(Counter(whole.outcomes) + Counter(part.outcomes))
    whole.broken |= part.broken
    whole.peak_mb, whole.slowest_s = max(whole.peak_mb, part.peak_mb), max(whole.slowest_s, part.slowest_s)


def _in_child(check: Check, numbers: range) -> Outcome:
    """Run mutants in a child. If it ends early, for any reason, its current mutant has broken it."""
    reader, writer = os.pipe()
    if not (pid := os.fork()):
        os.close(reader)
        _child(check, numbers, writer)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        lines = pipe.read().splitlines()
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if status == 0:
        return Outcome(**json.loads(lines[-1]))
    number = int(lines[-1])
    rest = _in_child(check, range(number + 1, numbers.stop)) if number + 1 < numbers.stop else Outcome()
    rest.broken[str(number)] = f"ended the process: {status}"
    return rest


def _child(check: Check, numbers: range, writer: int) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_MAX_ADDRESS_SPACE, _MAX_ADDRESS_SPACE))
    outcome, counts = Outcome(), Counter[str]()
    with os.fdopen(writer, "w", buffering=1) as pipe, tempfile.TemporaryDirectory() as folder:
        os.environ["TB_TORCHCOMPILE_CACHE"] = f"{folder}.cache"
        for number in numbers:
            print(number, file=pipe)
            started = time.process_time()
            try:
                with _limited():
                    counts[check(Path(folder), random.Random(number))] += 1
            except BaseException as error:
                outcome.broken[str(number)] = _one_line(error)
            outcome.slowest_s = max(outcome.slowest_s, time.process_time() - started)
        outcome.outcomes = dict(counts)
        outcome.peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
        print(json.dumps(asdict(outcome)), file=pipe)
    os._exit(0)


@contextmanager
def _limited() -> Iterator[None]:
    """Raise TimeoutError where the limit is reached; the process ends if that is ignored."""
    limits = {signal.ITIMER_PROF: _MAX_CPU_S, signal.ITIMER_REAL: _MAX_WALL_S}
    for number in (signal.SIGPROF, signal.SIGALRM):
        signal.signal(number, _too_long)
    for clock, seconds in limits.items():
        signal.setitimer(clock, seconds, seconds)
    try:
        yield
    finally:
        for clock in limits:
            signal.setitimer(clock, 0)


def _too_long(number: int, _: Any) -> None:
    raise TimeoutError(
        f"more than {_MAX_CPU_S} CPU s" if number == signal.SIGPROF else f"more than {_MAX_WALL_S} s"
    )


def _one_line(error: BaseException) -> str:
    place, trace = "", error.__traceback__
    while trace is not None:
        place, trace = f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}", trace.tb_next
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]} ({place})"
