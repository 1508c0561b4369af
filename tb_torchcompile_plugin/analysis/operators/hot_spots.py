"""Where did Python itself take the time? From the stacks that `with_stack` records, as a table and as merged stacks."""

from __future__ import annotations

from typing import Literal

import msgspec
import numpy as np

from tb_torchcompile_plugin.profile.columns import distinct
from tb_torchcompile_plugin.profile.host.host_tree import HostTree, Mask, host_tree
from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.units import us
from tb_torchcompile_plugin.reader.trace.kineto import Trace
from tb_torchcompile_plugin.reader.trace.nest import ways_up
from tb_torchcompile_plugin.torch_names.python_frames import frame_of, is_users, without_address
from tb_torchcompile_plugin.torch_names.slices import PYTHON_FUNCTION

_SMALLEST = 1000  # a stack that has less than this part of its thread's time is not told
_MOST = 4000  # merged stacks that leave


class PythonFunction(msgspec.Struct, frozen=True):
    """One Python function. `self_us`: less what it called, operators included; `total_us` counts recursion once."""

    name: str
    file: str | None
    line: int | None
    whose: Literal["yours", "library", "built in"]
    calls: int
    self_us: float
    total_us: float


class StackFrames(msgspec.Struct, frozen=True):
    """Calls with one stack are one frame: parallel columns, callers before what they called; `parent` -1: outermost."""

    name: list[int]  # into `HotSpots.functions`
    parent: list[int]
    thread: list[str]
    calls: list[int]
    total_us: list[float]


class HotSpots(msgspec.Struct, frozen=True):
    """Most self time first. `left_out` frames were too short to be told.

    Threads that called no operator, which mostly wait, are not counted: `idle_threads` of them.
    """

    recorded: bool
    functions: list[PythonFunction]
    frames: StackFrames
    left_out: int
    idle_threads: int


def hot_spots(profile: Profile) -> HotSpots:
    """Empty without `with_stack`."""
    trace, tree = profile.trace, profile.of(host_tree)
    busy = np.zeros(len(trace.tracks), bool)
    busy[trace.track[tree.index[~tree.python]]] = True
    track = trace.track[tree.index]
    position = np.flatnonzero(tree.python & busy[track])
    names, name = _names(trace)
    name = name[tree.index[position]]
    functions, place = _functions(trace, tree, position, name, names)
    frames, left_out = _frames(trace, tree, position, place[name])
    idle = len(np.unique(track[tree.python & ~busy[track]]))
    return HotSpots(PYTHON_FUNCTION in trace.cats, functions, frames, left_out, idle)


def _names(trace: Trace) -> tuple[list[str], Int64s]:
    """Names without addresses, and for each slice of the trace the place of its name among them."""
    shown = [without_address(name) for name in trace.names]
    names = list(dict.fromkeys(shown))
    places = {name: place for place, name in enumerate(names)}
    return names, np.array([places[name] for name in shown], np.int64)[trace.name]


def _functions(
    trace: Trace, tree: HostTree, position: Int64s, name: Int64s, names: list[str]
) -> tuple[list[PythonFunction], Int64s]:
    """One row per name, and for each name its place among them."""
    rows = tree.index[position]
    outermost = _outermost(trace.ts[rows], trace.ts[rows] + trace.dur[rows], trace.track[rows], name)
    parts = (np.ones_like(name), tree.self_ns[position], np.where(outermost, trace.dur[rows], 0))
    sums = np.zeros((3, len(names)), np.int64)
    for total, values in zip(sums, parts):
        np.add.at(total, name, values)
    known = np.flatnonzero(sums[0])
    order = known[np.lexsort((known, -sums[1][known]))]
    place = np.full(len(names), -1, np.int64)
    place[order] = np.arange(len(order))
    return [_function(names[code], *sums[:, code].tolist()) for code in order.tolist()], place


def _function(name: str, calls: int, self_ns: int, total_ns: int) -> PythonFunction:
    frame = frame_of(name)
    return PythonFunction(
        name=frame.function if frame else name,
        file=frame.file if frame else None,
        line=frame.line if frame else None,
        whose="yours" if is_users(name) else "library" if frame and frame.file else "built in",
        calls=calls,
        self_us=us(self_ns),
        total_us=us(total_ns),
    )


def _outermost(start: Int64s, end: Int64s, track: Int64s, name: Int64s) -> Mask:
    """Which calls are in no other call of the same name on their track."""
    order = np.lexsort((-end, start, track, name))
    answer = np.ones(len(order), bool)
    if not len(order):
        return answer
    group = np.cumsum(
        np.diff(name[order], prepend=-1).astype(bool) | np.diff(track[order], prepend=-1).astype(bool)
    )
    first = int(start.min())
    far = group * (int(end.max()) - first + 1)  # groups follow one another on one axis
    reach = np.maximum.accumulate(end[order] - first + far)
    answer[order[1:]] = (start[order] - first + far)[1:] >= reach[:-1]
    return answer


def _frames(trace: Trace, tree: HostTree, position: Int64s, name: Int64s) -> tuple[StackFrames, int]:
    """Calls with the same stack put together, level by level; those too short to be seen are left out."""
    number = np.full(len(tree.index) + 1, -1, np.int64)  # the last answers for "none"
    number[position] = np.arange(len(position))
    caller = number[tree.nearest(tree.parent[position], tree.python)]
    rows = tree.index[position]
    frame = np.full(len(position) + 1, -1, np.int64)
    parts = [np.zeros((5, 0), np.int64)]
    count = 0
    for calls in levels(caller):
        above = frame[caller[calls]]
        stacks, which = distinct(trace.track[rows[calls]], above, name[calls])
        total = np.zeros(stacks.shape[1], np.int64)
        np.add.at(total, which, trace.dur[rows[calls]])
        parts.append(np.vstack([stacks, total, np.bincount(which)]))
        frame[calls] = count + which
        count += stacks.shape[1]
    return _stack_frames(trace, np.hstack(parts))


def levels(caller: Int64s) -> list[Int64s]:
    """The calls by depth, outermost first."""
    depth = np.zeros(len(caller), np.int64)
    for inner, _ in ways_up(caller, caller):
        depth[inner] += 1
    order = np.argsort(depth, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(depth[order])) + 1) if len(order) else []


def _stack_frames(trace: Trace, frames: Int64s) -> tuple[StackFrames, int]:
    track, parent, name, total, calls = frames
    whole = np.zeros(len(trace.tracks), np.int64)
    np.add.at(whole, track[parent < 0], total[parent < 0])
    order = np.lexsort((np.arange(len(total)), -total))[:_MOST]
    kept = np.sort(order[total[order] * _SMALLEST >= whole[track[order]]])
    place = np.full(len(total) + 1, -1, np.int64)
    place[kept] = np.arange(len(kept))
    drawn = StackFrames(
        name=name[kept].tolist(),
        parent=place[parent[kept]].tolist(),
        thread=[_thread(trace, code) for code in track[kept].tolist()],
        calls=calls[kept].tolist(),
        total_us=[us(ns) for ns in total[kept].tolist()],
    )
    return drawn, len(total) - len(kept)


def _thread(trace: Trace, code: int) -> str:
    track = trace.tracks[code]
    return track.thread_name or str(track.tid)
