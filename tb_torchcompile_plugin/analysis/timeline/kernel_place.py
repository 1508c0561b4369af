"""Where one launch of a kernel stands: among all launches of it, behind its call, and behind what ran before."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tb_torchcompile_plugin.profile.gpu_work import busy, gpu_work
from tb_torchcompile_plugin.profile.intervals import Int64s, Intervals
from tb_torchcompile_plugin.profile.profile import Profile


class KernelPlace(NamedTuple):
    """number: of its launches on its device, by time, from 1; previous, following: the ones beside it, -1 for none.
    queued_ns: from the begin of the call that launched it, None where that is not in the trace. idle_before_ns: how
    long its device did nothing before it began; 0 where it did not wait for it, None before the first event."""

    number: int
    of: int
    previous: int
    following: int
    queued_ns: int | None
    idle_before_ns: int | None


def kernel_place(profile: Profile, row: int) -> KernelPlace:
    """row: of the trace, a GPU event."""
    trace, work = profile.trace, profile.of(gpu_work)
    mine = work.where(work.device == trace.device[row]).index
    same = mine[trace.name[mine] == trace.name[row]]
    same = same[np.argsort(trace.ts[same], kind="stable")]
    place = int(np.flatnonzero(same == row)[0])
    call = int(trace.launch_of()[row])
    return KernelPlace(
        number=place + 1,
        of=len(same),
        previous=_at(same, place - 1),
        following=_at(same, place + 1),
        queued_ns=int(trace.ts[row] - trace.ts[call]) if call >= 0 else None,
        idle_before_ns=_idle_before(profile.of(busy_by_device)[int(trace.device[row])], int(trace.ts[row])),
    )


def busy_by_device(profile: Profile) -> dict[int, Intervals]:
    """When each device did something."""
    work = profile.of(gpu_work)
    devices = np.unique(work.device).tolist()
    return {int(one): busy(profile.trace, work.where(work.device == one).index) for one in devices}


def _at(rows: Int64s, place: int) -> int:
    return int(rows[place]) if 0 <= place < len(rows) else -1


def _idle_before(working: Intervals, start: int) -> int | None:
    place = int(np.searchsorted(working.starts, start, side="right")) - 1
    if working.starts[place] < start:
        return 0
    return int(start - working.ends[place - 1]) if place else None
