"""Show where the time of each step goes, how much steps vary, and why some are slow.

The parts of a step sum to it, to the nanosecond, on the clock that limits the steps. Seen from the busiest device:
while it works, the category of what runs; while it idles, what the thread that makes the next launch does. Without a
GPU: what the thread of the steps does. Of a step that lacks GPU records nothing of that is known.
"""

import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, cast

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis import thresholds
from tb_torchcompile_plugin.analysis.compile.compile_time import compile_overlap, frames_us_in
from tb_torchcompile_plugin.analysis.compile.recompiles import recompile_moments
from tb_torchcompile_plugin.analysis.formatting import column_head, duration, percent, plural
from tb_torchcompile_plugin.analysis.runtime.gpu_utilization import (
    WORK,
    Bound,
    device_parts,
    step_parts,
    step_verdict,
)
from tb_torchcompile_plugin.analysis.runtime.ledger import KIND_WORDS
from tb_torchcompile_plugin.analysis.statistics import StepTimes, step_times
from tb_torchcompile_plugin.profile import steps as profile_steps
from tb_torchcompile_plugin.profile.columns import (
    NORMAL_DEVIATIONS,
    Cover,
    Floats,
    Int64s,
    Intervals,
    by_track,
    covered_ns,
    groups_of_equal,
    mask_of,
    share_percent,
    us,
)
from tb_torchcompile_plugin.profile.coverage import coverage
from tb_torchcompile_plugin.profile.gpu.idle import HOST_KINDS, HostKind, ThreadActivity
from tb_torchcompile_plugin.profile.gpu.launches import kernel_launches, launch_calls
from tb_torchcompile_plugin.profile.gpu_work import busy, gpu_work
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.arrays import grouped
from tb_torchcompile_plugin.torch_names.kernels import CATEGORIES, Category
from tb_torchcompile_plugin.torch_names.slices import OPERATOR, is_autotuning, is_garbage_collection

# A step is slow if it lasts longer than the median step by more than this many percent of it, and by more than this
# many times the usual deviation: judgements.
SLOW_PERCENT = 10
SLOW_DEVIATIONS = 3
_MIN_STEPS = 3  # of fewer steps none is typical
_MIN_EXPLAINED = 0.5  # share of the excess that a reason explains at least

# Where several kernels run at once the first category counts: computation, then communication, then copies.
_LAST: tuple[Category, ...] = ("communication", "memcpy", "memset")
_ORDER: tuple[Category, ...] = (*(name for name in CATEGORIES if name not in _LAST), *_LAST)
PartKind = Literal["gpu", "idle", "host", "unknown", "profiler"]
Part = Category | HostKind | Literal["not_recorded", "profiler_overhead"]
Reason = Part | Literal["gc", "autotune", "recompile"]
_RECORDED_REASONS: tuple[Reason, ...] = ("gc", "autotune")
# Of the operators' time of the busiest thread: a thread with less than that waits for it; chosen by eye.
_WAITING_SHARE = 0.1
_NO_REASON = ("python", "unaccounted")  # what a thread does meanwhile is unknown
_REASON_NAMES: dict[Reason | None, str] = {
    None: "no single cause recorded",
    "gc": "garbage collection",
    "autotune": "autotuning",
}


class StepPart(msgspec.Struct, frozen=True):
    """A part of a step."""

    # gpu: kernels of a category run; idle: the device waits for a cause; host: there is no GPU; unknown: GPU records
    # are missing; profiler: what profiling adds to the step.
    kind: PartKind
    part: Part
    time_us: float


class MeanPart(StepPart, frozen=True):
    """A part of the mean step, or of the window."""

    percent: Annotated[float, column_head(bar=True)]  # of the step, or of the window


class StepBreakdown(msgspec.Struct, frozen=True):
    """The parts of one step, or of a window that is no step."""

    step: str | None  # None for a window
    device: Annotated[int | None, column_head(hidden=True)]  # None without GPU events
    start_us: Annotated[float, column_head(hidden=True)]  # from the span's first event
    wall_us: Annotated[float, column_head("Time", bar=True)]
    parts: list[StepPart]  # sum to `wall_us`, without those that take no time


