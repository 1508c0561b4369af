"""Is compiling worth it: what did it cost, what does a step gain, and when are the two even?

A step is compared with that of the baseline run, the same program eager (or, of an eager run, compiled); otherwise with
the one that the model of the steps predicts; otherwise it is unknown.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, NamedTuple

import msgspec

from tb_torchcompile_plugin.analysis.causes.payback_reasons import WhyNot, uncompiled, why_not
from tb_torchcompile_plugin.analysis.causes.payback_result import (
    NOTHING_RAN,
    UNKNOWN,
    CompileCost,
    Even,
    Gain,
    RunFacts,
    baseline_facts,
    break_even,
    is_compiled,
    measured_gain,
    predicted_gain,
    run_facts,
    why_not_comparable,
)
from tb_torchcompile_plugin.analysis.causes.scenario import priced, step_length
from tb_torchcompile_plugin.analysis.causes.what_if import why_nothing
from tb_torchcompile_plugin.analysis.formatting import duration, plural, seconds, signed
from tb_torchcompile_plugin.analysis.runtime.step_breakdown import span_compiles, steps_that_compile
from tb_torchcompile_plugin.analysis.sheet import head
from tb_torchcompile_plugin.errors import UserError
from tb_torchcompile_plugin.profile.profile import Profile

_MAX_REASONS = 3
_MIN_MINUTES_S = 120
_BESIDE = "into a run beside this one, named for it (runs/eager beside runs/compiled)"
_HOW_TO_KNOW = {
    "eager_predicted": "No eager run was measured: its step is predicted from the operators that generated kernels are "
    f"made of. Record the program once without torch.compile, {_BESIDE}, to know it",
    "compiled_predicted": "No compiled run was measured: what runs eager tells what inductor could fuse, and not what "
    f"calling compiled code and compiling cost. Record the program once with torch.compile, {_BESIDE}, to know it",
    "nothing_ran": "Call what torch.compile returns, and see the graph breaks: a break inside of a loop leaves all of "
    "its function eager",
    "nobody": f"Record the program once with and once without torch.compile, {_BESIDE}",
}


class CompileSeconds(msgspec.Struct, frozen=True):
    """What compiling cost; None where this run does not show it."""

    blocked_s: Annotated[float, head("Compiling held the program")]
    cold_s: Annotated[float | None, head("With cold caches")]
    warm_s: Annotated[float | None, head("With warm caches")]
    cache_hits: int
    cache_lookups: int


class Pays(msgspec.Struct, frozen=True):
    """Whether compiling is worth it."""

    says: tuple[str, ...]  # the answer first, then its reasons
    gain: Annotated[tuple[Gain, ...], head("A steady step, eager and compiled")]  # one row
    cost: Annotated[tuple[CompileSeconds, ...], head("What compiling cost")]
    even: Annotated[tuple[Even, ...], head("When compiling has paid for itself")]  # () where never or unknown
    why_not: Annotated[tuple[WhyNot, ...], head("What keeps compiling from bringing more")]  # largest first


class _Comparison(NamedTuple):
    gain: Gain
    cost: CompileCost | None
    refused: str  # why the baseline run does not count, a sentence or ""


def pays(profile: Profile) -> Pays:
    """Return the answer for a span, compared with its baseline run where there is one."""
    (gain, cost, refused), facts = profile.of(_comparison), profile.of(run_facts)
    even = break_even(gain, cost)
    reasons = tuple(profile.of(why_not)) if facts.tried or facts.compiled else ()
    return Pays(
        says=(answer(gain, even, cost), *_grounds(gain, even, reasons, refused)),
        gain=(gain,),
        cost=(CompileSeconds(*cost[:5]),) if cost else (),
        even=even,
        why_not=reasons,
    )


def pays_sentence(profile: Profile) -> str:
    """Return the answer alone; "" where nothing was compiled, here or in the baseline run."""
    gain, cost, _ = profile.of(_comparison)
    if gain.told_by == "compiled_predicted" or (gain.told_by == "nobody" and not cost):
        return ""
    return answer(gain, break_even(gain, cost), cost)


def _comparison(profile: Profile) -> _Comparison:
    facts, baseline_run = profile.of(run_facts), profile.beside
    if facts.tried and not facts.compiled:
        return _Comparison(NOTHING_RAN, facts.cost, "")
    if baseline_run is None:
        return _Comparison(_predicted(profile, facts), facts.cost, profile.of(_unsteady))
    try:
        baseline = profile.of(baseline_facts, baseline_run)
    except UserError as error:
        refused = f"Run {baseline_run.run} cannot be read: {error.notice.problem}."
        return _Comparison(_predicted(profile, facts), facts.cost, refused)
    if why := why_not_comparable(facts, baseline):
        refused = f"Run {baseline.run} {why}: it is not held against this one."
        return _Comparison(_predicted(profile, facts), facts.cost, refused)
    eager, compiled = (baseline, facts) if is_compiled(facts, baseline) else (facts, baseline)
    gain = measured_gain(eager, compiled) if compiled.compiled else NOTHING_RAN
    return _Comparison(gain, compiled.cost, "")


def _unsteady(profile: Profile) -> str:
    """Return why no step is predicted: the model is of all steps, and some or all of them compile."""
    if profile.of(span_compiles):
        return "Nothing tells steps, and this span compiles: mark them, prof.step(), and record steady ones."
    steps = profile.of(steps_that_compile)
    compile_ = plural(steps, "profiled step compiles", "profiled steps compile")
    return f"{compile_}: record later ones to know what a steady one takes." if steps else ""


def _predicted(profile: Profile, facts: RunFacts) -> Gain:
    """Return the gain compared with what a compiled step would be eager, or an eager one compiled."""
    if profile.of(why_nothing) or profile.of(_unsteady):
        return UNKNOWN
    if facts.compiled:
        eager, now = profile.of(uncompiled), profile.of(step_length).step_us
        return predicted_gain("eager_predicted", eager[:3], (now, now, now)) if eager else UNKNOWN
    best = next((row.predicted for row in profile.of(priced) if row.kind == "eager"), None)
    if best is None:
        return UNKNOWN
    now = best.step_us
    return predicted_gain("compiled_predicted", (now, now, now), (best.after_us, best.low_us, best.high_us))


def answer(gain: Gain, even: Sequence[Even], cost: CompileCost | None) -> str:
    """Return "Compiling pays from step 1,230 on, after 25.0 s: it cost 12.3 s, and a step takes 4.10 ms …"."""
    cost_s = "" if cost is None else f"{'' if cost.whole else 'at least '}{seconds(cost.blocked_s)}"
    if gain.told_by == "nobody":
        return "Whether compiling pays is not known" + (f": it cost {cost_s}." if cost_s else ".")
    if gain.told_by == "compiled_predicted":
        return f"Whether compiling would pay is not known: {_steps(gain)}."
    is_predicted = gain.told_by == "eager_predicted"
    if gain.verdict == "unknown":
        range_ = f"{signed(gain.low_us or 0.0, duration)} to {signed(gain.high_us or 0.0, duration)}"
        how = "is predicted to be" if is_predicted else "lies by what was recorded anywhere in"
        return f"Whether compiling pays cannot be told: what it takes off a step {how} {range_}."
    if gain.verdict == "never":
        # A predicted eager step may be longer than all that was assumed.
        not_ = "may not pay" if is_predicted else "does not pay"
        return f"Compiling {not_}: {_steps(gain)}" + (f", and it cost {cost_s}." if cost_s else ".")
    return _paying(gain, even[0], cost_s) if even else f"Compiling makes steps faster: {_steps(gain)}."


def _paying(gain: Gain, first: Even, cost_s: str) -> str:
    if gain.told_by == "eager_predicted":
        most = f" at {first.high_steps:,}" if first.high_steps else " later"
        return f"Compiling should pay, from step {first.low_steps:,} on or{most}: it cost {cost_s}, and {_steps(gain)}."
    since = f"from step {first.steps:,} on, after {_long(first.after_s)}"
    return f"Compiling pays {since}: it cost {cost_s}, and {_steps(gain)}."


def _steps(gain: Gain) -> str:
    if gain.told_by == "nothing_ran":
        return "nothing of what torch compiled runs in the profiled time"
    compiled, eager = (duration(us or 0.0) for us in (gain.compiled_us, gain.eager_us))
    if gain.told_by == "eager_predicted":
        return f"a step takes {compiled}, and is predicted to take {eager} eager"
    if gain.told_by == "compiled_predicted":
        return f"a step takes {eager}, and is predicted to take {compiled} at best compiled"
    high, middle = gain.high_us or 0.0, gain.gain_us or 0.0
    if gain.verdict == "never" and high > 0:
        return f"a step takes {compiled} compiled and {eager} eager, which may be chance (± {duration(high - middle)})"
    return f"a step takes {compiled} instead of {eager}"


def _grounds(gain: Gain, even: Sequence[Even], reasons: Sequence[WhyNot], refused: str) -> Iterator[str]:
    """Yield what the answer is based on, and why it is not better."""
    if refused:
        yield refused
    if gain.told_by == "measured":
        how = "eager" if gain.eager_run else "compiled"
        yield f"Held against run {gain.eager_run or gain.compiled_run}, the same program {how}."
    else:
        yield f"{_HOW_TO_KNOW[gain.told_by]}."
    for row in even[1:]:
        yield f"With {row.name} caches it would cost {seconds(row.cost_s)}, and pay from step {row.steps:,} on."
    for reason in reasons[:_MAX_REASONS]:
        yield f"{reason.says}."


def _long(s: float) -> str:
    """Return "2.1 minutes" from two minutes on, "12.3 s" below."""
    if s < _MIN_MINUTES_S:
        return seconds(s)
    minutes = s / 60
    return plural(round(minutes), "minute") if minutes >= 10 else f"{minutes:.1f} minutes"
