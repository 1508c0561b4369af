"""How long is a step? The one answer that every screen, sentence, comparison and prediction uses.

The profiler marks steps by host `user_annotation` slices named `ProfilerStep#N`, and vLLM marks each batch by
`execute_context_…`. Without a schedule torch writes none: then steps are inferred from what a loop does once in each,
and without that the span is one window.

A step has two lengths. On the host it lasts as its mark does, on a GPU from the first work that it launched to the
first that the next one launched. The longer one limits the program, and its clock is that of the span. `step_time` is
the mean over the steady steps on this clock: without those that compile, that lack records, or whose end is unknown.
"""

import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from copy import copy
from typing import Literal, NamedTuple

import msgspec
import numpy as np

from tb_torchcompile_plugin.profile.columns import (
    Int64s,
    Intervals,
    Mask,
    by_track,
    covered_ns,
    host_slices,
    mask_at,
    mask_of,
    union,
    us,
    within,
)
from tb_torchcompile_plugin.profile.compiled.regions import region_calls
from tb_torchcompile_plugin.profile.gpu_work import busy, gpu_work
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.reader.trace.kineto import Trace
from tb_torchcompile_plugin.torch_names import slices

# "profiler", "server": marked by either. "optimizer", "compiled_region": inferred from their calls. "span": none.
StepSource = Literal["profiler", "server", "optimizer", "compiled_region", "span"]
ClockName = Literal["host", "gpu"]

# A step that is this many times as long on a GPU as on the host is limited by the GPU. Less is the end of the last
# step, whose GPU work ends later.
GPU_BOUND_RATIO = 1.05
# Share of a step on a GPU that has work almost all the time; chosen by eye: a host-bound program was busy for 68 %.
_FILLED = 0.9
_COMPILING_SHARE = 0.1  # of a step spent compiling, from which on it is not a steady one; chosen by eye
# Of what a loop does once per step: two steps at least, otherwise nothing shows that it is a loop.
_MIN_CALLS = 3
_MIN_NOTED = 2  # noted steps for a mean
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
    # The GPU work that ran inside the host's window; None where records of it are missing.
    gpu_busy_us: float | None


def profiled_steps(profile: Profile) -> list[Step]:
    """Return the steps. GPU busy is the union over the devices of the process, None where there was no GPU work."""
    trace, work, steps = profile.trace, profile.of(gpu_work), profile.of(StepWindows)
    inside = covered_ns(busy(trace, work.index), steps.starts, steps.ends)
    on_gpu, first = profile.of(gpu_steps), trace.window()[0]
    gpu = dict(zip(on_gpu.step.tolist(), on_gpu.length.tolist())) if on_gpu else {}
    is_known = ~profile.of(incomplete_steps) & bool(len(work.index))
    return [
        Step(
            name=name,
            start_us=us(begin - first),
            wall_us=us(end - begin),
            gpu_us=us(gpu[row]) if row in gpu else None,
            gpu_busy_us=us(ran) if is_known[row] else None,
        )
        for row, (name, begin, end, ran) in enumerate(zip(steps.names, steps.starts, steps.ends, inside))
    ]


class StepWindows:
    """The steps as windows on the host, marked by the profiler or inferred; none where nothing shows them."""

    def __init__(self, profile: Profile) -> None:
        trace = profile.trace
        rows = host_slices(trace, slices.is_profiler_step, (slices.LABEL,))
        self.source: StepSource = "profiler"
        if not len(rows):
            rows, self.source = host_slices(trace, slices.is_server_step, (slices.LABEL,)), "server"
        self.rows = rows = rows[np.argsort(trace.ts[rows], kind="stable")]  # of their marks in order of time
        self.region = ""  # the compile id of the region whose calls show the steps
        self.names = [trace.names[name] for name in trace.name[rows]]
        self.starts: Int64s = trace.ts[rows]
        self.ends: Int64s = self.starts + trace.dur[rows]
        self.tracks: Int64s = trace.track[rows].astype(np.int64)  # of the threads that run them
        if not len(rows):  # the loop is cut at the ends of the optimizer's calls, or at the calls of a region
            self.source, self.region, moments, track = _optimizer_calls(profile) or _region_calls(profile)
            self.starts, self.ends = moments[:-1], moments[1:]
            self.names = [f"step {number}" for number in range(1, len(moments))]
            self.tracks = np.full(len(self.starts), track)

    def __len__(self) -> int:
        return len(self.names)

    @property
    def windows(self) -> Intervals:
        """Their windows, in order of time."""
        return Intervals(self.starts, self.ends)

    @property
    def moments(self) -> Int64s:
        """Return their begins in order of time and the end of the last one (ns); [] without steps."""
        return np.append(self.starts, self.ends[-1:])

    def holding(self, moments: Int64s) -> Mask:
        """Return for each step whether any of these moments is in it."""
        step = within(self.windows, moments)
        return mask_at(step[step >= 0], len(self))


