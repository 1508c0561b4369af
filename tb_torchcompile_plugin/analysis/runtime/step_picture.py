"""Where a step goes, walked: the host's time by cause, and how much of it each GPU works. Parts sum to the step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import msgspec
import numpy as np

from tb_torchcompile_plugin.profile.intervals import Int64s, covered_ns, union
from tb_torchcompile_plugin.profile.model.attribution import Culprit, CulpritCause, culprits
from tb_torchcompile_plugin.profile.model.clock import clock, gpu_windows
from tb_torchcompile_plugin.profile.model.gpu_queue import gpu_queue
from tb_torchcompile_plugin.profile.model.launch_sequence import host_lane, host_pieces
from tb_torchcompile_plugin.profile.model.model import Model, Replayed, replay
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.torch_names.slices import call_kind

# So many culprits have parts of their own, from this share of the host's time on.
_NAMED, _NAMED_SHARE = 6, 0.04


HostCause = Literal[CulpritCause, "waiting", "gpu_clock"]


class HostPart(msgspec.Struct, frozen=True):
    """Host time of one cause in a step (µs). name, file, line: of a culprit that has a part of its own; else "" and 0.

    cause: as `profile/model/attribution.py` finds it; "waiting" is what calls take until a GPU is done, "gpu_clock" by
    how much a step is longer on the clock of a GPU.
    """

    cause: HostCause
    name: str
    file: str
    line: int
    time_us: float


class GpuPart(msgspec.Struct, frozen=True):
    """One GPU in a step (µs)."""

    device: int
    busy_us: float
    idle_us: float


class Picture(msgspec.Struct, frozen=True):
    """A step (µs): the parts of the host sum to it, and so do busy and idle of each GPU."""

    step_us: float
    host: list[HostPart]
    gpus: list[GpuPart]


Key = tuple[HostCause, str, str, int]
_NOTHING: Key = ("nothing", "", "", 0)
_WAITING: Key = ("waiting", "", "", 0)
_GPU_CLOCK: Key = ("gpu_clock", "", "", 0)


class LaneTimes(NamedTuple):
    """Of each point of the lane (ns): on the way to it, in its call, and in its call until a GPU was done. Without what
    overlaps, they sum to the steps."""

    before: Int64s
    call: Int64s
    waiting: Int64s


def picture(profile: Profile, changed: Model, like: Sequence[HostPart] = ()) -> Picture:
    """Of a changed model, walked. like: the parts before the change, whose names and order are kept."""
    lane, queue, times = profile.of(host_lane), profile.of(gpu_queue), replay(changed)
    step, steps = clock(lane, queue, times).step, lane.steps
    spent = _spent(profile, changed, _lane_times(profile, changed, times))
    named = {_key(part) for part in like if part.name} if like else _largest(spent)
    host = _whole(_merged(spent, named))
    order = [_key(part) for part in like]
    keys = sorted(host, key=lambda key: (order.index(key) if key in order else len(order), -host[key]))
    if (longer := step * steps - sum(host.values())) > 0.01:
        keys.append(_GPU_CLOCK)
        host[_GPU_CLOCK] = longer
    return Picture(
        step / 1000,
        [HostPart(*key, time_us=host[key] / steps / 1000) for key in keys],
        _gpus(profile, times, step),
    )


def _key(part: HostPart) -> Key:
    return part.cause, part.name, part.file, part.line


def _lane_times(profile: Profile, changed: Model, times: Replayed) -> LaneTimes:
    lane = profile.of(host_lane)
    first, last = int(lane.marks[0]), int(lane.marks[-1])
    inside = slice(first, last + 1)
    begin = times.begin[inside]
    end = np.minimum(times.end[inside], begin[-1])
    reach = np.concatenate((begin[:1], np.maximum.accumulate(end)[:-1]))
    call = np.maximum(end - np.maximum(begin, reach), 0)
    beyond = np.maximum((times.end - times.begin - changed.own)[inside], 0)
    columns = np.maximum(begin - reach, 0), call, np.minimum(call, beyond)
    whole = np.zeros((3, len(lane)), np.int64)
    whole[:, inside] = columns
    return LaneTimes(*whole)


def _spent(profile: Profile, changed: Model, times: LaneTimes) -> dict[Key, float]:
    """Host time (ns) by culprit; that on the way to a point in the shares that are left of its pieces."""
    pieces, blamed, lane, trace = (
        profile.of(host_pieces),
        profile.of(culprits),
        profile.of(host_lane),
        profile.trace,
    )
    whole = np.bincount(pieces.point, changed.host, len(lane))
    share = np.divide(times.before, whole, out=np.zeros(len(lane)), where=whole > 0)
    by_culprit = np.bincount(blamed.code, changed.host * share[pieces.point], len(blamed.culprits))
    spent = {_NOTHING: float(times.before[whole <= 0].sum()), _WAITING: float(times.waiting.sum())}
    for culprit, ns in zip(blamed.culprits, by_culprit.tolist()):
        key = _key_of(culprit)
        spent[key] = spent.get(key, 0.0) + ns
    own = np.bincount(trace.name[lane.row[lane.row >= 0]], (times.call - times.waiting)[lane.row >= 0])
    for name in np.flatnonzero(own).tolist():
        called: Key = (call_kind(trace.names[name]), "", "", 0)
        spent[called] = spent.get(called, 0.0) + float(own[name])
    return spent


def _key_of(culprit: Culprit) -> Key:
    return culprit.cause, culprit.name, culprit.file, culprit.line


def _largest(spent: dict[Key, float]) -> set[Key]:
    least = _NAMED_SHARE * sum(spent.values())
    named = sorted((key for key in spent if key[1] and spent[key] > least), key=lambda key: -spent[key])
    return set(named[:_NAMED])


def _merged(spent: dict[Key, float], named: set[Key]) -> dict[Key, float]:
    """By cause, but for those that are named."""
    merged: dict[Key, float] = {}
    for key, ns in spent.items():
        kept = key if key in named else (key[0], "", "", 0)
        merged[kept] = merged.get(kept, 0.0) + ns
    return merged


def _whole(parts: dict[Key, float]) -> dict[Key, float]:
    """In whole ns with the same sum, without those of nothing."""
    edges = np.round(np.cumsum([0.0, *parts.values()]))
    return {key: ns for key, ns in zip(parts, np.diff(edges).tolist()) if ns > 0}


def _gpus(profile: Profile, times: Replayed, step_ns: float) -> list[GpuPart]:
    queue, parts = profile.of(gpu_queue), []
    for device, window in gpu_windows(profile.of(host_lane), queue, times).items():
        here = queue.device == device
        work = union(times.work_begin[here], times.work_end[here])
        covered = int(covered_ns(work, *np.array([[window.begin], [window.end]]))[0])
        busy = covered / window.steps
        parts.append(GpuPart(device, busy / 1000, max(step_ns - busy, 0.0) / 1000))
    return parts
