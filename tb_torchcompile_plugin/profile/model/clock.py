"""How long is a step, recorded or replayed, and is it the host or a GPU that is the bottleneck?

On a GPU a step lasts from the first work that it launched to the first that the next one launched, on the stream that
works longest. The slower clock is the step's: a host that runs ahead, or a GPU that waits, is no bottleneck.
"""

from typing import NamedTuple

import numpy as np

from tb_torchcompile_plugin.profile.intervals import Int64s, Intervals
from tb_torchcompile_plugin.profile.model.gpu_queue import GpuQueue, gpu_queue
from tb_torchcompile_plugin.profile.model.launch_sequence import LaunchSequence, launch_sequence
from tb_torchcompile_plugin.profile.model.model import Replayed
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import bounds_by_device, is_gpu_bound_by


class Clock(NamedTuple):
    """Mean length of a step (ns)."""

    host: float
    device: int  # the slowest one; -1 where none has the work of two steps
    step: float  # by the clock of the bottleneck


def recorded_clock(profile: Profile) -> Clock:
    """Return the clock of the steps as recorded. Raises IndexError where the launch sequence is empty."""
    lane, queue = profile.of(launch_sequence), profile.of(gpu_queue)
    return clock(lane, queue, Replayed(lane.begin, lane.end, queue.start, queue.end))


def clock(lane: LaunchSequence, queue: GpuQueue, times: Replayed) -> Clock:
    """Return the clock of a launch sequence and its queue with these times: the mean over the steady steps."""
    marks = times.begin[lane.marks]
    # A sequence of one call takes no time.
    lengths = np.diff(marks) if len(marks) > 1 else np.zeros(1, np.int64)
    host = float(lengths[lane.steady].mean())
    windows = gpu_windows(lane, queue, times)
    if not windows:
        return Clock(host, -1, host)
    device, steps = max(windows.items(), key=lambda item: item[1].mean)
    inside = (queue.device == device) & np.isin(_step_of_work(lane, queue), steps.rows)
    work = int((times.work_end - times.work_begin)[inside].sum()) / len(steps.rows)
    is_gpu_bound = is_gpu_bound_by(steps.mean, host, float(lengths[steps.rows].mean()), work)
    step = steps.mean if is_gpu_bound else host
    return Clock(host, device, max(step, least_step(lane, queue, times)))


def _step_of_work(lane: LaunchSequence, queue: GpuQueue) -> Int64s:
    """Return the step of each piece of work; -1 and `lane.steps` are outside of all."""
    return np.searchsorted(lane.marks, queue.point, side="right") - 1


def least_step(lane: LaunchSequence, queue: GpuQueue, times: Replayed) -> float:
    """Return how long a step keeps its busiest stream, or CUDA graphs the busiest device (ns): no step is shorter.

    A replay knows one queue per stream; the streams inside a graph share the device, as much as they did when
    recorded.
    """
    if not len(queue):
        return 0.0
    step, count = _step_of_work(lane, queue), len(queue.free)
    counted = np.append(lane.steady, False)[np.minimum(step, lane.steps)] & (step >= 0)
    work = np.where(counted, times.work_end - times.work_begin, 0)
    of_streams = np.bincount(queue.stream, work, count).max()
    return float(max(of_streams, np.bincount(queue.device, queue.alone * work).max())) / int(
        lane.steady.sum()
    )


class GpuWindows(NamedTuple):
    """The steady steps of a model on one device (ns)."""

    rows: Int64s  # among the steps
    # From the first work of each to that of the next; of a single step to the end of its work.
    windows: Intervals

    @property
    def mean(self) -> float:
        """Mean length of a step."""
        return self.windows.total_ns / len(self.rows)


def gpu_windows(lane: LaunchSequence, queue: GpuQueue, times: Replayed) -> dict[int, GpuWindows]:
    """Return the steady steps by device, of the devices that have any whose end is known."""
    step, by_device = _step_of_work(lane, queue), {}
    step = np.where(step < lane.steps, step, -1)
    work = queue.device, queue.stream, step, queue.dur, times.work_begin, times.work_end
    for device, (rows, begin, end) in bounds_by_device(*work):
        counted = (np.arange(len(rows)) < max(len(rows) - 1, 1)) & lane.bounded[rows]
        counted &= lane.steady[rows] | ~(counted & lane.steady[rows]).any()
        if counted.any():
            by_device[device] = GpuWindows(rows[counted], Intervals(begin[counted], end[counted]))
    return by_device
