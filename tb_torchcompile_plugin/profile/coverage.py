"""Report what a recording misses: each kind of loss has a level, the affected steps, a sentence and a fix.

Missing records are unknown, not absent: a step without GPU records is not idle, and a thread without operators does not
run eagerly. Means exclude incomplete steps, and no statement relies on missing records.
"""

from collections.abc import Iterator
from typing import Literal

import msgspec
import numpy as np

from tb_torchcompile_plugin.profile.columns import Mask, distinct, mask_of
from tb_torchcompile_plugin.profile.gpu_work import gpu_work
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import StepWindows, launch_records
from tb_torchcompile_plugin.torch_names import slices

Level = Literal["complete", "partial", "insufficient"]
LEVELS: tuple[Level, ...] = ("complete", "partial", "insufficient")
_LostKind = Literal["gpu_records", "thread_operators", "step_operators", "launch_records", "step_marks"]
CoverageKind = Literal[_LostKind, "times", "device_activity", "processes", "truncation", "events"]
# If more than this share of the launches lack records, what the GPU did is unknown: fewer than half of them show it.
_INSUFFICIENT = 0.5
# If less is missing, in all steps, findings still hold: predictions are not as exact as that.
_NEGLIGIBLE = 0.01
_MAX_NAMED = 3  # steps in a sentence
# CUPTI's versions, of CUDA 12.6 to 13.0, that can record wrong times of kernels in CUDA graphs (pytorch/kineto#1165).
# NVIDIA fixed zero times in 13.1, which came with 12.6 update 2 (pytorch/pytorch#192021); all of 12.6 is version 24.
_WRONG_GRAPH_TIMES = range(24, 130100)

_RECORD_GPU = "Record with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]."
_RECORD_ALL = (
    "Record CPU activity, and start the profiler in the thread that runs the model, or pass "
    "experimental_config=torch._C._profiler._ExperimentalConfig(profile_all_threads=True)."
)


