"""The steps as they are when nobody records: recording makes the host slower, the GPU not.

Each slice that is written costs the thread that runs it: an operator or a call into the runtime about 3 µs, a Python
function an eighth of that (measured on 60 programs, see docs/what_if.md). How long steps take outside of the recorded
window is known where the handler noted it; the cost of a slice is the one with which the model, walked without it,
takes that long.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tb_torchcompile_plugin.profile.model.clock import clock
from tb_torchcompile_plugin.profile.model.gpu_queue import gpu_queue
from tb_torchcompile_plugin.profile.model.host_lane import host_lane
from tb_torchcompile_plugin.profile.model.model import Model, model
from tb_torchcompile_plugin.profile.model.replay import replay
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.torch_names.slices import PYTHON_FUNCTION

_MOST_NS, _ROUNDS = 20_000, 14  # of one slice; halvings of what is between it and nothing
_LEFT = 0.1  # of the time between two calls, whatever was written in it
_PYTHON = 8  # functions cost as much as one operator


def slices_before(profile: Profile) -> npt.NDArray[np.float64]:
    """How many slices began on the way to each point of the host lane, its own call among them; Python's count less."""
    trace, lane = profile.trace, profile.of(host_lane)
    python = np.array([cat == PYTHON_FUNCTION for cat in trace.cats] or [False], bool)
    count = np.zeros(len(lane))
    begin = np.concatenate((lane.begin[:1], lane.end[:-1]))
    for track in np.unique(lane.track[lane.track >= 0]).tolist():
        first, last = trace.track_bounds[track : track + 2].tolist()
        times = trace.ts[first:last]
        cost = np.where(python[trace.cat[first:last]], 1 / _PYTHON, 1.0)
        until = np.concatenate(([0.0], np.cumsum(cost)))
        written = until[np.searchsorted(times, lane.begin, "right")] - until[np.searchsorted(times, begin)]
        count += np.maximum(written, 0)
    return count


def without_recording(profile: Profile, slice_ns: int) -> Model:
    """The model if writing a slice cost nothing, and it costs `slice_ns` of what was recorded."""
    made = profile.of(model)
    cost = profile.of(slices_before) * slice_ns
    left = np.where(made.before > 0, np.maximum(made.before - cost, made.before * _LEFT), made.before)
    own = np.where(made.own > 2 * slice_ns, made.own - slice_ns, made.own // 2)
    return made._replace(before=left.astype(np.int64), own=np.minimum(own, made.own))


def changed_without_recording(profile: Profile, changed: Model, slice_ns: int) -> Model:
    """A changed model, if writing a slice cost nothing: what is left of the recorded time shrinks as it did there."""
    made, base = profile.of(model), without_recording(profile, slice_ns)
    share = np.divide(base.before, made.before, out=np.ones(len(made.before)), where=made.before > 0)
    before = np.where(changed.before > 0, changed.before * share, changed.before).astype(np.int64)
    return changed._replace(before=before, own=np.where(changed.own == made.own, base.own, changed.own))


def slice_cost_ns(profile: Profile, step_ns: float) -> int:
    """What writing one slice costs, where an unrecorded step takes `step_ns`; 0 where recorded ones take no longer."""
    lane, queue = profile.of(host_lane), profile.of(gpu_queue)

    def step(cost: int) -> float:
        return clock(lane, queue, replay(without_recording(profile, cost))).step

    low, high = 0, _MOST_NS
    if step(0) <= step_ns:
        return 0
    for _ in range(_ROUNDS):
        middle = (low + high) // 2
        low, high = (middle, high) if step(middle) > step_ns else (low, middle)
    return high
