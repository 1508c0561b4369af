"""A summary and a TORCH_TRACE log of one process as one: what was recorded beats what was recovered after the fact,
what only the log has is added, and nothing counts twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from tb_torchcompile_plugin.compile_log.record import Key, key_of
from tb_torchcompile_plugin.compile_log.summary_pb2 import BACKWARD, Compilation, CompileSummary
from tb_torchcompile_plugin.reader.grouped import grouped
from tb_torchcompile_plugin.torch_names.caches import is_package

_SAME_START_NS = 20_000_000  # what torch's metrics and its chromium events may differ by
# What belongs to compilations and is no row of them.
_TEXTS = ("artifacts", "shape_events", "runtime_metrics")
_ROWS = ("graph_breaks", "recompiles", "graphs")

_Row: TypeAlias = Any  # every repeated message here has a key; protobuf knows no base class that says so
_Key: TypeAlias = tuple[int, str, int]  # and direction; of rows without one 0


def merge(summary: CompileSummary, log: CompileSummary) -> CompileSummary:
    """The summary with what only the log has."""
    summary, log = _aligned(_with_packages_named(summary, log), log)
    merged = CompileSummary()
    merged.CopyFrom(summary)
    _replace(merged, "compilations", _merged_compilations(summary, log))
    for name in _ROWS:
        _replace(merged, name, _merged_rows(getattr(summary, name), getattr(log, name)))
    _replace(merged, "spans", _merged_spans(summary, log))
    _merge_texts(merged, summary, log)
    if not merged.export_issues:
        merged.export_issues.extend(log.export_issues)
    return merged


def _with_packages_named(summary: CompileSummary, log: CompileSummary) -> CompileSummary:
    """Packages are numbered from where each began to listen: those of the summary get the ids of the log."""
    theirs = [row for row in log.compilations if is_package(row.key.compile_id) and row.HasField("start_ns")]
    names: dict[str, str] = {}
    mine = [row for row in summary.compilations if is_package(row.key.compile_id)]
    for row in mine if theirs else ():
        nearest = min(theirs, key=lambda other: abs(other.start_ns - row.start_ns))
        if abs(nearest.start_ns - row.start_ns) <= _SAME_START_NS:
            names[row.key.compile_id] = nearest.key.compile_id
    if all(ours == known for ours, known in names.items()):
        return summary
    copy = CompileSummary()
    copy.CopyFrom(summary)
    for name in ("compilations", *_ROWS, "spans", *_TEXTS, "compiled_kernels"):
        for row in getattr(copy, name):
            row.key.compile_id = names.get(row.key.compile_id, row.key.compile_id)
    return copy


def _replace(merged: CompileSummary, name: str, rows: list[_Row]) -> None:
    del getattr(merged, name)[:]
    getattr(merged, name).extend(rows)


def _merged_rows(summary: Iterable[_Row], log: Iterable[_Row]) -> list[_Row]:
    """Of each compilation the rows of the summary, or those of the log where it recorded more of them."""
    ours, theirs = grouped(summary, _key), grouped(log, _key)
    fuller = [key for key in theirs if len(theirs[key]) > sum(not row.recovered for row in ours.get(key, ()))]
    gone = set(fuller)
    kept = [row for key in ours if key not in gone for row in ours[key]]
    if fuller:  # then it knows better what happened where than torch did afterwards
        kept = [row for row in kept if row.key.compile_id or not row.recovered]
    return [*kept, *(row for key in fuller for row in theirs[key])]


def _merged_compilations(summary: CompileSummary, log: CompileSummary) -> list[Compilation]:
    """Recorded ones, those of the log that are none of them, and recovered ones that the log knows nothing of."""
    recorded = [row for row in summary.compilations if not row.recovered]
    known = grouped(recorded, _key)
    added = [
        row for row in log.compilations if not any(_same(row, other) for other in known.get(_key(row), ()))
    ]
    keys = {_key(row) for row in added}
    kept = [row for row in summary.compilations if row.recovered and _key(row) not in keys]
    return sorted([*recorded, *added, *kept], key=lambda row: row.start_ns)


def _same(one: Compilation, other: Compilation) -> bool:
    """Whether two rows of one key are one compilation: several backwards may share a key."""
    timed = one.HasField("start_ns") and other.HasField("start_ns")
    return one.direction != BACKWARD or not timed or abs(one.start_ns - other.start_ns) <= _SAME_START_NS


def _merged_spans(summary: CompileSummary, log: CompileSummary) -> list[_Row]:
    """Both saw the same events, so a span is the same when it began at the same time under the same name."""
    known = Counter((span.start_ns, span.name) for span in summary.spans)
    spans = list(summary.spans)
    for span in log.spans:
        if known[span.start_ns, span.name]:
            known[span.start_ns, span.name] -= 1
        else:
            spans.append(span)
    return sorted(spans, key=lambda span: (span.start_ns, -span.duration_ns))


def _merge_texts(merged: CompileSummary, summary: CompileSummary, log: CompileSummary) -> None:
    """Of a compilation that the log recorded and the summary only recovered, those of the log."""
    live = {_id(row) for row in (*summary.compilations, *summary.graphs) if not row.recovered}
    old = [row for row in (*summary.compilations, *summary.graphs) if row.recovered]
    logged = {_id(row) for row in log.compilations}
    ids = {_id(row) for row in old if _id(row) in logged - live}
    keys = {_key(row) for row in old} & {_key(row) for row in log.compilations}
    for name in _TEXTS:
        rows = getattr(summary, name)
        kept = [row for row in rows if _id(row) not in ids and _key(row) not in keys]
        have = {_key(row) for row in kept}
        _replace(merged, name, [*kept, *(row for row in getattr(log, name) if _key(row) not in have)])


def _id(row: _Row) -> Key:
    return key_of(row.key)


def _key(row: _Row) -> _Key:
    return *_id(row), getattr(row, "direction", 0)


# -- the same epochs in both --------------------------------------------------------------------------------------


def _aligned(summary: CompileSummary, log: CompileSummary) -> tuple[CompileSummary, CompileSummary]:
    """Both with the same epochs. Who began to record later may not know of a `torch._dynamo.reset()` before.

    A compilation is known in both by its id and its start; ids that only the summary has go with the others of
    their epoch.
    """
    pairs = _pairs(summary, log)
    late = max([0, *(ours[0] - theirs for ours, theirs in pairs.items())])  # epochs that the log did not see
    log = _renumbered(log, lambda row: row.key.epoch + late)
    steps = {ours: theirs + late - ours[0] for ours, theirs in pairs.items()}
    overall = _most_common(steps.values())
    by_epoch = {
        epoch: _most_common(step for (other, _), step in steps.items() if other == epoch)
        for epoch in {epoch for epoch, _ in steps}
    }

    def epoch(row: _Row) -> int:
        step = steps.get(_id(row), by_epoch.get(row.key.epoch, overall))
        return max(0, int(row.key.epoch) + step)

    return _renumbered(summary, epoch), log


def _pairs(summary: CompileSummary, log: CompileSummary) -> dict[Key, int]:
    """(epoch, compile id) of the summary → epoch of the log, where a compilation started at the same time in both."""
    timed = (row for row in log.compilations if row.HasField("start_ns"))
    candidates = grouped(timed, lambda row: (row.key.compile_id, row.direction))
    pairs = {}
    for row in summary.compilations:
        others = candidates.get((row.key.compile_id, row.direction), []) if row.HasField("start_ns") else []
        nearest = min(others, key=lambda other: abs(other.start_ns - row.start_ns), default=None)
        if nearest is not None and abs(nearest.start_ns - row.start_ns) <= _SAME_START_NS:
            pairs[_id(row)] = nearest.key.epoch
    return pairs


def _most_common(steps: Iterable[int]) -> int:
    return next((step for step, _ in Counter(steps).most_common(1)), 0)


def _renumbered(summary: CompileSummary, epoch: Callable[[_Row], int]) -> CompileSummary:
    """A copy, or the summary itself where nothing changes."""
    names = ("compilations", *_ROWS, "spans", *_TEXTS)
    if all(epoch(row) == row.key.epoch for name in names for row in getattr(summary, name)):
        return summary
    copy = CompileSummary()
    copy.CopyFrom(summary)
    for name in names:
        for row in getattr(copy, name):
            row.key.epoch = epoch(row)
    return copy
