"""Where the time of a rank's GPU goes in each step, as far as the rank alone tells. To the ns."""

from __future__ import annotations

from typing import NamedTuple

from tb_torchcompile_plugin.profile.gpu_work import busy, gpu_work, layers
from tb_torchcompile_plugin.profile.intervals import Int64s, Intervals, covered_ns, subtract
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import gpu_steps


class OwnSteps(NamedTuple):
    """By step of the slowest GPU, as columns (ns): all but window, begin and end, and what communicates alone, sum to
    its length. window: its number among the profiled steps."""

    window: Int64s
    begin: Int64s
    end: Int64s
    compute: Int64s
    overlapped: Int64s
    exposed_memory: Int64s
    idle: Int64s


class RankGpu(NamedTuple):
    """exposed: when collectives ran and nothing computed; whether they wait or transfer, only all ranks tell."""

    steps: OwnSteps
    exposed: Intervals


def rank_gpu(profile: Profile) -> RankGpu | None:
    """None where no step launched GPU work."""
    steps = profile.of(gpu_steps)
    if steps is None or not len(steps.step):
        return None
    work = profile.of(gpu_work)
    mine = work.where(work.device == steps.device)
    did = layers(profile.trace, mine)

    def inside(intervals: Intervals) -> Int64s:
        return covered_ns(intervals, steps.begin, steps.end)

    computing, active = inside(did.compute), inside(did.memory)
    alone = inside(subtract(did.compute, busy(profile.trace, mine.of("communication").index)))
    memory, idle = active - inside(did.communication), steps.length - active
    own = OwnSteps(steps.step, steps.begin, steps.end, alone, computing - alone, memory, idle)
    return RankGpu(own, subtract(did.communication, did.compute))