class StepRow(StepBreakdown, frozen=True):
    """One step, with what limits it. Without GPU records of the step what the GPU did is None."""

    times_median: Annotated[float | None, column_head("× median")]
    slow_because: Annotated[str | None, column_head(grow=True)] = None  # of slow steps, in words
    busy_percent: Annotated[float | None, column_head("GPU busy")] = None
    bound: Annotated[Bound | None, column_head("Limited by")] = None  # the largest of six parts of the step
    launches: int | None = None  # whose call begins in the step
    kernel_launch_us: Annotated[float | None, column_head("In launch calls")] = None
    graph_replays: Annotated[int | None, column_head("CUDA graph replays", hidden=True)] = None
    # The rest is of slow steps, which take much longer than the others. The reason is `gc` or `autotune`, where
    # recorded; `recompile` or `compiling`; otherwise the part that grew most. None where none of them explains half of
    # the excess.
    reason: Annotated[Reason | None, column_head(hidden=True)] = None
    excess_us: Annotated[float | None, column_head("Beyond the median", hidden=True)] = None
    explained_us: Annotated[float | None, column_head("Explained by the reason", hidden=True)] = None
    compile_ids: Annotated[list[str], column_head("Recompiles", hidden=True)] = []


class StepReport(msgspec.Struct, frozen=True):
    """All steps, on the clock that limits them. Without steps the lists are empty."""

    sentences: list[str]  # the result, then slow steps and how much steps vary
    step_time: profile_steps.StepTime
    times: StepTimes | None  # of the steps whose mean is `step_time.step_us`
    steps: list[StepRow]
    window: StepBreakdown | None  # the whole span, if there are no steps and anything ran
    # Of the steady steps or the window: kernels first, the largest in front. They sum to `step_time.step_us`; behind
    # them is what profiling adds, up to `profiled_us`.
    mean_parts: list[MeanPart]


class Compiling(NamedTuple):
    """The profiled steps that compile, and the others."""

    steps: int  # how many compile
    compile_us: float  # that they spend compiling, together
    others_us: Floats  # how long each other step takes


def step_breakdown(profile: Profile) -> StepReport:
    """Return where the time of each step goes, how much steps vary, and why some are slow."""
    steps, times = profile.of(step_rows), profile.of(steady_times)
    step_time = profile.of(profile_steps.step_time)
    window = None if steps else profile.of(window_breakdown)
    parts = mean_parts(profile)
    sentences = ["Nothing ran in this span."]
    if times:
        sentences = [_result(profile, parts), *_slow_sentences(steps), _times_sentence(step_time, times)]
    elif window:
        sentences = [f"No steps were marked in {duration(window.wall_us)}."]
    return StepReport(sentences, step_time, times, steps, window, parts)


def step_rows(profile: Profile) -> list[StepRow]:
    """Return the steps with what limits each, and why some are slow."""
    steps = profile.of(step_breakdowns)
    slow = _slow_steps(profile, steps)
    median = statistics.median(step.wall_us for step in steps) if steps else 0.0
    return [
        StepRow(
            **{name: getattr(step, name) for name in step.__struct_fields__},
            times_median=step.wall_us / median if median else None,
            **_gpu_fields(profile, index, step),
            **slow.get(index, {}),
        )
        for index, step in enumerate(steps)
    ]


def _gpu_fields(profile: Profile, index: int, step: StepBreakdown) -> dict[str, Any]:
    """Return what the GPUs did in a step; {} where that is unknown."""
    parts, windows = profile.of(step_parts), profile.of(profile_steps.profiled_time)
    if step.device is None or profile.of(profile_steps.incomplete_steps)[index]:
        return {}
    in_step = {device: ns[:, index] for device, ns in parts.items()}
    launched = profile.of(launch_calls).between(windows.starts[index], windows.ends[index])
    own = in_step[step.device]
    return {
        "busy_percent": share_percent(own[:WORK].sum(), own.sum()),
        "bound": step_verdict(in_step).bound,
        "launches": launched.launches,
        "kernel_launch_us": us(launched.time_ns),
        "graph_replays": launched.replays,
    }


