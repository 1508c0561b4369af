"""When did each GPU wait, for which launch, and what did the thread that made that launch do meanwhile?

Each idle interval belongs to the launch of the first GPU event after it, and is cut at the host events of the thread
that made this launch. So the causes of a device sum to its idle time, to the nanosecond.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from tb_torchcompile_plugin.profile.gpu_work import GpuWork, busy, gpu_work
from tb_torchcompile_plugin.profile.host.thread_activity import CAUSES, ThreadActivity
from tb_torchcompile_plugin.profile.intervals import Int64s, Intervals
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.trace.kineto import Trace


@dataclass(frozen=True, eq=False)
class Gaps:
    """Idle intervals of one device in order of time, as columns; -1 where unknown.

    preceding, following: the last GPU event before the gap, the first one after it. launch: the host slice
    that launched the latter. track: its thread.
    """

    starts: Int64s
    ends: Int64s
    preceding: Int64s
    following: Int64s
    launch: Int64s
    track: Int64s

    def __len__(self) -> int:
        return len(self.starts)

    def inner(self) -> Gaps:
        """Without what lies before the first GPU event and after the last one."""
        return self.take(np.arange(1, len(self) - 1))

    def take(self, rows: Int64s) -> Gaps:
        columns = self.starts, self.ends, self.preceding, self.following, self.launch, self.track
        return Gaps(*(column[rows] for column in columns))


def idle_gaps(profile: Profile) -> dict[int, Gaps]:
    """All idle intervals of each device, from the start of the trace to its end.

    The first one ends with the first GPU event, the last one begins where the last one ends; both may be empty.
    """
    work = profile.of(gpu_work)
    return {
        int(device): _gaps(profile.trace, work.where(work.device == device))
        for device in np.unique(work.device)
    }


def working(profile: Profile) -> dict[int, Intervals]:
    """When each device did something."""
    work = profile.of(gpu_work)
    devices = np.unique(work.device).tolist()
    return {int(one): busy(profile.trace, work.where(work.device == one).index) for one in devices}


def idle_before(profile: Profile, device: int, starts: Int64s) -> Int64s:
    """How long a device had done nothing when events of it began at these times, ns. 0: it was busy until then; -1:
    nothing is known to have run before."""
    done = profile.of(working)[device]
    place = np.searchsorted(done.starts, starts, side="right") - 1
    waited = np.where(place > 0, starts - done.ends[place - 1], -1)
    return np.where(done.starts[place] < starts, 0, waited)


def _gaps(trace: Trace, work: GpuWork) -> Gaps:
    working = busy(trace, work.index)
    first, last = trace.window()
    row = _at(work.index, trace.ts[work.index], working.starts)
    call = trace.launch_of()[row]
    launch = np.where(call >= 0, call, trace.op_of()[row])
    track = np.where(launch >= 0, trace.track[launch], -1).astype(np.int64)
    nobody = np.array([-1])
    return Gaps(
        starts=np.concatenate(([first], working.ends)),
        ends=np.concatenate((working.starts, [last])),
        preceding=np.concatenate(
            (nobody, _at(work.index, trace.ts[work.index] + trace.dur[work.index], working.ends))
        ),
        following=np.concatenate((row, nobody)),
        launch=np.concatenate((launch, nobody)),
        track=np.concatenate((track, nobody)),
    )


def _at(index: Int64s, times: Int64s, moments: Int64s) -> Int64s:
    """For each moment the first of `index` whose time it is."""
    order = np.argsort(times, kind="stable")
    return np.asarray(index[order][np.searchsorted(times[order], moments)])


def causes_of(gaps: Gaps, threads: ThreadActivity) -> npt.NDArray[np.int64]:
    """ns of each cause (columns) in each gap (rows)."""
    return threads.split(gaps.starts, gaps.ends, gaps.track)


def causes_in(gaps: Gaps, threads: ThreadActivity, begins: Int64s, ends: Int64s) -> npt.NDArray[np.int64]:
    """ns of each cause (columns) in each window (rows): the parts of the gaps that lie in it."""
    low = np.searchsorted(gaps.ends, begins, side="right")
    counts = np.maximum(np.searchsorted(gaps.starts, ends, side="left") - low, 0)
    window = np.repeat(np.arange(len(begins)), counts)
    gap = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts) + np.repeat(low, counts)
    starts = np.maximum(gaps.starts[gap], begins[window])
    stops = np.minimum(gaps.ends[gap], ends[window])
    pieces = threads.split(starts, stops, gaps.track[gap])
    edges = pairwise([0, *np.cumsum(counts).tolist()])
    return np.array([pieces[first:last].sum(axis=0) for first, last in edges], np.int64).reshape(
        -1, len(CAUSES)
    )
