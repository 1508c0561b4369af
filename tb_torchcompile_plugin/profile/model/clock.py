"""How long is a step, recorded or replayed, and is it the host or a GPU that is the bottleneck?

On a GPU a step lasts from the first work that it launched to the first that the next one launched, on the stream that
works longest. The slower clock is the step's: a host that runs ahead, or a GPU that waits, is no bottleneck.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tb_torchcompile_plugin.profile.intervals import Int64s, Intervals
from tb_torchcompile_plugin.profile.model.gpu_queue import GpuQueue, gpu_queue
from tb_torchcompile_plugin.profile.model.launch_sequence import HostLane, StepSource, host_lane, loop_steps
from tb_torchcompile_plugin.profile.model.model import Replayed
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import (
    GpuSteps,
    StepWindows,
    gpu_steps_of,
    is_ahead,
    on_busiest,
    sets_pace,
    slowest,
)


class Clock(NamedTuple):
    """Mean length of a step (ns)."""

    host: float
    gpu: float | None  # None where no device has the work of two steps
    device: int  # the slowest one
    host_is_ahead: bool  # whether the GPU is the bottleneck

    @property
    def step(self) -> float:
        """Length by the clock of the bottleneck."""
        return self.gpu if self.gpu is not None and self.host_is_ahead else self.host


def recorded_clock(profile: Profile) -> Clock:
    """Return the clock of the steps as recorded. Raises IndexError where the launch sequence is empty."""
    lane, queue = profile.of(host_lane), profile.of(gpu_queue)
    return clock(lane, queue, Replayed(lane.begin, lane.end, queue.start, queue.end))


class GpuWindow(NamedTuple):
    """The steps of a model on one device."""

    begin: int  # the first work of step `first` (ns)
    end: int  # the first work of the last step; of a single step the end of its work
    steps: int
    first: int

    @property
    def step(self) -> float:
        return (self.end - self.begin) / self.steps


def clock(lane: HostLane, queue: GpuQueue, times: Replayed) -> Clock:
    """Return the clock of a launch sequence and its queue with these times."""
    marks = times.begin[lane.marks]
    windows = gpu_windows(lane, queue, times)
    device = max(windows, key=lambda number: windows[number].step, default=-1)
    host = float(marks[-1] - marks[0]) / lane.steps
    if not windows:
        return Clock(host, None, device, False)
    window = windows[device]
    last = len(lane.marks) - 1  # a sequence of one call is its only mark
    points = lane.marks[[min(window.first, last), min(window.first + window.steps, last)]]
    meanwhile = int(np.diff(times.begin[points])[0])
    inside = (queue.device == device) & (queue.point >= points[0]) & (queue.point < points[1])
    work = int((times.work_end - times.work_begin)[inside].sum())
    is_ahead = sets_pace(window.step, host, meanwhile / window.steps, work / window.steps)
    return Clock(host, window.step, device, is_ahead)


def gpu_windows(lane: HostLane, queue: GpuQueue, times: Replayed) -> dict[int, GpuWindow]:
    """Return the steps by device, of those that have work of the steps."""
    step = np.searchsorted(lane.marks, queue.point, side="right") - 1
    windows: dict[int, GpuWindow] = {}
    for device in np.unique(queue.device).tolist():
        work = np.flatnonzero((queue.device == device) & (step >= 0) & (step < lane.steps))
        if len(work):
            work = work[on_busiest(queue.stream[work], queue.dur[work], step[work])]
            windows[device] = _window(step[work], times.work_begin[work], times.work_end[work], lane.steps)
    return windows


def _window(step: Int64s, begin: Int64s, end: Int64s, steps: int) -> GpuWindow:
    first = np.full(steps, np.iinfo(np.int64).max)
    np.minimum.at(first, step, begin)
    with_work = np.flatnonzero(first < np.iinfo(np.int64).max)
    if len(with_work) == 1:
        return GpuWindow(int(first[with_work[0]]), int(end.max()), 1, int(with_work[0]))
    between = int(with_work[-1] - with_work[0])
    return GpuWindow(int(first[with_work[0]]), int(first[with_work[-1]]), between, int(with_work[0]))


class StepPace(NamedTuple):
    """Mean lengths of the recorded whole steps (ns)."""

    host: float
    gpu: float | None  # on the slowest device, None where they launched nothing
    device: int  # its number, -1 without
    steps: int
    gpu_steps: int  # of how many `gpu` is the mean
    source: StepSource  # what shows the steps
    host_is_ahead: bool  # whether the GPU is the bottleneck

    @property
    def step(self) -> float:
        """Length by the clock of the bottleneck."""
        return self.gpu if self.gpu is not None and self.host_is_ahead else self.host

    @property
    def averaged(self) -> int:
        """Of how many steps that is the mean."""
        return self.gpu_steps if self.host_is_ahead else self.steps


class WholeSteps(NamedTuple):
    """The recorded whole steps.

    Steps before the first and behind the last that launched GPU work are cut by the ends of the recording.
    """

    host: Intervals
    gpu: GpuSteps | None  # on the slowest device
    source: StepSource


def whole_steps(profile: Profile) -> WholeSteps | None:
    """Return the steps that the profiler marked, or that show by what each does once; None without any."""
    loop, marked = profile.of(loop_steps), profile.of(StepWindows)
    if not len(loop.moments):
        return None
    windows = Intervals(loop.moments[:-1], loop.moments[1:])
    if loop.source == "profiler":
        windows = Intervals(marked.starts, marked.ends)
    gpu = slowest(gpu_steps_of(profile, windows))
    if gpu:
        kept = slice(gpu.step[0], gpu.step[-1] + 1)
        windows = Intervals(windows.starts[kept], windows.ends[kept])
    return WholeSteps(windows, gpu, loop.source)


def step_clock(profile: Profile) -> StepPace | None:
    """Return how long a recorded step is; None where nothing shows steps."""
    steps = profile.of(whole_steps)
    if steps is None or not len(steps.host.starts):
        return None
    number = len(steps.host.starts)
    host = steps.host.total_ns / number
    gpu = steps.gpu
    if gpu is None:
        return StepPace(host, None, -1, number, 0, steps.source, False)
    launching = (steps.host.ends - steps.host.starts)[gpu.step - gpu.step[0]]
    ahead = is_ahead(gpu, launching)
    return StepPace(host, gpu.mean, gpu.device, number, gpu.averaged, steps.source, ahead)
