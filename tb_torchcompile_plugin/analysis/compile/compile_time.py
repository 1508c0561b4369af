"""What did torch.compile cost: how long did it take, in which phases, and how much of it fell into the profile?

`total_s` is the union of the compilations' spans per thread, summed over threads: one compiled while another is
being compiled on the same thread counts once.
"""

from collections.abc import Iterable
from typing import Annotated, NamedTuple

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis.compile.cache_lookups import first_lookups, saved_ns
from tb_torchcompile_plugin.analysis.formatting import column_head, duration
from tb_torchcompile_plugin.compile_log.record import Key, key_of
from tb_torchcompile_plugin.compile_log.summary_pb2 import Compilation as CompilationMessage
from tb_torchcompile_plugin.profile.columns import Int64s, Intervals, covered_ns, to_seconds, us
from tb_torchcompile_plugin.profile.compiled.regions import logged_times
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import StepWindows
from tb_torchcompile_plugin.reader.arrays import grouped
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.torch_names.caches import is_export

EPOCH_FROM_NS = 10**18  # September 2001: a clock that shows less does not count from 1970


class CompileOverlap(msgspec.Struct, frozen=True):
    """Compile time that fell into the profiled steps; without steps, into the span."""

    inside_us: float
    window: str  # those with some, in words


class FunctionTime(msgspec.Struct, frozen=True):
    """One timed function of torch over all its runs."""

    function: Annotated[str, column_head(grow=True)]
    runs: int
    total_s: Annotated[float, column_head("Total", bar=True)]
    min_s: Annotated[float, column_head("Shortest")]
    max_s: Annotated[float, column_head("Longest")]


class CompileCost(NamedTuple):
    """The compile time of the process (s), with these caches and with others."""

    blocked_s: float
    cold_s: float | None  # with empty caches; None where this run does not show it, as `warm_s`
    warm_s: float | None  # with caches that hold everything
    hits: int
    lookups: int
    whole: bool  # whether all compilations were timed; otherwise it was more


def compile_cost(data: CompileData) -> CompileCost | None:
    """Return what compiling cost; None where no compilation has a known duration."""
    if (blocked := data.of(total_s)) is None:
        return None
    whole = all(row.HasField("duration_ns") for row in data.summary.compilations)
    by_compilation = data.of(first_lookups)
    saved = [ns for lookups in by_compilation for ns in saved_ns(lookups)]
    cold = blocked + to_seconds(sum(saved)) if whole else None
    results = [lookup.result for lookups in by_compilation for lookup in lookups]
    hits = results.count("hit")
    warm = blocked if hits and hits == len(results) else None
    return CompileCost(blocked, cold, warm, hits, len(results), whole)


def count_compilations(data: CompileData) -> int:
    """Count the compilations that happened in this process."""
    return count_frames(data.summary.compilations)


def count_frames(rows: Iterable[CompilationMessage]) -> int:
    """Count the forward compilations among these that happened in this process.

    A lazily compiled backward belongs to its forward. Exports compile nothing.
    """
    return len({key_of(row.key) for row in rows if not row.elsewhere and not is_export(row.key.compile_id)})


def compile_times(data: CompileData) -> dict[str, list[float]]:
    """Return what `torch._dynamo.utils.compile_times()` prints: seconds of every run of every function."""
    return {row.function: list(row.seconds) for row in data.summary.compile_times}


def function_times(data: CompileData) -> list[FunctionTime]:
    """Return the timed functions, longest first."""
    rows = [
        FunctionTime(name, len(runs), sum(runs), min(runs), max(runs))
        for name, runs in data.of(compile_times).items()
        if runs
    ]
    return sorted(rows, key=lambda row: -row.total_s)


def total_s(data: CompileData) -> float | None:
    """Return the compile time of the process; None when no compilation has a known duration."""
    return frames_s(data.summary.compilations)


def seconds_by_frame(data: CompileData) -> dict[Key, float | None]:
    """Return the compile time of each compile id, with that of its backward graph; None where it is unknown."""
    return {
        key: frames_s(rows)
        for key, rows in grouped(data.summary.compilations, lambda row: key_of(row.key)).items()
    }


def frames_s(rows: Iterable[CompilationMessage]) -> float | None:
    """Return the compile time of these; None where none has a known duration."""
    rows = [row for row in rows if row.HasField("duration_ns")]
    if not rows:
        return None
    untimed = sum(row.duration_ns for row in rows if not row.HasField("start_ns"))
    return to_seconds(untimed + sum(times.total_ns for times in _by_thread(rows)))


def frames_us_in(rows: Iterable[CompilationMessage], base_ns: int, windows: Intervals) -> float:
    """Return how much of the compile time of these fell into windows of a trace that begins at `base_ns`."""
    return us(_covered(_by_thread(rows, base_ns), *windows).sum())


def compile_overlap(profile: Profile) -> CompileOverlap | None:
    """Return how much of the compile time fell into the trace.

    None without compile data, and where the two have no clock in common: the trace's clock is not Unix time, or a
    compilation has no start.
    """
    trace, summary = profile.trace, profile.summary
    if summary is None:
        return None
    first, last = trace.window()
    is_timed = all(row.HasField("start_ns") and row.HasField("duration_ns") for row in summary.compilations)
    if trace.base_ns + first < EPOCH_FROM_NS or not is_timed:
        return None
    rows = profile.of(StepWindows).rows
    starts, ends = trace.ts[rows], trace.ts[rows] + trace.dur[rows]
    if not len(rows):
        starts, ends = np.array([first]), np.array([last])
    inside = _covered(_by_thread(summary.compilations, trace.base_ns), starts, ends)
    steps = [trace.names[trace.name[step]] for step, time in zip(rows, inside) if time > 0]
    window = " and ".join(steps) if len(steps) <= 2 else f"{steps[0]} and {len(steps) - 1} more steps"
    return CompileOverlap(us(inside.sum()), (window or "the profiled steps") if len(rows) else "this span")


def overlap_headline(profile: Profile) -> str:
    """Say how much of the compile time fell into what was profiled; "" where unknown."""
    overlap = profile.of(compile_overlap)
    if overlap is None:
        return ""
    inside = duration(overlap.inside_us) if overlap.inside_us else "None"
    return f"{inside} of the compile time falls into {overlap.window}."


def _by_thread(rows: Iterable[CompilationMessage], base_ns: int = 0) -> list[Intervals]:
    return [logged_times(group, base_ns) for group in grouped(rows, lambda row: row.thread).values()]


def _covered(threads: list[Intervals], starts: Int64s, ends: Int64s) -> Int64s:
    return sum((covered_ns(spans, starts, ends) for spans in threads), np.zeros(len(starts), np.int64))
