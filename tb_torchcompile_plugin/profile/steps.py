"""How long are the profiled steps, on the host and on each GPU?

The profiler marks them by host `user_annotation` slices named `ProfilerStep#N`. Without a schedule torch writes none;
then the span is one window and `steps` is empty. On a GPU a step lasts from the first work that it launched to the
first that the next one launched.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from tb_torchcompile_plugin.profile.columns import Mask, host_slices
from tb_torchcompile_plugin.profile.gpu_work import busy, gpu_work
from tb_torchcompile_plugin.profile.intervals import Int64s, Intervals, covered_ns, us, within
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.reader.trace.kineto import Trace
from tb_torchcompile_plugin.torch_names.slices import LABEL, is_step

# Times as long as the host: a GPU that takes longer for a step is the bottleneck. Less is the end of the last step.
GPU_BOUND_RATIO = 1.05
_FILLED = 0.5  # share of a step on a GPU that has work most of the time
_FEWEST = 2  # noted steps for a mean
_FEW = 5  # noted steps for what the host needs
# Times the median: what takes longer is not a step, but a pause between two; chosen by eye.
PAUSE_RATIO = 10


class Step(msgspec.Struct, frozen=True):
    """One profiled step."""

    name: str
    start_us: float  # from the span's first event
    wall_us: float
    # From the first GPU work that it launched to the first that the next one launched, of the last step to the end of
    # its work; on the GPU on which the steps take longest. None for a step that launched nothing there, and for the
    # last one of a trace that was cut.
    gpu_us: float | None
    gpu_busy_us: float | None  # the GPU work that ran inside the host's window


def profiled_steps(profile: Profile) -> list[Step]:
    """Return the steps. GPU busy is the union over the devices of the process, None where there was no GPU work."""
    trace, work, steps = profile.trace, profile.of(gpu_work), profile.of(StepWindows)
    inside = covered_ns(busy(trace, work.index), steps.starts, steps.ends)
    on_gpu, first = profile.of(gpu_steps), trace.window()[0]
    gpu = dict(zip(on_gpu.step.tolist(), on_gpu.length.tolist())) if on_gpu else {}
    return [
        Step(
            name=name,
            start_us=us(begin - first),
            wall_us=us(end - begin),
            gpu_us=us(gpu[row]) if row in gpu else None,
            gpu_busy_us=us(ran) if len(work.index) else None,
        )
        for row, (name, begin, end, ran) in enumerate(zip(steps.names, steps.starts, steps.ends, inside))
    ]


class StepWindows:
    """The profiled steps as windows; none without a schedule."""

    def __init__(self, profile: Profile) -> None:
        trace = profile.trace
        rows = host_slices(trace, is_step, (LABEL,))
        self.rows = rows[np.argsort(trace.ts[rows], kind="stable")]  # in order of time
        self.names = [trace.names[name] for name in trace.name[self.rows]]
        self.starts: Int64s = trace.ts[self.rows]
        self.ends: Int64s = self.starts + trace.dur[self.rows]
        self.windows = Intervals(self.starts, self.ends)

    def __len__(self) -> int:
        return len(self.names)

    @property
    def total_ns(self) -> int:
        """Time in the steps on the host."""
        return int((self.ends - self.starts).sum())


def profiled_time(profile: Profile) -> Intervals:
    """Return the profiled steps; the whole span where there are none."""
    steps = profile.of(StepWindows)
    if len(steps):
        return steps.windows
    first, last = profile.trace.window()
    return Intervals(np.array([first], np.int64), np.array([last], np.int64))


def launching(steps: Intervals, trace: Trace, launch: Int64s) -> Int64s:
    """Return for each launch call (its row, -1 unknown) the step that it begins in, on whatever thread; -1 for none.

    GPU work belongs to the step that launched it, whenever it runs.
    """
    return np.where(launch >= 0, within(steps, trace.ts[launch]), -1)


class GpuSteps(NamedTuple):
    """The steps that launched work on a device, as columns in order of time (ns)."""

    device: int
    step: Int64s
    begin: Int64s
    end: Int64s
    length: Int64s
    work: Int64s  # how long all of it runs
    mean: float  # length of a step, 0 without steps


def mean_of_steps(length: Int64s) -> float:
    """Return the mean of all steps but the last one: when the next one's work would have begun is unknown."""
    return float((length[:-1] if len(length) > 1 else length).mean())


def steps_by_gpu(profile: Profile) -> list[GpuSteps]:
    """Return the steps of each device on which a profiled step launched work."""
    return gpu_steps_of(profile, profile.of(StepWindows).windows)


def gpu_steps(profile: Profile) -> GpuSteps | None:
    """Return the steps on the device on which they take longest; None where they launched nothing."""
    return slowest(profile.of(steps_by_gpu))


def bottleneck(profile: Profile) -> GpuSteps | None:
    """Return the steps on the slowest GPU where it is the bottleneck: where they take longer than on the host."""
    steps, gpu = profile.of(StepWindows), profile.of(gpu_steps)
    if gpu is None:
        return None
    host = (steps.ends - steps.starts)[gpu.step]
    is_ahead = is_gpu_bound_by(gpu.mean, float(host.mean()), mean_of_steps(host), mean_of_steps(gpu.work))
    return gpu if is_ahead else None


