"""Which line of Python ran on this host thread at this time?

By the handler's samples (writer/sampler.py). They only name time; how long something took is in the trace.
"""

from collections import Counter
from itertools import takewhile
from typing import NamedTuple

import numpy as np

from tb_torchcompile_plugin.compile_log.summary_pb2 import PythonSamples
from tb_torchcompile_plugin.profile.columns import (
    Floats,
    Int64s,
    Intervals,
    distinct,
    groups_of_equal,
    mask_of,
    ordinals,
    ranges,
    sums,
    within,
)
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import StepWindows, profiled_time
from tb_torchcompile_plugin.torch_names.slices import is_step

# With so many samples of its line an interval needs no other steps. Measured on a loop and a short call after it: with
# one, 9 % of the time had the line of the call.
ENOUGH = 3


class SampledLine(NamedTuple):
    """A line of the program."""

    file: str
    line: int
    function: str  # "" with capture="summary"
    called: str  # the library's function that it calls, named as in stacks; "" for none


class Samples(NamedTuple):
    """Samples as columns in order of time."""

    time: Int64s  # by the trace's clock
    ns: Int64s  # since the sample before
    track: Int64s
    line: Int64s  # index into `lines`
    stack: Int64s  # index into `stacks`
    lines: list[SampledLine]
    # The program's lines that were on the stack, as indices into `lines`, the innermost last.
    stacks: list[tuple[int, ...]]


def samples(profile: Profile) -> Samples:
    """Return the samples of the threads of the trace, empty where there are none."""
    summary, trace = profile.summary, profile.trace
    if summary is None or not summary.HasField("python_samples"):
        none = np.zeros(0, np.int64)
        return Samples(none, none, none, none, none, [], [])
    stored, pid = summary.python_samples, summary.environment.pid
    tracks = {track.tid: code for code, track in enumerate(trace.tracks) if track.pid == pid}
    track_of = np.array([tracks.get(tid, -1) for tid in stored.threads] or [-1], np.int64)
    start, dur, count = (
        np.array(column, np.int64) for column in (stored.start_ns, stored.duration_ns, stored.samples)
    )
    start = np.cumsum(start) - trace.base_ns
    ns = dur // count
    row, number = ranges(np.ones_like(count), count)
    time = start[row] + ns[row] * number
    lines, line_of = _lines(stored)
    track = track_of[np.array(stored.thread, np.int64)[row]]
    begin, end = trace.window()
    inside = np.flatnonzero((track >= 0) & (time >= begin) & (time < end))
    order = inside[np.argsort(time[inside], kind="stable")]
    number = np.array(stored.line, np.int64)[row[order]]
    return Samples(
        time[order], ns[row[order]], track[order], line_of[number], number, lines, _stacks(stored, line_of)
    )


def _lines(stored: PythonSamples) -> tuple[list[SampledLine], Int64s]:
    """Return each line once, with what it calls most of the time, and the index of each stored line."""
    weight = sums(np.array(stored.line, np.int64), np.array(stored.duration_ns, np.int64), len(stored.lines))
    numbers: dict[tuple[str, int, str], int] = {}
    line_of = np.array(
        [numbers.setdefault((row.file, row.line, row.function), len(numbers)) for row in stored.lines],
        np.int64,
    )
    called = [""] * len(numbers)
    for index in np.argsort(weight, kind="stable").tolist():
        called[line_of[index]] = stored.lines[index].called
    return [SampledLine(*line, name) for line, name in zip(numbers, called)], line_of


def _stacks(stored: PythonSamples, line_of: Int64s) -> list[tuple[int, ...]]:
    """Return the stack of each stored line. A caller is stored before the lines that it calls."""
    stacks = list[tuple[int, ...]]()
    for line, row in zip(line_of.tolist(), stored.lines):
        callers = stacks[row.caller - 1] if row.caller else ()
        stacks.append((*callers, line))
    return stacks


