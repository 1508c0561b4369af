"""What took the time from the start of a process to its first steady step, and what would a warm start save?

A start-up ends with the first step that compiles nothing. Each of its nanoseconds belongs to exactly one part.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Annotated, NamedTuple

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis import thresholds
from tb_torchcompile_plugin.analysis.compile import cache_lookups
from tb_torchcompile_plugin.analysis.compile.cache_keys import Starts, compared_lookups, differences
from tb_torchcompile_plugin.analysis.compile.cache_lookups import CacheLookup
from tb_torchcompile_plugin.analysis.finding import Finding
from tb_torchcompile_plugin.analysis.formatting import (
    at_line,
    column_head,
    duration,
    joined_names,
    percent,
    plural,
    seconds,
    size,
)
from tb_torchcompile_plugin.compile_log.record import CompileSpan, Key, OpenSpans, key_of, optional_number
from tb_torchcompile_plugin.compile_log.summary_pb2 import CacheTransfer, PhaseSpan
from tb_torchcompile_plugin.profile.columns import Int64s, to_seconds, within
from tb_torchcompile_plugin.profile.compiled.regions import logged_times
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.torch_names import caches as names
from tb_torchcompile_plugin.torch_names import records

_TITLES = {
    "imports": "Imports, until tb_torchcompile_plugin was imported",
    "preparing": "Model, data and everything else before the first compilation",
    "artifacts": "Loading saved cache artifacts",
    "dynamo": "Compiling: Dynamo",
    "aot_autograd": "Compiling: AOTAutograd",
    "inductor": "Compiling: Inductor",
    "triton": "Compiling: kernels (Triton, C++)",
    "autotune": "Compiling: autotuning",
    "cache": "Compiling: caches",
    "other": "Compiling: other",
    "outside": "Outside of compilations, for example tuning kernels on their first run",
    "between": "Between compilations: running or waiting",
    "steps": "Rest of the first steps",
}
_MIN_SHARE_PERCENT = 5.0  # smaller parts stay out of the first sentence
_NO_PROCESS_START = (
    "Counted from {}: the start of the process was not recorded. The trace handler records it on Linux; "
    "a TORCH_TRACE log does not."
)
_NO_STEP = (
    "Counted until the last compilation: no steady step was recorded. profiler.step() or a torch optimizer marks the "
    "end of a step."
)
_NEXT_STEP = (
    "Give every process of the job the same TORCHINDUCTOR_CACHE_DIR and the same settings and code. Or transfer the "
    "entries with torch.compiler.save_cache_artifacts and load_cache_artifacts"
)


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


class StartUp(msgspec.Struct, frozen=True):
    """A start-up: its parts, which sum to it, and each cache lookup."""

    sentences: tuple[str, ...]
    parts: Annotated[tuple[StartPart, ...], column_head("Until the first steady step")]
    start_lookups: Annotated[tuple[CacheLookup, ...], column_head("Cache lookups")]


def startup(starts: Starts) -> StartUp:
    """Return the parts of the start-up of a process; without compilations only a sentence."""
    return StartUp(
        sentences=tuple(_sentences(starts)),
        parts=starts.own.data.of(start_parts),
        start_lookups=starts.of(compared_lookups),
    )


def start_findings(starts: Starts) -> list[Finding]:
    """Return a finding where another process of the logdir shows the cause of a miss. A first run has none."""
    data = starts.own.data
    avoidable = [pair for pair in starts.of(differences) if pair[1].avoidable]
    saved_ns = data.of(cache_lookups.would_save_ns)
    if not avoidable or saved_ns is None or to_seconds(saved_ns) < thresholds.cold_start_s:
        return []
    lookup, difference = min(avoidable, key=lambda pair: not pair[1].same_run)
    whole_ns = sum(data.of(parts_ns).values())
    return [
        Finding(
            rule="cold_start",
            # What differs between runs may be meant to.
            severity="warning" if difference.same_run else "info",
            title=(
                f"A warm start would have skipped up to {duration(saved_ns / 1000)} of this start-up of "
                f"{duration(whole_ns / 1000)}. What differs from {difference.than}: {difference.what}"
            ),
            evidence={
                "would_save_s": to_seconds(saved_ns),
                "start_up_s": to_seconds(whole_ns),
                "missed_lookups": len(avoidable),
            },
            saves_us=None,
            panel="compile_time",
            row=None,
            section="startup",
            next_step=_NEXT_STEP,
            where=[at_line(lookup.file, lookup.line)] if lookup.file else [],
        )
    ]


def _sentences(starts: Starts) -> Iterator[str]:
    data = starts.own.data
    start = data.of(start_window)
    if start is None:
        yield "The start-up of this process is unknown: no compilation with a time was recorded."
        return
    yield _headline(data, until_step=start.until_step)
    yield from _missed(starts)
    settings = data.summary.environment.settings
    yield from (text for name, value, text in names.SLOW_SETTINGS if settings.get(name) == value)
    yield from map(_transferred, data.summary.cache_transfers)
    if not start.from_process:
        imported = "when tb_torchcompile_plugin was imported"
        yield _NO_PROCESS_START.format(imported if start.imported_ns else "the first compilation")
    if not start.until_step:
        yield _NO_STEP


def _headline(data: CompileData, *, until_step: bool) -> str:
    """Summarize: "The start-up took 39.2 s until the first steady step, 31.3 s of it compiling (79.8 %), mainly …"."""
    times_ns = data.of(parts_ns)
    whole = sum(times_ns.values())
    # What several threads compile at once counts once; otherwise it is the compile time until then.
    compile_ns = sum(ns for part, ns in times_ns.items() if part in records.PHASES)
    parts = sorted(data.of(start_parts), key=lambda part: -part.time_s)
    compiling = [part for part in parts if part.title.startswith("Compiling: ")]
    others = [part for part in parts if part not in compiling and part.percent >= _MIN_SHARE_PERCENT]
    longest = [f"{part.title.removeprefix('Compiling: ')} ({seconds(part.time_s)})" for part in compiling[:2]]
    largest = [f"{part.title[:1].lower()}{part.title[1:]} ({seconds(part.time_s)})" for part in others]
    rest = [f"Other large parts: {'; '.join(largest)}."] if largest else []
    until = "until the first steady step" if until_step else "until the last compilation"
    mainly = f", mainly in {joined_names(longest)}" if compile_ns else ""
    compiling_part = (
        f"{duration(compile_ns / 1000)} of this ({percent(100 * compile_ns / whole)}) is compiling{mainly}."
    )
    return " ".join((f"The start-up took {duration(whole / 1000)} {until}.", compiling_part, *rest))


def _missed(starts: Starts) -> Iterator[str]:
    data = starts.own.data
    rows = [row for row in data.of(cache_lookups.cache_lookups) if row.graph is not None]
    missed = sum(row.result == "miss" for row in rows)
    would_save = data.of(cache_lookups.would_save_ns)
    if missed and would_save:
        yield (
            f"{missed} of {plural(len(rows), 'lookup')} in the compile caches missed. Hits would have saved "
            f"up to {duration(would_save / 1000)} of compiling."
        )
    if cause := next((row for _, row in starts.of(differences) if row.avoidable), None):
        yield f"The first miss that another process explains differs from {cause.than} in {cause.what}."
    yield from (f"{reason}." for reason in dict.fromkeys(row.why for row in rows if row.result == "bypass"))


def _transferred(row: CacheTransfer) -> str:
    entries = f"{plural(sum(row.entries.values()), 'entry', 'entries')} of the caches"
    transferred = f", {size(row.size)}," if row.HasField("size") else ""
    verb = "loaded" if row.load else "saved"
    function = f"torch.compiler.{verb[:4]}_cache_artifacts"
    return f"The program {verb} {entries}{transferred} in {duration(row.duration_ns / 1000)} ({function})."


def start_parts(data: CompileData) -> tuple[StartPart, ...]:
    """Return the parts in the order of a start-up, without those that took no time."""
    times = data.of(parts_ns)
    whole = sum(times.values())
    return tuple(
        StartPart(title, to_seconds(times[part]), 100 * times[part] / whole, part)
        for part, title in _TITLES.items()
        if times.get(part)
    )


def parts_ns(data: CompileData) -> dict[str, int]:
    """Return the time (ns) of each part; together they are the window. {} without one."""
    start = data.of(start_window)
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
    compiled = logged_times(data.summary.compilations)
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


def start_window(data: CompileData) -> StartWindow | None:
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
