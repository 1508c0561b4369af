"""How long did torch.compile take, by compilation and phase, and how much of it fell into the profile?

`total_s` is the union of the compilations' spans per thread, summed over threads: one compiled while another is
being compiled on the same thread counts once.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis.words import duration, percent
from tb_torchcompile_plugin.compile_log.record import key_of
from tb_torchcompile_plugin.compile_log.summary_pb2 import Compilation as CompilationMessage
from tb_torchcompile_plugin.profile.intervals import Int64s, Intervals, covered_ns, union
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import step_slices
from tb_torchcompile_plugin.profile.units import to_seconds, us
from tb_torchcompile_plugin.reader.arrays import grouped
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.torch_names.caches import is_export

EPOCH_FROM_NS = 10**18  # September 2001: no earlier clock counts from 1970


class CompileOverlap(msgspec.Struct, frozen=True):
    """Compile time that fell into the trace: into all of it, and into the steps that are named."""

    in_span_us: float
    in_steps_us: float | None
    steps: list[str]


class FunctionTime(msgspec.Struct, frozen=True):
    """One timed function of torch over all its runs."""

    function: str
    runs: int
    total_s: float
    min_s: float
    max_s: float
    mean_s: float


def count_compilations(rows: Iterable[CompilationMessage]) -> int:
    """A backward that is compiled later is a row of its own, but belongs to the same compilation. Exports compile
    nothing, and packages of another process are not compiled here."""
    return len({key_of(row.key) for row in rows if not row.elsewhere and not is_export(row.key.compile_id)})


def compile_times(data: CompileData) -> dict[str, list[float]]:
    """What `torch._dynamo.utils.compile_times()` prints: seconds of every run of every function."""
    return {row.function: list(row.seconds) for row in data.summary.compile_times}


def function_times(data: CompileData) -> list[FunctionTime]:
    """Longest first."""
    rows = [
        FunctionTime(name, len(runs), sum(runs), min(runs), max(runs), sum(runs) / len(runs))
        for name, runs in data.of(compile_times).items()
        if runs
    ]
    return sorted(rows, key=lambda row: -row.total_s)


def total_s(data: CompileData) -> float | None:
    """None when no compilation has a known duration."""
    known = [row for row in data.summary.compilations if row.HasField("duration_ns")]
    if not known:
        return None
    timed = [row for row in known if row.HasField("start_ns")]
    untimed = sum(row.duration_ns for row in known if not row.HasField("start_ns"))
    return to_seconds(untimed + sum(spans.total_ns for spans in _by_thread(timed)))


def compile_overlap(profile: Profile) -> CompileOverlap | None:
    """None without compile data, and where the two have no clock in common: the trace's is not the epoch, or a
    compilation has no start."""
    trace, summary = profile.trace, profile.summary
    if summary is None:
        return None
    timed = [row for row in summary.compilations if row.HasField("start_ns") and row.HasField("duration_ns")]
    first, last = trace.window()
    if trace.base_ns + first < EPOCH_FROM_NS or len(timed) < len(summary.compilations):
        return None
    base = trace.base_ns
    threads = [Intervals(spans.starts - base, spans.ends - base) for spans in _by_thread(timed)]
    steps = profile.of(step_slices)
    inside = _covered(threads, trace.ts[steps], trace.ts[steps] + trace.dur[steps])
    return CompileOverlap(
        in_span_us=us(_covered(threads, np.array([first]), np.array([last])).sum()),
        in_steps_us=us(inside.sum()) if len(steps) else None,
        steps=[trace.names[trace.name[step]] for step, time in zip(steps, inside) if time > 0],
    )


def overlap_headline(profile: Profile) -> str:
    """How much of the compile time fell into what was profiled; "" where nobody knows."""
    overlap, (first, last) = profile.of(compile_overlap), profile.trace.window()
    if overlap is None:
        return ""
    if overlap.steps and overlap.in_steps_us is not None:
        names, more = ", ".join(overlap.steps[:3]), len(overlap.steps) - 3
        steps = f"{'step' if len(overlap.steps) == 1 else 'steps'} {names}{f' and {more} more' if more > 0 else ''}"
        return f"{duration(overlap.in_steps_us)} of it fell into the profiled {steps}."
    if overlap.in_steps_us == 0:
        return "None of it fell into the profiled steps."
    if not overlap.in_span_us:
        return ""
    wall = us(last - first)
    return f"{percent(100 * overlap.in_span_us / wall)} of this span’s {duration(wall)} went into compiling."


def _by_thread(rows: list[CompilationMessage]) -> list[Intervals]:
    return [
        union(
            np.array([row.start_ns for row in mine]),
            np.array([row.start_ns + row.duration_ns for row in mine]),
        )
        for mine in grouped(rows, lambda row: row.thread).values()
    ]


def _covered(threads: list[Intervals], starts: Int64s, ends: Int64s) -> Int64s:
    total = np.zeros(len(starts), np.int64)
    for spans in threads:
        total += covered_ns(spans, starts, ends)
    return total
