"""Does torch.compile pay in this run: what did it cost, what does a step gain, and when are the two even?

A step is held against that of the run beside it, the same program eager (or, of an eager run, compiled); else against
the one that the model of the steps predicts; else nobody knows.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

import msgspec

from tb_torchcompile_plugin.analysis.compare.compiling_steps import span_compiles, steps_that_compile
from tb_torchcompile_plugin.analysis.pays.compile_cost import CompileCost
from tb_torchcompile_plugin.analysis.pays.result import (
    NOTHING_RAN,
    UNKNOWN,
    Even,
    Gain,
    evens,
    measured,
    predicted,
)
from tb_torchcompile_plugin.analysis.pays.twin import (
    RunFacts,
    facts_beside,
    is_compiled,
    run_facts,
    why_not_alike,
)
from tb_torchcompile_plugin.analysis.pays.uncompiled import uncompiled
from tb_torchcompile_plugin.analysis.pays.why_not import WhyNot, why_not
from tb_torchcompile_plugin.analysis.pays.words import answer, grounds
from tb_torchcompile_plugin.analysis.sheet import head
from tb_torchcompile_plugin.analysis.what_if.reasons import why_nothing
from tb_torchcompile_plugin.analysis.what_if.scenario import priced, step_length
from tb_torchcompile_plugin.analysis.words import plural
from tb_torchcompile_plugin.errors import UserError
from tb_torchcompile_plugin.profile.profile import Profile


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