_Inferred = tuple[StepSource, str, Int64s, int]  # what shows the steps, the region, their moments, the track


def _optimizer_calls(profile: Profile) -> _Inferred | None:
    """Return the steps by the optimizer that is called most often: from the end of one call to that of the next."""
    trace = profile.trace
    rows = host_slices(trace, slices.is_optimizer_step, (slices.LABEL,))
    if not len(rows):
        return None
    names, calls = np.unique(trace.name[rows], return_counts=True)
    rows = rows[trace.name[rows] == names[calls.argmax()]]
    ends = np.sort(trace.ts[rows] + trace.dur[rows])
    return ("optimizer", "", ends, int(trace.track[rows[0]])) if len(rows) >= _MIN_CALLS else None


def _region_calls(profile: Profile) -> _Inferred:
    """Return the steps by the outermost region that is called most often; of several the first."""
    calls = profile.of(region_calls)
    ((most, times),) = Counter(call.compile_id for call in calls).most_common(1) or ((None, 0),)
    if times < _MIN_CALLS:
        return "span", "", np.zeros(0, np.int64), -1
    calls = [call for call in calls if call.compile_id == most]
    moments = np.array([call.begin for call in calls], np.int64)
    return "compiled_region", most or "", moments, int(profile.trace.track[calls[0].index])


def marked_steps(profile: Profile) -> StepWindows:
    """Return the steps that the profiler marked, as they are the same on all ranks; none where they are inferred."""
    steps = profile.of(StepWindows)
    if steps.source == "profiler":
        return steps
    none = copy(steps)
    none.names, none.starts, none.ends, none.tracks = [], steps.starts[:0], steps.ends[:0], steps.tracks[:0]
    return none


def step_around(profile: Profile, time_ns: int) -> str | None:
    """Return the profiled step that contains a time of the trace; None outside of all."""
    steps = profile.of(StepWindows)
    step = int(within(steps.windows, np.array([time_ns], np.int64))[0])
    return steps.names[step] if step >= 0 else None


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


class LaunchRecords(NamedTuple):
    """The calls that launch kernels or CUDA graphs."""

    # Their rows, without those that a CUDA graph captures: these run when the graph is launched.
    calls: Int64s
    lost: Int64s  # of these the rows whose GPU work has no record


def launch_records(profile: Profile) -> LaunchRecords:
    """Return the launches of a span, on any thread."""
    trace = profile.trace
    calls = trace.select(cat=slices.RUNTIME_CATS)
    calls = calls[mask_of(trace.names, lambda name: slices.call_kind(name) == "launch")[trace.name[calls]]]
    begins, ends = (
        np.sort(trace.ts[np.flatnonzero(mask_of(trace.names, wanted)[trace.name])])
        for wanted in (slices.is_capture, slices.is_capture_end)
    )
    if len(begins):
        until = np.append(ends, np.iinfo(np.int64).max)[np.searchsorted(ends, begins)]
        calls = calls[within(union(begins, until), trace.ts[calls]) < 0]
    ids, recorded = trace.correlation[calls], trace.correlation[trace.select(cat=slices.GPU_CATS)]
    return LaunchRecords(calls, calls[(ids >= 0) & ~np.isin(ids, recorded)])


def incomplete_steps(profile: Profile) -> Mask:
    """Return for each step whether any of its launches has no GPU record, or one with an implausible time."""
    trace, wrong = profile.trace, profile.trace.launch_of()[profile.trace.implausible()]
    rows = np.concatenate((profile.of(launch_records).lost, wrong[wrong >= 0]))
    return profile.of(StepWindows).holding(trace.ts[rows])


