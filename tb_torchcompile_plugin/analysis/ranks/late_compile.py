"""What a late rank compiled while the others waited: the function, the guard that failed, and whether it did so alone.

From the compile log of that rank: compilations that began between the two collectives before which it came late.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tb_torchcompile_plugin.analysis.recompiles.guard_reasons import FailedGuard
from tb_torchcompile_plugin.analysis.recompiles.recompiles import Recompile, recompiles
from tb_torchcompile_plugin.analysis.words import at_line, plural
from tb_torchcompile_plugin.compile_log.fields import Key, forwards, known_number, known_seconds
from tb_torchcompile_plugin.job.job import Job
from tb_torchcompile_plugin.job.late import late
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.reader.grouped import grouped

_CLOCK_S = 0.01  # by which the log's clock and the trace's may differ


class LateCompile(NamedTuple):
    """The function of a late rank that was compiled longest meanwhile. file, line: of the function; "" and None where
    torch did not tell. times, seconds: how often and how long. guard: the last that failed, None where it was compiled
    for the first time. missed: of how many a cache was asked in vain that had it on another rank. alone: whether no
    other rank compiled these; None where the log of none is here."""

    function: str
    file: str
    line: int | None
    times: int
    seconds: float
    guard: FailedGuard | None
    missed: int
    alone: bool | None

    @property
    def where(self) -> str | None:
        """ "train.py:12" """
        return at_line(self.file.replace("\\\\", "/"), self.line) or None


class _Compiled(NamedTuple):
    key: Key
    function: str
    file: str
    line: int | None
    seconds: float
    guard: FailedGuard | None


def late_compile(job: Job, place: int) -> LateCompile | None:
    """None where its log tells of none."""
    profile = job.ranks[place].profile
    if profile.data is None:
        return None
    rows = [row for begin, end in _windows(job, place) for row in _between(profile.data, begin, end)]
    functions = grouped(dict.fromkeys(rows), lambda row: (row.function, row.file, row.line))
    if not functions:
        return None
    most = max(functions.values(), key=lambda ones: sum(one.seconds for one in ones))
    others = [
        one.profile.data for at, one in enumerate(job.ranks) if at != place and one.profile.data is not None
    ]
    keys = [one.key for one in most]
    return LateCompile(
        function=most[0].function,
        file=most[0].file,
        line=most[0].line,
        times=len(most),
        seconds=sum(one.seconds for one in most),
        guard=next((one.guard for one in reversed(most) if one.guard), None),
        missed=sum(_missed(profile.data, others, key) for key in keys),
        alone=not any(key in forwards(data.summary) for data in others for key in keys) if others else None,
    )


def _windows(job: Job, place: int) -> Iterator[tuple[float, float]]:
    """Between which collectives it came late by compiling, in Unix time (s)."""
    base = job.ranks[place].profile.trace.base_ns
    for one in job.of(late):
        if one.place == place and any(
            blamed.cause == "compile" and ns > 0 for blamed, ns in one.parts.items()
        ):
            yield (one.begin + base) / 1e9 - _CLOCK_S, (one.end + base) / 1e9 + _CLOCK_S


def _between(data: CompileData, begin: float, end: float) -> Iterator[_Compiled]:
    again = {(row.epoch, row.compile_id): row for row in data.of(recompiles)}
    for key, row in forwards(data.summary).items():
        start, seconds = known_seconds(row, "start_ns"), known_seconds(row, "duration_ns")
        if start is not None and begin <= start < end:
            yield _Compiled(
                key, row.function, row.file, known_number(row, "line"), seconds or 0.0, _guard(again.get(key))
            )


def _guard(row: Recompile | None) -> FailedGuard | None:
    return row.guards[0] if row and row.guards else None


def _missed(data: CompileData, others: list[CompileData], key: Key) -> bool:
    """Whether its cache had not what that of another rank had."""
    missed = {one.cache for one in forwards(data.summary)[key].cache if one.result == "miss"}
    return any(
        one.cache in missed and one.result == "hit"
        for other in others
        if key in forwards(other.summary)
        for one in forwards(other.summary)[key].cache
    )


def compiled_words(row: LateCompile) -> str:
    """ " (pooled at uneven.py:19, 2 times, on this rank alone; the guard that failed: …)" """
    said = [f"{row.function or 'a function'}{f' at {row.where}' if row.where else ''}"]
    said += [plural(row.times, "time")] if row.times > 1 else []
    said += ["on this rank alone"] if row.alone else []
    said += ["its cache lookup missed, and another rank's did not"] if row.missed else []
    why = f"; the guard that failed: {row.guard.text}" if row.guard else ""
    return f" ({', '.join(said)}{why})"
