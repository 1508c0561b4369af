"""The steps as they are when nobody records: recording makes the host slower, the GPU not.

Each slice that is written costs the thread that runs it the same, half of it right before it begins and half right
after it ended, so code of many short ones suffers most. How long steps take outside of the recorded window is known
where the handler noted it; the cost of a slice is the one with which the model, walked without it, takes that long.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.profile.model.attribution import line_lookups
from tb_torchcompile_plugin.profile.model.clock import Clock, clock
from tb_torchcompile_plugin.profile.model.gpu_queue import gpu_queue
from tb_torchcompile_plugin.profile.model.launch_sequence import host_lane, host_pieces
from tb_torchcompile_plugin.profile.model.model import Model, model, replay
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import host_step_ns

_MOST_NS, _ROUNDS = 1 << 20, 20  # of one slice; halvings of what is between it and nothing
_MOST_STRETCH = 250  # percent, as a piece of time keeps 30 % at least
_LONGEST_NS = 20_000  # writing one takes no longer: what is beyond slows everything alike
USUAL_NS = 3_000  # of one slice: what most of 60 programs were slowed by
_SAME = 1.02  # steps that differ by less are as long
_AHEAD = 1.1  # times as long as a noted step a GPU works for one, where the noted host runs ahead
_SKIPPED = 6  # halvings at once, as long as they lead to what is smaller
_WITH_LOOKUPS_NS = 1_000  # of one slice: where it takes less, looking up lines does so in proportion
_LEFT = 0.3  # of a piece of time, whatever was written in it


def slices_written(profile: Profile) -> npt.NDArray[np.float64]:
    """How many slices begin at the end of each piece of host time or in it, and end so; half of one each."""
    trace, pieces, lane = profile.trace, profile.of(host_pieces), profile.of(host_lane)
    track = np.where(pieces.row >= 0, trace.track[pieces.row], lane.track[pieces.point])
    count = np.zeros(len(track))
    for one in np.unique(track[track >= 0]).tolist():
        here = np.flatnonzero(track == one)
        first, last = trace.track_bounds[one : one + 2].tolist()
        begin = trace.ts[first:last]
        end = np.sort(begin + trace.dur[first:last], kind="stable")  # which are nearly in order
        window = pieces.begin[here], pieces.end[here]
        begun = np.diff(np.searchsorted(begin, window, "right"), axis=0)[0]
        ended = np.diff(np.searchsorted(end, window), axis=0)[0]
        count[here] = (begun + ended) / 2
    return count


class Recording(NamedTuple):
    """What recording did to the host. slice_ns: of writing one slice. stretch: how many times as long as without that
    cost its steps take nevertheless: those that were recorded are shorter than the others for a reason of their own."""

    slice_ns: int = 0
    stretch: float = 1.0


AS_RECORDED = Recording()


def without_recording(profile: Profile, changed: Model, cost: Recording) -> Model:
    """A changed model, if writing a slice cost nothing."""
    made, pieces = profile.of(model), profile.of(host_pieces).ns
    lookups = profile.of(line_lookups) * min(1.0, cost.slice_ns / _WITH_LOOKUPS_NS)
    own = (made.own * cost.stretch * _left(made.own, 1, cost.slice_ns)).astype(np.int64)
    left = _left(pieces - lookups, profile.of(slices_written), cost.slice_ns) * (
        1 - lookups / np.maximum(pieces, 1)
    )
    return changed._replace(
        host=(changed.host * cost.stretch * left).astype(np.int64),
        own=np.where(changed.own == made.own, own, changed.own),
        free=_free(made, changed),
    )


def _free(made: Model, changed: Model) -> Int64s:
    """When each stream is through with what was queued before: work of steps like these, shorter by as much."""
    streams = len(made.free)
    now, then = (np.bincount(one.stream, one.dur, streams) for one in (made, changed))
    left = np.maximum(changed.free - changed.begin, 0)
    saved = left * (1 - np.minimum(then / np.maximum(now, 1), 1))
    return changed.free - np.where(now > 0, saved, 0).astype(np.int64)


def _left(ns: Int64s, slices: npt.NDArray[np.float64] | int, slice_ns: int) -> npt.NDArray[np.float64]:
    """The share that is left of times in which so many slices were written."""
    cost = slices * min(slice_ns, _LONGEST_NS)
    left: npt.NDArray[np.float64] = np.maximum(ns - cost, ns * _LEFT) / np.maximum(ns, 1)
    return left * min(1.0, _LONGEST_NS / max(slice_ns, 1))


def recording(profile: Profile, step_ns: float) -> Recording:
    """What it cost, where an unrecorded step takes `step_ns`: so much that without it a step takes as long.

    Where a GPU sets the pace, a step tells nothing of the host, unless it is one in which the host ran ahead: then the
    usual cost at least. Nor does it where those
    that were recorded take no longer: then the usual cost, of steps that stay as long as they are.
    """
    lane, queue, made = profile.of(host_lane), profile.of(gpu_queue), profile.of(model)

    def walked(slice_ns: int, stretch: float = 1.0) -> Clock:
        return clock(lane, queue, replay(without_recording(profile, made, Recording(slice_ns, stretch))))

    def step(slice_ns: int, stretch: float = 1.0) -> float:
        return walked(slice_ns, stretch).step

    recorded, shortest = step(0), walked(_MOST_NS)
    paced = _SAME * shortest.step  # no cost makes a step shorter than the GPU's work
    if recorded <= paced:
        return Recording(max(profile.of(_cost_ahead) or 0, USUAL_NS))
    if recorded <= step_ns:
        percent = least(lambda more: step(USUAL_NS, 1 + more / 100) >= recorded, _MOST_STRETCH, _ROUNDS // 2)
        return Recording(USUAL_NS, 1 + percent / 100)
    if _AHEAD * step_ns < paced and shortest.host <= step_ns:
        cost = least(lambda slice_ns: walked(slice_ns).host <= step_ns, _MOST_NS, _ROUNDS)
        return Recording(max(cost, USUAL_NS))
    cost = least(lambda slice_ns: step(slice_ns) <= max(step_ns, paced), _MOST_NS, _ROUNDS)
    return Recording(max(cost, USUAL_NS) if step_ns <= paced else cost)


def _cost_ahead(profile: Profile) -> int | None:
    """Of a slice, by the noted steps in which the host ran ahead of a GPU: so much that without it, and without
    waiting, the host takes as long for one. None where no cost makes it so fast."""
    noted = profile.data.of(host_step_ns) if profile.data else None
    if noted is None:
        return None
    lane, queue, made = profile.of(host_lane), profile.of(gpu_queue), profile.of(model)
    alone = made._replace(waits=np.zeros_like(made.waits), target=np.full_like(made.target, -1))

    def is_as_fast(slice_ns: int) -> bool:
        times = replay(without_recording(profile, alone, Recording(slice_ns)))
        return clock(lane, queue, times).host <= noted

    return least(is_as_fast, _MOST_NS, _ROUNDS) if is_as_fast(_MOST_NS) else None


def least(holds: Callable[[int], bool], most: int, halvings: int) -> int:
    """The least number up to `most` for which it holds, as near as so many halvings bring it; it holds for `most`, and
    for all above one for which it does."""
    low, high = 0, most
    # Most answers are small: one look in place of as many halvings, to the same place.
    while halvings > _SKIPPED and holds(high >> _SKIPPED):
        high, halvings = high >> _SKIPPED, halvings - _SKIPPED
    for _ in range(halvings):
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