def _result(profile: Profile, parts: Sequence[MeanPart]) -> str:
    """Return "A step takes 6.02 ms. The GPU is busy for 152 µs (2.52 %) …", as far as that was recorded."""
    step_us = profile.of(profile_steps.step_time).step_us
    takes, of_kind = f"A step takes {duration(step_us)}", grouped(parts, lambda part: part.kind)
    if profile.of(coverage).level == "insufficient" or not of_kind.keys() & {"gpu", "host"}:
        return f"{takes}."
    if "gpu" not in of_kind:
        return f"{takes}. The largest part is {_in_words(of_kind['host'][0])}."
    busy_us, idle_us = (sum(part.time_us for part in of_kind.get(kind, ())) for kind in ("gpu", "idle"))
    busy = f"{takes}. The GPU is busy for {duration(busy_us)} ({percent(100 * busy_us / step_us)})"
    if 100 * idle_us < thresholds.IDLE_PERCENT * step_us:
        return f"{busy}."
    return f"{busy} and idle for {duration(idle_us)}; the largest cause is {_in_words(of_kind['idle'][0])}."


def _in_words(part: MeanPart) -> str:
    return f"{KIND_WORDS[cast(HostKind, part.part)]} ({duration(part.time_us)})"


def _slow_sentences(steps: Sequence[StepRow]) -> list[str]:
    """Return "2 slow steps: ProfilerStep#5 (garbage collection), …"."""
    slow = [step for step in steps if step.slow_because]
    named = ", ".join(f"{step.step} ({step.slow_because})" for step in slow[: thresholds.MAX_NAMES])
    more = ", …" if len(slow) > thresholds.MAX_NAMES else "."
    return [f"{plural(len(slow), 'slow step')}: {named}{more}"] if slow else []


def steady_times(profile: Profile) -> StepTimes | None:
    """Return how much the steps vary whose mean is the step time; None without steps."""
    return step_times((profile.of(profile_steps.step_lengths) / 1000).tolist())


def _times_sentence(step: profile_steps.StepTime, times: StepTimes) -> str:
    """Return "Mean of 3 steps, from 22.1 ms to 23.0 ms, ± 300 µs. While profiling: 24.1 ms."."""
    varies = ""
    if times.deviation_us is not None:
        low, high = duration(times.min_us), duration(times.max_us)
        varies = f", from {low} to {high}, ± {duration(times.deviation_us)}"
    profiled = f" While profiling: {duration(step.profiled_us)}." if step.unprofiled_steps else ""
    return f"Mean of {plural(times.steps, 'step')}{varies}.{profiled}"


def mean_parts(profile: Profile) -> list[MeanPart]:
    """Return the mean parts of the steady steps as they are unprofiled, and what profiling adds.

    Without steps those of the span. A GPU works as long profiled as not, so the overhead is taken out of the other
    parts, in proportion.
    """
    steady, step = profile.of(profile_steps.steady_steps), profile.of(profile_steps.step_time)
    if steady:
        steps = profile.of(step_breakdowns)
        rows = [steps[row] for row in steady.rows.tolist()]
    else:
        rows = [*filter(None, [profile.of(window_breakdown)])]
    sums: dict[tuple[PartKind, Part], float] = defaultdict(float)
    for row in rows:
        for part in row.parts:
            sums[part.kind, part.part] += part.time_us / len(rows)
    on_gpu = sum(us for (kind, _), us in sums.items() if kind == "gpu")
    other = sum(sums.values()) - on_gpu
    left = 1 - step.overhead_us / other if other > step.overhead_us else 1.0
    scale = 1.0 if left < 1 else 1 - step.overhead_us / (on_gpu + other or 1)
    times = {key: us * (scale if key[0] == "gpu" else scale * left) for key, us in sums.items()}
    parts = [MeanPart(*key, time, 100 * time / step.step_us) for key, time in times.items()]
    parts.sort(key=lambda part: (part.kind != "gpu", -part.time_us))
    if step.overhead_us > 0:
        share = 100 * step.overhead_us / step.step_us
        parts.append(MeanPart("profiler", "profiler_overhead", step.overhead_us, share))
    return parts


