"""How long is a steady step, and how far may chance move that?

As the handler noted steps that nobody recorded, where it did on both sides; else as they were recorded. Where a GPU
sets the pace, by its clock: the host's notes then tell only how far it runs ahead. Steps that compiled are left out.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from math import hypot
from typing import NamedTuple

import msgspec

from tb_torchcompile_plugin.analysis.compare.compiling_steps import compiling
from tb_torchcompile_plugin.analysis.step_breakdown.step_times import StepTimes, noise_us, step_times
from tb_torchcompile_plugin.analysis.what_if.reasons import why_nothing
from tb_torchcompile_plugin.analysis.what_if.scenario import step_length
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import pace
from tb_torchcompile_plugin.profile.units import us

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
