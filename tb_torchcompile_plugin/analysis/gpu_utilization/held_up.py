"""What held each GPU up: its idle time in the steps, by what the host did meanwhile, in words that a user can act on.

While a GPU idles it waits for the next launch, and so for what the host does on the way to it. The idle time is cut at
the pieces of host time and the calls of the model's lane; what neither covers is told as nothing recorded. So the rows
of a device sum to its idle time, to the nanosecond.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis.what_if.picture import HostCause
from tb_torchcompile_plugin.profile.columns import codes_of
from tb_torchcompile_plugin.profile.gpu_work import busy, gpu_work
from tb_torchcompile_plugin.profile.intervals import Int64s, Intervals, covered_ns, subtract
from tb_torchcompile_plugin.profile.model.attribution import Culprit, Culprits, culprits_of
from tb_torchcompile_plugin.profile.model.launch_sequence import host_lane, host_pieces
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.units import us

_LISTED = 100  # of each device; what is less is one row, with what nothing covers
_REST = Culprit("nothing", "", "", 0)


class HeldUp(msgspec.Struct, frozen=True):
    """One culprit of a device's idle time. idle_us, calls: a step, or in the span where there are no steps.

    share_percent: of the device's idle time. pattern: when it comes, "" where there is no more than one step. longest:
    the longest call, its begin counted from the span's first event, and its row; None where nothing was recorded.
    """

    device: int
    cause: HostCause
    name: str
    file: str
    line: int
    idle_us: float
    share_percent: float
    calls: float | None
    pattern: str
    longest_start_us: float | None
    longest_us: float | None
    longest_row: int | None


class _Idle(NamedTuple):
    """When a device did nothing in the steps."""

    device: int
    intervals: Intervals


class _Times(NamedTuple):
    """Pieces of host time and calls in order of time, each with the slice that ran, -1 for none."""

    begin: Int64s
    end: Int64s
    row: Int64s


def held_up(profile: Profile) -> list[HeldUp]:
    """Device by device, most idle time first. [] without launches."""
    lane, work = profile.of(host_lane), profile.of(gpu_work)
    if len(lane) < 2:
        return []
    times = _times(profile)
    blamed = culprits_of(profile, times.row)
    window = Intervals(lane.begin[lane.marks[:1]], lane.begin[lane.marks[-1:]])
    rows: list[HeldUp] = []
    for device in np.unique(work.device).tolist():
        idle = subtract(window, busy(profile.trace, work.index[work.device == device]))
        rows += _rows(profile, _Idle(int(device), idle), times, blamed)
    return rows


def _times(profile: Profile) -> _Times:
    """Without overlaps: a call counts from where those before it ended."""
    lane, pieces = profile.of(host_lane), profile.of(host_pieces)
    row = np.concatenate((pieces.row, lane.row))
    begin, end = np.concatenate((pieces.begin, lane.begin)), np.concatenate((pieces.end, lane.end))
    order = np.lexsort((end, begin))
    reach = np.concatenate(([np.iinfo(np.int64).min], np.maximum.accumulate(end[order])[:-1]))
    begin = np.maximum(begin[order], reach)
    kept = begin < end[order]
    return _Times(begin[kept], end[order][kept], row[order][kept])


def _rows(profile: Profile, idle: _Idle, times: _Times, blamed: Culprits) -> list[HeldUp]:
    ns = covered_ns(idle.intervals, times.begin, times.end)
    by_culprit = np.zeros(len(blamed.culprits), np.int64)
    np.add.at(by_culprit, blamed.code, ns)
    order = [code for code in np.argsort(-by_culprit, kind="stable").tolist() if by_culprit[code]][:_LISTED]
    rows = []
    for code in order:
        mine = np.flatnonzero((blamed.code == code) & (ns > 0))
        calls = np.unique(blamed.call[mine][blamed.call[mine] >= 0])
        pattern = _pattern(profile, times.begin[mine], calls)
        rows.append(_row(profile, idle, blamed.culprits[code], calls, int(by_culprit[code]), pattern))
    if rest := idle.intervals.total_ns - int(by_culprit[order].sum()):
        rows.append(_row(profile, idle, _REST, np.zeros(0, np.int64), rest, ""))
    return rows


def _row(profile: Profile, idle: _Idle, culprit: Culprit, calls: Int64s, ns: int, pattern: str) -> HeldUp:
    trace, steps = profile.trace, profile.of(host_lane).steps
    longest = int(calls[np.argmax(trace.dur[calls])]) if len(calls) else None
    return HeldUp(
        device=idle.device,
        cause=culprit.cause,
        name=culprit.name,
        file=culprit.file,
        line=culprit.line,
        idle_us=us(ns) / steps,
        share_percent=100 * ns / idle.intervals.total_ns,
        calls=len(calls) / steps if len(calls) else None,
        pattern=pattern,
        longest_start_us=None if longest is None else us(int(trace.ts[longest]) - trace.window()[0]),
        longest_us=None if longest is None else us(int(trace.dur[longest])),
        longest_row=longest,
    )


def _pattern(profile: Profile, begin: Int64s, calls: Int64s) -> str:
    """ "every step", "the first step only", "2 of 4 steps"; and how many shapes came, where they were recorded."""
    lane, steps = profile.of(host_lane), profile.of(host_lane).steps
    if steps < 2:
        return ""
    came = np.unique(np.searchsorted(lane.begin[lane.marks], begin, side="right") - 1).tolist()
    when = "every step" if len(came) == steps else f"{len(came)} of {steps} steps"
    when = "the first step only" if came == [0] else when
    shapes = codes_of(profile.trace, "input_dims", calls)
    known = len(np.unique(shapes[shapes >= 0]))
    if known < 2:
        return when
    each = "a new shape each time" if known == len(calls) else f"{known} shapes in {len(calls)} calls"
    return f"{when}, {each}"
