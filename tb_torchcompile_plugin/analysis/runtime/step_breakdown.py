"""The steps of one span, put together: what `report --json` prints and the route answers."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from typing import Literal

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis.compile.recompile_moments import recompile_moments
from tb_torchcompile_plugin.analysis.formatting import duration, plural
from tb_torchcompile_plugin.profile.columns import by_track, mask_of
from tb_torchcompile_plugin.profile.gpu.idle import causes_in, idle_gaps
from tb_torchcompile_plugin.profile.gpu.launches import kernel_launches
from tb_torchcompile_plugin.profile.gpu_work import GpuWork, busy, gpu_work
from tb_torchcompile_plugin.profile.host.thread_activity import CAUSES, Cause, ThreadActivity
from tb_torchcompile_plugin.profile.intervals import Int64s, Intervals, covered_ns, union
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import StepWindows, pace, paced_windows, step_slices
from tb_torchcompile_plugin.profile.units import us
from tb_torchcompile_plugin.reader.arrays import grouped
from tb_torchcompile_plugin.torch_names.kernels import CATEGORIES, Category
from tb_torchcompile_plugin.torch_names.slices import OPERATOR, is_autotuning, is_collection

# How long does a step take, how much does that vary, and is a difference more than that?


# Two-sided 95 % quantiles of Student's t by degrees of freedom, 1 to 30; the last one holds beyond.
_T95_TEXT = """12.706 4.303 3.182 2.776 2.571 2.447 2.365 2.306 2.262 2.228 2.201 2.179 2.160 2.145 2.131
    2.120 2.110 2.101 2.093 2.086 2.080 2.074 2.069 2.064 2.060 2.056 2.052 2.048 2.045 2.042 1.960"""
_T95 = [float(number) for number in _T95_TEXT.split()]


class StepTimes(msgspec.Struct, frozen=True):
    """Of the profiled steps. `deviation_us` is the sample standard deviation, None for fewer than two."""

    steps: int
    mean_us: float
    median_us: float
    min_us: float
    max_us: float
    deviation_us: float | None


def step_times(walls_us: Sequence[float]) -> StepTimes | None:
    """None without steps."""
    if not walls_us:
        return None
    return StepTimes(
        steps=len(walls_us),
        mean_us=statistics.fmean(walls_us),
        median_us=statistics.median(walls_us),
        min_us=min(walls_us),
        max_us=max(walls_us),
        deviation_us=statistics.stdev(walls_us) if len(walls_us) > 1 else None,
    )


def noise_us(a: StepTimes, b: StepTimes) -> float | None:
    """How far the means of two such samples would lie apart by chance in 95 of 100 cases (Welch).

    None where one side has a single step: nothing tells how much it varies.
    """
    if a.deviation_us is None or b.deviation_us is None:
        return None
    ours, theirs = a.deviation_us**2 / a.steps, b.deviation_us**2 / b.steps
    if not ours + theirs:
        return 0.0
    freedom = (ours + theirs) ** 2 / (ours**2 / (a.steps - 1) + theirs**2 / (b.steps - 1))
    return _T95[min(int(freedom), len(_T95)) - 1] * math.sqrt(ours + theirs)


# Where does the time of a step go? Parts that sum to it, to the nanosecond. Seen from the busiest device:
# while it works, the category of what runs; while it idles, what the thread that makes the next launch
# does. Where several kernels run at once the first category counts: computation before communication,
# communication before copies. Without a GPU: what the thread of the steps does.


_LAST: tuple[Category, ...] = ("communication", "memcpy", "memset")
_ORDER: tuple[Category, ...] = (*(name for name in CATEGORIES if name not in _LAST), *_LAST)
# What a graph calls is launched where there is a GPU, and runs where not.
_ON_CPU: dict[Cause, Part] = {"launch_call": "compiled_graph"}
PartKind = Literal["gpu", "idle", "host"]
Part = Category | Cause | Literal["compiled_graph"]


class StepPart(msgspec.Struct, frozen=True):
    """gpu: the device runs kernels of category `part`. idle: it waits, `part` is the cause. host: there is no GPU."""

    kind: PartKind
    part: Part
    time_us: float


class StepBreakdown(msgspec.Struct, frozen=True):
    """`parts` sum to `wall_us`; those that take no time are left out. `device` is None without GPU events, `step` for
    a window that is no step. `start_us` counts from the span's first event."""

    step: str | None
    device: int | None
    start_us: float
    wall_us: float
    parts: list[StepPart]


