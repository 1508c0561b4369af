"""How long did torch.compile take, by compilation and phase, and how much of it fell into the profile?

`total_s` is the union of the compilations' spans per thread, summed over threads: one compiled while another is
being compiled on the same thread counts once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis.formatting import duration, percent
from tb_torchcompile_plugin.compile_log.record import key_of
from tb_torchcompile_plugin.compile_log.summary_pb2 import Compilation as CompilationMessage
from tb_torchcompile_plugin.compile_log.summary_pb2 import PhaseSpan
from tb_torchcompile_plugin.profile.intervals import Int64s, Intervals, covered_ns, union
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import step_slices
from tb_torchcompile_plugin.profile.units import to_seconds, us
from tb_torchcompile_plugin.reader.arrays import Codes, grouped
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.torch_names.caches import is_export
from tb_torchcompile_plugin.torch_names.records import Phase, phase_of

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


# When did each phase of compilation run, and inside which? The columns of an icicle.


WORKERS = "compile workers"
ALL_THREADS = "all threads"


class PhaseColumns(msgspec.Struct, frozen=True):
    """One row a span, in order of time, as columns of equal length.

    `start_us` counts from the first span. `name`, `compile_id` (-1: none) and `thread` are places in the tables of
    `PhaseSpans`. `depth` is the row to draw in, from 0 in each thread: spans of one row never overlap.
    """

    start_us: list[float]
    duration_us: list[float]
    name: list[int]
    compile_id: list[int]
    epoch: list[int]
    thread: list[int]
    depth: list[int]
    worker_process: list[bool]
    unfinished: list[bool]


class PhaseSpans(msgspec.Struct, frozen=True):
    """The spans and the texts that they name. `origin_s`: Unix time of the first one, None without any.

    `name_phases`: the phase of each name, None where a span is of the phase of the one around it.
    """

    threads: list[str]
    names: list[str]
    name_phases: list[Phase | None]
    compile_ids: list[str]
    origin_s: float | None
    spans: PhaseColumns


def phase_spans(data: CompileData) -> PhaseSpans:
    """All spans. Work of compile worker processes is a thread of its own, the last one."""
    rows = sorted(data.summary.spans, key=lambda row: (row.start_ns, -row.duration_ns))
    origin = rows[0].start_ns if rows else 0
    threads = thread_labels(rows)
    names, ids = Codes(), Codes()
    name_codes = [names.code(row.name) for row in rows]
    lanes = [WORKERS if row.worker_process else threads[row.thread] for row in rows]
    labels = [*dict.fromkeys(threads.values()), *([WORKERS] if WORKERS in lanes else [])]
    return PhaseSpans(
        threads=labels,
        names=names.texts,
        name_phases=[phase_of(name) for name in names.texts],
        compile_ids=ids.texts,
        origin_s=origin / 1e9 if rows else None,
        spans=PhaseColumns(
            start_us=[us(row.start_ns - origin) for row in rows],
            duration_us=[us(row.duration_ns) for row in rows],
            name=name_codes,
            compile_id=[ids.code(row.key.compile_id) if row.key.compile_id else -1 for row in rows],
            epoch=[row.key.epoch for row in rows],
            thread=[labels.index(lane) for lane in lanes],
            depth=_depths(rows, lanes),
            worker_process=[row.worker_process for row in rows],
            unfinished=[row.unfinished for row in rows],
        ),
    )


def thread_labels(rows: Iterable[PhaseSpan]) -> dict[int, str]:
    """A label for each thread. A log does not tell threads apart: all its spans are of thread 0."""
    known = dict.fromkeys(row.thread for row in rows if not row.worker_process)
    if set(known) <= {0}:
        return dict.fromkeys(known, ALL_THREADS)
    return {thread: f"thread {number}" for number, thread in enumerate(known, 1)}


def _depths(rows: list[PhaseSpan], lanes: list[str]) -> list[int]:
    """The first row at or below all spans around it. Crossing spans (threads of a log) get rows of their own."""
    rows_of: dict[str, list[int]] = defaultdict(list)  # of each lane: when its rows are free again, in ns
    depths = []
    for row, lane in zip(rows, lanes, strict=True):
        ends = rows_of[lane]
        if lane == WORKERS:  # side by side, not inside one another
            depth = next((depth for depth, end in enumerate(ends) if end <= row.start_ns), len(ends))
        else:
            while ends and ends[-1] <= row.start_ns:
                ends.pop()
            depth = len(ends)
        ends[depth : depth + 1] = [row.start_ns + row.duration_ns]
        depths.append(depth)
    return depths
