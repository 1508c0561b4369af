"""The step as it is, what could be mended in it, and the step with some of that mended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis.causes.change import together
from tb_torchcompile_plugin.analysis.causes.fix import Fix
from tb_torchcompile_plugin.analysis.causes.fix_words import SeenIn, next_step, sentence, words_of
from tb_torchcompile_plugin.analysis.causes.what_if import (
    WhatIf,
    after_ns,
    fixes,
    replay_error_percent,
    step_cost,
    what_if,
    what_if_row,
    why_nothing,
)
from tb_torchcompile_plugin.analysis.finding import Predicted, prediction
from tb_torchcompile_plugin.analysis.formatting import between, duration, plural
from tb_torchcompile_plugin.analysis.runtime.step_picture import Picture, picture
from tb_torchcompile_plugin.analysis.runtime.step_words import Paced, only, paced, slowed, told_by
from tb_torchcompile_plugin.profile.model.clock import Clock, clock, recorded_clock
from tb_torchcompile_plugin.profile.model.gpu_queue import gpu_queue
from tb_torchcompile_plugin.profile.model.launch_sequence import StepSource, host_lane, loop_steps
from tb_torchcompile_plugin.profile.model.model import Model, model, replay
from tb_torchcompile_plugin.profile.model.profiler_overhead import Recording, without_recording
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import unrecorded_step_ns

Which = Literal["change", "surely", "perhaps"]  # which change of a fix
UNSURE: tuple[Which, ...] = ("surely", "perhaps")
_MOST = 20  # fixes that are told without being asked for


class StepLength(msgspec.Struct, frozen=True):
    """A mean step, or the span where there are no steps (µs).

    step_us: as everything is predicted for, unrecorded where that is known. clock: what sets its pace; device: the GPU
    if one does. recorded_us: as it was recorded. unrecorded_us: while nobody recorded, as the handler noted it.
    steps: how many the model holds, 0 where the span has none; steps_from: what tells them.
    replay_error_percent: replayed against recorded.
    """

    step_us: float
    clock: Literal["host", "gpu"]
    device: int | None
    host_us: float
    gpu_us: float | None
    recorded_us: float
    unrecorded_us: float | None
    steps: int
    steps_from: StepSource
    replay_error_percent: float


class FixRow(WhatIf, frozen=True):
    """A fix with its words. sentence: what is to be mended. code: what of the next step can be pasted. panel: where it
    is seen. note: what is to be said of it beside the other picked ones, or ""."""

    sentence: str
    next_step: str
    code: str | None
    panel: SeenIn
    note: str


class Scenario(msgspec.Struct, frozen=True):
    """What if these were mended? headline: the step now, and with the picked ones.

    why_nothing: where nothing can be predicted, why; then there is no step to show.
    fixes: largest gain first, so many more are `left_out`. picked: those that were asked for; needless: which of them
    bring nothing beside the others; unknown: ids of none. combined, after: with the picked ones, null without any.
    """

    headline: str
    why_nothing: str | None
    step: StepLength | None
    now: Picture | None
    after: Picture | None
    combined: Predicted | None
    fixes: list[FixRow]
    left_out: int
    picked: list[str]
    needless: list[str]
    unknown: list[str]


class Offer(NamedTuple):
    """What could be mended, and what each would bring, largest gain first."""

    fixes: tuple[Fix, ...]
    rows: tuple[WhatIf, ...]


class _Picked(NamedTuple):
    """kept: what brings something beside the others, largest gain first."""

    kept: list[Fix]
    needless: list[str]
    ns: float


def scenario(profile: Profile, picked: Sequence[str] = ()) -> Scenario:
    """picked: ids of fixes that are made together."""
    return offered(profile, profile.of(own_offer), picked)


def own_offer(profile: Profile) -> Offer:
    """What a span tells on its own."""
    return Offer(tuple(profile.of(fixes)), tuple(profile.of(priced)))


def offered(profile: Profile, offer: Offer, picked: Sequence[str]) -> Scenario:
    """The same of what is offered."""
    rows = offer.rows
    known = {row.id for row in rows}
    wanted = [one for one in dict.fromkeys(picked) if one in known]
    shown = [row for place, row in enumerate(rows) if place < _MOST or row.id in wanted]
    why = profile.of(why_nothing)
    now = None if why else profile.of(picture_now)
    chosen = profile.of(_made, offer, tuple(sorted(wanted))) if wanted and now else None
    combined = _combined(profile, chosen) if chosen else None
    needless = chosen.needless if chosen else []
    return Scenario(
        headline=_headline(profile, offer, len(wanted), combined) if now else "Nothing is predicted.",
        why_nothing=why,
        step=None if why else profile.of(step_length),
        now=now,
        after=picture(profile, _changed(profile, chosen.kept), now.host) if chosen and now else None,
        combined=combined,
        fixes=[_row(row, profile.of(paced), row.id in needless) for row in shown],
        left_out=len(rows) - len(shown),
        picked=wanted,
        needless=needless,
        unknown=[one for one in dict.fromkeys(picked) if one not in known],
    )


def priced(profile: Profile) -> list[WhatIf]:
    """The fixes as findings ask for them."""
    return profile.of(what_if, profile.of(_unrecorded_ns))


def priced_fix(profile: Profile, fix: Fix) -> WhatIf:
    """One more, priced as those are."""
    return what_if_row(profile, fix, profile.of(step_cost, profile.of(_unrecorded_ns)))


def shared_ns(profile: Profile, fix: str, other: str) -> float:
    """Of a mean step the host time that both of these fixes take out."""
    by_id, made = {one.id: one for one in profile.of(fixes)}, profile.of(model)
    mine, its = (made.host - by_id[one].change(made).host for one in (fix, other))
    return float(np.minimum(mine, its).clip(0).sum()) / profile.of(host_lane).steps


def adds_ns(profile: Profile, fix: str, other: str) -> float:
    """What the first of these fixes takes off a mean step where the second is made already."""
    by_id = {one.id: one.change for one in profile.of(fixes)}
    cost = profile.of(step_cost, profile.of(_unrecorded_ns)).recording
    alone = after_ns(profile, by_id[other], cost)
    return alone - after_ns(profile, lambda made: together(made, [by_id[fix], by_id[other]]), cost)


def step_length(profile: Profile) -> StepLength:
    """As it is. Raises IndexError where nothing was launched."""
    unrecorded, recorded = profile.of(_unrecorded_ns), profile.of(recorded_clock)
    now, loop = profile.of(_walked), profile.of(loop_steps)
    on_gpu = now.step > now.host
    return StepLength(
        step_us=now.step / 1000,
        clock="gpu" if on_gpu else "host",
        device=now.device if on_gpu else None,
        host_us=now.host / 1000,
        gpu_us=None if now.gpu is None else now.gpu / 1000,
        recorded_us=recorded.step / 1000,
        unrecorded_us=None if unrecorded is None else unrecorded / 1000,
        steps=0 if loop.source == "span" else len(profile.of(host_lane).marks) - 1,
        steps_from=loop.source,
        replay_error_percent=profile.of(replay_error_percent),
    )


def picture_now(profile: Profile) -> Picture:
    """Before anything is mended."""
    return picture(profile, _changed(profile))


def _unrecorded_ns(profile: Profile) -> int | None:
    return profile.data.of(unrecorded_step_ns) if profile.data else None


def recording_cost(profile: Profile) -> Recording:
    """What recording cost the steps, as all predictions leave it out."""
    return profile.of(step_cost, profile.of(_unrecorded_ns)).recording


def _changed(profile: Profile, chosen: Sequence[Fix] = (), which: Which = "change") -> Model:
    """With these fixes, without what writing the slices cost."""
    made = together(profile.of(model), [getattr(fix, which) or fix.change for fix in chosen])
    return without_recording(profile, made, profile.of(recording_cost))


def _walked(profile: Profile, chosen: Sequence[Fix] = (), which: Which = "change") -> Clock:
    times = replay(_changed(profile, chosen, which))
    return clock(profile.of(host_lane), profile.of(gpu_queue), times)


def _made(profile: Profile, offer: Offer, picked: tuple[str, ...]) -> _Picked:
    """The best one, and of the others each that makes the step shorter still."""
    by_id = {fix.id: fix for fix in offer.fixes}
    kept: list[Fix] = []
    needless, ns = [], float("inf")
    for row in offer.rows:
        if row.id not in picked:
            continue
        after = _walked(profile, [*kept, by_id[row.id]]).step
        if after < ns:
            kept, ns = [*kept, by_id[row.id]], after
        else:
            needless.append(row.id)
    return _Picked(kept, needless, ns)


def _combined(profile: Profile, chosen: _Picked) -> Predicted:
    bounds = (_walked(profile, chosen.kept, which).step for which in UNSURE)
    return prediction(profile.of(_walked).step, chosen.ns, *bounds)


def _headline(profile: Profile, offer: Offer, picked: int, combined: Predicted | None) -> str:
    """ "Step 12.2 ms on the host's clock → 4.10 ms with 2 fixes (3.90-4.60 ms)." """
    step, recording = profile.of(step_length), slowed(profile)
    by = "; ".join(filter(None, (profile.of(told_by), profile.of(only))))
    clock = "the host" if step.device is None else f"GPU {step.device}"
    now = f"{duration(step.step_us)} on {clock}’s clock{f' ({by})' if by else ''}"
    if combined:
        range_ = between(combined.low_us, combined.high_us)
        after = f"{duration(combined.after_us)} with {plural(picked, 'fix', 'fixes')}"
        said = f"{'Step' if step.steps else 'Span'} {now} → {after}{f' ({range_})' if range_ else ''}."
    else:
        said = f"{'A step' if step.steps else 'The span'} takes {now}."
        if not offer.rows:
            said += " Nothing was found that would make it faster."
    return f"{said} {recording}; predictions are for the step unrecorded." if recording else said


def _row(row: WhatIf, of: Paced, needless: bool) -> FixRow:
    return FixRow(
        **msgspec.structs.asdict(row),
        sentence=sentence(row, of),
        next_step=next_step(row),
        code=words_of(row).code,
        panel=words_of(row).panel,
        note="Beside the other picked fixes it brings nothing more." if needless else "",
    )