def step_breakdowns(profile: Profile) -> list[StepBreakdown]:
    """One row a profiled step, in its window on the host; [] without a schedule."""
    steps = profile.of(StepWindows)
    return _of_steps(profile, steps, Intervals(steps.starts, steps.ends))


def paced_breakdowns(profile: Profile) -> list[StepBreakdown]:
    """The same by the clock that sets the pace: where the host runs ahead, in the steps' windows on the GPU."""
    return _of_steps(profile, profile.of(StepWindows), profile.of(paced_windows))


def _of_steps(profile: Profile, steps: StepWindows, windows: Intervals) -> list[StepBreakdown]:
    tracks = profile.trace.track[steps.rows].astype(np.int64)
    return _breakdowns(profile, steps.names, windows.starts, windows.ends, tracks)


def window_breakdown(profile: Profile) -> StepBreakdown | None:
    """The whole span as one row: from the first GPU event to the end of the last, without any from the first event to
    the last on the thread that had operators running longest. None without either."""
    trace, rows = profile.trace, profile.of(gpu_work).index
    track = -1
    if not len(rows):
        operators = trace.select(cat=(OPERATOR,))
        if not len(operators):
            return None
        times = {
            track: union(trace.ts[mine], trace.ts[mine] + trace.dur[mine]).total_ns
            for track, mine in by_track(trace, operators)
        }
        track = max(times, key=lambda track: times[track])
        rows = np.arange(trace.track_bounds[track], trace.track_bounds[track + 1])
    begins = trace.ts[rows].min(keepdims=True)
    ends = (trace.ts[rows] + trace.dur[rows]).max(keepdims=True)
    (row,) = _breakdowns(profile, [None], begins, ends, np.array([track]))
    return row


def _breakdowns(
    profile: Profile, names: Sequence[str | None], begins: Int64s, ends: Int64s, tracks: Int64s
) -> list[StepBreakdown]:
    """tracks: the thread of each window, which counts where there is no GPU."""
    device = _busiest(profile, begins, ends)
    if device is None:
        kinds, columns = _host(profile, begins, ends, tracks)
    else:
        kinds, columns = _device(profile, device, begins, ends)
    assert np.array_equal(columns.sum(axis=0), ends - begins), "the parts do not sum to the steps"
    first = profile.trace.window()[0]
    return [
        StepBreakdown(
            name,
            device,
            us(begin - first),
            us(end - begin),
            [StepPart(kind, part, us(ns)) for (kind, part), ns in zip(kinds, column) if ns],
        )
        for name, begin, end, column in zip(names, begins, ends, columns.T, strict=True)
    ]


def _busiest(profile: Profile, begins: Int64s, ends: Int64s) -> int | None:
    work = profile.of(gpu_work)
    times = {
        int(device): int(
            covered_ns(busy(profile.trace, work.index[work.device == device]), begins, ends).sum()
        )
        for device in np.unique(work.device)
    }
    return max(times, key=lambda device: times[device]) if times else None


def _device(
    profile: Profile, device: int, begins: Int64s, ends: Int64s
) -> tuple[list[tuple[PartKind, Part]], Int64s]:
    """What each part is, and its ns: one row a part, one column a step."""
    working = _working(
        profile, profile.of(gpu_work).where(profile.of(gpu_work).device == device), begins, ends
    )
    idle = causes_in(profile.of(idle_gaps)[device], profile.of(ThreadActivity), begins, ends).T
    kinds: list[tuple[PartKind, Part]] = [("gpu", name) for name in _ORDER]
    kinds += [("idle", cause) for cause in CAUSES]
    return kinds, np.concatenate([working, idle])


def _working(profile: Profile, work: GpuWork, begins: Int64s, ends: Int64s) -> Int64s:
    """ns of each category of _ORDER (rows) in each step: what it adds to those before it."""
    # Categories as the launches tell them: a user's Triton kernel has no name of its own kind.
    category = np.full(len(profile.trace), -1, np.int64)
    for launched in profile.of(kernel_launches):
        category[launched.index] = launched.category
    place = np.array([_ORDER.index(name) for name in CATEGORIES])[category[work.index]]
    covered = [
        covered_ns(busy(profile.trace, work.index[place <= number]), begins, ends)
        for number in range(len(_ORDER))
    ]
    return np.asarray(np.diff(np.array(covered), axis=0, prepend=0), np.int64)


def _host(
    profile: Profile, begins: Int64s, ends: Int64s, tracks: Int64s
) -> tuple[list[tuple[PartKind, Part]], Int64s]:
    return [("host", _ON_CPU.get(cause, cause)) for cause in CAUSES], profile.of(ThreadActivity).split(
        begins, ends, tracks
    ).T


