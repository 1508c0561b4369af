"""From the start of the process to the first step in which nothing is compiled: each nanosecond belongs to one part."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import pairwise
from typing import Annotated, NamedTuple

import msgspec

from tb_torchcompile_plugin.analysis.sheet import head
from tb_torchcompile_plugin.compile_log.record import Key, key_of
from tb_torchcompile_plugin.compile_log.summary_pb2 import Compilation, CompileSummary, PhaseSpan
from tb_torchcompile_plugin.profile.units import to_seconds
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.torch_names.records import (
    BACKEND_CALLS,
    PHASES,
    Phase,
    phase_inside,
    phase_of_backend,
)

# What the compiler was at, when: its timed functions on the host, each with its phase.


class HostSpan(NamedTuple):
    """One timed function, or a compilation of which nothing inside is known."""

    start_ns: int
    end_ns: int
    phase: Phase
    key: Key


def compiling(data: CompileData) -> list[HostSpan]:
    """In order of time, outer ones first. Work of compile workers is not the host's, and left out."""
    summary = data.summary
    spans = sorted(
        (span for span in summary.spans if not span.worker_process and span.duration_ns),
        key=lambda span: (span.start_ns, -span.duration_ns),
    )
    phased = _with_phases(spans)
    whole = [_whole(row) for row in summary.compilations if _is_opaque(row)]
    return sorted([*whole, *phased], key=lambda one: (one.start_ns, -one.end_ns))


def _is_opaque(row: Compilation) -> bool:
    return row.HasField("start_ns") and row.HasField("duration_ns") and not row.phases


def _whole(row: Compilation) -> HostSpan:
    return HostSpan(row.start_ns, row.start_ns + row.duration_ns, "other", key_of(row.key))


def _with_phases(spans: list[PhaseSpan]) -> list[HostSpan]:
    """By the rules of `compile_log.spans`, which has the marks of a process that still runs."""
    phases: list[Phase] = []
    lanes: dict[Hashable, list[int]] = {}
    calls: dict[int, bool] = {}  # of the backend → whether AOTAutograd ran in it
    for place, span in enumerate(spans):
        stack = lanes.setdefault((span.thread, key_of(span.key)), [])
        while stack and _end(spans[stack[-1]]) <= span.start_ns:
            stack.pop()
        phase = phase_inside(span.name, span.function, phases[stack[-1]] if stack else None)
        phases.append(phase)
        if phase == "aot_autograd":
            calls.update((outer, True) for outer in stack if outer in calls)
        if span.name in BACKEND_CALLS:
            calls[place] = False
        stack.append(place)
    for place, aot in calls.items():
        phases[place] = phase_of_backend(aot=aot)
    return [
        HostSpan(span.start_ns, _end(span), phase, key_of(span.key)) for span, phase in zip(spans, phases)
    ]


def _end(span: PhaseSpan) -> int:
    return span.start_ns + span.duration_ns


def last_end_ns(rows: Iterable[HostSpan]) -> int:
    return max(row.end_ns for row in rows)


# Time cut into pieces, each with the innermost of the spans around it.


class TimePiece(NamedTuple):
    """Some ns in which nothing begins or ends. span: the place of the innermost span, None between spans."""

    start_ns: int
    end_ns: int
    span: int | None


def pieces(spans: Sequence[tuple[int, int]], begin_ns: int, end_ns: int) -> Iterator[TimePiece]:
    """All of [begin_ns, end_ns), in order. spans: (start, end) in ns. The innermost began last; of several that began
    at once it is the one that ends first, and then the last in the list. O(n log n)."""
    order = sorted(range(len(spans)), key=lambda place: spans[place])
    edges = {begin_ns, end_ns, *(ns for span in spans for ns in span if begin_ns < ns < end_ns)}
    times = sorted(edges)
    open_spans: list[tuple[int, int, int]] = []
    waiting = iter(order)
    following = next(waiting, None)
    for start, end in pairwise(times):
        while following is not None and spans[following][0] <= start:
            heappush(open_spans, (-spans[following][0], spans[following][1], -following))
            following = next(waiting, None)
        while open_spans and open_spans[0][1] <= start:
            heappop(open_spans)
        yield TimePiece(start, end, -open_spans[0][2] if open_spans else None)


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
    "between": "Between compilations: running, or waiting",
    "steps": "The rest of the first steps",
}


