"""Which CUDA graphs were recorded, why and for how long, and which did torch skip? From the compile data."""

import json
from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from typing import Annotated

import msgspec

from tb_torchcompile_plugin.analysis.formatting import column_head
from tb_torchcompile_plugin.compile_log import record
from tb_torchcompile_plugin.compile_log.summary_pb2 import CudaGraphFunction, PhaseSpan
from tb_torchcompile_plugin.profile.columns import us
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import step_around
from tb_torchcompile_plugin.reader.arrays import grouped
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.torch_names.graph_breaks import (
    CUDAGRAPH_SKIPS,
    short_skip_reason,
    skipped_compile_id,
)
from tb_torchcompile_plugin.torch_names.python_frames import traceback_frames
from tb_torchcompile_plugin.torch_names.records import CUDAGRAPH_SKIP_REASON, CUDAGRAPH_TIME, SYMBOLS
from tb_torchcompile_plugin.torch_names.slices import NEW_FUNCTION, RECORDING


class GraphRecording(msgspec.Struct, frozen=True, kw_only=True):
    """One recording. Where torch's own objects were not read, `graph_id` and `reason` are None."""

    compile_id: str
    direction: record.Direction | None  # None where the log does not show it
    graph_id: int | None = None  # torch's number
    reason: record.Reason | None
    sizes: str = ""  # values of symbolic sizes
    inputs: Annotated[list[str], column_head("Inputs that moved", grow=True)] = []
    file: str = ""  # where the program uses the first of them
    line: int | None = None
    step: str | None  # the profiled step around it
    recording_us: float | None  # host time


class SkippedGraph(msgspec.Struct, frozen=True):
    """Why torch uses no CUDA graph."""

    compile_id: str  # "" where unknown
    reason: str
    file: str  # the line that torch names
    line: int | None
    text: Annotated[str, column_head("In torch's words", grow=True, wrap=True)]


def logged_spans(data: CompileData, name: str) -> list[PhaseSpan]:
    """Return torch's spans of a name in order of time. The log knows nothing from before it began."""
    return sorted((span for span in data.summary.spans if span.name == name), key=lambda span: span.start_ns)


def graph_functions(data: CompileData) -> list[CudaGraphFunction]:
    """Return torch's own objects, as they were when the summary was written."""
    return [row for tree in data.summary.cuda_graph_trees for row in tree.functions]


def graph_recordings(profile: Profile) -> list[GraphRecording]:
    """Return the recordings in order: from torch's own objects or, where they were not read, from the log."""
    data = profile.data
    if data is None:
        return []
    span_of = _span_of_graph(data)
    rows = []
    for function in data.of(graph_functions):
        for recording in function.recordings:
            span = span_of.get(recording.graph_id)
            rows.append(
                GraphRecording(
                    compile_id=function.key.compile_id,
                    direction=record.direction_of(function.direction),
                    graph_id=recording.graph_id,
                    reason=next((reason for reason in record.REASONS if reason == recording.reason), "order"),
                    sizes=", ".join(map(str, recording.sizes)),
                    inputs=list(recording.inputs),
                    file=recording.file,
                    line=record.optional_number(recording, "line"),
                    step=_step(profile, span) if span else None,
                    recording_us=us(span.duration_ns) if span else None,
                )
            )
    return sorted(rows, key=lambda row: row.graph_id or 0) or [*_logged_recordings(profile, data)]


def _span_of_graph(data: CompileData) -> dict[int, PhaseSpan]:
    """Map the number of a graph to the log's span of its recording.

    Of one compile id both are in order of time. Those with more of one than of the other are left out.
    """
    graphs = sorted(
        (recording.graph_id, row.key.compile_id)
        for row in data.of(graph_functions)
        for recording in row.recordings
    )
    spans = grouped(data.of(logged_spans, RECORDING), lambda span: span.key.compile_id)
    return {
        graph: span
        for compile_id, pairs in grouped(graphs, lambda pair: pair[1]).items()
        if len(pairs) == len(spans.get(compile_id, ()))
        for (graph, _), span in zip(pairs, spans[compile_id])
    }


