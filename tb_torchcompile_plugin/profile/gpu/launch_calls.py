"""What did it cost to give the GPUs their work: how many launch calls, how long, and how long until a kernel ran?

A launch is one call into the CUDA or HIP runtime or driver that put work on a GPU; the replay of a CUDA graph is one.
Its first GPU event tells how long the work took to begin: *latency* where the stream had nothing to do when the call
began, *queue wait* where it was still busy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tb_torchcompile_plugin.profile.columns import distinct
from tb_torchcompile_plugin.profile.gpu_work import gpu_work
from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.trace.kineto import Trace
from tb_torchcompile_plugin.torch_names.slices import is_replay


@dataclass(frozen=True, eq=False)
class LaunchCalls:
    """The launches of a trace in order of time, as columns. `call`: row of the call; `event`: of the first GPU event
    that it launched; `events`: how many it launched; `replay`: whether it replayed a graph; `idle`: whether the
    stream had nothing to do when the call began."""

    call: Int64s
    start: Int64s
    dur: Int64s
    event: Int64s
    events: Int64s
    replay: npt.NDArray[np.bool_]
    idle: npt.NDArray[np.bool_]

    def between(self, begin: int, end: int) -> LaunchTotals:
        """The launches whose call begins in the window [begin, end)."""
        low, high = np.searchsorted(self.start, (begin, end)).tolist()
        return LaunchTotals(high - low, int(self.dur[low:high].sum()), int(self.replay[low:high].sum()))


class LaunchTotals(NamedTuple):
    """Launches in a window, the time of their calls, and how many of them replayed a graph."""

    launches: int
    time_ns: int
    replays: int


def launch_calls(profile: Profile) -> LaunchCalls:
    """Every call that launched GPU work, of all host threads."""
    trace, work = profile.trace, profile.of(gpu_work)
    order = np.argsort(trace.ts[work.index], kind="stable")
    index = work.index[order]
    free = _free_at(trace, index, work.device[order])
    launch = trace.launch_of()[index]
    known = launch >= 0
    call, first, events = np.unique(launch[known], return_index=True, return_counts=True)
    by_time = np.argsort(trace.ts[call], kind="stable")
    call, first, events = call[by_time], np.flatnonzero(known)[first[by_time]], events[by_time]
    replays = [code for code, name in enumerate(trace.names) if is_replay(name)]
    return LaunchCalls(
        call=call,
        start=trace.ts[call],
        dur=trace.dur[call],
        event=index[first],
        events=events,
        replay=np.isin(trace.name[call], replays),
        idle=free[first] <= trace.ts[call],
    )


def _free_at(trace: Trace, index: Int64s, device: Int64s) -> Int64s:
    """For each GPU event, given in order of time: when all earlier work of its stream had ended."""
    lowest = np.iinfo(np.int64).min
    free = np.full(len(index), lowest)
    ends = trace.ts[index] + trace.dur[index]
    streams = trace.stream[index]
    pairs, place = distinct(device, streams)
    for stream in range(pairs.shape[1]):
        here = np.flatnonzero(place == stream)
        free[here[1:]] = np.maximum.accumulate(ends[here])[:-1]
    return free
