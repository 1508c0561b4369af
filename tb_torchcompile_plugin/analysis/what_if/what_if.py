"""How long would a step take after each fix? The model of the steps, changed and walked again."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from tb_torchcompile_plugin.analysis.findings.finding import Predicted, prediction
from tb_torchcompile_plugin.analysis.what_if.change import Change
from tb_torchcompile_plugin.analysis.what_if.fix import Fix, FixKind
from tb_torchcompile_plugin.analysis.what_if.fixes import fixes
from tb_torchcompile_plugin.analysis.what_if.reasons import why_nothing
from tb_torchcompile_plugin.profile.model.clock import clock
from tb_torchcompile_plugin.profile.model.gpu_queue import gpu_queue
from tb_torchcompile_plugin.profile.model.launch_sequence import host_lane
from tb_torchcompile_plugin.profile.model.model import model, replay
from tb_torchcompile_plugin.profile.model.profiler_overhead import (
    AS_RECORDED,
    Recording,
    recording,
    without_recording,
)
from tb_torchcompile_plugin.profile.profile import Profile


class WhatIf(msgspec.Struct, frozen=True):
    """One fix with what it would bring. times: how often a step it applies."""

    id: str
    kind: FixKind
    name: str
    file: str
    line: int
    times: float
    predicted: Predicted


class StepCost(NamedTuple):
    """What a step takes (ns), and what recording it cost, nothing where that is not known."""

    step: float
    recording: Recording


def step_cost(profile: Profile, unrecorded_ns: float | None = None) -> StepCost:
    """As recorded; where it is known how long a step takes when nobody records, as it is then."""
    cost = recording(profile, unrecorded_ns) if unrecorded_ns else AS_RECORDED
    return StepCost(after_ns(profile, lambda made: made, cost), cost)


def what_if(profile: Profile, unrecorded_ns: float | None = None) -> list[WhatIf]:
    """Largest gain first; fixes that bring nothing are left out, and all of them where nothing can be predicted.
    unrecorded_ns: of a step while nobody records."""
    if profile.of(why_nothing):
        return []
    now = profile.of(step_cost, unrecorded_ns)
    rows = [what_if_row(profile, fix, now) for fix in profile.of(fixes)]
    return sorted(
        (row for row in rows if row.predicted.after_us < row.predicted.step_us),
        key=lambda row: row.predicted.after_us,
    )


def what_if_row(profile: Profile, fix: Fix, now: StepCost) -> WhatIf:
    """What a fix brings."""
    changes = [fix.change, *(one for one in (fix.surely, fix.perhaps) if one is not None)]
    return WhatIf(
        id=fix.id,
        kind=fix.kind,
        name=fix.subject.name,
        file=fix.subject.file,
        line=fix.subject.line,
        times=fix.times,
        predicted=prediction(now.step, *(after_ns(profile, one, now.recording) for one in changes)),
    )


def after_ns(profile: Profile, change: Change, cost: Recording = AS_RECORDED) -> float:
    """Mean length of a step after a change, without what recording cost."""
    changed = without_recording(profile, change(profile.of(model)), cost)
    return clock(profile.of(host_lane), profile.of(gpu_queue), replay(changed)).step
