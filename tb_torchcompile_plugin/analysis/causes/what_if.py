"""How long would a step take after each fix? The model of the steps, changed and walked again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

import msgspec

from tb_torchcompile_plugin.analysis.causes.autograd_fixes import AUTOGRAD_FIXES, ROUNDS_FIXES
from tb_torchcompile_plugin.analysis.causes.change import Change
from tb_torchcompile_plugin.analysis.causes.fix import Fix, FixKind
from tb_torchcompile_plugin.analysis.causes.gpu_fixes import COLLECTIVE_FIXES, GPU_FIXES
from tb_torchcompile_plugin.analysis.causes.host_fixes import HOST_FIXES, LAUNCH_FIXES
from tb_torchcompile_plugin.analysis.causes.optimizer_fix import sparse_embedding
from tb_torchcompile_plugin.analysis.finding import Predicted, prediction
from tb_torchcompile_plugin.profile.gpu_work import gpu_work
from tb_torchcompile_plugin.profile.model.clock import clock, recorded_clock
from tb_torchcompile_plugin.profile.model.gpu_queue import gpu_queue
from tb_torchcompile_plugin.profile.model.launch_sequence import host_lane
from tb_torchcompile_plugin.profile.model.model import Replayed, model, replay
from tb_torchcompile_plugin.profile.model.profiler_overhead import (
    AS_RECORDED,
    Recording,
    recording,
    without_recording,
)
from tb_torchcompile_plugin.profile.profile import Profile

# Can anything be predicted of a recording? Only where its calls lead to GPU work, and the model gives it
# back.


MOST_PERCENT = 2.0  # that the replayed step may differ from the recorded one


def why_nothing(profile: Profile) -> str | None:
    """Why nothing is predicted, as a sentence; None where something is."""
    if profile.trace.is_cut_off:
        return "The trace is cut off, and a part of it does not tell how long a step takes."
    if not len(profile.of(gpu_work).index) and profile.trace.notices:
        return (
            "No work of a GPU is in what could be read of this trace: nothing is predicted from a part of it."
        )
    if not len(profile.of(gpu_work).index):
        return "No work of a GPU was recorded: predicted is how the host and a GPU wait for each other."
    if len(profile.of(host_lane)) < 2 or not len(profile.of(gpu_queue)):
        return "The calls that launched the GPU's work were not recorded, so what held it up is not known."
    if not profile.of(recorded_clock).step:
        return (
            "The calls that launched the GPU's work follow each other in no time: there is nothing to gain."
        )
    error = profile.of(replay_error_percent)
    if error > MOST_PERCENT:
        return f"Replayed as it was recorded, a step is {error:.1f} % off: nothing is predicted from that."
    return None


def replay_error_percent(profile: Profile) -> float:
    """How far the replayed length of a step is from the recorded one."""
    lane, queue, recorded = profile.of(host_lane), profile.of(gpu_queue), profile.of(recorded_clock).step
    again = clock(lane, queue, profile.of(replayed)).step
    return 100 * abs(again - recorded) / recorded


def replayed(profile: Profile) -> Replayed:
    """The steps as they were recorded, walked."""
    return replay(profile.of(model))


# Everything that could be mended in the recorded steps, as changes of their model: candidates, no limits.
# What a fix takes out is read off the recording; what it leaves is said where it is not nothing.


_MAKERS = (
    *AUTOGRAD_FIXES,
    *ROUNDS_FIXES,
    *COLLECTIVE_FIXES,
    *HOST_FIXES,
    *LAUNCH_FIXES,
    sparse_embedding,
    *GPU_FIXES,
)


def fixes(profile: Profile) -> list[Fix]:
    """All candidates, each with an id of its own; most of them would bring nothing. [] without launches."""
    if len(profile.of(host_lane)) < 2:
        return []
    return told_apart(fix for make in _MAKERS for fix in make(profile))


def told_apart(candidates: Iterable[Fix]) -> list[Fix]:
    """With a number behind an id that another one has: two functions may stand in one line. Ids are single lines."""
    seen, named = Counter[str](), []
    for fix in candidates:
        name = " ".join(fix.id.split())
        seen[name] += 1
        named.append(replace(fix, id=name if seen[name] == 1 else f"{name}#{seen[name]}"))
    return named


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