def compile_ns(profile: Profile) -> Int64s:
    """Return by step how much of its time on the host any thread of the process was in torch's compiler.

    Without steps of the span.
    """
    trace, windows = profile.trace, profile.of(profiled_time)
    is_compiling = np.array(slices.are_compiling(trace.names) or [False], bool)
    rows = trace.call_rows
    return covered_ns(busy(trace, rows[is_compiling[trace.name[rows]]]), *windows)


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
    """Return the steps of each device on which a profiled step launched work.

    Of a trace that was cut the last one is left out, as its end is unknown.
    """
    trace, work = profile.trace, profile.of(gpu_work)
    step = launching(profile.of(StepWindows).windows, trace, trace.launch_of()[work.index])
    begin, dur, stream = trace.ts[work.index], trace.dur[work.index], trace.stream[work.index]
    whole = slice(None, -1 if trace.notices and trace.is_cut_off else None)
    devices = []
    for device, columns in bounds_by_device(work.device, stream, step, dur, begin, begin + dur):
        rows = (work.device == device) & (step >= 0)
        of_all = np.bincount(step[rows], dur[rows]).astype(np.int64)
        number, first, end = (column[whole] for column in columns)
        mean = mean_of_steps(end - first) if len(number) else 0.0
        devices.append(GpuSteps(device, number, first, end, end - first, of_all[number], mean))
    return devices


def gpu_steps(profile: Profile) -> GpuSteps | None:
    """Return the steps on the device on which they take longest; None where they launched nothing."""
    devices = (gpu for gpu in profile.of(steps_by_gpu) if len(gpu.step))
    return max(devices, key=lambda gpu: gpu.mean, default=None)


class SteadySteps(NamedTuple):
    """The steps whose mean is the step time of the span."""

    rows: Int64s  # among the steps
    on_host: Int64s  # the same without regard to a GPU's clock, on which the end of some is unknown
    windows: Intervals  # on the clock that limits them
    lengths: Int64s  # of these windows
    compiles: Mask  # which of all steps compile, or tune kernels, for so long that they are not steady
    device: int | None  # whose clock that is, None for the host's

    @property
    def step_ns(self) -> float:
        """Mean length on the clock that limits them."""
        return float(self.lengths.mean())


def compiling_steps(profile: Profile) -> Mask:
    """Return which steps compile."""
    steps = profile.of(StepWindows)
    return profile.of(compile_ns) > _COMPILING_SHARE * (steps.ends - steps.starts)


def are_followed(steps: StepWindows) -> Mask:
    """Return which steps are followed by the next one: the schedule numbers them, and marks may be missing."""
    followed = np.ones(len(steps), bool)
    if steps.source == "profiler":
        followed[:-1] = np.diff(np.array([slices.step_number(name) for name in steps.names])) == 1
    return followed


def ends_are_known(steps: StepWindows, counted: Mask) -> Mask:
    """Return which steps end on the GPU where the next one begins: that is marked, and one that counts."""
    next_counts: Mask = np.append(counted, True)[1:]
    return are_followed(steps) & next_counts


def has_gpu_records(profile: Profile) -> bool:
    """Return whether GPU work was recorded, of some step all of it: otherwise what the GPU did is unknown."""
    incomplete = profile.of(incomplete_steps)
    return bool(len(profile.of(gpu_work).index)) and not (len(incomplete) and incomplete.all())


