"""What compiling cost, what a step gains, and after how many steps that is even: the numbers."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Sequence
from functools import lru_cache
from math import hypot
from typing import Annotated, Literal, NamedTuple

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis.causes.scenario import step_length
from tb_torchcompile_plugin.analysis.causes.what_if import why_nothing
from tb_torchcompile_plugin.analysis.compile.caches import saved_ns
from tb_torchcompile_plugin.analysis.finding import Predicted
from tb_torchcompile_plugin.analysis.runtime.compiling_steps import compiling
from tb_torchcompile_plugin.analysis.runtime.gpu_utilization import gpus
from tb_torchcompile_plugin.analysis.runtime.kernel_rows import launched_in
from tb_torchcompile_plugin.analysis.runtime.roofline import launched_work
from tb_torchcompile_plugin.analysis.runtime.step_breakdown import StepTimes, noise_us, step_times
from tb_torchcompile_plugin.analysis.sheet import head
from tb_torchcompile_plugin.compile_log.summary_pb2 import CacheResult, CompileSummary
from tb_torchcompile_plugin.profile.compiled.regions import compiled_calls
from tb_torchcompile_plugin.profile.gpu.launches import kernel_launches
from tb_torchcompile_plugin.profile.intervals import Intervals, union
from tb_torchcompile_plugin.profile.profile import Profile, RunBeside
from tb_torchcompile_plugin.profile.steps import StepWindows, pace
from tb_torchcompile_plugin.profile.units import to_seconds, us
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.torch_names.slices import is_graph

# How long did compiling hold the program up, and how long with caches that hold nothing, or everything?
# Blocked: the wall time in which any thread of the process compiled, tuned kernels or recorded CUDA graphs;
# the threads of one process wait for one another. What compile workers do beside it counts only as far as
# the process waits for it.


class CompileCost(NamedTuple):
    """Seconds. cold: with empty caches; warm: with caches that hold everything, None where this run does not tell.
    hits: of `lookups` in caches. whole: whether all compilations were timed; else more was spent."""

    blocked_s: float
    cold_s: float | None
    warm_s: float | None
    hits: int
    lookups: int
    whole: bool


def compile_cost(data: CompileData) -> CompileCost | None:
    """None where no compilation has a known duration."""
    made = data.summary.compilations
    known = [row for row in made if row.HasField("duration_ns")]
    if not known:
        return None
    blocked = blocked_s(data.summary)
    firsts, whole = _first_lookups(data.summary), len(known) == len(made)
    results = [row.result for lookups in firsts for row in lookups]
    hits = results.count("hit")
    cold = blocked + to_seconds(sum(ns for lookups in firsts for ns in saved_ns(lookups)))
    warm = blocked if hits and hits == len(results) else None
    return CompileCost(blocked, cold if whole else None, warm, hits, len(results), whole)


def _first_lookups(summary: CompileSummary) -> list[list[CacheResult]]:
    """By compilation the first of each key: what a process stored itself, it finds with empty caches, too."""
    known: set[tuple[str, str]] = set()
    firsts = []
    for row in sorted(summary.compilations, key=lambda row: row.start_ns):
        firsts.append([one for one in row.cache if (one.cache, one.key) not in known])
        known.update((one.cache, one.key) for one in row.cache)
    return firsts


def blocked_s(summary: CompileSummary) -> float:
    """Of what has a start, the union over all threads; of what has none, the sum."""
    made = [row for row in summary.compilations if row.HasField("duration_ns")]
    timed = [(row.start_ns, row.duration_ns) for row in made if row.HasField("start_ns")]
    timed += [
        (row.start_ns, row.duration_ns)
        for row in summary.spans
        if not row.worker_process and not row.unfinished
    ]
    untimed = sum(row.duration_ns for row in made if not row.HasField("start_ns"))
    return to_seconds(untimed + _covered(timed).total_ns)


def _covered(timed: list[tuple[int, int]]) -> Intervals:
    columns = np.array(timed, np.int64).reshape(-1, 2)
    return union(columns[:, 0], columns[:, 0] + columns[:, 1])


# How long is a steady step, and how far may chance move that? As the handler noted steps that nobody
# recorded, where it did on both sides; else as they were recorded. Where a GPU sets the pace, by its clock:
# the host's notes then tell only how far it runs ahead. Steps that compiled are left out.


_LONGEST = 10  # times the median: what takes longer is no step, but a pause between two
_BLOCKS, _FEWEST = (
    8,
    32,
)  # steps follow one another: from so many on the means of so many parts tell how they vary
_AHEAD = 1.02  # so many times as long as noted a GPU works for a step, where the notes are of a host that runs ahead
APART = 0.01  # of a step, by which the means of two processes differ though nothing else does


class Steady(NamedTuple):
    """noted: while nobody recorded, None where nobody noted it. recorded: of the profiled steps."""

    noted: StepTimes | None
    recorded: StepTimes | None


def steady(profile: Profile) -> Steady:
    """None of what is not known."""
    recorded = step_times(profile.of(compiling).others_us.tolist())
    noted = _noted(profile.data.summary.steps.unrecorded_ns if profile.data else [])
    if noted and not profile.of(why_nothing):
        length = profile.of(step_length)
        if length.gpu_us and length.clock == "gpu" and length.step_us > _AHEAD * noted.mean_us:
            noted = _on_gpu(profile, length.step_us)
    return Steady(noted, recorded)


def _on_gpu(profile: Profile, step_us: float) -> StepTimes:
    """The steps of a GPU that has work all the time are as long recorded as not."""
    gpu = profile.of(pace)
    known = step_times((gpu.length[:-1] / 1000).tolist()) if gpu is not None else None
    return known or StepTimes(1, step_us, step_us, step_us, step_us, None)


def _noted(durations_ns: Sequence[int]) -> StepTimes | None:
    """Of many steps the means of a few parts of them, so that what changes slowly is no chance."""
    if len(durations_ns) < 2:
        return None
    most = _LONGEST * statistics.median(durations_ns)
    kept = [us(ns) for ns in durations_ns if ns <= most]
    size = len(kept) // _BLOCKS if len(kept) >= _FEWEST else 1
    parts = [statistics.fmean(kept[at : at + size]) for at in range(0, len(kept) - size + 1, size)]
    return step_times(parts)


def chance_us(a: StepTimes, b: StepTimes) -> float:
    """How far the means of two runs lie apart by chance: of their steps (Welch), and of two processes."""
    return hypot(noise_us(_known(a), _known(b)) or 0.0, APART * max(a.mean_us, b.mean_us))


def _known(one: StepTimes) -> StepTimes:
    """A single time tells nothing of how it varies, and takes nothing from what the other side's tell."""
    return one if one.deviation_us is not None else msgspec.structs.replace(one, steps=2, deviation_us=0.0)