def step_breakdowns(profile: Profile) -> list[StepBreakdown]:
    """Return one row per step, in its window on the clock that limits the steps; [] without steps."""
    steps, windows = profile.of(profile_steps.StepWindows), profile.of(profile_steps.bottleneck_windows)
    rows = _breakdowns(profile, steps.names, windows, steps.tracks, profile.of(step_parts))
    return [
        msgspec.structs.replace(row, parts=[StepPart("unknown", "not_recorded", row.wall_us)])
        if lacks
        else row
        for row, lacks in zip(rows, profile.of(profile_steps.incomplete_steps).tolist(), strict=True)
    ]


def window_breakdown(profile: Profile) -> StepBreakdown | None:
    """Return the whole span as one row; None where nothing ran."""
    window = profile.of(profile_steps.span_window)
    parts = device_parts(profile, window)
    return _breakdowns(profile, [None], window, np.array([-1]), parts)[0] if window.total_ns else None


def _breakdowns(
    profile: Profile,
    names: Sequence[str | None],
    windows: Intervals,
    marked: Int64s,
    parts: Mapping[int, Int64s],
) -> list[StepBreakdown]:
    """Return the parts of each window; marked: the threads of their marks, -1 for none; parts: of the devices."""
    begins, ends = windows
    # None without GPU events, or where those of all steps are incomplete.
    device = max(parts, key=lambda device: parts[device][:WORK].sum(), default=None)
    kinds: list[tuple[PartKind, Part]]
    if device is None:
        kinds = [("host", cause) for cause in HOST_KINDS]
        columns = profile.of(ThreadActivity).split(begins, ends, _working_tracks(profile, windows, marked)).T
    else:
        kinds = [*(("gpu", name) for name in _ORDER), *(("idle", cause) for cause in HOST_KINDS)]
        columns = np.concatenate([_working(profile, device, windows), parts[device][WORK:]])
    assert np.array_equal(columns.sum(axis=0), ends - begins), "the parts do not sum to the steps"
    first = profile.trace.window()[0]
    return [
        StepBreakdown(
            step=name,
            device=device,
            start_us=us(begin - first),
            wall_us=us(end - begin),
            parts=[StepPart(kind, part, us(ns)) for (kind, part), ns in zip(kinds, column) if ns],
        )
        for name, begin, end, column in zip(names, begins, ends, columns.T, strict=True)
    ]


def _working_tracks(profile: Profile, windows: Intervals, marked: Int64s) -> Int64s:
    """Return for each window the thread that works in it: the marked one, unless that waits for another one."""
    trace = profile.trace
    worked = {
        track: int(covered_ns(busy(trace, rows), *windows).sum())
        for track, rows in by_track(trace, trace.select(cat=(OPERATOR,)))
    }
    busiest = max(worked, key=lambda track: worked[track], default=-1)
    waits = [worked.get(track, 0) < _WAITING_SHARE * worked.get(busiest, 0) for track in marked.tolist()]
    return np.where(np.array(waits, bool), busiest, marked)


def _working(profile: Profile, device: int, windows: Intervals) -> Int64s:
    """Return the time (ns) of each category of _ORDER (rows) in each window: what it adds to those before it."""
    work = profile.of(gpu_work)
    index = work.index[work.device == device]
    # The categories of the launches: a user's Triton kernel does not show its own by its name.
    category = np.full(len(profile.trace), -1, np.int64)
    for launches in profile.of(kernel_launches):
        category[launches.index] = launches.category
    rank = np.array([_ORDER.index(name) for name in CATEGORIES])[category[index]]
    covered = [covered_ns(busy(profile.trace, index[rank <= last]), *windows) for last in range(len(_ORDER))]
    return np.asarray(np.diff(np.array(covered), axis=0, prepend=0), np.int64)