def steady_steps(profile: Profile) -> SteadySteps | None:
    """Return the steady steps; without any, the best of the others. None without steps."""
    steps, gpu = profile.of(StepWindows), profile.of(gpu_steps)
    if not len(steps):
        return None
    length = steps.ends - steps.starts
    compiles, incomplete = profile.of(compiling_steps), profile.of(incomplete_steps)
    in_loop = np.ones(len(steps), bool)
    if gpu is not None and not len(steps.rows):
        # What is inferred may begin before the loop, and end behind it.
        in_loop = (np.arange(len(steps)) >= gpu.step[0]) & (np.arange(len(steps)) <= gpu.step[-1])
    # Where all steps lack records, their length on the host is still right.
    choices = (in_loop & ~(incomplete | compiles), ~compiles, ~incomplete, np.ones(len(steps), bool))
    usable = next(choice for choice in choices if choice.any())
    rows = np.flatnonzero(usable)
    windows = Intervals(steps.starts[rows], steps.ends[rows])
    host_ns = float(length[rows].mean())
    on_host = SteadySteps(rows, rows, windows, length[rows], compiles, None)
    if gpu is None or incomplete[rows].any():
        return on_host
    whole = np.arange(len(gpu.step)) < max(len(gpu.step) - 1, 1)  # the last step has no known end
    whole &= np.isin(gpu.step, rows) & ends_are_known(steps, usable)[gpu.step]
    if not whole.any():
        return on_host
    step, gpu_ns = gpu.step[whole], float(gpu.length[whole].mean())
    if not is_gpu_bound_by(gpu_ns, host_ns, float(length[step].mean()), float(gpu.work[whole].mean())):
        return on_host
    windows = Intervals(gpu.begin[whole], gpu.end[whole])
    return SteadySteps(step, rows, windows, gpu.length[whole], compiles, gpu.device)


class StepTime(msgspec.Struct, frozen=True):
    """How long a step is: the one number for it."""

    step_us: float  # unprofiled where the handler noted such steps
    clock: ClockName
    steps: int  # of how many `profiled_us` is the mean; 0 where the span has no steps, and is one window
    profiled_us: float  # while the profiler recorded; the rest of it is the profiler's overhead
    source: StepSource
    device: int | None  # the GPU whose clock it is, None for the host's
    unprofiled_steps: int  # of how many `step_us` is the mean; 0 where it is `profiled_us`

    @property
    def overhead_us(self) -> float:
        """By how much profiling made a step longer."""
        return self.profiled_us - self.step_us


def step_time(profile: Profile) -> StepTime:
    """Return how long a step is; without steps, how long the window of the span is."""
    steady, steps = profile.of(steady_steps), profile.of(StepWindows)
    if steady is None:
        length = us(profile.of(span_window).total_ns)
        return StepTime(length, "host", 0, length, "span", None, 0)
    unprofiled = profile.of(_unprofiled)
    device = unprofiled.device if len(unprofiled.lengths) else steady.device
    return StepTime(
        step_us=float(profile.of(step_lengths).mean()) / 1000,
        clock="host" if device is None else "gpu",
        steps=len(steady.rows),
        profiled_us=steady.step_ns / 1000,
        source=steps.source,
        device=device,
        unprofiled_steps=len(unprofiled.lengths),
    )


def step_lengths(profile: Profile) -> Int64s:
    """Return the lengths whose mean is the step time (ns): unprofiled ones where they count; [] without steps."""
    steady, unprofiled = profile.of(steady_steps), profile.of(_unprofiled).lengths
    return unprofiled if len(unprofiled) or steady is None else steady.lengths


class _Unprofiled(NamedTuple):
    lengths: Int64s  # ns
    device: int | None = None  # the GPU that limits them, None for the host


def _unprofiled(profile: Profile) -> _Unprofiled:
    """Return the noted unprofiled steps if they can be as short as that, and are not longer than profiled ones.

    The handler notes times of the host. Where it runs ahead of a GPU they are shorter than the steps, until the queue
    is full. No step is shorter than the GPU's work in it; if most of the noted ones are, that work is their length.
    """
    steady, none = profile.of(steady_steps), _Unprofiled(np.zeros(0, np.int64))
    noted = np.array(profile.data.of(unprofiled_steps) if profile.data else (), np.int64)
    if steady is None or not len(noted):
        return none
    answer = _Unprofiled(noted, steady.device)
    work = _Unprofiled(steady.lengths, steady.device)
    if steady.device is None:
        work = profile.of(_gpu_work)
    least = float(work.lengths.mean()) / GPU_BOUND_RATIO if len(work.lengths) else 0.0
    if noted.mean() < least:  # without those that ended before the queue was full, if most are left
        full = noted[noted >= least]
        answer = _Unprofiled(full, steady.device) if 2 * len(full) > len(noted) else work
    # The GPU works all the time: profiling slows only the host.
    if answer.lengths.mean() <= GPU_BOUND_RATIO**2 * least:
        answer = answer._replace(device=work.device)
    return answer if answer.lengths.mean() < steady.step_ns else none


