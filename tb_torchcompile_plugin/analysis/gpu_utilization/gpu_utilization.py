"""The GPU utilization of one span, put together: what `report --json` prints and the route answers."""

from __future__ import annotations

import msgspec

from tb_torchcompile_plugin.analysis.gpu_utilization.devices import Stream, streams
from tb_torchcompile_plugin.analysis.gpu_utilization.held_up import HeldUp, held_up
from tb_torchcompile_plugin.analysis.gpu_utilization.idle import (
    GapBin,
    IdleCauses,
    gap_histogram,
    idle_causes,
)
from tb_torchcompile_plugin.analysis.gpu_utilization.idle_gaps import IdleGap, longest_gaps
from tb_torchcompile_plugin.analysis.gpu_utilization.launch_stats import LaunchStats, launch_stats
from tb_torchcompile_plugin.analysis.gpu_utilization.step_utilization import (
    DeviceInStep,
    StepUtilization,
    utilization,
)
from tb_torchcompile_plugin.analysis.gpu_utilization.verdicts import Verdict
from tb_torchcompile_plugin.analysis.what_if.step_words import idle_of
from tb_torchcompile_plugin.profile.gpu.idle import Gaps, causes_of, idle_gaps
from tb_torchcompile_plugin.profile.host.thread_activity import ThreadActivity
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.units import us

_GAPS_LISTED = 50  # of each device


class DeviceIdle(msgspec.Struct, frozen=True):
    """Why one device idled inside its span, and how long at a time: causes and bins both sum to `idle_us`."""

    device: int
    idle_us: float
    gaps: int
    causes: IdleCauses
    histogram: list[GapBin]


class GpuUtilization(msgspec.Struct, frozen=True):
    """`verdict` is over all steps, or over `window` where there are none; `mean`: what its device did in the mean one.
    `held_up_of`: what the times of `held_up` are of, "a step". Without GPU events `verdict`, `mean`, `window` and
    `launch_stats` are None and the lists empty. `longest_gaps`: some of each device, longest first."""

    verdict: Verdict | None
    mean: DeviceInStep | None
    held_up: list[HeldUp]
    held_up_of: str
    idle: list[DeviceIdle]
    streams: list[Stream]
    steps: list[StepUtilization]
    window: StepUtilization | None
    longest_gaps: list[IdleGap]
    launch_stats: LaunchStats | None


def gpu_utilization(profile: Profile) -> GpuUtilization:
    """All that is known of GPU time but kernels."""
    used = profile.of(utilization)
    inside = {device: gaps.inner() for device, gaps in profile.of(idle_gaps).items()}
    longest = [
        gap for device, gaps in inside.items() for gap in longest_gaps(profile, device, gaps, _GAPS_LISTED)
    ]
    steps = used.steps if used else []
    return GpuUtilization(
        verdict=used.verdict if used else None,
        mean=used.mean if used else None,
        held_up=profile.of(held_up),
        held_up_of=profile.of(idle_of),
        idle=[_idle(profile, device, gaps) for device, gaps in inside.items()],
        streams=profile.of(streams),
        steps=steps,
        window=used.window if used else None,
        longest_gaps=sorted(longest, key=lambda gap: -gap.idle_us),
        launch_stats=profile.of(launch_stats),
    )


def _idle(profile: Profile, device: int, gaps: Gaps) -> DeviceIdle:
    idle = int((gaps.ends - gaps.starts).sum())
    causes = causes_of(gaps, profile.of(ThreadActivity)).sum(axis=0)
    assert int(causes.sum()) == idle
    return DeviceIdle(
        device=device,
        idle_us=us(idle),
        gaps=len(gaps),
        causes=idle_causes(causes),
        histogram=gap_histogram(gaps),
    )
