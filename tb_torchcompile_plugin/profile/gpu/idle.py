"""When did each GPU idle, for which launch did it wait, and what did the thread that launched do meanwhile?

Each idle interval belongs to the launch of the first GPU event after it, and is cut at the host events of the thread
that made this launch. So the causes of a device sum to its idle time, to the nanosecond.
"""

from dataclasses import dataclass

import numpy as np

from tb_torchcompile_plugin.profile.columns import Int64s, Intervals, ranges
from tb_torchcompile_plugin.profile.gpu_work import busy, gpu_work
from tb_torchcompile_plugin.profile.host.thread_activity import ThreadActivity
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import has_gpu_records


@dataclass(frozen=True, eq=False)
class Gaps:
    """Idle intervals of one device in order of time, as columns; -1 where unknown."""

    starts: Int64s
    ends: Int64s
    preceding: Int64s  # the last GPU event before the gap
    following: Int64s  # the first one after it
    launch: Int64s  # the host slice that launched the latter
    track: Int64s  # its thread

    def __len__(self) -> int:
        return len(self.starts)

    def inner(self) -> "Gaps":
        """Return the intervals between the first GPU event and the last one."""
        return self.take(np.arange(1, len(self) - 1))

    def take(self, rows: Int64s) -> "Gaps":
        """Return some of them."""
        return Gaps(*(column[rows] for column in vars(self).values()))


def idle_gaps(profile: Profile) -> dict[int, Gaps]:
    """Return all idle intervals of each device, from the start of the trace to its end.

    The first one ends with the first GPU event, the last one begins where the last one ends; both may be empty. {}
    where each step lacks GPU records: then idle time is unknown.
    """
    trace, work = profile.trace, profile.of(gpu_work)
    first, last = trace.window()
    gaps: dict[int, Gaps] = {}
    if not profile.of(has_gpu_records):
        return gaps
    for device, done in profile.of(busy_intervals).items():
        index = work.index[work.device == device]
        row = _at(index, trace.ts[index], done.starts)
        call = trace.launch_of()[row]
        launch = np.where(call >= 0, call, trace.op_of()[row])
        track = np.where(launch >= 0, trace.track[launch], -1).astype(np.int64)
        gaps[device] = Gaps(
            starts=np.append(first, done.ends),
            ends=np.append(done.starts, last),
            preceding=np.append(-1, _at(index, trace.ts[index] + trace.dur[index], done.ends)),
            following=np.append(row, -1),
            launch=np.append(launch, -1),
            track=np.append(track, -1),
        )
    return gaps


def busy_intervals(profile: Profile) -> dict[int, Intervals]:
    """Return when each device did something."""
    work = profile.of(gpu_work)
    devices = np.unique(work.device).tolist()
    return {device: busy(profile.trace, work.index[work.device == device]) for device in devices}


def idle_before(profile: Profile, device: int, starts: Int64s) -> Int64s:
    """Return how long a device had been idle when events of it began at these times (ns).

    0: it was busy until then; -1: nothing is known to have run before.
    """
    done = profile.of(busy_intervals)[device]
    index = np.searchsorted(done.starts, starts, side="right") - 1
    idle = np.where(index > 0, starts - done.ends[index - 1], -1)
    return np.where(done.starts[index] < starts, 0, idle)


def _at(index: Int64s, times: Int64s, moments: Int64s) -> Int64s:
    """Return for each moment the first of `index` whose time it is."""
    order = np.argsort(times, kind="stable")
    return np.asarray(index[order][np.searchsorted(times[order], moments)])


def causes_of(gaps: Gaps, threads: ThreadActivity) -> Int64s:
    """Return the ns of each cause (columns) in each gap (rows)."""
    return threads.split(gaps.starts, gaps.ends, gaps.track)


def causes_in(gaps: Gaps, threads: ThreadActivity, begins: Int64s, ends: Int64s) -> Int64s:
    """Return the ns of each cause (columns) in each window (rows), of the parts of the gaps in it."""
    low = np.searchsorted(gaps.ends, begins, side="right")
    counts = np.maximum(np.searchsorted(gaps.starts, ends, side="left") - low, 0)
    window, gap = ranges(low, counts)
    starts = np.maximum(gaps.starts[gap], begins[window])
    stops = np.minimum(gaps.ends[gap], ends[window])
    pieces = threads.split(starts, stops, gaps.track[gap])
    before = np.concatenate((np.zeros((1, pieces.shape[1]), np.int64), np.cumsum(pieces, axis=0)))
    edges = np.cumsum(counts)
    return np.asarray(before[edges] - before[edges - counts])