# The run beside this one that is the same program, one eager and one compiled: is it, and what is known of
# it? Its name says which one is meant (see `eager_of`). That it is the same program is not taken on trust:
# another script, another GPU, other work for the libraries, or two runs that both ran compiled code, and it
# does not count.


_EAGER = {"eager", "uncompiled", "nocompile", "baseline"}
_COMPILED = {"compiled", "compile", "inductor", "cold", "warm"}
_LEAST_ALIKE, _MOST_ALIKE = 0.5, 1.5  # of the eager run's operations: inductor writes small products itself


class RunFacts(NamedTuple):
    """What is known of one run for a comparison. run: its name. compiled: whether compiled code ran; tried: whether
    torch compiled any frame. program: its script, "" where nobody noted it. tflop: of the libraries' kernels a step,
    None where shapes do not tell."""

    run: str
    compiled: bool
    tried: bool
    steady: Steady
    cost: CompileCost | None
    program: str
    device: str
    tflop: float | None


def eager_of(run: str, runs: Iterable[str]) -> str | None:
    """The name of the eager run that a run is to be held against: the one that differs from it by words alone that say
    how it ran, as `bert/eager` does from `bert/compiled` and `eager` from `compiled`. None without one, and of several.
    """
    mine = _words(run)
    if _EAGER & set(mine):
        return None
    alike = [one for one in runs if _EAGER & set(_words(one)) and _plain(one) == _plain(run)]
    return alike[0] if len(alike) == 1 else None