def lines_of(profile: Profile, track: int, intervals: Intervals) -> tuple[Int64s, Int64s]:
    """Return for each interval of a host thread the line in which most of it was sampled, -1 for none, and how often.

    A sample represents the time since the previous one, as far as that is in the interval: code that keeps the
    interpreter lock for long is sampled once. With few samples in it, an interval has the line of those at its position
    in all steps, if they are enough.
    """
    sampled = profile.of(samples)
    on_track = np.flatnonzero(sampled.track == track)
    interval = within(intervals, sampled.time[on_track])
    on_track, interval = on_track[interval >= 0], interval[interval >= 0]
    since = sampled.time[on_track] - intervals.starts[interval]
    line, ns = sampled.line[on_track], np.minimum(sampled.ns[on_track], since)
    position = _positions(profile, track, intervals)
    own, often = _longest(interval, line, ns, len(position))
    others, often_there = (of[position] for of in _longest(position[interval], line, ns, len(position)))
    # One sample of another step does not name this one: in a recording of 160 ms that was wrong for up to 79 %.
    is_own = (often >= ENOUGH) | (often_there < ENOUGH)
    return np.where(is_own, own, others), np.where(is_own, often, often_there)


def _longest(group: Int64s, line: Int64s, ns: Int64s, count: int) -> tuple[Int64s, Int64s]:
    """Return for each group of samples the line with most time, -1 for none, and how many samples that has."""
    pairs, pair = distinct(group, line)
    order = np.argsort(sums(pair, ns, pairs.shape[1]), kind="stable")  # the longest is written last
    found, number = np.full(count, -1), np.zeros(count, np.int64)
    found[pairs[0][order]] = pairs[1][order]
    number[pairs[0][order]] = np.bincount(pair, minlength=pairs.shape[1])[order]
    return found, number


def _positions(profile: Profile, track: int, intervals: Intervals) -> Int64s:
    """Return a number for each interval, the same for those at one position of their steps.

    They are between slices of the same names, after as many others that are so in their step.
    """
    trace, step = profile.trace, within(profile.of(StepWindows).windows, intervals.starts)
    first, last = trace.track_bounds[track : track + 2].tolist()
    at = np.searchsorted(trace.ts[first:last], intervals)
    # Before the first slice and after the last one there is none: -1, as for steps, which differ in name.
    name = trace.name[first:last]
    name = np.where(mask_of(trace.names, is_step)[name], -1, name)
    names = np.concatenate(([-1], name, [-1]))
    before, after = names[at[0]], names[at[1] + 1]
    number = ordinals(distinct(step, before, after)[1])
    return distinct(before, after, number, np.where(step < 0, np.arange(len(step)), -1))[1]


def lines_around(profile: Profile, tracks: Int64s, times: Int64s) -> Int64s:
    """Return the line of the program that runs on these host threads at these times, -1 where samples do not show it.

    It is the innermost line that the samples before and after share: a loop's, where these are of two lines in it.
    Samples of all steps count, each at its position in its step. A thread without samples, as autograd's, works for the
    one of the steps. The lines that all samples share run the loop over the steps and name nothing.
    """
    sampled, found = profile.of(samples), np.full(len(times), -1)
    if not len(sampled.time):
        return found
    of_steps = sampled.track[np.isin(sampled.track, profile.of(StepWindows).tracks)]
    most = int(np.bincount(of_steps if len(of_steps) else sampled.track).argmax())
    tracks = np.where(np.isin(tracks, sampled.track), tracks, most)
    for rows in groups_of_equal(np.arange(len(times)), tracks):
        track = int(tracks[rows[0]])
        on_track = np.flatnonzero(sampled.track == track)
        at = _places(profile, track, sampled.time[on_track])
        on_track, at = on_track[at >= 0], at[at >= 0]
        order = np.argsort(at, kind="stable")
        stack = sampled.stack[on_track[order]]
        place = _places(profile, track, times[rows])
        behind = np.searchsorted(at[order], place)
        inside = (behind > 0) & (behind < len(stack)) & (place >= 0)
        pairs, pair = distinct(stack[behind[inside] - 1], stack[behind[inside]])
        loop = _loop([sampled.stacks[number] for number in np.unique(stack).tolist()])
        shared = [_innermost_shared(sampled, loop, *both) for both in pairs.T.tolist()]
        found[rows[inside]] = np.array(shared, np.int64)[pair]
    return found