# Which steps took much longer than the others, and what took the time? A step is slow if it lasts longer
# than the median step by more than `SLOW_PERCENT` of it and by more than `SLOW_DEVIATIONS` times the usual
# deviation. Its reason is what explains most of the excess; see `SlowStep`.


SLOW_PERCENT = 10
SLOW_DEVIATIONS = 3
_FEWEST = 3  # of fewer steps none is typical
_SCALE = 1.4826  # of a normal distribution: standard deviation over median absolute deviation
_EXPLAINS = 0.5  # of the excess, at least

# Nobody knows what a thread does that runs Python or nothing that was recorded.
_NO_REASON = ("python", "nothing_launched")


Reason = Part | Literal["gc", "autotune", "recompile"]
_SAID: dict[Reason | None, str] = {
    None: "no single cause was recorded",
    "gc": "garbage collection",
    "autotune": "autotuning",
    "guards_wrapper": "guards and wrapper",
    "break_eager": "graph breaks or eager operators",
    "launch_call": "operators and launches",
}


class SlowStep(msgspec.Struct, frozen=True):
    """`row`: its place among the steps. `excess_us` is the time beyond the median step. `reason` explains at least half
    of that, by `explained_us`:

    `gc` or `autotune`, where that was recorded; `recompile` (of `compile_ids`) or `compile`; else the part of the step
    that grew most (see `StepPart`). None where no single cause was recorded. `why` says it in words.
    """

    step: str
    row: int
    excess_us: float
    times_median: float
    reason: Reason | None
    explained_us: float | None
    compile_ids: list[str]
    why: str


def slow_steps(profile: Profile, steps: Sequence[StepBreakdown]) -> list[SlowStep]:
    """In order of time. steps: those of the profile."""
    limit = slow_from_us([step.wall_us for step in steps])
    slow = [number for number, step in enumerate(steps) if limit is not None and step.wall_us > limit]
    if not slow:
        return []
    usual = statistics.median(step.wall_us for step in steps)
    growth = _growth(profile, steps, slow)
    recompiled = _recompiled(profile)
    return [
        _row(
            steps[number], number, usual, {part: gains[number] for part, gains in growth.items()}, recompiled
        )
        for number in slow
    ]


def slow_from_us(walls_us: Sequence[float]) -> float | None:
    """Steps that last longer than this are slow; None where there are too few to tell, or most last no time."""
    if len(walls_us) < _FEWEST or not (usual := statistics.median(walls_us)):
        return None
    deviation = _SCALE * statistics.median(abs(wall - usual) for wall in walls_us)
    return usual + max(usual * SLOW_PERCENT / 100, SLOW_DEVIATIONS * deviation)


def _row(
    step: StepBreakdown,
    row: int,
    usual_us: float,
    growth: dict[Reason, float],
    recompiled: dict[str, list[str]],
) -> SlowStep:
    """growth: by how many µs each part is larger than in usual steps, those that say more of the cause first."""
    excess, times = step.wall_us - usual_us, step.wall_us / usual_us
    name = step.step or ""
    ids = recompiled.get(name, [])
    grown = max(growth, key=lambda part: growth[part])
    reason = next((part for part in ("gc", "autotune") if growth[part] >= _EXPLAINS * excess), grown)
    if growth[reason] < _EXPLAINS * excess or reason in _NO_REASON:
        return SlowStep(name, row, excess, times, None, None, ids, _why(None, ids))
    shown = "recompile" if reason == "compile" and ids else reason
    return SlowStep(name, row, excess, times, shown, growth[reason], ids, _why(shown, ids))


def _why(reason: Reason | None, compile_ids: Sequence[str]) -> str:
    """ "recompile of 0/1", "garbage collection", "data loading"."""
    if reason == "recompile":
        return f"recompile of {', '.join(compile_ids)}"
    return _SAID.get(reason) or str(reason).replace("_", " ")


def _growth(
    profile: Profile, steps: Sequence[StepBreakdown], slow: Sequence[int]
) -> dict[Reason, list[float]]:
    """Part → for each step by how many µs it is larger than in the median of the steps that are not slow."""
    times: dict[Reason, list[float]] = {
        "gc": _named_us(profile, is_collection),
        "autotune": _named_us(profile, is_autotuning),
    }
    for number, step in enumerate(steps):
        for part in step.parts:
            times.setdefault(part.part, [0.0] * len(steps))[number] += part.time_us
    usual = sorted(set(range(len(steps))) - set(slow))
    return {part: _beyond_median(values, usual) for part, values in times.items()}


