"""Where did Python itself take the time? From the stacks that `with_stack` records, as a table and as merged stacks."""

from __future__ import annotations

from typing import Literal, get_args

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis.formatting import at_line, duration, percent
from tb_torchcompile_plugin.profile.columns import mask_of, places_in, sums
from tb_torchcompile_plugin.profile.gpu.launches import launch_calls
from tb_torchcompile_plugin.profile.host.host_tree import (
    Mask,
    calling_tracks,
    host_tree,
    merged_stacks,
    plain_names,
)
from tb_torchcompile_plugin.profile.host.operator_calls import program_ns
from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import StepWindows
from tb_torchcompile_plugin.profile.units import us
from tb_torchcompile_plugin.reader.trace.kineto import Trace
from tb_torchcompile_plugin.torch_names.python_frames import frame_of, is_programs, resumed_from
from tb_torchcompile_plugin.torch_names.slices import PYTHON_FUNCTION, is_step

Whose = Literal["yours", "library", "built in", "operators"]
WHOSE: tuple[Whose, ...] = get_args(Whose)
_SMALLEST = 1000  # a stack that has less than this part of its thread's time is not told
_MOST = 4000  # merged stacks that leave


class PythonFunction(msgspec.Struct, frozen=True):
    """One Python function, with times of a step, or of the span where there are no steps. key: its name in the trace.

    self_us: while nothing that it called ran, operators included; total_us counts recursion once. own_us: of the
    user's, when it was the innermost one of theirs: itself, what it called of libraries, and the backward of that;
    else None.
    """

    key: str
    name: str
    file: str | None
    line: int | None
    whose: Whose
    calls: int
    self_us: float
    own_us: float | None
    total_us: float


class PythonPart(msgspec.Struct, frozen=True):
    """Host time of the threads that called operators, by whose code ran: the parts sum to all but that of a step in
    which nothing was recorded."""

    whose: Whose
    self_us: float


class StackFrames(msgspec.Struct, frozen=True):
    """Calls with one stack are one frame: parallel columns, callers before what they called; `parent` -1: outermost."""

    name: list[int]  # into `PythonTime.functions`
    parent: list[int]
    thread: list[int]  # into `PythonTime.threads`
    calls: list[int]
    total_us: list[float]


class PythonTime(msgspec.Struct, frozen=True):
    """Functions with most self time first; threads that launch most first. `left_out` frames were too short to be told.

    Threads that called no operator, which mostly wait, are not counted: `idle_threads` of them. has_steps: whether
    times are of a step.
    """

    headline: str
    recorded: bool
    has_steps: bool
    functions: list[PythonFunction]
    parts: list[PythonPart]
    threads: list[str]
    frames: StackFrames
    left_out: int
    idle_threads: int


def python(profile: Profile) -> PythonTime:
    """Empty without `with_stack`."""
    trace, tree = profile.trace, profile.of(host_tree)
    steps, recorded = len(profile.of(StepWindows)), PYTHON_FUNCTION in trace.cats
    busy = profile.of(calling_tracks)
    track = trace.track[tree.index]
    position = np.flatnonzero(tree.python & busy[track])
    names, plain = profile.of(plain_names)
    name = plain[trace.name[tree.index[position]]]
    functions, place = _functions(profile, position, name, names)
    tracks = _launching_first(profile, np.unique(track[position]))
    frames, left_out = _frames(profile, position, place[name], tracks)
    parts = _parts(profile, functions) if recorded else []
    return PythonTime(
        headline=_headline(functions, parts, steps),
        recorded=recorded,
        has_steps=steps > 0,
        functions=functions,
        parts=parts,
        threads=[_thread(trace, code) for code in tracks.tolist()],
        frames=frames,
        left_out=left_out,
        idle_threads=len(np.unique(track[tree.python & ~busy[track]])),
    )


def _headline(functions: list[PythonFunction], parts: list[PythonPart], steps: int) -> str:
    """ "forward (model.py:17) costs most of your functions: 3.80 ms a step with what it calls of libraries, 34 % …" """
    if not parts:
        return "Python stacks were not recorded."
    # What runs the loop is called once, and does not cost what it waits for.
    in_steps = [row for row in functions if row.calls >= steps and row.own_us]
    first = max(in_steps or functions, key=lambda row: row.own_us or 0.0, default=None)
    if first is None or not first.own_us:
        return "No function of yours ran in this span."
    where, when = at_line(first.file or "", first.line), "a step" if steps else "in this span"
    share = percent(100 * first.own_us / sum(part.self_us for part in parts))
    cost = f"{duration(first.own_us)} {when} with what it calls of libraries, {share} of the host’s time"
    return f"{first.name} ({where}) costs most of your functions: {cost}."


