"""Show why a GPU idled: by cause, by what the launching thread did, and the longest gaps one by one."""

from collections.abc import Callable, Iterator
from typing import Annotated

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis import thresholds
from tb_torchcompile_plugin.analysis.formatting import column_head
from tb_torchcompile_plugin.analysis.runtime.step_picture import HostCause
from tb_torchcompile_plugin.profile.columns import Int64s, codes_of, covered_ns, subtract, sums, us, within
from tb_torchcompile_plugin.profile.gpu.idle import (
    HOST_KINDS,
    Gaps,
    HostKind,
    ThreadActivity,
    busy_intervals,
    causes_of,
    idle_gaps,
)
from tb_torchcompile_plugin.profile.model.attribution import Attribution, Attributions, culprits_of
from tb_torchcompile_plugin.profile.model.launch_sequence import (
    host_timeline,
    launch_sequence,
    modeled_windows,
    slices_around,
)
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import StepWindows, step_time
from tb_torchcompile_plugin.reader.trace.kineto import Trace
from tb_torchcompile_plugin.torch_names.kernels import short_kernel

_MAX_ROWS = 100  # culprits of each device that have a row; the others are one row, with what nothing covers
_MAX_ACTIVITIES = 12  # names of what a thread did in one gap
_REST = Attribution("nothing", "", "", 0)


class IdleReason(msgspec.Struct, frozen=True):
    """One reason for the idle time of a device, per step (in the span where there are no steps)."""

    name: Annotated[str, column_head("Reason", grow=True)]
    device: Annotated[int, column_head(hidden=True)]
    cause: Annotated[HostCause, column_head("Kind")]
    file: Annotated[str, column_head("Your line")]
    line: int
    idle_us: Annotated[float, column_head(total=True)]
    share_percent: Annotated[float, column_head("Share of idle time", bar=True, total=True)]
    calls: float | None
    pattern: Annotated[str, column_head("When")]  # in which steps it occurs; "" for less than two steps
    # The longest call, from the span's first event; None where none was recorded.
    longest_start_us: float | None
    longest_us: Annotated[float | None, column_head("Longest call")]
    longest_row: int | None


class HostTime(msgspec.Struct, frozen=True):
    """Time of the thread in slices of this name, without what ran inside them."""

    name: str
    time_us: float
    slices: int


class IdleGap(msgspec.Struct, frozen=True):
    """One idle interval of a device."""

    start_us: float  # from the span's first event
    device: Annotated[int, column_head(hidden=True)]
    idle_us: Annotated[float, column_head(bar=True)]
    step: str | None  # in which the gap begins
    cause: Annotated[HostKind, column_head("Largest cause")]
    idle: dict[str, float]  # by cause: the first of `HOST_KINDS` that holds, with `_us`
    after: Annotated[str | None, column_head("After", grow=True)]  # the GPU event before the gap
    before: Annotated[str, column_head("Before", grow=True)]  # the GPU event that ends it
    # The call that launched the event that ends the gap, and its thread; None where unknown.
    launch: Annotated[str | None, column_head("Launched by", hidden=True)]
    thread: Annotated[str | None, column_head("On thread", hidden=True)]
    host: list[HostTime]  # most time first
    row: int | None  # of the trace: the slice that took most of the gap by itself


def idle_culprits(profile: Profile) -> list[IdleReason]:
    """Return what each device waited for in a step, device by device, most idle time first.

    [] without launches, or where idle time is unknown; nothing of a device that hardly idles. An idle GPU waits for the
    next launch, and so for what the host does on the way to it. Idle time is cut at the segments of host time and the
    calls of the launch sequence. The rest is one row without a name: so the rows of a device sum to its idle time in
    the step.
    """
    devices = profile.of(idle_gaps) if len(profile.of(launch_sequence)) > 1 else ()
    if not devices:
        return []
    culprits = culprits_of(profile, profile.of(host_timeline))
    return [row for device in devices for row in _culprit_rows(profile, device, culprits)]


