"""How long did compiling take, what does a step gain, and after how many steps does that break even: the numbers."""

import statistics
from typing import Annotated, Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from tb_torchcompile_plugin.analysis.compile.compile_time import CompileCost, compile_cost
from tb_torchcompile_plugin.analysis.finding import Predicted
from tb_torchcompile_plugin.analysis.runtime.program import ProgramFacts, differences, program, ran_compiled
from tb_torchcompile_plugin.analysis.sheet import column_head
from tb_torchcompile_plugin.analysis.statistics import PAYBACK, StepTimes, step_time_difference, step_times
from tb_torchcompile_plugin.profile import steps as profile_steps
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import step_lengths, step_time, unprofiled_steps

# From so many steps on, the means of 8 parts show how they vary: they follow one another.
_PARTS, _MIN_STEPS = 8, 32
_VAGUE = 0.1  # of a step: two runs that by chance differ by more show nothing; chosen by eye

PaybackVerdict = Literal["worth_it", "not_worth_it", "unknown"]
DeterminedBy = Literal["measured", "eager_predicted", "nothing_ran", "unknown"]
Caches = Literal["recorded", "cold", "warm"]


class SteadyTimes(NamedTuple):
    """The steps that do not compile; None where they are unknown."""

    unprofiled: StepTimes | None
    profiled: StepTimes | None


def steady_steps(profile: Profile) -> SteadyTimes:
    """Return how long steady steps are; where the GPU is the bottleneck, by its clock."""
    step, steady = profile.of(step_time), profile.of(profile_steps.steady_steps)
    profiled = step_times((steady.lengths / 1000).tolist()) if steady else None
    if not step.unprofiled_steps:
        # Steps take as long profiled as not if a GPU is the limit, or where those noted are no shorter.
        is_noted = bool(profile.data and profile.data.of(unprofiled_steps))
        return SteadyTimes(profiled if step.clock == "gpu" or is_noted else None, profiled)
    kept = (profile.of(step_lengths) / 1000).tolist()
    # Of many steps the means of a few parts, so that slow changes do not count as chance.
    size = len(kept) // _PARTS if len(kept) >= _MIN_STEPS else 1
    parts = step_times(
        [statistics.fmean(kept[at : at + size]) for at in range(0, len(kept) - size + 1, size)]
    )
    return SteadyTimes(parts and replace(parts, mean_us=step.step_us), profiled)


class RunFacts(NamedTuple):
    """What is known of one run for a comparison."""

    run: str  # its name
    compiled: bool  # whether compiled code ran
    tried: bool  # whether torch compiled any frame
    steady: SteadyTimes
    cost: CompileCost | None
    program: ProgramFacts


def run_facts(profile: Profile) -> RunFacts:
    """Return what is known of the run of a span."""
    return RunFacts(
        run="",
        compiled=profile.of(ran_compiled),
        tried=bool(profile.summary and profile.summary.compilations),
        steady=profile.of(steady_steps),
        cost=profile.data.of(compile_cost) if profile.data else None,
        program=profile.of(program),
    )


def is_compiled(run: RunFacts, other: RunFacts) -> bool | None:
    """Whether the first of two runs is the compiled one, by what ran or what torch tried; None where both are alike."""
    if run.compiled != other.compiled:
        return run.compiled
    return run.tried if not run.compiled and run.tried != other.tried else None


def why_not_comparable(run: RunFacts, other: RunFacts) -> str:
    """Return why a run cannot be compared with its baseline run, a sentence; "" where it can."""
    name = f"run {other.run}"
    if is_compiled(run, other) is None:
        return f"Both this run and {name} {'ran compiled code' if other.compiled else 'are eager'}."
    found = differences(run.program, other.program, ("this run", name))
    return next((text for kind, text in found if kind != "torch"), "")


class BreakEven(msgspec.Struct, frozen=True):
    """After how many steps the time spent compiling is gained back."""

    name: Annotated[Caches, column_head("Caches")]
    cost_s: Annotated[float, column_head("Compile time")]
    steps: Annotated[int, column_head("Break-even step")]
    low_steps: Annotated[int, column_head("At best")]
    high_steps: Annotated[int | None, column_head("At worst")]  # None where a step may gain nothing
    after_s: Annotated[float, column_head("Run time until then")]


class Gain(msgspec.Struct, frozen=True):
    """What compiling saves in a steady step (µs)."""

    verdict: PaybackVerdict
    determined_by: DeterminedBy
    eager_us: Annotated[float | None, column_head("Eager step")]
    compiled_us: Annotated[float | None, column_head("Compiled step")]
    gain_us: float | None
    low_us: Annotated[float | None, column_head("Gain at least")]
    high_us: Annotated[float | None, column_head("Gain at most")]
    eager_run: str  # the name of the baseline run; "" for this one and for none, as `compiled_run`
    compiled_run: str