def compiled_of(run: str, runs: Sequence[str]) -> str | None:
    """The other way round: the only run of which this one is the eager one; of several the one with cold caches."""
    if not _EAGER & set(_words(run)):
        return None
    alike = [one for one in runs if _plain(one) == _plain(run)]
    compiled = [one for one in alike if not _EAGER & set(_words(one))]
    cold = [one for one in compiled if "warm" not in _words(one)] or compiled
    return cold[0] if len(alike) == len(compiled) + 1 and len(cold) == 1 else None


def _plain(run: str) -> list[str]:
    return [word for word in _words(run) if word not in _EAGER | _COMPILED]


@lru_cache(maxsize=1 << 14)
def _words(run: str) -> tuple[str, ...]:
    return tuple(word for word in re.split(r"[-_. /]+", run.lower()) if word)


def run_facts(profile: Profile) -> RunFacts:
    """Of a span."""
    summary = profile.summary
    return RunFacts(
        run="",
        compiled=_ran_compiled(profile),
        tried=bool(summary and summary.compilations),
        steady=profile.of(steady),
        cost=profile.data.of(compile_cost) if profile.data else None,
        program=summary.environment.program if summary else "",
        device=", ".join(sorted({row.name for row in profile.of(gpus) if row.name})),
        tflop=_tflop(profile),
    )


def facts_beside(profile: Profile, beside: RunBeside) -> RunFacts:
    """Of the run beside it, whose trace is closed again. Raises UserError."""
    return beside.read().of(run_facts)._replace(run=beside.run)


def _ran_compiled(profile: Profile) -> bool:
    return bool(profile.of(compiled_calls)) or any(map(is_graph, profile.trace.names))


def _tflop(profile: Profile) -> float | None:
    """Of an average step."""
    known = 0.0
    for rows, work in zip(profile.of(kernel_launches), profile.of(launched_work), strict=True):
        known += float(np.nansum(work.flop[launched_in(profile, rows)]))
    return known / 1e12 / max(len(profile.of(StepWindows)), 1) or None


def is_compiled(mine: RunFacts, other: RunFacts) -> bool | None:
    """Whether this one of two runs is the compiled one: by what ran, else by what torch tried. None where they are the
    same in both."""
    if mine.compiled != other.compiled:
        return mine.compiled
    return mine.tried if not mine.compiled and mine.tried != other.tried else None


def why_not_alike(mine: RunFacts, other: RunFacts) -> str:
    """Why they cannot be held against each other, behind the name of the other run; "" where they can."""
    if (compiled := is_compiled(mine, other)) is None:
        return "ran compiled code, too" if other.compiled else "is eager, too"
    if mine.program and other.program and mine.program != other.program:
        return "is of another program"
    if mine.device != other.device:
        return "is of another GPU"
    before, after = (other.tflop, mine.tflop) if compiled else (mine.tflop, other.tflop)
    if before and after and not _LEAST_ALIKE <= after / before <= _MOST_ALIKE:
        return "does other work: its matrix products and convolutions are of other sizes"
    return ""


Paying = Literal["pays", "never", "unknown"]
ToldBy = Literal["measured", "eager_predicted", "compiled_predicted", "nothing_ran", "nobody"]
Caches = Literal["recorded", "cold", "warm"]


class Even(msgspec.Struct, frozen=True):
    """After how many steps, and how long a time, what compiling cost has come back. name: with which caches. low, high:
    as a step may gain more or less; high None where it may gain nothing."""

    name: Annotated[Caches, head("With caches")]
    cost_s: Annotated[float, head("Compiling cost")]
    steps: Annotated[int, head("Pays from step")]
    low_steps: Annotated[int, head("At best")]
    high_steps: Annotated[int | None, head("At worst")]
    after_s: float


class Gain(msgspec.Struct, frozen=True):
    """Of a steady step (µs). gain_us: of the eager one what compiling saves, between low and high. told_by: whether
    both were measured, or one is predicted; or "nothing_ran" of what was compiled. eager_run, compiled_run: the name of
    the run beside this one, "" for this one and for none."""

    verdict: Paying
    told_by: ToldBy
    eager_us: Annotated[float | None, head("Eager step")]
    compiled_us: Annotated[float | None, head("Compiled step")]
    gain_us: float | None
    low_us: Annotated[float | None, head("Gain at least")]
    high_us: Annotated[float | None, head("Gain at most")]
    eager_run: str
    compiled_run: str


