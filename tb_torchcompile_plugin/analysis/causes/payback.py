"""Does torch.compile pay in this run: what did it cost, what does a step gain, and when are the two even?

A step is held against that of the run beside it, the same program eager (or, of an eager run, compiled); else against
the one that the model of the steps predicts; else nobody knows.
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
    evens,
    facts_beside,
    is_compiled,
    measured,
    predicted,
    run_facts,
    why_not_alike,
)
from tb_torchcompile_plugin.analysis.causes.scenario import priced, step_length
from tb_torchcompile_plugin.analysis.causes.what_if import why_nothing
from tb_torchcompile_plugin.analysis.formatting import duration, plural, seconds, signed
from tb_torchcompile_plugin.analysis.runtime.compiling_steps import span_compiles, steps_that_compile
from tb_torchcompile_plugin.analysis.sheet import head
from tb_torchcompile_plugin.errors import UserError
from tb_torchcompile_plugin.profile.profile import Profile

# Whether compiling pays, in sentences: the first is the answer, the others are what it rests on.


_REASONS = 3
_LONG_S = 120
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


def answer(gain: Gain, even: Sequence[Even], cost: CompileCost | None) -> str:
    """ "Compiling pays from step 1,230 on, after 25.0 s: it cost 12.3 s, and a step takes 4.10 ms instead of …" """
    cost_s = "" if cost is None else f"{'' if cost.whole else 'at least '}{seconds(cost.blocked_s)}"
    if gain.told_by == "nobody":
        return "Whether compiling pays is not known" + (f": it cost {cost_s}." if cost_s else ".")
    if gain.told_by == "compiled_predicted":
        return f"Whether compiling would pay is not known: {_steps(gain)}."
    if gain.verdict == "unknown":
        range_ = f"{signed(gain.low_us or 0.0, duration)} to {signed(gain.high_us or 0.0, duration)}"
        how = (
            "is predicted to be"
            if gain.told_by == "eager_predicted"
            else "lies by what was recorded anywhere in"
        )
        return f"Whether compiling pays cannot be told: what it takes off a step {how} {range_}."
    if gain.verdict == "never":
        # An eager step that nobody measured may take longer than all that was assumed.
        says = "may not pay" if gain.told_by == "eager_predicted" else "does not pay"
        return f"Compiling {says}: {_steps(gain)}" + (f", and it cost {cost_s}." if cost_s else ".")
    if not even:
        return f"Compiling makes steps faster: {_steps(gain)}."
    first = even[0]
    if gain.told_by == "eager_predicted":
        most = f" at {first.high_steps:,}" if first.high_steps else " later"
        return f"Compiling should pay, from step {first.low_steps:,} on or{most}: it cost {cost_s}, and {_steps(gain)}."
    since = f"from step {first.steps:,} on, after {long(first.after_s)}"
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


def grounds(gain: Gain, even: Sequence[Even], reasons: Sequence[WhyNot], refused: str) -> Iterator[str]:
    """What the answer rests on, and why it is not better."""
    if refused:
        yield refused
    if gain.told_by == "measured":
        how = "eager" if gain.eager_run else "compiled"
        yield f"Held against run {gain.eager_run or gain.compiled_run}, the same program {how}."
    else:
        yield f"{_HOW_TO_KNOW[gain.told_by]}."
    for one in even[1:]:
        yield f"With {one.name} caches it would cost {seconds(one.cost_s)}, and pay from step {one.steps:,} on."
    for row in reasons[:_REASONS]:
        yield f"{row.says}."


def long(s: float) -> str:
    """ "2.1 minutes" from two minutes on, "12.3 s" below."""
    if s < _LONG_S:
        return seconds(s)
    minutes = s / 60
    return plural(round(minutes), "minute") if minutes >= 10 else f"{minutes:.1f} minutes"


class CompileSeconds(msgspec.Struct, frozen=True):
    """What compiling cost. blocked_s: the wall time in which this process compiled; cold_s: with empty caches; warm_s:
    with caches that hold everything. None where this run does not tell."""

    blocked_s: Annotated[float, head("Compiling held the program")]
    cold_s: Annotated[float | None, head("With cold caches")]
    warm_s: Annotated[float | None, head("With warm caches")]
    cache_hits: int
    cache_lookups: int


class Pays(msgspec.Struct, frozen=True):
    """says: the answer first, then what it rests on. gain: one row. even: () where it never pays or nobody knows.
    why_not: what keeps compiling from bringing more, largest first."""

    says: tuple[str, ...]
    gain: Annotated[tuple[Gain, ...], head("A steady step, eager and compiled")]
    cost: Annotated[tuple[CompileSeconds, ...], head("What compiling cost")]
    even: Annotated[tuple[Even, ...], head("When compiling has paid for itself")]
    why_not: Annotated[tuple[WhyNot, ...], head("What keeps compiling from bringing more")]


class _Known(NamedTuple):
    """refused: why the run beside does not count, a sentence or ""."""

    gain: Gain
    cost: CompileCost | None
    refused: str


def pays(profile: Profile) -> Pays:
    """Of a span, with the run beside it where there is one."""
    known, mine = profile.of(_known), profile.of(run_facts)
    even = evens(known.gain, known.cost)
    reasons = tuple(profile.of(why_not)) if mine.tried or mine.compiled else ()
    cost = known.cost and CompileSeconds(*known.cost[:5])
    return Pays(
        says=(answer(known.gain, even, known.cost), *grounds(known.gain, even, reasons, known.refused)),
        gain=(known.gain,),
        cost=(cost,) if cost else (),
        even=even,
        why_not=reasons,
    )


def pays_sentence(profile: Profile) -> str:
    """The answer alone; "" where nothing was compiled, here or in a run beside it."""
    known = profile.of(_known)
    if known.gain.told_by == "compiled_predicted" or (known.gain.told_by == "nobody" and not known.cost):
        return ""
    return answer(known.gain, evens(known.gain, known.cost), known.cost)


def _known(profile: Profile) -> _Known:
    mine = profile.of(run_facts)
    if mine.tried and not mine.compiled:
        return _Known(NOTHING_RAN, mine.cost, "")
    if profile.beside is None:
        return _Known(_predicted(profile, mine), mine.cost, profile.of(_unsteady))
    try:
        other = profile.of(facts_beside, profile.beside)
    except UserError as error:
        refused = f"Run {profile.beside.run} cannot be read: {error.notice.problem}."
        return _Known(_predicted(profile, mine), mine.cost, refused)
    if why := why_not_alike(mine, other):
        refused = f"Run {other.run} {why}: it is not held against this one."
        return _Known(_predicted(profile, mine), mine.cost, refused)
    eager, compiled = (other, mine) if is_compiled(mine, other) else (mine, other)
    gain = measured(eager, compiled) if compiled.compiled else NOTHING_RAN
    return _Known(gain, compiled.cost, "")


def _unsteady(profile: Profile) -> str:
    """Why no step is predicted of this run: the model is of all of its steps, with what compiling takes of them."""
    steps = profile.of(steps_that_compile)
    compile_ = plural(steps, "profiled step compiles", "profiled steps compile")
    if profile.of(span_compiles):
        return "Nothing tells steps, and this span compiles: mark them, prof.step(), and record steady ones."
    return f"{compile_}: record later ones to know what a steady one takes." if steps else ""


def _predicted(profile: Profile, mine: RunFacts) -> Gain:
    if profile.of(why_nothing) or profile.of(_unsteady):
        return UNKNOWN
    return _without(profile) if mine.compiled else _with(profile)


def _without(profile: Profile) -> Gain:
    """What a compiled step would be eager."""
    eager, now = profile.of(uncompiled), profile.of(step_length).step_us
    return UNKNOWN if eager is None else predicted("eager_predicted", eager[:3], (now, now, now))


def _with(profile: Profile) -> Gain:
    """What an eager step would be compiled."""
    best = next((row.predicted for row in profile.of(priced) if row.kind == "eager"), None)
    if best is None:
        return UNKNOWN
    now = best.step_us
    return predicted("compiled_predicted", (now, now, now), (best.after_us, best.low_us, best.high_us))