def _slow_steps(profile: Profile, steps: Sequence[StepBreakdown]) -> dict[int, dict[str, Any]]:
    """Return the slow ones among the steps of a profile, with the fields of `StepRow` that explain each."""
    limit = slow_from_us([step.wall_us for step in steps])
    slow = [row for row, step in enumerate(steps) if limit is not None and step.wall_us > limit]
    if not slow:
        return {}
    median = statistics.median(step.wall_us for step in steps)
    growth = _growth(profile, steps, slow)
    by_step = grouped(profile.of(recompile_moments), lambda moment: moment.step)
    rows: dict[int, dict[str, Any]] = {}
    for row in slow:
        excess = steps[row].wall_us - median
        ids = [moment.compile_id for moment in by_step.get(steps[row].step or "", [])]
        reason, explained = _reason({part: times[row] for part, times in growth.items()}, excess)
        why = _REASON_NAMES.get(reason) or str(reason).replace("_", " ")
        if reason == "compiling" and ids:
            reason, why = "recompile", f"recompile of {', '.join(ids)}"
        rows[row] = {"slow_because": why, "reason": reason, "excess_us": excess, "explained_us": explained}
        rows[row]["compile_ids"] = ids
    return rows


def slow_from_us(walls_us: Sequence[float]) -> float | None:
    """Return from which time on a step is slow; None where there are too few steps, or most take no time."""
    if len(walls_us) < _MIN_STEPS or not (median := statistics.median(walls_us)):
        return None
    deviation = NORMAL_DEVIATIONS * statistics.median(abs(wall - median) for wall in walls_us)
    return median + max(median * SLOW_PERCENT / 100, SLOW_DEVIATIONS * deviation)


def _growth(
    profile: Profile, steps: Sequence[StepBreakdown], slow: Sequence[int]
) -> dict[Reason, list[float]]:
    """Return for each part and step by how many µs it is larger than in the median of the steps that are not slow."""
    times: dict[Reason, list[float]] = {
        "gc": _named_us(profile, is_garbage_collection),
        "autotune": _named_us(profile, is_autotuning),
    }
    for row, step in enumerate(steps):
        for part in step.parts:
            times.setdefault(part.part, [0.0] * len(steps))[row] += part.time_us
    usual = sorted(set(range(len(steps))) - set(slow))
    medians = {part: statistics.median(values[row] for row in usual) for part, values in times.items()}
    return {part: [value - medians[part] for value in values] for part, values in times.items()}


def _named_us(profile: Profile, is_wanted: Callable[[str], bool]) -> list[float]:
    """Return for each step how long slices of such names ran on its thread."""
    trace, steps = profile.trace, profile.of(profile_steps.StepWindows)
    cover = Cover(trace, np.flatnonzero(mask_of(trace.names, is_wanted)[trace.name]))
    times: Int64s = np.zeros(len(steps), np.int64)
    for same in groups_of_equal(np.arange(len(steps)), steps.tracks):
        ran = cover.on(int(steps.tracks[same[0]]))
        times[same] = covered_ns(ran, steps.starts[same], steps.ends[same])
    return [us(ns) for ns in times]


def _reason(growth: dict[Reason, float], excess: float) -> tuple[Reason | None, float | None]:
    """Return what explains enough of the excess, and how many µs of it."""
    recorded = (part for part in _RECORDED_REASONS if growth[part] >= _MIN_EXPLAINED * excess)
    reason = next(recorded, max(growth, key=lambda part: growth[part]))
    if growth[reason] < _MIN_EXPLAINED * excess or reason in _NO_REASON:
        return None, None
    return reason, growth[reason]


def compiling(profile: Profile) -> Compiling:
    """Return the steps that compile, on the clock of host or GPU, whichever is slower."""
    steady = profile.of(profile_steps.steady_steps)
    if steady is None:
        return Compiling(0, 0.0, np.zeros(0))
    compiles, windows = steady.compiles, profile.of(profile_steps.StepWindows).windows
    spent_us = us(profile.of(profile_steps.compile_ns)[compiles].sum())
    if profile.summary and profile.of(compile_overlap):  # the log's compile time, which other panels show
        inside = Intervals(windows.starts[compiles], windows.ends[compiles])
        spent_us = frames_us_in(profile.summary.compilations, profile.trace.base_ns, inside)
    return Compiling(int(compiles.sum()), spent_us, profile.of(profile_steps.step_ns)[~compiles] / 1000)


def span_compiles(profile: Profile) -> bool:
    """Return whether anything is compiled in a span without steps: then it is not steady."""
    return not len(profile.of(profile_steps.StepWindows)) and bool(profile.of(profile_steps.compile_ns).any())