def _beyond_median(values: Sequence[float], usual: Sequence[int]) -> list[float]:
    median = statistics.median(values[number] for number in usual)
    return [value - median for value in values]


def _named_us(profile: Profile, named: Callable[[str], bool]) -> list[float]:
    """For each step how long slices of such names ran on its thread."""
    trace, rows = profile.trace, profile.of(step_slices)
    answer: Int64s = np.zeros(len(rows), np.int64)
    wanted = np.flatnonzero(mask_of(trace.names, named)[trace.name])
    for track in np.unique(trace.track[rows]):
        mine, here = wanted[trace.track[wanted] == track], np.flatnonzero(trace.track[rows] == track)
        begins = trace.ts[rows[here]]
        ran = union(trace.ts[mine], trace.ts[mine] + trace.dur[mine])
        answer[here] = covered_ns(ran, begins, begins + trace.dur[rows[here]])
    return [us(ns) for ns in answer]


def _recompiled(profile: Profile) -> dict[str, list[str]]:
    """Step → the compile ids of the recompiles that began in it."""
    moments = profile.of(recompile_moments)
    by_step = grouped(moments or (), lambda moment: moment.step)
    return {step: [moment.compile_id for moment in rows] for step, rows in by_step.items() if step}


__all__ = ["StepBreakdown", "StepReport", "step_breakdown"]


class MeanPart(StepPart, frozen=True):
    """A part of the mean step, or of the window; `percent`: of all parts."""

    percent: float


class StepReport(msgspec.Struct, frozen=True):
    """All by the host's clock. Without steps `times` is None, the lists are empty and `window` is the whole span; it is
    None otherwise, and where nothing ran. `gpu_us`: the mean step on the GPU that sets the pace, None where the host
    does. `mean_parts`: kernels first, the largest in front; of the window too."""

    headline: str
    times: StepTimes | None
    gpu_us: float | None
    steps: list[StepBreakdown]
    slow: list[SlowStep]
    window: StepBreakdown | None
    mean_parts: list[MeanPart]


def step_breakdown(profile: Profile) -> StepReport:
    """Where the time of each step goes, how much steps vary, and why some are slow."""
    steps, gpu = profile.of(step_breakdowns), profile.of(pace)
    times = step_times([step.wall_us for step in steps])
    gpu_us = gpu.mean / 1000 if gpu else None
    window = None if steps else profile.of(window_breakdown)
    slow = slow_steps(profile, steps)
    return StepReport(
        headline=_lasts(times, gpu_us) + _slow(slow) if times else _unmarked(window),
        times=times,
        gpu_us=gpu_us,
        steps=steps,
        slow=slow,
        window=window,
        mean_parts=_mean_parts(steps or ([window] if window else [])),
    )


def _mean_parts(steps: Sequence[StepBreakdown]) -> list[MeanPart]:
    sums: dict[tuple[PartKind, Part], float] = {}
    for part in (part for step in steps for part in step.parts):
        sums[part.kind, part.part] = sums.get((part.kind, part.part), 0.0) + part.time_us
    whole = sum(sums.values())
    parts = [MeanPart(*key, time / len(steps), 100 * time / whole) for key, time in sums.items()]
    return sorted(parts, key=lambda part: (part.kind != "gpu", -part.time_us))


def _lasts(times: StepTimes, gpu_us: float | None) -> str:
    """ "A step takes 22.4 ms, the median of 3: 22.1 ms to 23.0 ms, mean 22.5 ms ± 300 µs." """
    where = "" if gpu_us is None else " on the host"
    said = f"A step takes {duration(times.median_us)}{where}"
    if times.deviation_us is not None:
        mean = f"mean {duration(times.mean_us)} ± {duration(times.deviation_us)}"
        said += (
            f", the median of {times.steps:,}: {duration(times.min_us)} to {duration(times.max_us)}, {mean}"
        )
    ahead = f" The host runs ahead: on the GPU a step takes {duration(gpu_us)}." if gpu_us is not None else ""
    return f"{said}.{ahead}"


def _slow(rows: Sequence[SlowStep]) -> str:
    """ " 2 slow steps: ProfilerStep#7, recompile of 0/1 …" """
    if not rows:
        return ""
    more = " …" if rows[1:] else "."
    return f" {plural(len(rows), 'slow step')}: {rows[0].step}, {rows[0].why}{more}"


def _unmarked(window: StepBreakdown | None) -> str:
    return f"No steps were marked in {duration(window.wall_us)}." if window else "Nothing ran in this span."
