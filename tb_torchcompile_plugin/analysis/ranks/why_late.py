"""What does a late rank do that its peers do not, and what did it compile while the others waited?

Compilations are read from the compile log of that rank: those that began between the two collectives before which it
was late.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from tb_torchcompile_plugin.analysis.causes import compiling, host, registry
from tb_torchcompile_plugin.analysis.causes.cause import Cause, split_code
from tb_torchcompile_plugin.analysis.compile.recompiles import FailedGuard, recompiles
from tb_torchcompile_plugin.analysis.formatting import at_line, duration, listed_numbers, plural
from tb_torchcompile_plugin.analysis.ranks.job_rows import LateRank, LateReason
from tb_torchcompile_plugin.analysis.thresholds import MAX_NAME_CHARS, MAX_NAMES
from tb_torchcompile_plugin.compile_log.record import (
    Key,
    forward_compilations,
    optional_number,
    optional_seconds,
)
from tb_torchcompile_plugin.job.digest.rank_digest import RankDigest, compiled_of
from tb_torchcompile_plugin.job.job import Job
from tb_torchcompile_plugin.job.late import Late
from tb_torchcompile_plugin.profile.model.attribution import HostCauseKind
from tb_torchcompile_plugin.reader.arrays import grouped
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.torch_names.artifacts import title_of_cache
from tb_torchcompile_plugin.torch_names.slices import tuned_operator_of_slice

COMPILING: tuple[HostCauseKind, ...] = ("compile", "autotuning")
SEE_TIMELINE = "See the beginning of a step on the timeline of this rank"
_CLOCK_S = 0.01  # by which the clocks of the log and the trace may differ

# Limits of what is worth a word; chosen by eye on the recordings.
_MIN_RATIO = 1.5  # to the time of the peers; below it, the host is slower at everything
_MIN_RATIO_OF_ALL = 10  # the same for what all ranks do in each step
_MIN_SHARE = 0.05  # of the largest part of a matter, for another part to be mentioned


class LateKind(NamedTuple):
    """What a rank may do more of than its peers, in words."""

    does: str = "spends an extra {time} in {name}{where}"
    advice: str = ""  # "": that of the cause in a single rank
    explains: bool = True  # it says what a rank does, and not only in which slices
    is_by_line: bool = False  # each line is a matter of its own
    is_of_all: bool = False  # all ranks do it in each step
    hides: tuple[type[Cause], ...] = ()  # causes that show the same matter on the late rank


_SLICES = LateKind(explains=False)
_SLICES_OF_ALL = _SLICES._replace(is_of_all=True)
_KINDS: dict[HostCauseKind, LateKind] = {
    "nothing": LateKind("has {time} unaccounted for{where}"),
    "python": LateKind("runs Python for {time}{where}", is_by_line=True),
    "library": LateKind("runs Python in {name} for {time}{where}", is_by_line=True),
    "garbage": LateKind("collects garbage for {time}{where}", hides=(host.Garbage,)),
    "data_loading": LateKind("waits for its next batch for {time}{where}"),
    "compile": LateKind(
        "compiles for {time}{where}",
        "The Recompiles panel shows the guard that failed on this rank. Keep the value that it checks the same on all "
        "ranks, or mark it dynamic. With torch.compiler.config.compile_on_one_rank, one rank compiles for all",
        hides=(compiling.Recompiles, compiling.CompileInSteps, compiling.AutotuneInSteps),
    ),
    "autotuning": LateKind(
        "autotunes {name} for {time}{where}",
        "Autotune before the loop, in the same mode and with the same shapes as the other ranks. Inductor's cache "
        "keeps the results: set TORCHINDUCTOR_CACHE_DIR to a folder that all ranks and the next run share",
        hides=(compiling.Recompiles, compiling.CompileInSteps, compiling.AutotuneInSteps),
    ),
    "synchronise": LateKind(
        "waits for its GPU in {name} for {time}{where}",
        "Remove the wait that only this rank has",
        explains=False,
    ),
    "memory_copy": LateKind("waits for copies ({name}) for {time}{where}", explains=False),
    "operator": LateKind("runs operators for an extra {time} ({name}){where}", explains=False),
    "graph": _SLICES_OF_ALL._replace(does="spends an extra {time} in compiled graphs{where}"),
    "communication": _SLICES_OF_ALL,
    "label": _SLICES_OF_ALL,
    "launch": _SLICES_OF_ALL,
    "wrappers": _SLICES_OF_ALL,
    "slower_kernels": LateKind(
        "runs the same kernels, which take {time} longer",
        "Check this GPU (nvidia-smi, rocm-smi): other processes, power limit, clocks and temperature",
    ),
    "more_work": LateKind(
        "computes for an extra {time} ({name})",
        "Balance the work: use batches of the same size, or group samples by length",
    ),
}


def kind_of(reason: LateReason) -> LateKind:
    """Return how to put a reason into words."""
    return _KINDS.get(reason.cause, _SLICES)


class LateCompile(NamedTuple):
    """The function that a late rank compiled longest while the others waited."""

    function: str
    where: str | None  # "train.py:12"
    times: int
    seconds: float
    guard: FailedGuard | None  # the last that failed; None for first compilations
    missed: tuple[str, list[int]] | None  # a cache by torch's name, and the ranks where it hit
    alone: bool | None  # whether no other rank compiled these; None where no other compile log was recorded


Lookups = Mapping[Key, Sequence[tuple[str, str]]]  # (cache, result) of each compilation


def compiled_before(job: Job, index: int, lates: Iterable[Late]) -> LateCompile | None:
    """Return what a rank compiled before these collectives; None without a compilation."""
    data = job.digests[index].of(_compile_data)
    if data is None:
        return None
    compiled = forward_compilations(data.summary)
    windows = list(_windows(job, index, lates))
    starts = {key: optional_seconds(row, "start_ns") for key, row in compiled.items()}
    keys = [key for key, s in starts.items() if s and any(begin <= s < end for begin, end in windows)]
    if not keys:
        return None
    functions = grouped(
        keys, lambda key: (compiled[key].function, compiled[key].file, optional_number(compiled[key], "line"))
    )
    seconds = {key: optional_seconds(compiled[key], "duration_ns") or 0.0 for key in keys}
    (function, file, line), longest = max(
        functions.items(), key=lambda item: sum(seconds[key] for key in item[1])
    )
    guards = {(row.epoch, row.compile_id): next(iter(row.guards), None) for row in data.of(recompiles)}
    lookups = {digest.rank: found for digest in job.digests if (found := digest.of(lookups_of)) is not None}
    own = lookups.pop(job.numbers[index], {})
    return LateCompile(
        function,
        at_line(file.replace("\\\\", "/"), line) or None,
        times=len(longest),
        seconds=sum(seconds[key] for key in longest),
        guard=next((guard for key in reversed(longest) if (guard := guards.get(key))), None),
        missed=next(_missed(own, lookups, longest), None),
        alone=not any(key in found for found in lookups.values() for key in longest) if lookups else None,
    )


def _compile_data(digest: RankDigest) -> CompileData | None:
    summary = digest.of(compiled_of)
    return CompileData(summary, "summary", digest.worker) if summary else None


def lookups_of(digest: RankDigest) -> Lookups | None:
    """Return the cache lookups of each compilation; None without compile data."""
    compiled = compiled_of(digest)  # not kept: there may be thousands of ranks
    if compiled is None:
        return None
    rows = forward_compilations(compiled).items()
    return {key: tuple((lookup.cache, lookup.result) for lookup in row.cache) for key, row in rows}


def _windows(job: Job, index: int, lates: Iterable[Late]) -> Iterator[tuple[float, float]]:
    """Yield from when to when (Unix time, s) a rank became late by compiling."""
    base = job.digests[index].base_ns
    for row in lates:
        compiles = any(blamed.cause in COMPILING and ns > 0 for blamed, ns in row.parts.items())
        if row.rank_index == index and compiles:
            yield (row.begin + base) / 1e9 - _CLOCK_S, (row.end + base) / 1e9 + _CLOCK_S


def _missed(
    own: Lookups, others: Mapping[int, Lookups], keys: Iterable[Key]
) -> Iterator[tuple[str, list[int]]]:
    """Yield the caches that missed here and hit on another rank."""
    for key in keys:
        for cache in (cache for cache, result in own.get(key, ()) if result == "miss"):
            ranks = [rank for rank, lookups in others.items() if (cache, "hit") in lookups.get(key, ())]
            if ranks:
                yield cache, ranks


def compiled_words(row: LateCompile, rank: int) -> str:
    """Return " (pooled at uneven.py:19, 2 times, on this rank alone; the guard that failed: …)"."""
    missed = ""
    if row.missed:
        cache, hit = row.missed
        ranks = f"rank{'s' if len(hit) > 1 else ''} {listed_numbers(hit)}"
        missed = f"rank {rank} missed the {title_of_cache(cache)} that {ranks} hit"
    words = (
        f"{row.function or 'a function'}{f' at {row.where}' if row.where else ''}",
        plural(row.times, "time") if row.times > 1 else "",
        "on this rank alone" if row.alone else "",
        missed,
    )
    guard = f"; the guard that failed: {row.guard.text}" if row.guard else ""
    return f" ({', '.join(filter(None, words))}{guard})"


def distinctive_reasons(row: LateRank) -> list[LateReason]:
    """Return what the rank does that its peers do not, or do much shorter; [] if that is less than half its excess.

    What all ranks must do to launch a step only counts where the peers hardly do it: otherwise the host is slower.
    """
    positive = [reason for reason in row.causes if reason.excess_us > 0]
    reasons = [
        reason
        for reason in positive
        if reason.typical_us + reason.excess_us
        >= (_MIN_RATIO_OF_ALL if kind_of(reason).is_of_all else _MIN_RATIO) * reason.typical_us
    ]
    is_most = 2 * sum(reason.excess_us for reason in reasons) >= sum(reason.excess_us for reason in positive)
    return reasons if is_most else []


def main_cause(row: LateRank) -> LateReason:
    """Return the kind of thing that most of the excess is, with its largest names."""
    return main_causes(row)[0]


def main_causes(row: LateRank) -> list[LateReason]:
    """Return the main cause, and behind it what belongs to it: autotuning to compiling. Most first."""
    matters = grouped(
        distinctive_reasons(row) or row.causes,
        lambda reason: (
            "compile" if reason.cause == "autotuning" else reason.cause,
            reason.where if kind_of(reason).is_by_line else None,
        ),
    )
    largest = max(matters.values(), key=lambda reasons: sum(reason.excess_us for reason in reasons))
    kinds = [_joined(reasons) for reasons in grouped(largest, lambda reason: reason.cause).values()]
    kinds.sort(key=lambda kind: -kind.excess_us)
    return [kinds[0], *(kind for kind in kinds[1:] if kind.excess_us >= _MIN_SHARE * kinds[0].excess_us)]


def _joined(reasons: list[LateReason]) -> LateReason:
    names = [
        (tuned_operator_of_slice(reason.name) or "Triton kernels")
        if reason.cause == "autotuning"
        else reason.name
        for reason in reasons
    ]
    distinct = ", ".join(dict.fromkeys(filter(None, names))).split(", ")
    return LateReason(
        reasons[0].cause,
        ", ".join(distinct[:MAX_NAMES]),
        next((reason.where for reason in reasons if reason.where), None),
        sum(reason.excess_us for reason in reasons),
        sum(reason.typical_us for reason in reasons),
    )


def reason_words(row: LateReason, steps: int) -> str:
    """Return "has 20.3 ms per step unaccounted for"."""
    time = f"{duration(row.excess_us / max(steps, 1))} per step"
    where = f" at {row.where}" if row.where else ""
    return kind_of(row).does.format(time=time, name=row.name[:MAX_NAME_CHARS] or row.cause, where=where)


def advice(row: LateReason) -> str:
    """Return what to change."""
    cause = registry.PRICED.get(row.cause)
    own = split_code(cause.words.next_step.format())[0] if cause else SEE_TIMELINE
    return kind_of(row).advice or own
