"""Which line of Python ran on this host thread at this time?

By the handler's samples (writer/sampler.py). They only name time; how long something took is in the trace.
"""

from typing import NamedTuple

import numpy as np

from tb_torchcompile_plugin.compile_log.summary_pb2 import PythonSamples
from tb_torchcompile_plugin.profile.columns import distinct, mask_of, ordinals, ranges, sums
from tb_torchcompile_plugin.profile.intervals import Int64s, Intervals, within
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import StepWindows
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
    lines: list[SampledLine]


class LinesOf(NamedTuple):
    """The lines of intervals, as columns."""

    line: Int64s  # index into `Samples.lines`, -1 where nothing was sampled
    samples: Int64s  # of that line


def samples(profile: Profile) -> Samples:
    """Return the samples of the threads of the trace, empty where there are none."""
    summary, trace = profile.summary, profile.trace
    if summary is None or not summary.HasField("python_samples"):
        none = np.zeros(0, np.int64)
        return Samples(none, none, none, none, [])
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
    line = line_of[np.array(stored.line, np.int64)[row[order]]]
    return Samples(time[order], ns[row[order]], track[order], line, lines)


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


def lines_of(profile: Profile, track: int, intervals: Intervals) -> LinesOf:
    """Return for each interval of a host thread the line in which most of it was sampled.

    A sample stands for the time since the one before, as far as that is in the interval: code that keeps the
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
    own = _longest(interval, line, ns, len(position))
    at_position = _longest(position[interval], line, ns, len(position))
    # One sample of another step does not name this one: in a recording of 160 ms that was wrong for up to 79 %.
    is_own = (own.samples >= ENOUGH) | (at_position.samples[position] < ENOUGH)
    return LinesOf(*(np.where(is_own, *both) for both in zip(own, (of[position] for of in at_position))))


def _longest(group: Int64s, line: Int64s, ns: Int64s, count: int) -> LinesOf:
    """Return for each group of samples the line with most time."""
    pairs, pair = distinct(group, line)
    order = np.argsort(sums(pair, ns, pairs.shape[1]), kind="stable")  # the longest is written last
    found = LinesOf(np.full(count, -1), np.zeros(count, np.int64))
    found.line[pairs[0][order]] = pairs[1][order]
    found.samples[pairs[0][order]] = np.bincount(pair, minlength=pairs.shape[1])[order]
    return found


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
