"""How long is a step? By the host's clock, and by that of each GPU, recorded or replayed.

On a GPU a step lasts from the first work that it launched to the first that the next one launched, on the stream that
works longest. The slower clock is the step's: a host that runs ahead, or a GPU that waits, sets no pace.
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
    """Mean length of a step (ns). gpu: None where no device has the work of two steps. device: the slowest one.
    host_is_ahead: whether that sets the pace."""

    host: float
    gpu: float | None
    device: int
    host_is_ahead: bool

    @property
    def step(self) -> float:
        """By the clock that sets the pace."""
        return self.gpu if self.gpu is not None and self.host_is_ahead else self.host


def recorded_clock(profile: Profile) -> Clock:
    """As the steps were recorded. Raises IndexError where the lane is empty."""
    lane, queue = profile.of(host_lane), profile.of(gpu_queue)
    return clock(lane, queue, Replayed(lane.begin, lane.end, queue.start, queue.end))


class GpuWindow(NamedTuple):
    """From the first work of step `first` to the first of the last one (ns), and how many steps that is; of a single
    step to the end of its work."""

    begin: int
    end: int
    steps: int
    first: int

    @property
    def step(self) -> float:
        return (self.end - self.begin) / self.steps


def clock(lane: HostLane, queue: GpuQueue, times: Replayed) -> Clock:
    """Of a lane and its queue with these times."""
    marks = times.begin[lane.marks]
    windows = gpu_windows(lane, queue, times)
    device = max(windows, key=lambda one: windows[one].step, default=-1)
    host = float(marks[-1] - marks[0]) / lane.steps
    if not windows:
        return Clock(host, None, device, False)
    slowest = windows[device]
    return Clock(host, slowest.step, device, _sets_pace(lane, queue, times, host, device, slowest))


def _sets_pace(
    lane: HostLane, queue: GpuQueue, times: Replayed, host: float, device: int, window: GpuWindow
) -> bool:
    last = len(lane.marks) - 1  # a lane of one call is its only mark
    marks = lane.marks[[min(window.first, last), min(window.first + window.steps, last)]]
    meanwhile = int(np.diff(times.begin[marks])[0])
    inside = (queue.device == device) & (queue.point >= marks[0]) & (queue.point < marks[1])
    work = int((times.work_end - times.work_begin)[inside].sum())
    return sets_pace(window.step, host, meanwhile / window.steps, work / window.steps)


def gpu_windows(lane: HostLane, queue: GpuQueue, times: Replayed) -> dict[int, GpuWindow]:
    """By device, of those that have work of the steps."""
    step = np.searchsorted(lane.marks, queue.point, side="right") - 1
    windows = {
        int(device): _window(step[here], times.work_begin[here], times.work_end[here], lane.steps)
        for device in np.unique(queue.device)
        if (here := _pacing(queue, step, int(device), lane.steps)).size
    }
    return {device: window for device, window in windows.items() if window is not None}


def _pacing(queue: GpuQueue, step: Int64s, device: int, steps: int) -> Int64s:
    """Places of the work that tells when the steps of a device begin."""
    here = np.flatnonzero((queue.device == device) & (step >= 0) & (step < steps))
    return here[on_busiest(queue.stream[here], queue.dur[here], step[here])] if len(here) else here


def _window(step: Int64s, begin: Int64s, end: Int64s, steps: int) -> GpuWindow | None:
    first = np.full(steps, np.iinfo(np.int64).max)
    inside = (step >= 0) & (step < steps)
    np.minimum.at(first, step[inside], begin[inside])
    known = np.flatnonzero(first < np.iinfo(np.int64).max)
    if not len(known):
        return None
    if len(known) == 1:
        return GpuWindow(int(first[known[0]]), int(end[inside].max()), 1, int(known[0]))
    between = int(known[-1] - known[0])
    return GpuWindow(int(first[known[0]]), int(first[known[-1]]), between, int(known[0]))


# How long is a recorded step, and which clock sets the pace: the host's, or that of a GPU? Of all whole
# steps, marked by the profiler or told by what each step of a loop does once. Steps before the first and
# behind the last that launched GPU work are cut by the ends of the recording.


class StepPace(NamedTuple):
    """Mean lengths of `steps` steps (ns). gpu: on the slowest device, None where they launched nothing; device: its
    number, -1 without. gpu_steps: of how many that is the mean. source: what tells the steps. host_is_ahead:
    whether the GPU sets the pace."""

    host: float
    gpu: float | None
    device: int
    steps: int
    gpu_steps: int
    source: StepSource
    host_is_ahead: bool

    @property
    def step(self) -> float:
        """By the clock that sets the pace."""
        return self.gpu if self.gpu is not None and self.host_is_ahead else self.host

    @property
    def averaged(self) -> int:
        """Of how many steps that is the mean."""
        return self.gpu_steps if self.host_is_ahead else self.steps


class PacedSteps(NamedTuple):
    """The whole steps by the host's clock, by that of the slowest GPU or None, and what tells them."""

    host: Intervals
    gpu: GpuSteps | None
    source: StepSource


def paced_steps(profile: Profile) -> PacedSteps | None:
    """None where nothing tells steps."""
    loop = profile.of(loop_steps)
    if not len(loop.moments):
        return None
    marked = profile.of(StepWindows)
    windows = (
        Intervals(marked.starts, marked.ends)
        if loop.source == "profiler"
        else Intervals(loop.moments[:-1], loop.moments[1:])
    )
    gpu = slowest(gpu_steps_of(profile, windows))
    return (
        PacedSteps(_whole(windows, gpu.step), gpu, loop.source)
        if gpu
        else PacedSteps(windows, None, loop.source)
    )


def _whole(windows: Intervals, launched: Int64s) -> Intervals:
    kept = slice(launched[0], launched[-1] + 1) if len(launched) else slice(0, 0)
    return Intervals(windows.starts[kept], windows.ends[kept])


def step_clock(profile: Profile) -> StepPace | None:
    """None where nothing tells steps."""
    steps = profile.of(paced_steps)
    if steps is None or not len(steps.host.starts):
        return None
    number = len(steps.host.starts)
    host = steps.host.total_ns / number
    if steps.gpu is None:
        return StepPace(host, None, -1, number, 0, steps.source, False)
    gpu = steps.gpu
    launching = (steps.host.ends - steps.host.starts)[gpu.step - gpu.step[0]]
    ahead = is_ahead(gpu, launching)
    return StepPace(host, gpu.mean, gpu.device, number, gpu.averaged, steps.source, ahead)
