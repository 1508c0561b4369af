"""Where does the time of a step go? Parts that sum to it, to the nanosecond.

Seen from the busiest device: while it works, the category of what runs; while it idles, what the thread that makes
the next launch does. Where several kernels run at once the first category counts: computation before communication,
communication before copies. Without a GPU: what the thread of the steps does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec
import numpy as np

from tb_torchcompile_plugin.profile.columns import by_track
from tb_torchcompile_plugin.profile.gpu.idle import causes_in, idle_gaps
from tb_torchcompile_plugin.profile.gpu.launches import kernel_launches
from tb_torchcompile_plugin.profile.gpu_work import GpuWork, busy, gpu_work
from tb_torchcompile_plugin.profile.host.thread_activity import CAUSES, Cause, ThreadActivity
from tb_torchcompile_plugin.profile.intervals import Int64s, Intervals, covered_ns, union
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import StepWindows, paced_windows
from tb_torchcompile_plugin.profile.units import us
from tb_torchcompile_plugin.torch_names.kernels import CATEGORIES, Category
from tb_torchcompile_plugin.torch_names.slices import OPERATOR

_LAST: tuple[Category, ...] = ("communication", "memcpy", "memset")
_ORDER: tuple[Category, ...] = (*(name for name in CATEGORIES if name not in _LAST), *_LAST)
# What a graph calls is launched where there is a GPU, and runs where not.
_ON_CPU: dict[Cause, Part] = {"launch_call": "compiled_graph"}
PartKind = Literal["gpu", "idle", "host"]
Part = Category | Cause | Literal["compiled_graph"]


class StepPart(msgspec.Struct, frozen=True):
    """gpu: the device runs kernels of category `part`. idle: it waits, `part` is the cause. host: there is no GPU."""

    kind: PartKind
    part: Part
    time_us: float


class StepBreakdown(msgspec.Struct, frozen=True):
    """`parts` sum to `wall_us`; those that take no time are left out. `device` is None without GPU events, `step` for
    a window that is no step. `start_us` counts from the span's first event."""

    step: str | None
    device: int | None
    start_us: float
    wall_us: float
    parts: list[StepPart]


def step_breakdowns(profile: Profile) -> list[StepBreakdown]:
    """One row a profiled step, in its window on the host; [] without a schedule."""
    steps = profile.of(StepWindows)
    return _of_steps(profile, steps, Intervals(steps.starts, steps.ends))


def paced_breakdowns(profile: Profile) -> list[StepBreakdown]:
    """The same by the clock that sets the pace: where the host runs ahead, in the steps' windows on the GPU."""
    return _of_steps(profile, profile.of(StepWindows), profile.of(paced_windows))


def _of_steps(profile: Profile, steps: StepWindows, windows: Intervals) -> list[StepBreakdown]:
    tracks = profile.trace.track[steps.rows].astype(np.int64)
    return _breakdowns(profile, steps.names, windows.starts, windows.ends, tracks)


def window_breakdown(profile: Profile) -> StepBreakdown | None:
    """The whole span as one row: from the first GPU event to the end of the last, without any from the first event to
    the last on the thread that had operators running longest. None without either."""
    trace, rows = profile.trace, profile.of(gpu_work).index
    track = -1
    if not len(rows):
        operators = trace.select(cat=(OPERATOR,))
        if not len(operators):
            return None
        times = {
            track: union(trace.ts[mine], trace.ts[mine] + trace.dur[mine]).total_ns
            for track, mine in by_track(trace, operators)
        }
        track = max(times, key=lambda track: times[track])
        rows = np.arange(trace.track_bounds[track], trace.track_bounds[track + 1])
    begins = trace.ts[rows].min(keepdims=True)
    ends = (trace.ts[rows] + trace.dur[rows]).max(keepdims=True)
    (row,) = _breakdowns(profile, [None], begins, ends, np.array([track]))
    return row


def _breakdowns(
    profile: Profile, names: Sequence[str | None], begins: Int64s, ends: Int64s, tracks: Int64s
) -> list[StepBreakdown]:
    """tracks: the thread of each window, which counts where there is no GPU."""
    device = _busiest(profile, begins, ends)
    if device is None:
        kinds, columns = _host(profile, begins, ends, tracks)
    else:
        kinds, columns = _device(profile, device, begins, ends)
    assert np.array_equal(columns.sum(axis=0), ends - begins), "the parts do not sum to the steps"
    first = profile.trace.window()[0]
    return [
        StepBreakdown(
            name,
            device,
            us(begin - first),
            us(end - begin),
            [StepPart(kind, part, us(ns)) for (kind, part), ns in zip(kinds, column) if ns],
        )
        for name, begin, end, column in zip(names, begins, ends, columns.T, strict=True)
    ]


def _busiest(profile: Profile, begins: Int64s, ends: Int64s) -> int | None:
    work = profile.of(gpu_work)
    times = {
        int(device): int(
            covered_ns(busy(profile.trace, work.index[work.device == device]), begins, ends).sum()
        )
        for device in np.unique(work.device)
    }
    return max(times, key=lambda device: times[device]) if times else None


def _device(
    profile: Profile, device: int, begins: Int64s, ends: Int64s
) -> tuple[list[tuple[PartKind, Part]], Int64s]:
    """What each part is, and its ns: one row a part, one column a step."""
    working = _working(
        profile, profile.of(gpu_work).where(profile.of(gpu_work).device == device), begins, ends
    )
    idle = causes_in(profile.of(idle_gaps)[device], profile.of(ThreadActivity), begins, ends).T
    kinds: list[tuple[PartKind, Part]] = [("gpu", name) for name in _ORDER]
    kinds += [("idle", cause) for cause in CAUSES]
    return kinds, np.concatenate([working, idle])


def _working(profile: Profile, work: GpuWork, begins: Int64s, ends: Int64s) -> Int64s:
    """ns of each category of _ORDER (rows) in each step: what it adds to those before it."""
    # Categories as the launches tell them: a user's Triton kernel has no name of its own kind.
    category = np.full(len(profile.trace), -1, np.int64)
    for launched in profile.of(kernel_launches):
        category[launched.index] = launched.category
    place = np.array([_ORDER.index(name) for name in CATEGORIES])[category[work.index]]
    covered = [
        covered_ns(busy(profile.trace, work.index[place <= number]), begins, ends)
        for number in range(len(_ORDER))
    ]
    return np.asarray(np.diff(np.array(covered), axis=0, prepend=0), np.int64)


def _host(
    profile: Profile, begins: Int64s, ends: Int64s, tracks: Int64s
) -> tuple[list[tuple[PartKind, Part]], Int64s]:
    return [("host", _ON_CPU.get(cause, cause)) for cause in CAUSES], profile.of(ThreadActivity).split(
        begins, ends, tracks
    ).T