def _gpu_work(profile: Profile) -> _Unprofiled:
    """Return how long the GPU that works longest is busy in each of the steady steps; [] without GPU work."""
    steady = profile.of(steady_steps)
    rows = steady.rows if steady else np.zeros(0, np.int64)
    devices = [_Unprofiled(gpu.work[np.isin(gpu.step, rows)], gpu.device) for gpu in profile.of(steps_by_gpu)]
    none = _Unprofiled(np.zeros(0, np.int64))
    return max(
        (row for row in devices if len(row.lengths)), key=lambda row: float(row.lengths.mean()), default=none
    )


def span_window(profile: Profile) -> Intervals:
    """Return from the first GPU event to the end of the last; without any, when the busiest thread had operators."""
    trace, rows = profile.trace, profile.of(gpu_work).index
    if not len(rows):
        times = dict(by_track(trace, trace.select(cat=(slices.OPERATOR,))))
        if not times:
            return profiled_time(profile)
        track = max(times, key=lambda track: busy(trace, times[track]).total_ns)
        rows = np.arange(trace.track_bounds[track], trace.track_bounds[track + 1])
    return Intervals(trace.ts[rows].min(keepdims=True), (trace.ts[rows] + trace.dur[rows]).max(keepdims=True))


def bottleneck(profile: Profile) -> GpuSteps | None:
    """Return the steps on the slowest GPU where it is the bottleneck: where they take longer than on the host."""
    steady = profile.of(steady_steps)
    return profile.of(gpu_steps) if steady and steady.device is not None else None


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


StepBounds = tuple[Int64s, Int64s, Int64s]  # the numbers of steps, and when they begin and end


def bounds_by_device(
    device: Int64s, stream: Int64s, step: Int64s, dur: Int64s, begin: Int64s, end: Int64s
) -> Iterator[tuple[int, StepBounds]]:
    """Yield the steps on each device, by the stream that works longest. step: of each piece of work, -1 for none."""
    for number in np.unique(device[step >= 0]).tolist():
        rows = np.flatnonzero((device == number) & (step >= 0))
        rows = rows[_mask_of_busiest_stream(stream[rows], dur[rows], step[rows])]
        yield number, step_bounds(step[rows], begin[rows], end[rows])


def _mask_of_busiest_stream(stream: Int64s, dur: Int64s, step: Int64s) -> Mask:
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


def step_bounds(step: Int64s, begin: Int64s, end: Int64s) -> StepBounds:
    """Return the steps that launched any of this work, when the first of each begins, and when that of the next does.

    The last one ends with its work. None begins before the one before, as work of another stream may.
    """
    rows, row = np.unique(step, return_inverse=True)
    first = np.full(len(rows), np.iinfo(np.int64).max)
    np.minimum.at(first, row, begin)
    first = np.maximum.accumulate(first)
    last = max(int(end[row == len(rows) - 1].max(initial=0)), int(first.max(initial=0)))
    return rows, first, np.append(first[1:], [last] * min(1, len(rows)))


def unprofiled_steps(data: CompileData) -> Sequence[int]:
    """Return how long the steps of the training loop took while no profiler recorded (ns), as the handler noted them.

    By the host's clock, without steps that compiled; `StepTimes` in summary.proto says where a step ends. () where
    too few were noted, as with a log. One alone may be the first of an epoch, but not where it is shorter than all
    that were recorded: no recording makes a step shorter.
    """
    steps = data.summary.steps
    noted = list(steps.unrecorded_ns)
    if len(noted) == 1 and noted[0] < min(steps.recorded_ns, default=0):
        return noted
    if len(noted) < _MIN_NOTED:
        return ()
    # Each step has its part of what a loop does every few steps, such as waiting for a loader; pauses are none.
    most = PAUSE_RATIO * statistics.median(noted)
    return [ns for ns in noted if ns <= most]


def unprofiled_host_step_ns(data: CompileData) -> int | None:
    """Return what the host needs for an unprofiled step at most; None where fewer than five were noted.

    Where it runs ahead of a GPU, steps are short until the queue is full. It is the second shortest, as one alone may
    not be a step.
    """
    noted = sorted(data.summary.steps.unrecorded_ns)
    return noted[1] if len(noted) >= _FEW else None