_VAGUE = 0.1  # of a step: runs that by chance lie farther apart tell nothing
UNKNOWN = Gain("unknown", "nobody", None, None, None, None, None, "", "")
NOTHING_RAN = Gain("never", "nothing_ran", None, None, None, None, None, "", "")


class _StepPair(NamedTuple):
    eager: StepTimes
    compiled: StepTimes


def measured(eager: RunFacts, compiled: RunFacts) -> Gain:
    """Of two runs. What is within chance is no gain, unless chance is so large that nobody knows."""
    times = _times(eager.steady, compiled.steady)
    if times is None:
        return UNKNOWN
    gain, chance = times.eager.mean_us - times.compiled.mean_us, chance_us(*times)
    return Gain(
        verdict=_measured_verdict(gain, chance, times.eager.mean_us),
        told_by="measured",
        eager_us=times.eager.mean_us,
        compiled_us=times.compiled.mean_us,
        gain_us=gain,
        low_us=gain - chance,
        high_us=gain + chance,
        eager_run=eager.run,
        compiled_run=compiled.run,
    )


def _measured_verdict(gain: float, chance: float, eager_us: float) -> Paying:
    if abs(gain) <= chance and chance > _VAGUE * eager_us:
        return "unknown"
    return "pays" if gain > chance else "never"


def _times(eager: Steady, compiled: Steady) -> _StepPair | None:
    """Of both sides unrecorded steps, or else recorded ones: recording makes one slower than the other."""
    if eager.noted and compiled.noted:
        return _StepPair(eager.noted, compiled.noted)
    if eager.recorded and compiled.recorded:
        return _StepPair(eager.recorded, compiled.recorded)
    return None


def predicted(
    told_by: ToldBy, eager: tuple[float, float, float], compiled: tuple[float, float, float]
) -> Gain:
    """From steps (µs), each with what it may be at least and at most. Where the bounds hold both, nobody knows."""
    low, high = eager[1] - compiled[2], eager[2] - compiled[1]
    return Gain(
        verdict=_verdict(told_by, low, high),
        told_by=told_by,
        eager_us=eager[0],
        compiled_us=compiled[0],
        gain_us=eager[0] - compiled[0],
        low_us=low,
        high_us=high,
        eager_run="",
        compiled_run="",
    )


def _verdict(told_by: ToldBy, low: float, high: float) -> Paying:
    """What calling compiled code costs, and compiling, an eager run does not tell."""
    if told_by == "compiled_predicted" or low <= 0 < high:
        return "unknown"
    return "pays" if low > 0 else "never"


def step_with(gain: Gain) -> Predicted:
    """The eager step, and after it the compiled one. gain: of two measured runs."""
    eager, compiled, low, high = _measured_us(gain)
    return Predicted(eager, compiled, eager - high, eager - low, 100 * (1 - compiled / eager))


def step_without(gain: Gain) -> Predicted:
    """The other way round."""
    eager, compiled, low, high = _measured_us(gain)
    return Predicted(compiled, eager, compiled + low, compiled + high, 100 * (1 - eager / compiled))


def _measured_us(gain: Gain) -> tuple[float, float, float, float]:
    assert gain.eager_us is not None and gain.compiled_us is not None
    assert gain.low_us is not None and gain.high_us is not None
    return gain.eager_us, gain.compiled_us, gain.low_us, gain.high_us


def evens(gain: Gain, cost: CompileCost | None) -> tuple[Even, ...]:
    """With this run's caches, and as far as that is known with others. () where it never pays."""
    if cost is None or gain.verdict != "pays":
        return ()
    others: tuple[tuple[Caches, float | None], ...] = (("cold", cost.cold_s), ("warm", cost.warm_s))
    known = [(name, s) for name, s in others if s is not None and s != cost.blocked_s]
    return (_even(gain, "recorded", cost.blocked_s), *(_even(gain, *one) for one in known))


def _even(gain: Gain, name: Caches, cost_s: float) -> Even:
    assert gain.gain_us and gain.high_us and gain.low_us is not None and gain.eager_us is not None
    steps, least = (round(cost_s * 1e6 / each) for each in (gain.gain_us, gain.high_us))
    most = round(cost_s * 1e6 / gain.low_us) if gain.low_us > 0 else None
    return Even(name, cost_s, steps, least, most, steps * gain.eager_us / 1e6)
