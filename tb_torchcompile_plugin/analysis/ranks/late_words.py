"""What a late rank does beyond its peers, in words, and what to do about it."""

from __future__ import annotations

from tb_torchcompile_plugin.analysis.ranks.job_rows import LateRank, LateReason
from tb_torchcompile_plugin.analysis.what_if.words import WORDS
from tb_torchcompile_plugin.analysis.words import duration
from tb_torchcompile_plugin.job.digest.host_costs import LateCause
from tb_torchcompile_plugin.job.late import GPU_CAUSES
from tb_torchcompile_plugin.reader.arrays import grouped
from tb_torchcompile_plugin.torch_names.slices import tuned

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
