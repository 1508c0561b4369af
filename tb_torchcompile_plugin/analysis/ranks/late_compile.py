"""What a late rank compiled while the others waited: the function, the guard that failed, and whether it did so alone.

From the compile log of that rank: compilations that began between the two collectives before which it came late.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from tb_torchcompile_plugin.analysis.recompiles.guard_reasons import FailedGuard
from tb_torchcompile_plugin.analysis.recompiles.recompiles import Recompile, recompiles
from tb_torchcompile_plugin.analysis.words import at_line, listed, plural
from tb_torchcompile_plugin.compile_log.record import Key, forward_compilations, known_number, known_seconds
from tb_torchcompile_plugin.job.digest.host_costs import LateCause
from tb_torchcompile_plugin.job.digest.rank_digest import RankDigest, compiled_of
from tb_torchcompile_plugin.job.job import Job
from tb_torchcompile_plugin.job.late import Late, late
from tb_torchcompile_plugin.reader.arrays import grouped
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.torch_names.artifacts import title_of_cache

COMPILING: tuple[LateCause, ...] = ("compile", "autotuning")
_CLOCK_S = 0.01  # by which the log's clock and the trace's may differ


class Missed(NamedTuple):
    """A cache, by torch's name, which had for these ranks what it had not for the late one."""

    cache: str
    ranks: list[int]


class LateCompile(NamedTuple):
    """The function of a late rank that was compiled longest meanwhile. file, line: of the function; "" and None where
    torch did not tell. times, seconds: how often and how long. guard: the last that failed, None where it was compiled
    for the first time. missed: the cache that was asked in vain, None for none. alone: whether no other rank compiled
    these; None where the log of none is here."""

    function: str
    file: str
    line: int | None
    times: int
    seconds: float
    guard: FailedGuard | None
    missed: Missed | None
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
    """Where this rank came last; None where its log tells of no compilation."""
    return compiled_in(job, place, job.of(late))


def compiled_in(job: Job, place: int, ones: Iterable[Late]) -> LateCompile | None:
    """The same of any collectives at which it is known why it was late."""
    data = job.digests[place].of(_compile_data)
    if data is None:
        return None
    rows = [row for begin, end in _windows(job, place, ones) for row in _between(data, begin, end)]
    functions = grouped(dict.fromkeys(rows), lambda row: (row.function, row.file, row.line))
    if not functions:
        return None
    most = max(functions.values(), key=lambda ones: sum(one.seconds for one in ones))
    keys = [one.key for one in most]
    mine = job.digests[place].of(lookups_of)
    others = {
        one.rank: {key: cache for key, cache in known.items() if key in keys}
        for at, one in enumerate(job.digests)
        if at != place and (known := one.of(lookups_of)) is not None
    }
    return LateCompile(
        function=most[0].function,
        file=most[0].file,
        line=most[0].line,
        times=len(most),
        seconds=sum(one.seconds for one in most),
        guard=next((one.guard for one in reversed(most) if one.guard), None),
        missed=_missed(mine or {}, others, keys),
        alone=not any(others.values()) if others else None,
    )


def _compile_data(one: RankDigest) -> CompileData | None:
    """As far as a job asks of it."""
    summary = one.of(compiled_of)
    return CompileData(summary, "summary", one.worker) if summary else None


Lookups = Mapping[Key, Sequence[tuple[str, str]]]


def lookups_of(one: RankDigest) -> Lookups | None:
    """By compilation which cache was asked and what came of it; None where no compile data is there."""
    compiled = compiled_of(one)  # of thousands of ranks none is kept whole
    if compiled is None:
        return None
    return {
        key: tuple((asked.cache, asked.result) for asked in row.cache)
        for key, row in forward_compilations(compiled).items()
    }


def _windows(job: Job, place: int, ones: Iterable[Late]) -> Iterator[tuple[float, float]]:
    """Between which collectives it came late by compiling, in Unix time (s)."""
    base = job.digests[place].base_ns
    for one in ones:
        if one.place == place and any(
            blamed.cause in COMPILING and ns > 0 for blamed, ns in one.parts.items()
        ):
            yield (one.begin + base) / 1e9 - _CLOCK_S, (one.end + base) / 1e9 + _CLOCK_S


def _between(data: CompileData, begin: float, end: float) -> Iterator[_Compiled]:
    again = {(row.epoch, row.compile_id): row for row in data.of(recompiles)}
    for key, row in forward_compilations(data.summary).items():
        start, seconds = known_seconds(row, "start_ns"), known_seconds(row, "duration_ns")
        if start is not None and begin <= start < end:
            yield _Compiled(
                key, row.function, row.file, known_number(row, "line"), seconds or 0.0, _guard(again.get(key))
            )


def _guard(row: Recompile | None) -> FailedGuard | None:
    return row.guards[0] if row and row.guards else None


def _missed(mine: Lookups, others: Mapping[int, Lookups], keys: Iterable[Key]) -> Missed | None:
    """The first cache that had not what it had for another rank."""
    for key in keys:
        for cache in (cache for cache, result in mine.get(key, ()) if result == "miss"):
            ranks = [rank for rank, known in others.items() if (cache, "hit") in known.get(key, ())]
            if ranks:
                return Missed(cache, ranks)
    return None


def compiled_words(row: LateCompile, rank: int) -> str:
    """Of the late rank: " (pooled at uneven.py:19, 2 times, on this rank alone; the guard that failed: …)" """
    said = [f"{row.function or 'a function'}{f' at {row.where}' if row.where else ''}"]
    said += [plural(row.times, "time")] if row.times > 1 else []
    said += ["on this rank alone"] if row.alone else []
    said += [_missed_words(row.missed, rank)] if row.missed else []
    why = f"; the guard that failed: {row.guard.text}" if row.guard else ""
    return f" ({', '.join(said)}{why})"


def _missed_words(missed: Missed, rank: int) -> str:
    whose = f"rank{'s' if len(missed.ranks) > 1 else ''} {listed(missed.ranks)}"
    return f"rank {rank} missed the {title_of_cache(missed.cache)} that {whose} hit"