def _parts(profile: Profile, functions: list[PythonFunction]) -> list[PythonPart]:
    """The user's functions, libraries, what is built in, and the operators and runtime calls that they make."""
    trace = profile.trace
    other = profile.of(calling_tracks)[trace.track] & ~mask_of(trace.cats, PYTHON_FUNCTION.__eq__)[trace.cat]
    calls = int(trace.self_ns[other & ~mask_of(trace.names, is_step)[trace.name]].sum())
    mine = {whose: sum(row.self_us for row in functions if row.whose == whose) for whose in WHOSE}
    return [
        PythonPart(whose, mine[whose] if whose != "operators" else us(calls) / profile.of(_steps))
        for whose in WHOSE
    ]


def _steps(profile: Profile) -> int:
    """What times are divided by."""
    return max(len(profile.of(StepWindows)), 1)


def _launching_first(profile: Profile, tracks: Int64s) -> Int64s:
    """These tracks: those that launch anything before others, and each time the one that ran longest first."""
    trace = profile.trace
    launches = np.isin(tracks, trace.track[profile.of(launch_calls).call])
    ran = sums(trace.track.astype(np.int64), trace.self_ns, len(trace.tracks))
    return tracks[np.lexsort((-ran[tracks], ~launches))]


def _functions(
    profile: Profile, position: Int64s, name: Int64s, names: list[str]
) -> tuple[list[PythonFunction], Int64s]:
    """One row per name, and for each name its place among them."""
    trace, tree = profile.trace, profile.of(host_tree)
    rows = tree.index[position]
    outermost = _outermost(trace.ts[rows], trace.ts[rows] + trace.dur[rows], trace.track[rows], name)
    parts = (np.ones_like(name), trace.self_ns[rows], np.where(outermost, trace.dur[rows], 0))
    figures = np.array([sums(name, values, len(names)) for values in parts])
    known = np.flatnonzero(figures[0])
    order = known[np.lexsort((known, -figures[1][known]))]
    place = np.full(len(names), -1, np.int64)
    place[order] = np.arange(len(order))
    own, steps = profile.of(_own_ns), profile.of(_steps)
    return [
        _function(names[code], figures[:, code].tolist(), own.get(names[code]), steps)
        for code in order.tolist()
    ], place


def _own_ns(profile: Profile) -> dict[str, int]:
    """By the name of a function of the user's, without address."""
    names, plain = profile.of(plain_names)
    own = sums(plain, profile.of(program_ns), len(names))
    return {names[place]: int(own[place]) for place in np.flatnonzero(own).tolist()}


def _function(name: str, figures: list[int], own_ns: int | None, steps: int) -> PythonFunction:
    frame, (calls, self_ns, total_ns) = frame_of(name), figures
    yours = is_programs(name)
    return PythonFunction(
        key=name,
        name=_shown(frame.function) if frame else name,
        file=frame.file if frame else None,
        line=frame.line if frame else None,
        whose="yours" if yours else "library" if frame and frame.file else "built in",
        calls=calls,
        self_us=us(self_ns) / steps,
        own_us=us(own_ns or 0) / steps if yours else None,
        total_us=us(total_ns) / steps,
    )


def _shown(function: str) -> str:
    """What goes on after a graph break, as the function that broke."""
    resumed = resumed_from(function)
    return f"{resumed[0]} after line {resumed[1]}" if resumed else function


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


def _frames(profile: Profile, position: Int64s, name: Int64s, tracks: Int64s) -> tuple[StackFrames, int]:
    """Calls with the same stack put together, level by level; those too short to be seen are left out."""
    trace, tree = profile.trace, profile.of(host_tree)
    number = np.full(len(tree.index) + 1, -1, np.int64)  # the last answers for "none"
    number[position] = np.arange(len(position))
    caller = number[tree.nearest(tree.parent[position], tree.python)]
    rows = tree.index[position]
    frames, frame = merged_stacks(caller, trace.track[rows].astype(np.int64), name)
    total, calls = (
        sums(frame, trace.dur[rows], frames.shape[1]),
        np.bincount(frame, minlength=frames.shape[1]),
    )
    return _stack_frames(
        np.vstack([frames, total, calls]), places_in(tracks, np.arange(len(trace.tracks))), profile.of(_steps)
    )


def _stack_frames(frames: Int64s, thread: Int64s, steps: int) -> tuple[StackFrames, int]:
    """thread: by track its place among the threads."""
    parent, track, name, total, calls = frames
    whole = sums(track[parent < 0], total[parent < 0], len(thread))
    order = np.lexsort((np.arange(len(total)), -total))[:_MOST]
    kept = np.sort(order[total[order] * _SMALLEST >= whole[track[order]]])
    place = np.full(len(total) + 1, -1, np.int64)
    place[kept] = np.arange(len(kept))
    drawn = StackFrames(
        name=name[kept].tolist(),
        parent=place[parent[kept]].tolist(),
        thread=thread[track[kept]].tolist(),
        calls=calls[kept].tolist(),
        total_us=[us(ns) / steps for ns in total[kept].tolist()],
    )
    return drawn, len(total) - len(kept)


def _thread(trace: Trace, code: int) -> str:
    track = trace.tracks[code]
    return track.thread_name or str(track.tid)