class StartPart(msgspec.Struct, frozen=True):
    """One part of a start-up; all of them sum to its wall time, in ns exactly. pieces: how often it came."""

    title: Annotated[str, head("Part")]
    time_s: Annotated[float, head("Time", total=True)]
    percent: Annotated[float, head("Share")]
    pieces: int
    part: Annotated[str, head("Id", hidden=True)]


class StartWindow(NamedTuple):
    """A start-up in Unix ns. from_process: begins with the process, else when this package was imported or, where that
    is not known either, with the first compilation. until_step: ends with the first steady step; else none was noted,
    and it ends with the last compilation."""

    begin_ns: int
    imported_ns: int | None
    first_ns: int
    last_ns: int
    end_ns: int
    from_process: bool
    until_step: bool


def window(data: CompileData) -> StartWindow | None:
    """None where no compilation has a time."""
    rows = data.of(compiling)
    if not rows:
        return None
    environment = data.summary.environment
    first = next((row for row in rows if row.key[1]), rows[0]).start_ns
    process = environment.process_start_ns if environment.HasField("process_start_ns") else None
    imported = environment.imported_ns if environment.HasField("imported_ns") else None
    began = [ns for ns in (process, imported) if ns is not None and ns <= first]
    steady = _steady_ns(data.summary, first)
    end = steady or last_end_ns(rows)
    return StartWindow(
        began[0] if began else first,
        imported if imported in began and imported != began[0] else None,
        first,
        max(first, max((row.end_ns for row in rows if row.end_ns <= end), default=first)),
        end,
        bool(began) and began[0] == process,
        steady is not None,
    )


def _steady_ns(summary: CompileSummary, first_ns: int) -> int | None:
    """When the first step began that compiled nothing, behind one that did."""
    compiled = False
    for row in summary.steps.first:
        if compiled and not row.compiled and row.HasField("start_ns") and row.start_ns > first_ns:
            return int(row.start_ns)
        compiled |= row.compiled
    return None


def parts_ns(data: CompileData) -> dict[str, int]:
    """Part → ns; they sum to the window. {} without one."""
    return {part: row[0] for part, row in data.of(_counted).items()}


def start_parts(data: CompileData) -> tuple[StartPart, ...]:
    """In the order of a start-up, without those that took no time."""
    counted = data.of(_counted)
    whole = sum(ns for ns, _ in counted.values())
    return tuple(
        StartPart(title, to_seconds(counted[part][0]), 100 * counted[part][0] / whole, counted[part][1], part)
        for part, title in _TITLES.items()
        if counted.get(part, (0, 0))[0]
    )


def _counted(data: CompileData) -> dict[str, tuple[int, int]]:
    """Part → ns, and in how many pieces."""
    around = data.of(window)
    if around is None or around.end_ns <= around.begin_ns:
        return {}
    loads = _loads(data.summary)
    rows = [row for row in data.of(compiling) if not any(_inside(row, load) for load in loads)]
    spans = [*((row.start_ns, row.end_ns) for row in rows), *loads]
    times, numbers = Counter[str](), Counter[str]()
    before = ""
    for piece in pieces(_with_edges(spans, around), around.begin_ns, around.end_ns):
        part = _part(piece.span, rows, len(spans), piece.start_ns, around)
        times[part] += piece.end_ns - piece.start_ns
        numbers[part] += part != before
        before = part
    assert sum(times.values()) == around.end_ns - around.begin_ns
    return {part: (ns, numbers[part]) for part, ns in times.items()}


def _loads(summary: CompileSummary) -> list[tuple[int, int]]:
    return [(row.start_ns, row.start_ns + row.duration_ns) for row in summary.cache_transfers if row.load]


def _inside(row: HostSpan, load: tuple[int, int]) -> bool:
    return not row.key[1] and load[0] <= row.start_ns < load[1]


def _with_edges(spans: list[tuple[int, int]], around: StartWindow) -> list[tuple[int, int]]:
    """With one that covers what lies before the import: so a piece ends there."""
    return [*spans, (around.begin_ns, around.imported_ns)] if around.imported_ns else spans


def _part(span: int | None, rows: list[HostSpan], spans: int, start_ns: int, around: StartWindow) -> str:
    if span is not None and span < len(rows):
        return rows[span].phase
    if span is not None:
        return "artifacts" if span < spans else "imports"
    if start_ns < around.first_ns:
        return "preparing"
    return "between" if start_ns < around.last_ns else "steps"


def compile_ns(data: CompileData) -> int:
    """Of its start-up, by the host's clock: what several threads compile at once counts once."""
    return sum(ns for part, ns in data.of(parts_ns).items() if part in PHASES)
