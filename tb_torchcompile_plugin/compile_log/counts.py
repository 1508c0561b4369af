"""How many graph breaks, recompiles, guards … does a compile summary hold, and where? Exact on any machine.

The gate compares these counts between two runs, the pytest plugin asserts them. Standard library and protobuf only:
the latter runs inside the program that compiles.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from operator import attrgetter
from typing import Literal, NamedTuple

from tb_torchcompile_plugin.compile_log import record
from tb_torchcompile_plugin.compile_log.summary_pb2 import FORWARD, Compilation, CompileSummary
from tb_torchcompile_plugin.torch_names.caches import is_ahead_of_time
from tb_torchcompile_plugin.torch_names.graph_breaks import records_skipped_frames
from tb_torchcompile_plugin.torch_names.kernels import without_number

CountName = Literal["breaks", "skipped", "recompiles", "graphs", "guards", "kernels", "cache_misses"]


class CountedRow(NamedTuple):
    """One thing that is counted, and how many of it there are."""

    what: str
    why: str  # torch's reason, "" where it needs none
    file: str
    line: int | None  # None if unknown
    number: int = 1


class CountKind(NamedTuple):
    """A kind of thing that is counted."""

    one: str
    many: str
    # Returns None where the summary does not hold it.
    rows_of: Callable[[CompileSummary], Iterator[CountedRow] | None]
    why_not: str = ""  # why it may not hold it


def counted_rows(summary: CompileSummary, name: CountName) -> list[CountedRow] | None:
    """Return each row once, equal ones added up, in torch's order; None where the summary does not hold them."""
    rows = COUNTS[name].rows_of(summary)
    counted = None if rows is None else merge_equal_rows(rows)
    return None if summary.environment.capture == record.LOG_TEXT and not counted else counted


def merge_equal_rows(rows: Iterable[CountedRow]) -> list[CountedRow]:
    """Merge equal rows, with the sum of their numbers."""
    numbers: Counter[CountedRow] = Counter()
    for row in rows:
        numbers[row._replace(number=0)] += row.number
    return [row._replace(number=number) for row, number in numbers.items()]


def summary_since(summary: CompileSummary, earlier: CompileSummary) -> CompileSummary:
    """Return what was compiled after an earlier summary of the same process: an id is compiled once in an epoch."""
    later = CompileSummary(environment=summary.environment)
    calls = {row.SerializeToString() for row in earlier.compiler_calls}  # of many, the first ones are dropped
    later.compiler_calls.extend(row for row in summary.compiler_calls if row.SerializeToString() not in calls)
    for table in ("compilations", "graph_breaks", "recompiles", "graphs"):
        before = {_identity(row) for row in getattr(earlier, table)}
        getattr(later, table).extend(row for row in getattr(summary, table) if _identity(row) not in before)
    return later


def _identity(row: object) -> tuple[object, ...]:
    fields = ("direction", "index", "graph_key", "text", "line", "reason")
    return record.key_of(row.key), *(getattr(row, name, None) for name in fields)  # type: ignore[attr-defined]  # of each table


def _breaks(summary: CompileSummary) -> Iterator[CountedRow]:
    """Yield sites: attempts, callers and recompiles that break at one line for one reason are one."""
    sites = dict.fromkeys(
        (row.reason, row.file, record.optional_number(row, "line")) for row in summary.graph_breaks
    )
    return (CountedRow("graph break", *site) for site in sites)


def _skipped(summary: CompileSummary) -> Iterator[CountedRow] | None:
    """Yield frames that dynamo gave up; None is unknown if torch records none of those that it skips."""
    failures = [row for row in _frames(summary) if row.HasField("failure")]
    calls = [row for row in summary.compiler_calls if row.kind in ("skip", "disabled", "dispatch_mode")]
    if not failures and not calls and not records_skipped_frames(summary.environment.torch_version):
        return None
    rows = [_of(row, row.failure.reason or row.failure.type) for row in failures]
    rows += [CountedRow(row.subject, row.reason or row.kind, row.file, row.line or None) for row in calls]
    return iter(rows)


def _recompiles(summary: CompileSummary) -> Iterator[CountedRow]:
    names = {key: row.function for key, row in record.forward_compilations(summary).items()}
    for row in summary.recompiles:
        what = names.get(record.key_of(row.key)) or "a frame"
        yield CountedRow(what, _first(row.reasons), row.file, record.optional_number(row, "line"))


def _frames_with(
    field: str, number_of: Callable[[Compilation], int], summary: CompileSummary
) -> Iterator[CountedRow] | None:
    """Yield the frames in which this field of torch's metrics is known and not 0."""
    if not _knows(summary, field):
        return None
    return (_of(row, number=number_of(row)) for row in _frames(summary) if getattr(row, field))


def _kernels(summary: CompileSummary) -> Iterator[CountedRow]:
    """Yield kernels by graph: one that two frames share counts for both."""
    frames = record.forward_compilations(summary)
    for graph in summary.graphs:
        frame = frames.get(record.key_of(graph.key), Compilation())
        for kernel in graph.kernels:
            row = _of(frame, record.direction_of(graph.direction))
            yield row._replace(what=without_number(kernel.name))


def _cache_misses(summary: CompileSummary) -> Iterator[CountedRow] | None:
    if not any(row.cache for row in summary.compilations):
        return None
    frames = record.forward_compilations(summary)
    return (
        _of(
            frames.get(record.key_of(row.key), row),
            f"{lookup.cache} cache, {record.direction_of(lookup.direction)}",
        )
        for row in summary.compilations
        for lookup in row.cache
        if lookup.result == "miss"
    )


def _frames(summary: CompileSummary) -> Iterator[Compilation]:
    rows = (row for row in summary.compilations if row.direction == FORWARD)
    return (row for row in rows if not is_ahead_of_time(row.key.compile_id))


def _knows(summary: CompileSummary, field: str) -> bool:
    """Whether torch writes this field of frames that it compiles.

    It writes none for a frame without a graph; for frames compiled before recording began the field is unknown.
    """
    compiled = [row for row in _frames(summary) if not row.HasField("failure")]
    without = [row for row in compiled if not row.HasField(field)]
    return not any(row.recovered for row in without) and (not compiled or len(without) < len(compiled))


def _of(row: Compilation, why: str = "", number: int = 1) -> CountedRow:
    return CountedRow(
        row.function or "a frame", _first([why]), row.file, record.optional_number(row, "line"), number
    )


def _first(reasons: Iterable[str]) -> str:
    """Return the first line of the first reason, without the source that torch writes after a guard."""
    line = next(iter(next(iter(reasons), "").splitlines()), "")
    return line.partition("  #")[0].rstrip()


_OLD = (
    "frames were compiled before recording began, or torch does not record this: create the handler earlier"
)
COUNTS: dict[CountName, CountKind] = {
    "breaks": CountKind("graph break", "graph breaks", _breaks),
    "skipped": CountKind(
        "skipped frame", "skipped frames", _skipped, "torch 2.8 and older do not record them"
    ),
    "recompiles": CountKind("recompile", "recompiles", _recompiles),
    "graphs": CountKind("graph", "graphs", partial(_frames_with, "graph_ops", lambda row: 1), _OLD),
    "guards": CountKind("guard", "guards", partial(_frames_with, "guards", attrgetter("guards")), _OLD),
    "kernels": CountKind("generated kernel", "generated kernels", _kernels),
    "cache_misses": CountKind("cache miss", "cache misses", _cache_misses, "torch recorded no cache lookups"),
}