def _culprit_rows(profile: Profile, device: int, culprits: Attributions) -> Iterator[IdleReason]:
    trace, pieces, windows = profile.trace, profile.of(host_timeline), profile.of(modeled_windows)
    idle, steps = subtract(windows, profile.of(busy_intervals)[device]), len(windows.starts)
    overhead_ns = 1000 * profile.of(step_time).overhead_us * steps
    left = max(1 - overhead_ns / max(idle.total_ns, 1), 0.0)  # of idle time in an unprofiled step
    if 100 * left * idle.total_ns <= thresholds.IDLE_PERCENT * (windows.total_ns - overhead_ns):
        return

    def row(culprit: Attribution, ns: int, calls: Int64s, pattern: str) -> IdleReason:
        longest = int(calls[np.argmax(trace.dur[calls])]) if len(calls) else None
        return IdleReason(
            device=device,
            **culprit._asdict(),
            idle_us=left * us(ns) / steps,
            share_percent=100 * ns / idle.total_ns,
            calls=len(calls) / steps if len(calls) else None,
            pattern=pattern,
            longest_start_us=None if longest is None else us(int(trace.ts[longest]) - trace.window()[0]),
            longest_us=None if longest is None else us(int(trace.dur[longest])),
            longest_row=longest,
        )

    ns = covered_ns(idle, pieces.begin, pieces.end)
    is_named = np.array([culprit != _REST for culprit in culprits.culprits], bool)
    by_culprit = sums(culprits.code, ns, len(culprits.culprits)) * is_named
    order = [code for code in np.argsort(-by_culprit, kind="stable").tolist() if by_culprit[code]][:_MAX_ROWS]
    for code in order:
        selected = np.flatnonzero((culprits.code == code) & (ns > 0))
        calls = np.unique(culprits.call[selected][culprits.call[selected] >= 0])
        pattern = _pattern(profile, pieces.begin[selected], calls)
        yield row(culprits.culprits[code], int(by_culprit[code]), calls, pattern)
    if rest := idle.total_ns - int(by_culprit[order].sum()):
        yield row(_REST, rest, np.zeros(0, np.int64), "")


def _pattern(profile: Profile, begin: Int64s, calls: Int64s) -> str:
    """Return "every step", "the first step only" or "2 of 4 steps", and how many shapes were recorded."""
    lane, steps = profile.of(launch_sequence), profile.of(launch_sequence).steps
    if steps < 2:
        return ""
    occurs = np.unique(np.searchsorted(lane.begin[lane.marks], begin, side="right") - 1).tolist()
    when = "every step" if len(occurs) == steps else f"{len(occurs)} of {steps} steps"
    when = "the first step only" if occurs == [0] else when
    codes = codes_of(profile.trace, "input_dims", calls)
    shapes = len(np.unique(codes[codes >= 0]))
    if shapes < 2:
        return when
    each = "a new shape each time" if shapes == len(calls) else f"{shapes} shapes in {len(calls)} calls"
    return f"{when}, {each}"


def longest_gaps(profile: Profile, device: int, gaps: Gaps, most: int) -> list[IdleGap]:
    """Return the `most` longest of these gaps of one device, longest first."""
    steps = profile.of(StepWindows)
    gaps = gaps.take(np.argsort(gaps.starts - gaps.ends, kind="stable")[:most])
    causes = causes_of(gaps, profile.of(ThreadActivity))
    names = [steps.names[step] if step >= 0 else None for step in within(steps.windows, gaps.starts).tolist()]
    return [_gap(profile.trace, device, gaps, index, causes[index], name) for index, name in enumerate(names)]


def _gap(trace: Trace, device: int, gaps: Gaps, index: int, causes: Int64s, step: str | None) -> IdleGap:
    start, end = int(gaps.starts[index]), int(gaps.ends[index])
    track, thread = int(gaps.track[index]), None
    rows, own = np.zeros((2, 0), np.int64)
    if track >= 0:
        rows, own = _own_ns(trace, track, start, end)
        thread = trace.tracks[track].thread_name.strip() or str(trace.tracks[track].tid)
    names, code = np.unique(trace.name[rows], return_inverse=True)
    time, slices = sums(code, own, len(names)), np.bincount(code, minlength=len(names))
    by_time = [index for index in np.argsort(-time, kind="stable")[:_MAX_ACTIVITIES] if time[index]]
    return IdleGap(
        device=device,
        start_us=us(start - trace.window()[0]),
        idle_us=us(end - start),
        step=step,
        cause=HOST_KINDS[int(causes.argmax())],
        idle={f"{kind}_us": us(ns) for kind, ns in zip(HOST_KINDS, causes, strict=True)},
        after=_name(trace, int(gaps.preceding[index]), short_kernel),
        before=_name(trace, int(gaps.following[index]), short_kernel) or "",
        launch=_name(trace, int(gaps.launch[index])),
        thread=thread,
        host=[HostTime(trace.names[names[row]], us(time[row]), int(slices[row])) for row in by_time],
        row=_longest(rows, own),
    )


def _name(trace: Trace, row: int, shortened: Callable[[str], str] = str) -> str | None:
    return shortened(trace.names[trace.name[row]]) if row >= 0 else None


def longest_slice(trace: Trace, track: int, start: int, end: int) -> int | None:
    """Return the thread's slice with most time by itself between start and end; None without any."""
    return _longest(*_own_ns(trace, track, start, end))


def _longest(rows: Int64s, own: Int64s) -> int | None:
    return int(rows[np.argmax(own)]) if own.any() else None


def _own_ns(trace: Trace, track: int, start: int, end: int) -> tuple[Int64s, Int64s]:
    """Return a thread's slices between start and end, and the time of each, cut at its parent, without inner ones."""
    rows, ends, parents = slices_around(trace, track, (start, end))
    own = np.maximum(0, np.minimum(ends, end) - np.maximum(trace.ts[rows], start))
    nested = parents >= 0
    np.subtract.at(own, parents[nested], own[nested].copy())
    return rows, own
