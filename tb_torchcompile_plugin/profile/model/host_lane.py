"""The host's side of a step as one lane: the calls through which it meets the GPUs, in order of time.

A step is fed by one thread at a time: while autograd's thread runs a backward, the one that called it waits. So the
calls that give work to a GPU, and those that wait for one, stand in one row whatever their thread, and the time
between two of them is what the host needed to get to the second.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tb_torchcompile_plugin.profile.gpu.launch_calls import launch_calls
from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.profile.model.loop import loop_steps
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.slices import mask_of, place_mask
from tb_torchcompile_plugin.torch_names.slices import RUNTIME_CATS, is_synchronisation

_LONG_NS = 50_000  # a call that takes longer may have waited for a GPU


@dataclass(frozen=True, eq=False)
class HostLane:
    """Points in order of time, as columns (ns).

    row: the runtime or driver call; -1 for the begin of a step and for the end of the last one. launches: whether it
    gave work to a GPU. synchronises: whether waiting is what it is for. marks: places of the steps' begins among the
    points, and of the last one's end; without steps the first and the last point.
    """

    row: Int64s
    track: Int64s
    begin: Int64s
    end: Int64s
    launches: npt.NDArray[np.bool_]
    synchronises: npt.NDArray[np.bool_]
    marks: Int64s

    def __len__(self) -> int:
        return len(self.row)

    @property
    def steps(self) -> int:
        """How many whole steps there are; the span is one where nothing tells steps."""
        return max(len(self.marks) - 1, 1)


def host_lane(profile: Profile) -> HostLane:
    """The lane of the profiled steps; of the span where there are none. Of very many calls only the first ones are
    taken, in whole steps. Without launches there are only the marks of the steps."""
    trace, launched = profile.trace, profile.of(launch_calls).call
    calls = trace.select(cat=RUNTIME_CATS)
    feeds = place_mask(trace.track[launched], len(trace.tracks))
    waits = mask_of(trace.names, is_synchronisation)[trace.name[calls]]
    chosen = waits | (trace.dur[calls] > _LONG_NS)
    launches, waiting = (place_mask(mine, len(trace)) for mine in (launched, calls[waits]))
    rows = np.flatnonzero(launches | place_mask(calls[feeds[trace.track[calls]] & chosen], len(trace)))
    moments = _moments(profile, rows)
    rows = _chosen(profile, rows, moments)
    return _lane(profile, rows, moments, launches[rows], waiting[rows])


def is_cut(profile: Profile) -> bool:
    """Whether there are more calls than the lane holds."""
    lane, moments = profile.of(host_lane), profile.of(loop_steps).moments
    return len(lane.marks) < len(moments) if len(moments) else len(lane) >= profile.most_calls


def _moments(profile: Profile, rows: Int64s) -> Int64s:
    """The begins of the steps that the lane holds, and the end of the last one; none without steps."""
    moments = profile.of(loop_steps).moments
    if not len(moments):
        return moments
    calls = np.searchsorted(np.sort(profile.trace.ts[rows]), moments)
    fitting = int(np.searchsorted(calls - calls[0], profile.most_calls, side="right")) - 1
    return moments[: max(1, fitting) + 1]


def _chosen(profile: Profile, rows: Int64s, moments: Int64s) -> Int64s:
    begin = profile.trace.ts[rows]
    if not len(moments):
        return rows[np.argsort(begin, kind="stable")[: profile.most_calls]]
    return np.asarray(rows[(begin >= moments[0]) & (begin < moments[-1])])


def _lane(
    profile: Profile,
    rows: Int64s,
    moments: Int64s,
    launches: npt.NDArray[np.bool_],
    waits: npt.NDArray[np.bool_],
) -> HostLane:
    trace = profile.trace
    marks = np.full(len(moments), -1)
    row = np.concatenate((marks, rows))
    begin = np.concatenate((moments, trace.ts[rows]))
    order = np.lexsort((row >= 0, begin))
    end = np.concatenate((moments, trace.ts[rows] + trace.dur[rows]))[order]
    none = np.zeros(len(moments), bool)
    place = np.flatnonzero(row[order] < 0) if len(moments) else np.array([0, len(rows) - 1])[: len(rows)]
    track = np.concatenate((np.full(len(moments), profile.of(loop_steps).track), trace.track[rows]))
    return HostLane(
        row=row[order],
        track=track[order],
        begin=begin[order],
        end=end,
        launches=np.concatenate((none, launches))[order],
        synchronises=np.concatenate((none, waits))[order],
        marks=place,
    )
