"""How long is the step, what could be fixed in it, and how long is it with some of that fixed?"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from tb_torchcompile_plugin.analysis.causes import what_if
from tb_torchcompile_plugin.analysis.causes.cause import split_code
from tb_torchcompile_plugin.analysis.causes.fix import Change, Fix, apply_all
from tb_torchcompile_plugin.analysis.causes.registry import PRICED, fixes
from tb_torchcompile_plugin.analysis.causes.what_if import replay_error_percent, step_cost, why_nothing
from tb_torchcompile_plugin.analysis.finding import SECTIONS, Panel, Predicted, prediction
from tb_torchcompile_plugin.analysis.formatting import about, duration, plural
from tb_torchcompile_plugin.analysis.runtime.step_picture import (
    Picture,
    TimeUnit,
    how_steps_were_found,
    modeled_steps,
    step_picture,
    time_unit,
)
from tb_torchcompile_plugin.profile.model.model import Model, model, without_overhead
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import StepTime, step_time

MAX_ROWS = 20  # fixes that are listed without being picked


class FixRow(what_if.WhatIf, frozen=True):
    """A fix with its words."""

    sentence: str  # what is to be fixed
    next_step: str
    code: str | None  # the part of the next step that can be pasted
    panel: Panel
    section: str
    note: str  # about it together with the other picked ones, or ""


class Scenario(msgspec.Struct, frozen=True):
    """The step now, and with the picked fixes."""

    headline: str
    why_nothing: str | None  # why nothing can be predicted
    step: StepTime
    replay_error_percent: float | None  # a step replayed as it was recorded, compared with the recorded one
    now: Picture | None
    after: Picture | None  # None where none is picked, as `combined`
    combined: Predicted | None
    fixes: list[FixRow]  # largest gain first
    left_out: int  # fixes that are not listed
    selected: list[str]
    unknown: list[str]  # picked ids of no fix


class PossibleFixes(NamedTuple):
    """The possible fixes, and what each would bring, largest gain first."""

    fixes: tuple[Fix, ...]
    rows: tuple[what_if.WhatIf, ...]


def scenario(profile: Profile, selected: Sequence[str] = ()) -> Scenario:
    """Return the step with these fixes (ids) made together, and all possible fixes."""
    return scenario_with(profile, profile.of(span_fixes), selected)


def span_fixes(profile: Profile) -> PossibleFixes:
    """Return the fixes that a span has without its job."""
    return PossibleFixes(tuple(profile.of(fixes)), tuple(profile.of(predicted_fixes)))


def scenario_with(profile: Profile, offer: PossibleFixes, selected: Sequence[str]) -> Scenario:
    """Return the step with these of the offered fixes made together."""
    rows, ids = offer.rows, list(dict.fromkeys(selected))
    offered_ids = {row.id for row in rows}
    chosen_ids = [fix_id for fix_id in ids if fix_id in offered_ids]
    shown = [row for index, row in enumerate(rows) if index < MAX_ROWS or row.id in chosen_ids]
    why = profile.of(why_nothing)
    now = None if why else profile.of(picture_now)
    kept, unneeded, ns = profile.of(_picked, offer, tuple(sorted(chosen_ids)) if now else ())
    combined = None
    if kept:
        least = _after_all(profile, [fix.conservative or fix.change for fix in kept])
        most = _after_all(profile, [fix.optimistic or fix.change for fix in kept])
        combined = prediction(profile.of(step_cost).step, ns, least, most)
    of = profile.of(time_unit)
    return Scenario(
        headline=_headline(profile, offer, len(chosen_ids), combined) if now else "No fix is predicted.",
        why_nothing=why,
        step=profile.of(step_time),
        replay_error_percent=None if why else profile.of(replay_error_percent),
        now=now,
        after=step_picture(profile, _changed(profile, kept), profile.of(step_cost).scale, now.host)
        if kept and now
        else None,
        combined=combined,
        fixes=[_in_words(row, of, is_needless=row.id in unneeded) for row in shown],
        left_out=len(rows) - len(shown),
        selected=chosen_ids,
        unknown=[fix_id for fix_id in ids if fix_id not in offered_ids],
    )


def _in_words(row: what_if.WhatIf, unit: TimeUnit, *, is_needless: bool) -> FixRow:
    cause = PRICED[row.kind]
    words = cause.filled(row, unit)
    next_step, code = split_code(words.next_step)
    return FixRow(
        **msgspec.structs.asdict(row),
        sentence=words.title,
        next_step=next_step,
        code=code,
        panel=cause.panel,
        section=cause.section or SECTIONS[cause.panel][0],
        note="With the other selected fixes, this one gains nothing more." if is_needless else "",
    )


def predicted_fixes(profile: Profile) -> list[what_if.WhatIf]:
    """Return the fixes that make a step shorter, with their gains, largest first."""
    if profile.of(why_nothing):
        return []
    rows = [what_if.predict_fix(profile, fix) for fix in profile.of(fixes)]
    faster = [row for row in rows if row.predicted.after_us < row.predicted.step_us]
    return sorted(faster, key=lambda row: row.predicted.after_us)


def adds_ns(profile: Profile, fix: str, other: str) -> float:
    """Return what the first of these fixes takes off a mean step if the second is made already."""
    changes = {row.id: row.change for row in profile.of(fixes)}
    return _after_all(profile, [changes[other]]) - _after_all(profile, [changes[fix], changes[other]])


def picture_now(profile: Profile) -> Picture:
    """Return where the step goes before anything is fixed."""
    return step_picture(profile, _changed(profile), profile.of(step_cost).scale)


def _changed(profile: Profile, chosen: Sequence[Fix] = ()) -> Model:
    """Return the model with these fixes, without what profiling added."""
    changed = apply_all(profile.of(model), [fix.change for fix in chosen])
    return without_overhead(profile, changed, profile.of(step_cost).slice_ns)


def _after_all(profile: Profile, changes: Sequence[Change]) -> float:
    """Return the step with these changes (ns)."""
    return what_if.after_ns(profile, lambda model: apply_all(model, changes))


def _picked(
    profile: Profile, offer: PossibleFixes, ids: tuple[str, ...]
) -> tuple[list[Fix], list[str], float]:
    """Return the fixes that make the step shorter in turn, best first, the ids of the others, and the step (ns)."""
    by_id = {fix.id: fix for fix in offer.fixes}
    kept: list[Fix] = []
    unneeded, ns = [], float("inf")
    for row in offer.rows:
        if row.id not in ids:
            continue
        after = _after_all(profile, [fix.change for fix in (*kept, by_id[row.id])])
        if after < ns:
            kept, ns = [*kept, by_id[row.id]], after
        else:
            unneeded.append(row.id)
    return kept, unneeded, ns


def _headline(profile: Profile, offer: PossibleFixes, selected: int, combined: Predicted | None) -> str:
    """Return "With 2 fixes, a step takes about 4.1 ms (3.9-4.6) instead of 12.2 ms."."""
    step, unit = profile.of(step_time), profile.of(time_unit).one
    by = "; ".join(filter(None, (profile.of(how_steps_were_found), profile.of(modeled_steps))))
    basis = f" ({by})" if by else ""
    if combined:
        after = about(combined.after_us, combined.low_us, combined.high_us)
        now = duration(step.step_us)
        return f"With {plural(selected, 'fix', 'fixes')}, {unit} takes {after} instead of {now}{basis}."
    clock = "the host" if step.device is None else f"GPU {step.device}"
    more = (
        "Select fixes to see the predicted time." if offer.rows else "No fix was found that would shorten it."
    )
    return f"{unit[0].upper()}{unit[1:]} takes {duration(step.step_us)} on {clock}’s clock{basis}. {more}"