class CompileSeconds(msgspec.Struct, frozen=True):
    """Compile time, and what it is with other caches; None where this run does not show it."""

    blocked_s: Annotated[float, column_head("Compile time")]
    cold_s: Annotated[float | None, column_head("With cold caches")]
    warm_s: Annotated[float | None, column_head("With warm caches")]
    cache_hits: int
    cache_lookups: int


class Payback(msgspec.Struct, frozen=True):
    """Whether compiling is worth it."""

    sentences: tuple[str, ...]  # the answer first, then what it is based on
    gain: Annotated[tuple[Gain, ...], column_head("Steady step, eager and compiled")]  # one row
    cost: Annotated[tuple[CompileSeconds, ...], column_head("Compile time by caches")]
    # () where compiling is not worth it, or that is unknown.
    break_even: Annotated[tuple[BreakEven, ...], column_head("Break-even")]


UNKNOWN = Gain("unknown", "unknown", None, None, None, None, None, "", "")
NOTHING_RAN = Gain("not_worth_it", "nothing_ran", None, None, None, None, None, "", "")


def measured_gain(eager: RunFacts, compiled: RunFacts) -> Gain:
    """Return the gain of two runs: none if it is within chance, unknown if chance is large."""
    times = eager.steady.unprofiled, compiled.steady.unprofiled
    if None in times:  # profiling makes one slower than the other, so both are taken profiled
        times = eager.steady.profiled, compiled.steady.profiled
    compared = step_time_difference(*times, PAYBACK)
    if compared is None:
        return UNKNOWN
    before, after, chance = compared.baseline.mean_us, compared.candidate.mean_us, compared.noise_us or 0.0
    gain = before - after
    verdict: PaybackVerdict = "worth_it" if gain > chance else "not_worth_it"
    if abs(gain) <= chance and chance > _VAGUE * before:
        verdict = "unknown"
    return Gain(
        verdict=verdict,
        determined_by="measured",
        eager_us=before,
        compiled_us=after,
        gain_us=gain,
        low_us=gain - chance,
        high_us=gain + chance,
        eager_run=eager.run,
        compiled_run=compiled.run,
    )


def predicted_gain(eager: tuple[float, float, float], compiled_us: float) -> Gain:
    """Return the gain from an eager step (µs) with its lowest and highest value; unknown if it may have either sign."""
    middle, low, high = (us - compiled_us for us in eager)
    verdict: PaybackVerdict = "unknown" if low <= 0 < high else "worth_it" if low > 0 else "not_worth_it"
    return Gain(verdict, "eager_predicted", eager[0], compiled_us, middle, low, high, "", "")


def step_with(gain: Gain) -> Predicted:
    """Return the eager step and after it the compiled one, of two measured runs."""
    eager, compiled, low, high = _numbers(gain.eager_us, gain.compiled_us, gain.low_us, gain.high_us)
    return Predicted(eager, compiled, eager - high, eager - low, 100 * (1 - compiled / eager))


def step_without(gain: Gain) -> Predicted:
    """Return the compiled step and after it the eager one, of two measured runs."""
    eager, compiled, low, high = _numbers(gain.eager_us, gain.compiled_us, gain.low_us, gain.high_us)
    return Predicted(compiled, eager, compiled + low, compiled + high, 100 * (1 - eager / compiled))


def break_even(gain: Gain, cost: CompileCost | None) -> tuple[BreakEven, ...]:
    """Return break-even with this run's caches, and with others as far as that is known; () where it is not."""
    if cost is None or gain.verdict != "worth_it":
        return ()
    gain_us, low, high, eager = _numbers(gain.gain_us, gain.low_us, gain.high_us, gain.eager_us)
    others: tuple[tuple[Caches, float | None], ...] = (("cold", cost.cold_s), ("warm", cost.warm_s))
    known = [(name, s) for name, s in others if s is not None and s != cost.blocked_s]
    rows = []
    for name, cost_s in [("recorded", cost.blocked_s), *known]:
        steps, least = (round(cost_s * 1e6 / each) for each in (gain_us, high))
        most = round(cost_s * 1e6 / low) if low > 0 else None
        rows.append(BreakEven(name, cost_s, steps, least, most, steps * eager / 1e6))
    return tuple(rows)


def _numbers(*values: float | None) -> list[float]:
    """Return values that are known once there is a gain."""
    return [value for value in values if value is not None]