def lines_around_slices(profile: Profile, rows: Int64s) -> Int64s:
    """Return the same for the begin of each slice; row -1 is none."""
    trace, line, known = profile.trace, np.full(len(rows), -1), rows >= 0
    line[known] = lines_around(profile, trace.track[rows[known]].astype(np.int64), trace.ts[rows[known]])
    return line


def called_from(profile: Profile) -> dict[tuple[str, int], tuple[str, int]]:
    """Return by line of the program the line of the step from which it was called in most samples.

    That is the outermost line below those that run the loop over the steps; a line of the step is its own.
    """
    sampled = profile.of(samples)
    numbers, counts = np.unique(sampled.stack, return_counts=True)
    stacks = [sampled.stacks[number] for number in numbers.tolist()]
    loop, seen = _loop(stacks), Counter[tuple[int, int]]()
    for stack, count in zip(stacks, counts.tolist()):
        seen.update({(line, stack[loop]): count for line in stack[loop:]})
    lines = [row[:2] for row in sampled.lines]
    # The most frequent one is written last.
    return {lines[line]: lines[outer] for (line, outer), _ in reversed(seen.most_common())}


def _loop(stacks: list[tuple[int, ...]]) -> int:
    """Return how many of the outermost lines run the loop: those that all stacks share; of one stack not its last."""
    shared = len(list(takewhile(lambda lines: len({*lines}) == 1, zip(*stacks))))
    return shared - 1 if len({*stacks}) == 1 else shared


def _innermost_shared(sampled: Samples, loop: int, first: int, second: int) -> int:
    """Return the innermost line that two stacks share below the loop, -1 for none."""
    pairs = zip(sampled.stacks[first][loop:], sampled.stacks[second][loop:])
    shared = [line for line, _ in takewhile(lambda pair: pair[0] == pair[1], pairs)]
    return shared[-1] if shared else -1


def _places(profile: Profile, track: int, times: Int64s) -> Floats:
    """Return where in a step these times are, the same for the same slices of all steps; -1 outside of steps."""
    windows, moments, places, length = profile.of(_step_places, track)
    step = within(windows, times)
    return np.where(step < 0, -1.0, np.interp(times, moments, places) - step * length)


def _step_places(profile: Profile, track: int) -> tuple[Intervals, Int64s, Int64s, int]:
    """Return the steps, moments in order of time, their places (of all steps in a row), and places of a step.

    A slice is at its number among the slices of the step in the middle by number of slices; between two that this has,
    time goes on evenly.
    """
    trace, windows = profile.trace, profile.of(profiled_time)
    rows = np.arange(*trace.track_bounds[track : track + 2])
    rows = rows[~mask_of(trace.names, is_step)[trace.name[rows]]]
    step = within(windows, trace.ts[rows])
    rows, step = rows[step >= 0], step[step >= 0]
    number, count = _numbers_in_step(trace.name[rows].astype(np.int64), step, len(windows.starts))
    length = count + 2
    # Where slices are in another order, those that come too early are left out.
    place = step * length + number
    follows = (number > 0) & (place > np.maximum.accumulate(np.append(-1, place))[:-1])
    first = np.arange(len(windows.starts)) * length
    moments = np.concatenate((windows.starts, trace.ts[rows[follows]], windows.ends))
    places = np.concatenate((first, place[follows], first + count + 1))
    order = np.lexsort((places, moments))
    return windows, moments[order], places[order], length


def _numbers_in_step(name: Int64s, step: Int64s, steps: int) -> tuple[Int64s, int]:
    """Return the place of each slice among those of the step in the middle, from 1 on, and how many that has.

    0 for those that it does not have.
    """
    slice_ = distinct(name, ordinals(distinct(step, name)[1]))[1]
    middle = np.argsort(np.bincount(step, minlength=steps), kind="stable")[steps // 2]
    of_middle = slice_[step == middle]
    number = np.zeros(slice_.max(initial=-1) + 1, np.int64)
    number[of_middle] = np.arange(1, len(of_middle) + 1)
    return number[slice_], len(of_middle)
