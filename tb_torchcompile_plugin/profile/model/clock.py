"""How long is a step, recorded or replayed, and is it the host or a GPU that is the bottleneck?

On a GPU a step lasts from the first work that it launched to the first that the next one launched, on the stream that
works longest. The slower clock is the step's: a host that runs ahead, or a GPU that waits, is no bottleneck.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tb_torchcompile_plugin.profile.model.gpu_queue import GpuQueue, gpu_queue
from tb_torchcompile_plugin.profile.model.launch_sequence import LaunchSequence, launch_sequence
from tb_torchcompile_plugin.profile.model.model import Replayed
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import is_gpu_bound_by, mask_of_busiest_stream


class Clock(NamedTuple):
    """Mean length of a step (ns)."""

    host: float
    gpu: float | None  # None where no device has the work of two steps
    device: int  # the slowest one
    host_is_ahead: bool  # whether the GPU is the bottleneck
    step: float  # by the clock of the bottleneck


def recorded_clock(profile: Profile) -> Clock:
    """Return the clock of the steps as recorded. Raises IndexError where the launch sequence is empty."""
    lane, queue = profile.of(launch_sequence), profile.of(gpu_queue)
    return clock(lane, queue, Replayed(lane.begin, lane.end, queue.start, queue.end))


def clock(lane: LaunchSequence, queue: GpuQueue, times: Replayed) -> Clock:
    """Return the clock of a launch sequence and its queue with these times."""
    marks = times.begin[lane.marks]
    windows = gpu_windows(lane, queue, times)
    host = float(marks[-1] - marks[0]) / lane.steps
    if not windows:
        return Clock(host, None, -1, False, host)
    device, window = max(windows.items(), key=lambda item: item[1].step)
    last = len(lane.marks) - 1  # a sequence of one call is its only mark
    points = lane.marks[[min(window.first, last), min(window.first + window.steps, last)]]
    meanwhile = int(np.diff(times.begin[points])[0])
    inside = (queue.device == device) & (queue.point >= points[0]) & (queue.point < points[1])
    work = int((times.work_end - times.work_begin)[inside].sum())
    is_ahead = is_gpu_bound_by(window.step, host, meanwhile / window.steps, work / window.steps)
    step = window.step if is_ahead else host
    return Clock(host, window.step, device, is_ahead, max(step, _least_step(lane, queue, times)))


def _least_step(lane: LaunchSequence, queue: GpuQueue, times: Replayed) -> float:
    """Return how long CUDA graphs keep the busiest device in a step (ns): no step is shorter.

    A replay knows one queue per stream; the streams inside a graph share the device, as much as they did when recorded.
    """
    step = np.searchsorted(lane.marks, queue.point, side="right") - 1
    inside = (step >= 0) & (step < lane.steps)
    alone = np.where(inside, queue.alone * (times.work_end - times.work_begin), 0.0)
    return max(
        (float(alone[queue.device == number].sum()) / lane.steps for number in set(queue.device)), default=0.0
    )


class GpuWindow(NamedTuple):
    """The steps of a model on one device."""

    begin: int  # the first work of step `first` (ns)
    end: int  # the first work of the last step; of a single step the end of its work
    steps: int
    first: int
    step: float  # mean length


def gpu_windows(lane: LaunchSequence, queue: GpuQueue, times: Replayed) -> dict[int, GpuWindow]:
    """Return the steps by device, of those that have work of the steps."""
    step = np.searchsorted(lane.marks, queue.point, side="right") - 1
    windows: dict[int, GpuWindow] = {}
    for device in np.unique(queue.device).tolist():
        work = np.flatnonzero((queue.device == device) & (step >= 0) & (step < lane.steps))
        if not len(work):
            continue
        work = work[mask_of_busiest_stream(queue.stream[work], queue.dur[work], step[work])]
        begins = np.full(lane.steps, np.iinfo(np.int64).max)
        np.minimum.at(begins, step[work], times.work_begin[work])
        first, last = int(step[work].min()), int(step[work].max())
        begin, end = (
            int(begins[first]),
            int(begins[last]) if last > first else int(times.work_end[work].max()),
        )
        steps = max(last - first, 1)
        windows[device] = GpuWindow(begin, end, steps, first, (end - begin) / steps)
    return windows