def _step(profile: Profile, span: PhaseSpan) -> str | None:
    return step_around(profile, span.start_ns + span.duration_ns // 2 - profile.trace.base_ns)


def _logged_recordings(profile: Profile, data: CompileData) -> Iterator[GraphRecording]:
    recordings = data.of(logged_spans, RECORDING)
    recorded = Counter(span.key.compile_id for span in recordings)
    prepared = Counter(span.key.compile_id for span in data.of(logged_spans, NEW_FUNCTION))
    symbols = {row.key.compile_id for row in data.summary.shape_events if row.kind in SYMBOLS}
    # The compile ids with symbolic sizes of which torch prepared a function for each recording.
    by_size = {name for name, times in recorded.items() if 1 < times <= prepared[name] and name in symbols}
    seen = set[str]()
    for span, direction in zip(recordings, _logged_directions(data)):
        compile_id = span.key.compile_id
        reason: record.Reason | None = None
        if compile_id in by_size:
            reason = "size" if compile_id in seen else "first"
        seen.add(compile_id)
        yield GraphRecording(
            compile_id=compile_id,
            direction=direction,
            reason=reason,
            step=_step(profile, span),
            recording_us=us(span.duration_ns),
        )


def _logged_directions(data: CompileData) -> list[record.Direction | None]:
    """Return the direction of each recording in the log, None where unknown.

    The log has the compile id alone; the metrics that torch writes behind it have the direction, and the same time.
    """
    pending = defaultdict[tuple[str, str], deque[record.Direction]](deque)
    for row in data.summary.runtime_metrics:
        time_us = row.metrics.get(CUDAGRAPH_TIME, "")
        pending[row.key.compile_id, time_us].append(record.direction_of(row.direction))
    spans = data.of(logged_spans, RECORDING)
    queues = (pending[span.key.compile_id, str(span.duration_ns // 1000)] for span in spans)
    return [queue.popleft() if queue else None for queue in queues]


def skipped_graphs(data: CompileData) -> list[SkippedGraph]:
    """Return each reason once per compile id."""
    rows = dict.fromkeys(row for _, row in data.of(skips_of_graphs))
    with_id = {(row.reason, row.file, row.line) for row in rows if row.compile_id}
    return [row for row in rows if row.compile_id or (row.reason, row.file, row.line) not in with_id]


def skips_of_graphs(data: CompileData) -> list[tuple[record.Key, SkippedGraph]]:
    """Return each reason with its compilation; one that torch gave at run time belongs to the function it quotes."""
    summary = data.summary
    rows: dict[tuple[record.Key, SkippedGraph], None] = {}
    for message in (*summary.compilations, *summary.runtime_metrics):
        text = str(json.loads(message.metrics.get(CUDAGRAPH_SKIP_REASON) or '""') or "")
        if not text.strip():
            continue
        lines = list(traceback_frames(text))
        key = record.key_of(message.key)
        if named := skipped_compile_id(text):
            epochs = (row.key.epoch for row in summary.compilations if row.key.compile_id == named)
            key = max(epochs, default=0), named
        elif not key[1]:
            quoted = {(line.file, line.function) for line in lines}
            keys = {
                record.key_of(row.key) for row in summary.compilations if (row.file, row.function) in quoted
            }
            key = keys.pop() if len(keys) == 1 else key
        file, line_number = (lines[-1].file, lines[-1].line) if lines else ("", None)
        row = SkippedGraph(key[1], short_skip_reason(text), file, line_number, text.strip())
        rows[key, row] = None
    return [*rows]


def cudagraph_skips(data: CompileData) -> int | None:
    """Return torch's own count, None where it was not recorded; skips at run time leave no other record."""
    if not data.summary.counters:
        return None
    return sum(int(row.value) for row in data.summary.counters if (row.group, row.name) == CUDAGRAPH_SKIPS)
