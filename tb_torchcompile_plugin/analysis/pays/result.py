"""What compiling cost, what a step gains, and after how many steps that is even: the numbers."""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

import msgspec

from tb_torchcompile_plugin.analysis.findings.finding import Predicted
from tb_torchcompile_plugin.analysis.pays.compile_cost import CompileCost
from tb_torchcompile_plugin.analysis.pays.steady import Steady, chance_us
from tb_torchcompile_plugin.analysis.pays.twin import RunFacts
from tb_torchcompile_plugin.analysis.sheet import head
from tb_torchcompile_plugin.analysis.step_breakdown.step_times import StepTimes

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
