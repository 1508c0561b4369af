"""What a late rank compiled while the others waited: the function, the guard that failed, and whether it did so alone.

From the compile log of that rank: compilations that began between the two collectives before which it came late.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from tb_torchcompile_plugin.analysis.causes.fix_words import WORDS
from tb_torchcompile_plugin.analysis.compile.recompiles import FailedGuard, Recompile, recompiles
from tb_torchcompile_plugin.analysis.formatting import at_line, duration, listed, plural
from tb_torchcompile_plugin.analysis.ranks.job_rows import LateRank, LateReason
from tb_torchcompile_plugin.compile_log.record import Key, forward_compilations, known_number, known_seconds
from tb_torchcompile_plugin.job.digest.host_costs import LateCause
from tb_torchcompile_plugin.job.digest.rank_digest import RankDigest, compiled_of
from tb_torchcompile_plugin.job.job import Job
from tb_torchcompile_plugin.job.late import GPU_CAUSES, Late, late
from tb_torchcompile_plugin.reader.arrays import grouped
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.torch_names.artifacts import title_of_cache
from tb_torchcompile_plugin.torch_names.slices import tuned

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


# What a late rank does beyond its peers, in words, and what to do about it.


_BY_LINE = ("python", "library")
_DOES: dict[str, str] = {
    "nothing": "does nothing that was recorded for {time}",
    "python": "runs Python for {time}{where}",
    "library": "runs Python in {name} for {time}{where}",
    "garbage": "collects garbage for {time}{where}",
    "data_loading": "waits for its next batch for {time}{where}",
    "compile": "compiles for {time}{where}",
    "autotuning": "autotunes {name} for {time}{where}",
    "synchronise": "waits for its GPU in {name} for {time}{where}",
    "memory_copy": "waits for copies ({name}) for {time}{where}",
    "operator": "runs operators for {time} more than its peers ({name}){where}",
    "graph": "takes {time} more in compiled graphs{where}",
    "slower_kernels": "runs the same kernels, and they take {time} longer",
    "more_work": "has {time} more to compute ({name})",
}
_ONE_MATTER = {"autotuning": "compile"}  # who does not compile tunes nothing
_ADVICE: dict[str, str] = {
    "compile": "Recompiles names the guard that failed on this rank: keep what it checks the same on all ranks, or "
    "mark it dynamic; with torch.compiler.config.compile_on_one_rank one rank compiles for all",
    "autotuning": "Let it tune before the loop, in the same mode and with the same shapes as its peers; what it chose "
    "is kept in inductor's cache: TORCHINDUCTOR_CACHE_DIR in a folder that all ranks and the next run share",
    "slower_kernels": "Look at that GPU: another process on it (nvidia-smi, rocm-smi), its power limit, clocks and "
    "temperature",
    "more_work": "Share the work out evenly: batches of the same size, or samples by their length",
    "synchronise": "Let all ranks do the same: without the wait on this one alone",
}
# These say what a rank does; others only in which slices it does it.
SAY_WHAT: tuple[LateCause, ...] = (
    *GPU_CAUSES,
    *("python", "library", "garbage", "data_loading", "compile", "autotuning", "nothing"),
)
_LONGEST = 60
_EVERYBODYS = ("communication", "graph", "label", "launch", "wrappers")  # what all ranks do for each step
_ALONE = 10  # times as long as its peers need for these: as good as nobody else does it
_TIMES = 1.5  # as long as its peers need for the same: less is a host that is slower at everything
_NAMES = 3  # that one sentence holds
_WORTH = 0.05  # of the largest part of one matter, from which on another is told beside it


def telling(row: LateRank) -> list[LateReason]:
    """What the rank does that its peers do not, or much shorter; [] where that is less than half of its excess. Of what
    all of them must do to launch a step, nothing tells but that they do not: a host that is slower."""
    more = [one for one in row.causes if one.excess_us > 0]
    those = [
        one
        for one in more
        if one.usual_us + one.excess_us >= (_ALONE if one.cause in _EVERYBODYS else _TIMES) * one.usual_us
    ]
    return those if 2 * sum(one.excess_us for one in those) >= sum(one.excess_us for one in more) else []


def main_cause(row: LateRank) -> LateReason:
    """The kind of thing that most of the excess is, with its largest names."""
    return main_causes(row)[0]


def main_causes(row: LateRank) -> list[LateReason]:
    """The same, and behind it what belongs to it: tuning to compiling. Most first."""
    matters = grouped(
        telling(row) or row.causes,
        lambda one: (_ONE_MATTER.get(one.cause, one.cause), one.where if one.cause in _BY_LINE else None),
    )
    most = max(matters.values(), key=lambda ones: sum(one.excess_us for one in ones))
    kinds = [_joined(ones) for ones in grouped(most, lambda one: one.cause).values()]
    kinds.sort(key=lambda one: -one.excess_us)
    return [one for one in kinds if one is kinds[0] or one.excess_us >= _WORTH * kinds[0].excess_us]


def _joined(most: list[LateReason]) -> LateReason:
    """Reasons of one kind as one."""
    names = ", ".join(dict.fromkeys(_named(one) for one in most if _named(one)))
    return LateReason(
        most[0].cause,
        ", ".join(names.split(", ")[:_NAMES]),
        next((one.where for one in most if one.where), None),
        sum(one.excess_us for one in most),
        sum(one.usual_us for one in most),
    )


def _named(row: LateReason) -> str:
    """What is tuned, in a few words; else the name."""
    return (tuned(row.name) or "Triton kernels") if row.cause == "autotuning" else row.name


def does(row: LateReason, steps: int) -> str:
    """ "does nothing that was recorded for 20.3 ms a step" """
    time = f"{duration(row.excess_us / max(steps, 1))} a step"
    words = _DOES.get(row.cause, "spends {time} more in {name}{where}")
    return words.format(
        time=time, name=row.name[:_LONGEST] or row.cause, where=f" at {row.where}" if row.where else ""
    )


def all_does(row: LateRank, steps: int) -> str:
    """ "compiles for 6.00 ms a step and autotunes mm for 2.00 ms a step" """
    return " and ".join(does(one, steps) for one in main_causes(row))


def advice(row: LateReason) -> str:
    """What to write instead."""
    known = [words.next_step.format() for kind, words in WORDS.items() if kind == row.cause]
    return _ADVICE.get(row.cause) or next(iter(known), "See its timeline at the beginning of a step")
