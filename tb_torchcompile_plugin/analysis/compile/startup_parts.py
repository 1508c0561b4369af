"""Which part of a start-up took how long, from the start of the process to the first step that compiles nothing?

Each nanosecond belongs to exactly one part.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, NamedTuple

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis.sheet import column_head
from tb_torchcompile_plugin.compile_log.record import Key, key_of, optional_number
from tb_torchcompile_plugin.compile_log.spans import CompileSpan, OpenSpans
from tb_torchcompile_plugin.compile_log.summary_pb2 import PhaseSpan
from tb_torchcompile_plugin.profile.compiled.regions import compiled_when
from tb_torchcompile_plugin.profile.intervals import Int64s, to_seconds, within
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.torch_names import records

_TITLES = {
    "imports": "Imports, until tb_torchcompile_plugin was imported",
    "preparing": "Model, data and all else before the first compilation",
    "artifacts": "Loading saved cache artifacts",
    "dynamo": "Compiling: Dynamo",
    "aot_autograd": "Compiling: AOTAutograd",
    "inductor": "Compiling: Inductor",
    "triton": "Compiling: kernels (Triton, C++)",
    "autotune": "Compiling: autotuning",
    "cache": "Compiling: caches",
    "other": "Compiling: other",
    "outside": "Outside of compilations: tuning kernels when they first run, and the like",
    "between": "Between compilations: running, or waiting",
    "steps": "The rest of the first steps",
}


class StartPart(msgspec.Struct, frozen=True):
    """One part of a start-up; all of them sum to its wall time, in ns exactly."""

    title: Annotated[str, column_head("Part")]
    time_s: Annotated[float, column_head("Time", total=True)]
    percent: Annotated[float, column_head("Share")]
    part: Annotated[str, column_head("Id", hidden=True)]


class StartWindow(NamedTuple):
    """A start-up in Unix ns."""

    begin_ns: int
    imported_ns: int | None
    first_ns: int  # start of the first compilation
    last_ns: int  # end of the last compilation
    end_ns: int
    # begins with the process; otherwise with the import of this package or the first compilation
    from_process: bool
    until_step: bool  # ends with the first steady step; otherwise with the last compilation


class HostSpan(NamedTuple):
    """One timed function of the compiler on the host, a compilation without any, or another part of a start-up."""

    start_ns: int
    end_ns: int
    part: str  # a phase, "artifacts" or "imports"
    key: Key = (0, "")


def start_parts(data: CompileData) -> tuple[StartPart, ...]:
    """Return the parts in the order of a start-up, without those that took no time."""
    times = data.of(parts_ns)
    whole = sum(times.values())
    return tuple(
        StartPart(title, to_seconds(times[part]), 100 * times[part] / whole, part)
        for part, title in _TITLES.items()
        if times.get(part)
    )


def compile_ns(data: CompileData) -> int:
    """Return the compile time in a start-up: what several threads compile at once counts once.

    Otherwise, and but for what is compiled later, it is the compile time of the process.
    """
    return sum(ns for part, ns in data.of(parts_ns).items() if part in records.PHASES)


def parts_ns(data: CompileData) -> dict[str, int]:
    """Return the time (ns) of each part; together they are the window. {} without one."""
    start = data.of(window)
    if start is None or start.end_ns <= start.begin_ns:
        return {}
    loads = [
        HostSpan(row.start_ns, row.start_ns + row.duration_ns, "artifacts")
        for row in data.summary.cache_transfers
        if row.load
    ]
    spans = [
        row
        for row in data.of(compiling)
        if row.key[1] or not any(load.start_ns <= row.start_ns < load.end_ns for load in loads)
    ]
    compile_spans = len(spans)
    spans += loads
    if start.imported_ns:
        spans.append(HostSpan(start.begin_ns, start.imported_ns, "imports"))
    edges, innermost = innermost_spans(spans, start.begin_ns, start.end_ns)
    compiled = compiled_when(data.summary.compilations, 0)
    is_outside = (within(compiled, edges[:-1]) < 0) & (len(compiled.starts) > 0)
    times = Counter[str]()
    for (begin, end), span, outside in zip(pairwise(edges.tolist()), innermost.tolist(), is_outside):
        if span >= 0:
            part = "outside" if outside and span < compile_spans else spans[span].part
        elif begin < start.first_ns:
            part = "preparing"
        else:
            part = "between" if begin < start.last_ns else "steps"
        times[part] += end - begin
    assert sum(times.values()) == start.end_ns - start.begin_ns
    return dict(times)


def innermost_spans(spans: Sequence[HostSpan], begin_ns: int, end_ns: int) -> tuple[Int64s, Int64s]:
    """Return the edges of spans in a window, and between each two edges the index of the innermost span, -1 for none.

    The innermost span began last; of several that began at once it is the one that ends first, and then the last in
    the list.
    """
    starts = np.array([span.start_ns for span in spans], np.int64).clip(begin_ns, end_ns)
    ends = np.array([span.end_ns for span in spans], np.int64).clip(begin_ns, end_ns)
    edges = np.unique([begin_ns, end_ns, *starts.tolist(), *ends.tolist()])
    innermost = np.full(len(edges) - 1, -1, np.int64)
    first, last = np.searchsorted(edges, starts), np.searchsorted(edges, ends)
    for index in sorted(range(len(spans)), key=lambda index: (spans[index].start_ns, -spans[index].end_ns)):
        innermost[first[index] : last[index]] = index
    return edges, innermost


def window(data: CompileData) -> StartWindow | None:
    """Return when the process started and was steady; None where no compilation has a time."""
    rows = data.of(compiling)
    if not rows:
        return None
    first = next((row for row in rows if row.key[1]), rows[0]).start_ns
    process = optional_number(data.summary.environment, "process_start_ns")
    imported = optional_number(data.summary.environment, "imported_ns")
    begins = [ns for ns in (process, imported) if ns is not None and ns <= first]
    # The start of the first step that compiled nothing, after one that did.
    steady, compiled = None, False
    for row in data.summary.steps.first:
        if compiled and not row.compiled and row.HasField("start_ns") and row.start_ns > first:
            steady = int(row.start_ns)
            break
        compiled |= row.compiled
    end = steady or max(row.end_ns for row in rows)
    return StartWindow(
        begin_ns=begins[0] if begins else first,
        imported_ns=imported if imported in begins and imported != begins[0] else None,
        first_ns=first,
        last_ns=max(first, max((row.end_ns for row in rows if row.end_ns <= end), default=first)),
        end_ns=end,
        from_process=bool(begins) and begins[0] == process,
        until_step=steady is not None,
    )


def compiling(data: CompileData) -> list[HostSpan]:
    """Return what the compiler did on the host, in order of time, outer spans first; without compile workers."""
    rows = [
        HostSpan(row.start_ns, row.start_ns + row.duration_ns, "other", key_of(row.key))
        for row in data.summary.compilations
        if row.HasField("start_ns") and row.HasField("duration_ns") and not row.phases
    ]
    spans = sorted(
        (span for span in data.summary.spans if not span.worker_process and span.duration_ns),
        key=lambda span: (span.start_ns, -span.duration_ns),
    )
    # As torch wrote the marks: of equal times ends come first, those of inner spans before those of outer ones.
    begins = [(span.start_ns, 1, number, span) for number, span in enumerate(spans)]
    ends = [(span.start_ns + span.duration_ns, 0, -number, span) for number, span in enumerate(spans)]
    marks = OpenSpans()
    for time_ns, begin, _, span in sorted([*begins, *ends], key=lambda mark: mark[:3]):
        lane = span.thread, key_of(span.key)
        if begin:
            # A row of its own: ending a span sets its duration.
            row = PhaseSpan(name=span.name, function=span.function, start_ns=time_ns)
            marks.begin(CompileSpan(row, lane))
            continue
        rows += [
            HostSpan(ended.row.start_ns, ended.row.start_ns + ended.row.duration_ns, ended.phase, lane[1])
            for ended in marks.end(lane, span.name, time_ns)
        ]
    return sorted(rows, key=lambda row: (row.start_ns, -row.end_ns))