def is_gpu_bound_by(gpu_ns: float, host_ns: float, meanwhile_ns: float, work_ns: float) -> bool:
    """Return whether the GPU is the bottleneck: then the host runs ahead.

    meanwhile_ns: a step on the host, of those alone whose length on the GPU is known, which all but the last are.
    Where both take as long, and the GPU has no work most of the time, the last step was a shorter one. work_ns: of
    the GPU.
    """
    longer = gpu_ns > GPU_BOUND_RATIO * meanwhile_ns or work_ns > _FILLED * gpu_ns
    return gpu_ns > GPU_BOUND_RATIO * host_ns and longer


def bottleneck_windows(profile: Profile) -> Intervals:
    """Return each profiled step by the clock of the bottleneck; by the host's where it is unknown on that GPU."""
    steps, gpu = profile.of(StepWindows), profile.of(bottleneck)
    starts, ends = steps.starts.copy(), steps.ends.copy()
    if gpu is not None:
        starts[gpu.step], ends[gpu.step] = gpu.begin, gpu.end
    return Intervals(starts, ends)


def step_ns(profile: Profile) -> Int64s:
    """Return the length of each profiled step by the clock of the bottleneck."""
    windows = profile.of(bottleneck_windows)
    return windows.ends - windows.starts


def slowest(devices: list[GpuSteps]) -> GpuSteps | None:
    """Return the steps that take longest."""
    return max((gpu for gpu in devices if len(gpu.step)), key=lambda gpu: gpu.mean, default=None)


def gpu_steps_of(profile: Profile, steps: Intervals) -> list[GpuSteps]:
    """Return any steps by device. Of a trace that was cut the last one is left out, as its end is unknown."""
    trace, work = profile.trace, profile.of(gpu_work)
    step = launching(steps, trace, trace.launch_of()[work.index])
    begin, dur = trace.ts[work.index], trace.dur[work.index]
    whole = slice(None, -1 if trace.notices else None)
    devices = []
    for device in np.unique(work.device[step >= 0]).tolist():
        rows = np.flatnonzero((work.device == device) & (step >= 0))
        of_all = np.bincount(step[rows], dur[rows]).astype(np.int64)
        rows = rows[mask_of_busiest_stream(trace.stream[work.index[rows]], dur[rows], step[rows])]
        columns = step_bounds(step[rows], begin[rows], begin[rows] + dur[rows])
        number, first, end = (column[whole] for column in columns)
        mean = mean_of_steps(end - first) if len(number) else 0.0
        devices.append(GpuSteps(device, number, first, end, end - first, of_all[number], mean))
    return devices


def mask_of_busiest_stream(stream: Int64s, dur: Int64s, step: Int64s) -> Mask:
    """Return which work of a device is on the stream that works longest, of those with work in each of the steps.

    All of it where there is no such stream. Its steps are the device's: what is copied ahead on a stream of its own
    begins when the host says so, however long the rest still waits.
    """
    streams, code = np.unique(stream, return_inverse=True)
    steps, number = np.unique(step, return_inverse=True)
    met = np.zeros((len(streams), len(steps)), bool)
    met[code, number] = True
    always = met.all(axis=1)
    if not always.any():
        return np.ones(len(stream), bool)
    busy_ns = np.where(always, np.bincount(code, dur, len(streams)), -1)
    return np.asarray(code == busy_ns.argmax())


def step_bounds(step: Int64s, begin: Int64s, end: Int64s) -> tuple[Int64s, Int64s, Int64s]:
    """Return the steps that launched any of this work, when the first of each begins, and when that of the next does.

    The last one ends with its work. None begins before the one before, as work of another stream may.
    """
    rows, row = np.unique(step, return_inverse=True)
    first = np.full(len(rows), np.iinfo(np.int64).max)
    np.minimum.at(first, row, begin)
    first = np.maximum.accumulate(first)
    last = max(int(end[row == len(rows) - 1].max(initial=0)), int(first.max(initial=0)))
    return rows, first, np.append(first[1:], [last] * min(1, len(rows)))


def unprofiled_step_ns(data: CompileData) -> int | None:
    """Return the mean step of the training loop while no profiler recorded, in ns, by the notes of the handler.

    By the host's clock, without steps that compiled; `StepTimes` in summary.proto says where a step ends. None where
    too few were noted, as with a log. One alone may be the first of an epoch, but not where it is shorter than all
    that were recorded: no recording makes a step shorter.
    """
    steps = data.summary.steps
    if len(steps.unrecorded_ns) == 1 and steps.unrecorded_ns[0] < min(steps.recorded_ns, default=0):
        return int(steps.unrecorded_ns[0])
    return _mean(steps.unrecorded_ns)


def profiled_step_ns(data: CompileData) -> int | None:
    """Return the mean step while a profiler recorded, in ns, from the same notes; None where too few were noted."""
    return _mean(data.summary.steps.recorded_ns)


def unprofiled_host_step_ns(data: CompileData) -> int | None:
    """Return what the host needs for an unprofiled step at most; None where fewer than five were noted.

    Where it runs ahead of a GPU, steps are short until the queue is full. It is the second shortest, as one alone may
    not be a step.
    """
    noted = sorted(data.summary.steps.unrecorded_ns)
    return noted[1] if len(noted) >= _FEW else None


def _mean(durations_ns: Sequence[int]) -> int | None:
    """Average steps, so that each has its part of what a loop does every few steps, such as waiting for a loader."""
    if len(durations_ns) < _FEWEST:
        return None
    most = PAUSE_RATIO * statistics.median(durations_ns)
    return round(statistics.fmean(ns for ns in durations_ns if ns <= most))