class CoverageRow(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of records that are missing, wrong or not read."""

    kind: CoverageKind
    level: Level
    steps: list[str] = []  # affected steps; [] without steps, or if none is affected
    count: int  # how many are missing
    of: int  # of how many
    sentence: str
    fix: str = ""  # "" if there is none


class Coverage(msgspec.Struct, frozen=True):
    """Missing records of a span; no rows if it is complete."""

    level: Level  # the worst of the rows
    rows: list[CoverageRow]

    def worst(self) -> CoverageRow | None:
        """Return the most important row; None if nothing is missing."""
        return max(self.rows, key=lambda row: LEVELS.index(row.level), default=None)


def coverage(profile: Profile) -> Coverage:
    """Return what the recording of a span misses."""
    rows = [row for find in _KINDS for row in find(profile)]
    return Coverage(max((row.level for row in rows), key=LEVELS.index, default="complete"), rows)


def _gpu_records(profile: Profile) -> Iterator[CoverageRow]:
    calls, lost = profile.of(launch_records)
    if not len(lost):
        return
    trace, steps = profile.trace, profile.of(StepWindows)
    incomplete = steps.holding(trace.ts[lost])
    names = _names(steps, incomplete)
    share = len(lost) / len(calls)
    is_rest_enough = not len(steps) or not incomplete.all() or share < _NEGLIGIBLE
    called = {trace.names[name] for name in np.unique(trace.name[lost]).tolist()}
    what = f"{called.pop()} calls" if len(called) == 1 else "launches"
    outside = " outside the steps" if len(steps) else ""
    where = f"GPU time is unknown{f' in {_steps(names, len(steps))}' if names else outside}"
    yield CoverageRow(
        kind="gpu_records",
        level="partial" if is_rest_enough and share <= _INSUFFICIENT else "insufficient",
        steps=names,
        count=len(lost),
        of=len(calls),
        sentence=f"{len(lost):,} of {len(calls):,} {what} left no GPU record: {where}.",
        fix=_RECORD_GPU
        if share == 1
        else "The profiler lost records: profile fewer steps at once, or update torch and the GPU driver.",
    )


def _thread_operators(profile: Profile) -> Iterator[CoverageRow]:
    """Yield the threads that launch kernels, but have no operators and no labels.

    A thread that only launches CUDA graphs calls no operators. Labels are recorded in the same threads as operators.
    Old traces have calls of the runtime on tracks of their own, with the id of their operator.
    """
    trace, calls = profile.trace, profile.of(launch_records).calls
    eager = calls[~mask_of(trace.names, slices.is_replay)[trace.name[calls]] & (trace.op_of()[calls] < 0)]
    tracks = np.setdiff1d(trace.track[eager], trace.track[trace.call_rows])
    if not len(tracks):
        return
    count = int(np.isin(trace.track[calls], tracks).sum())
    threads = ", ".join(str(trace.tracks[track].tid) for track in tracks[:_MAX_NAMED].tolist())
    yield CoverageRow(
        kind="thread_operators",
        level="insufficient" if count > _INSUFFICIENT * len(calls) else "partial",
        count=len(tracks),
        of=len(np.unique(trace.track[calls])),
        sentence=f"Thread {threads} launched {count:,} of {len(calls):,} kernels, but its operators were not "
        "recorded: its work is unknown.",
        fix=_RECORD_ALL,
    )


def _step_operators(profile: Profile) -> Iterator[CoverageRow]:
    trace, steps = profile.trace, profile.of(StepWindows)
    launching, operating = (
        steps.holding(trace.ts[rows])
        for rows in (profile.of(launch_records).calls, trace.select(cat=(slices.OPERATOR,)))
    )
    # A loop that launches nothing on a GPU, and has no operators either, ran in a thread that was not recorded. One
    # that only launches CUDA graphs needs none.
    is_on_cpu = not launching.any() and not len(profile.of(gpu_work).index)
    lacking = (launching if operating.any() else np.full(len(steps), is_on_cpu)) & ~operating
    if len(steps.rows) and lacking.any():
        names = _names(steps, lacking)
        yield CoverageRow(
            kind="step_operators",
            level="partial" if operating.any() else "insufficient",
            steps=names,
            count=len(names),
            of=len(steps),
            sentence=f"No operators were recorded in {_steps(names, len(steps))}: their work is unknown.",
            fix=_RECORD_ALL,
        )


def _step_marks(profile: Profile) -> Iterator[CoverageRow]:
    """Yield the steps whose mark is missing between two others: the schedule numbers them."""
    numbers = [
        slices.step_number(name) for name in profile.of(StepWindows).names if slices.is_profiler_step(name)
    ]
    missing = sorted(set(range(min(numbers, default=0), max(numbers, default=-1))) - set(numbers))
    if 0 < len(missing) <= len(numbers):
        names = [slices.step_name(number) for number in missing]
        yield CoverageRow(
            kind="step_marks",
            level="partial",
            steps=names,
            count=len(names),
            of=len(numbers) + len(names),
            sentence=f"The marks of {_steps(names, len(numbers) + len(names))} are missing: their work is not "
            "assigned to a step.",
            fix="Record again, and call prof.step() in one thread only.",
        )


def _device_activity(profile: Profile) -> Iterator[CoverageRow]:
    """Yield events of unsupported categories, such as those of other devices."""
    trace = profile.trace
    read = {*slices.TORCH_CATS, *slices.PROFILER_CATS}
    rows = np.flatnonzero(mask_of(trace.cats, lambda cat: cat not in read)[trace.cat])
    if len(rows):
        cats = sorted({trace.cats[cat] or "none" for cat in np.unique(trace.cat[rows]).tolist()})
        on_device = bool(((trace.device[rows] >= 0) | (trace.stream[rows] >= 0)).any())
        yield CoverageRow(
            kind="device_activity",
            level="insufficient" if on_device and not len(profile.of(gpu_work).index) else "partial",
            count=len(rows),
            of=len(trace),
            sentence=f"{len(rows):,} events have unsupported categories ({', '.join(cats[:_MAX_NAMED])}): "
            f"{'the work of that device' if on_device else 'their meaning'} is unknown.",
        )


def _processes(profile: Profile) -> Iterator[CoverageRow]:
    """Yield the processes that ran operators, if several: only files of known formats are split."""
    trace = profile.trace
    tracks = np.unique(trace.track[trace.select(cat=(slices.OPERATOR,))]).tolist()
    pids = sorted({str(trace.tracks[track].pid) for track in tracks})
    if len(pids) > 1:
        yield CoverageRow(
            kind="processes",
            level="partial",
            count=len(pids),
            of=len(pids),
            sentence=f"One file contains the operators of {len(pids)} processes, which are shown as one worker.",
            fix="Put the separate files of the processes into one folder, so that they are compared as ranks.",
        )


def _launch_records(profile: Profile) -> Iterator[CoverageRow]:
    """Yield GPU work without a launch that began after work of its stream with a launch.

    Work of a stream runs in launch order, so this was not queued before the span.
    """
    trace, work = profile.trace, profile.of(gpu_work)
    launch, begin = trace.launch_of()[work.index], trace.ts[work.index]
    _, stream = distinct(work.device, trace.stream[work.index])
    first = np.full(int(stream.max(initial=-1)) + 1, np.iinfo(np.int64).max)
    np.minimum.at(first, stream[launch >= 0], begin[launch >= 0])
    is_without_host = not len(trace.call_rows) and len(launch) > 0 and bool((launch < 0).all())
    count = len(launch) if is_without_host else int(((launch < 0) & (begin > first[stream])).sum())
    if count:
        yield CoverageRow(
            kind="launch_records",
            level="insufficient" if is_without_host else "partial",
            count=count,
            of=len(launch),
            sentence=f"{count:,} of {len(launch):,} GPU records have no launch: their origin is unknown.",
            fix=_RECORD_GPU,
        )


def _times(profile: Profile) -> Iterator[CoverageRow]:
    trace = profile.trace
    if len(dropped := trace.implausible()):
        launch, steps = trace.launch_of()[dropped], profile.of(StepWindows)
        yield CoverageRow(
            kind="times",
            level="partial",
            steps=_names(steps, steps.holding(trace.ts[launch[launch >= 0]])),
            count=len(dropped),
            of=len(trace),
            sentence=f"{len(dropped):,} events have implausible times, for example kernels that begin before their "
            "launch. They are excluded.",
            fix="Record again. A newer torch or GPU driver may convert the GPU's clock correctly.",
        )


def _graph_times(profile: Profile) -> Iterator[CoverageRow]:
    """Yield the kernels of CUDA graphs, if CUPTI's version can record wrong times of them."""
    trace, launch = profile.trace, profile.trace.launch_of()[profile.of(gpu_work).index]
    count = int(mask_of(trace.names, slices.is_replay)[trace.name[launch[launch >= 0]]].sum())
    version = trace.metadata.get("cupti_version")
    if count and isinstance(version, int) and version in _WRONG_GRAPH_TIMES:
        yield CoverageRow(
            kind="times",
            level="partial",
            count=count,
            of=len(launch),
            sentence=f"{count:,} of {len(launch):,} GPU records are from CUDA graphs: CUPTI of CUDA 12.6 to 13.0 "
            f"(this trace: version {version}) may record wrong times for these kernels.",
            fix="Record with a torch that is built for CUDA 13.1 or newer, such as the default build of torch 2.15.",
        )


def _truncation(profile: Profile) -> Iterator[CoverageRow]:
    trace = profile.trace
    if lost := [notice for notice in trace.notices if notice.is_missing_something]:
        yield CoverageRow(
            kind="truncation" if any(notice.is_truncated for notice in lost) else "events",
            level="partial",
            count=len(lost),
            of=trace.events,
            sentence=f"{lost[0].problem[0].upper()}{lost[0].problem[1:]}.",
            fix=lost[0].next_step,
        )


_KINDS = (
    *(_gpu_records, _thread_operators, _device_activity, _step_operators, _launch_records, _step_marks),
    *(_times, _processes, _truncation, _graph_times),
)


def _names(steps: StepWindows, mask: Mask) -> list[str]:
    return [name for name, is_in in zip(steps.names, mask, strict=True) if is_in]


def _steps(names: list[str], of: int) -> str:
    """Return "3 of 4 steps (ProfilerStep#1 and 2 more)"."""
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"{len(names)} of {of} steps ({names[0]}{more})"
