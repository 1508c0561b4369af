"""Where one launch of a kernel stands: among all launches of it, behind its call, and behind what ran before."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tb_torchcompile_plugin.profile.gpu.idle import idle_before
from tb_torchcompile_plugin.profile.gpu_work import gpu_work
from tb_torchcompile_plugin.profile.intervals import Int64s
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
    waited = int(idle_before(profile, int(trace.device[row]), trace.ts[[row]])[0])
    return KernelPlace(
        number=place + 1,
        of=len(same),
        previous=_at(same, place - 1),
        following=_at(same, place + 1),
        queued_ns=int(trace.ts[row] - trace.ts[call]) if call >= 0 else None,
        idle_before_ns=waited if waited >= 0 else None,
    )


def _at(rows: Int64s, place: int) -> int:
    return int(rows[place]) if 0 <= place < len(rows) else -1
