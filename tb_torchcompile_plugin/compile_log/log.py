"""Compile records → CompileSummary: one path for live records and for lines of a TORCH_TRACE log.

torch describes what it compiles as a stream of records: a metadata dict (one key names the kind, the others
say for which compilation it holds) and a payload text. Runs inside training: protobuf and the standard library only.
"""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from tb_torchcompile_plugin.compile_log import compile_rows
from tb_torchcompile_plugin.compile_log import summary_pb2 as pb
from tb_torchcompile_plugin.compile_log.caches import AheadOfTime, CacheLookups
from tb_torchcompile_plugin.compile_log.record import (
    CompileSpan,
    OpenSpans,
    Record,
    loads,
    nanoseconds,
    readable,
)
from tb_torchcompile_plugin.compile_log.summary import FORMAT_VERSION, PayloadStore, has_text
from tb_torchcompile_plugin.torch_names import artifacts, records
from tb_torchcompile_plugin.torch_names.caches import is_ahead_of_time


class CompileLog:
    """Collects records of one process: `add` takes them one by one, `summary` may be called at any time.

    What it cannot read it counts by cause, what it does not know by kind.
    """

    def __init__(
        self, *, source: bool = True, payloads: bool = False, loads: Callable[[str], Any] = loads
    ) -> None:
        """source: keep source lines, break texts and other strings that quote the user's code (`capture="full"`).

        payloads: keep the payload texts themselves, compressed and each once (`summary.artifacts`).
        loads: JSON text → value; raises ValueError. A reader of large logs has a faster one.
        """
        self._source = source
        self._loads = loads
        self._lanes = OpenSpans()
        self._rows = pb.CompileSummary()  # rows that no later record changes
        self.records = self._rows.records
        self._payloads = PayloadStore(self._rows) if payloads and source else None
        self._has_spans = False  # logs of torch 2.4 have none
        self._frames = compile_rows.CompiledFrames()
        self._ahead = AheadOfTime()
        self._caches = CacheLookups(source=source)
        self.codes: Counter[int] = Counter()  # hashes of the output code of all graphs
        self._breaks: dict[tuple[int, str, str], pb.GraphBreak] = {}
        self._times: dict[str, list[float]] = {}
        self.files: dict[int, str] = {}  # torch's table of file names by number
        self._learned: set[str] = set()  # fields of the environment
        self._range_ns: tuple[int, int] | None = None  # first and last time
        self._handlers: dict[str, Callable[[Record, str], None]] = {
            records.FILE_NAME: self._on_str,
            records.DYNAMO_START: self._on_dynamo_start,
            records.CHROMIUM_EVENT: self._on_chromium_event,
            records.METRICS: self._on_metrics,
            records.BACKWARD_METRICS: self._on_metrics,
            records.OUTPUT_CODE: self._on_output_code,
            records.DUMP: self._on_dump,
            records.INFERENCE_GRAPH: self._on_inference_graph,
            records.CUDAGRAPH_SKIP: self._on_cudagraph_skip,
            artifacts.artifact_kind(artifacts.GRAPH_BREAK): self._on_graph_break,
            artifacts.artifact_kind(artifacts.RECOMPILE): self._on_recompile,
            artifacts.artifact_kind(artifacts.KERNELS): self._on_kernel_info,
            artifacts.artifact_kind(artifacts.TORCH_VERSION): self._on_torch_version,
        }
        self._handlers.update(dict.fromkeys(records.RUNTIME_METRICS, self._on_runtime_metrics))
        self._handlers.update(dict.fromkeys(records.SHAPE_KINDS, self._on_shape))
        for cache in artifacts.CACHES:
            for result in artifacts.CACHE_RESULTS:
                kind = artifacts.artifact_kind(artifacts.cache_lookup(cache, result))
                self._handlers[kind] = partial(self._on_cache, cache, result)

    def start_from(self, recovered: pb.CompileSummary, codes: Sequence[str] = ()) -> None:
        """Take rows from before recording began, or from a pause of it, in the order of their compilation.

        codes: the output code of each graph.
        """
        self._frames.start_from(recovered)
        for graph, code in zip(recovered.graphs, codes, strict=True):
            self.codes[hash(code)] += 1
            if self._payloads is not None:
                record = Record({records.OUTPUT_CODE: {}}, code)
                self._payloads.keep(records.OUTPUT_CODE, record, graph.key, graph.direction)
        self._rows.graph_breaks.extend(recovered.graph_breaks)

    def add(self, record: Record) -> None:
        """Take one record. Never raises."""
        kind = "record"
        try:
            if record.place is None:  # of a log the reader has seen to it
                record = replace(record, metadata=readable(record.metadata), payload=readable(record.payload))
            if not (kind := records.kind_of(record.metadata)):
                self.records.unreadable["without a kind"] += 1
                return
            if kind == records.ARTIFACT:
                kind = artifacts.artifact_kind(record.metadata[kind]["name"])
            self.records.by_kind[kind] += 1
            if kind not in records.KINDS and artifacts.artifact_name(kind) is None:
                self.records.unknown[kind] += 1
            self._add(kind, record)
        except Exception:
            if not record.damaged:
                # characters: it is shown in one line
                self.records.unreadable[f"{str(kind)[:60]} of an unknown form"] += 1

    def _add(self, kind: str, record: Record) -> None:
        compile_id = records.compile_id_of(record.metadata) or self._ahead_id(kind, record)
        self._learn("rank", record.metadata.get("rank"))
        if handler := self._handlers.get(kind):
            handler(record, compile_id)
        if compile_id and record.metadata.get("attempt") is not None:
            frame = self._frames.now(compile_id)
            frame.attempt = max(frame.attempt or 0, record.attempt)
        if self._payloads is not None and has_text(kind, record):
            key = self._frames.now(compile_id).key
            self._payloads.keep(kind, record, key, self._direction(record, compile_id))

    def _ahead_id(self, kind: str, record: Record) -> str:
        """Return the id of a compilation ahead of time, whose row begins with its first record."""
        if compile_id := self._ahead.owner(record.metadata, kind, record.thread, self.files):
            frame = self._frames.now(compile_id)
            is_new = not frame.is_compilation
            row = frame.begun()
            if is_new:
                row.thread = record.thread
            if not row.stack and (call := self._ahead.calls.get(compile_id)):
                row.stack.extend(self._stack(call.stack))
                if row.stack:
                    row.file, row.line = row.stack[-1].file, row.stack[-1].line
                row.function = call.function
        return compile_id

    def _direction(self, record: Record, compile_id: str) -> pb.Direction:
        """Return the direction of what is being compiled, also of a backward inside its frame."""
        lane = (record.thread, compile_id)
        return pb.BACKWARD if self._lanes.is_inside(lane, records.COMPILING_BACKWARD) else pb.FORWARD

    # One handler for each kind of record.

    def _on_str(self, record: Record, compile_id: str) -> None:
        name, number = record.metadata[records.FILE_NAME]
        self.files[int(number)] = str(name)

    def _on_dynamo_start(self, record: Record, compile_id: str) -> None:
        frame = self._frames.begin(compile_id, records.DYNAMO_START, record.attempt)
        row = frame.begun()
        row.thread = record.thread
        del row.stack[:]
        start = record.metadata[records.DYNAMO_START]
        row.stack.extend(self._stack(start.get("stack") or []))
        added = (name for name in (records.MODULE_CLASS, records.MODULE_COUNT) if name in start)
        row.metrics.update({name: json.dumps(start[name]) for name in added})

    def _stack(self, entries: list[dict[str, Any]]) -> list[pb.Frame]:
        frames = []
        for entry in entries:
            name = entry.get("filename")
            file = self.files.get(name, f"file {name}") if isinstance(name, int) else str(name or "")
            source = (self._source and entry.get("loc")) or None
            line, function = entry.get("line") or 0, entry.get("name") or ""
            frames.append(pb.Frame(file=file, line=line, function=function, source=source))
        return frames

    def _on_chromium_event(self, record: Record, compile_id: str) -> None:
        event = self._loads(record.payload) if record.payload else record.metadata[records.CHROMIUM_EVENT]
        mark, arguments = event.get("ph"), event.get("args") or {}
        text = str(arguments.get("compile_id") or "None")
        compile_id = compile_id if text == "None" else text
        if event.get("name") == records.CHANGED_SHAPE:
            # `value` is what it is now, `range` what it was before.
            self._rows.shape_events.add(
                key=self._frames.now(compile_id).key,
                attempt=record.attempt,
                kind=records.CHANGED_SHAPE,
                reason=_text(arguments.get("reason")),
                value=_text(arguments.get("new")),
                range=_text(arguments.get("cached")),
                source=_text(arguments.get("name")) if self._source else "",
            )
        if mark not in ("B", "E"):
            return
        time_ns = nanoseconds(event["ts"])
        first_ns, last_ns = self._range_ns or (time_ns, time_ns)
        self._range_ns = min(first_ns, time_ns), max(last_ns, time_ns)
        name = str(event["name"])
        compile_id = self._ahead.marked(name, mark, compile_id, record.thread)
        # Work of compile workers without a frame must not be paired with work of a frame.
        lane = (record.thread, compile_id) if compile_id else (record.thread, "", name)
        if mark == "B":
            function = str(arguments.get("fn_name") or name)
            row = pb.PhaseSpan(
                name=name,
                start_ns=time_ns,
                thread=record.thread,
                function=function if function != name else "",
            )
            compile_rows.add_autotuned(row, arguments)
            self._begin_span(row, compile_id)
            self._lanes.begin(CompileSpan(row, lane))
        else:
            if not (ended := self._lanes.end(lane, name, time_ns)):
                self.records.unreadable[f"{records.CHROMIUM_EVENT}: end without a beginning"] += 1
            for span in ended:
                if span.row.name == name:
                    compile_rows.add_autotuned(span.row, arguments)
                self._end_span(span)

    def _begin_span(self, span: pb.PhaseSpan, compile_id: str) -> None:
        is_root = _is_root(span.name, compile_id)
        self._has_spans = self._has_spans or is_root
        if is_root or span.name == records.DYNAMO:
            self._frames.begin(compile_id, span.name)
        span.key.CopyFrom(self._frames.now(compile_id).key)
        span.worker_process = not compile_id and span.name == records.COMPILE_FILE
        if span.name in records.BACKWARD_ROOTS and compile_id:
            frame = self._frames.now(compile_id)
            frame.backwards.append(
                pb.Compilation(
                    key=frame.key, direction=pb.BACKWARD, thread=span.thread, start_ns=span.start_ns
                )
            )
        elif is_root:
            row = self._frames.now(compile_id).begun()
            row.start_ns, row.thread = span.start_ns, span.thread

    def _end_span(self, span: CompileSpan) -> None:
        self._rows.spans.append(span.row)
        if span.row.unfinished:
            return
        name, compile_id = span.row.name, span.row.key.compile_id
        self._times.setdefault(span.row.function or name, []).append(span.row.duration_ns / 1e9)
        if (frame := self._frames.find(span.row.key.epoch, compile_id)) is None:
            return
        if _is_root(name, compile_id):
            frame.finished = True
            compile_rows.set_duration(frame.forward_row(), span)
        elif name in records.BACKWARD_ROOTS:
            for row in reversed(frame.backwards):
                if row.start_ns == span.row.start_ns:
                    compile_rows.set_duration(row, span)
                    break

    def _on_metrics(self, record: Record, compile_id: str) -> None:
        kind = records.kind_of(record.metadata)
        metrics = record.metadata[kind]
        frame = self._frames.now(compile_id or str(metrics.get("compile_id") or ""))
        is_backward = kind == records.BACKWARD_METRICS
        if is_backward and frame.backwards_measured == len(frame.backwards):
            # Where no backward ran these are of the frame: torch 2.6 files them here at the recompile limit, 2.8 if
            # another thread compiles a backward meanwhile.
            is_backward = not self._has_spans and metrics.get("is_forward", False) is not None
            if is_backward:
                frame.backwards.append(
                    pb.Compilation(key=frame.key, direction=pb.BACKWARD, thread=record.thread)
                )
        if is_backward:
            row = frame.backwards[frame.backwards_measured]
            frame.backwards_measured += 1
        else:
            frame.finished = True
            row = frame.begun()
        compile_rows.fill_from_metrics(row, metrics, source=self._source)
        for program in ("torch", "python", "cuda", "triton"):
            if version := metrics.get("pytorch_version" if program == "torch" else f"{program}_version"):
                self._learn(f"{program}_version", str(version))

    def _on_runtime_metrics(self, record: Record, compile_id: str) -> None:
        kind = records.kind_of(record.metadata)
        metrics = record.metadata[kind]
        compile_id = compile_id or str(metrics.get("compile_id") or "")
        self._rows.runtime_metrics.add(
            key=self._frames.now(compile_id).key,
            direction=pb.FORWARD if kind == records.RUNTIME_METRICS[0] else pb.BACKWARD,
            metrics=compile_rows.metrics_json(metrics, source=self._source),
        )

    def _on_cudagraph_skip(self, record: Record, compile_id: str) -> None:
        """Add the reason, which quotes the user's code, where newer torch writes one that is known while compiling."""
        if self._source and record.payload:
            reason = {records.CUDAGRAPH_SKIP_REASON: json.dumps(record.payload.strip())}
            direction = self._direction(record, compile_id)
            key = self._frames.now(compile_id).key
            self._rows.runtime_metrics.add(key=key, metrics=reason, direction=direction)

    def _on_shape(self, record: Record, compile_id: str) -> None:
        kind = records.kind_of(record.metadata)
        details = record.metadata[kind]
        row = pb.ShapeEvent(key=self._frames.now(compile_id).key, attempt=record.attempt, kind=kind)
        row.stack.extend(self._stack(details.get("user_stack") or []))
        row.symbol = _text(details.get("symbol") or details.get("expr"))
        row.value = _text(details.get("val") or details.get("value"))
        row.range = _text(details.get("vr"))
        if self._source:
            sources = details.get("source") or details.get("sources")
            row.source = ", ".join(map(str, sources)) if isinstance(sources, list) else _text(sources)
            row.reason = _text(details.get("reason"))
        self._rows.shape_events.append(row)

    def _on_torch_version(self, record: Record, compile_id: str) -> None:
        """Learn the version: an object since torch 2.13, a bare or quoted text before."""
        if record.payload:
            try:
                version = json.loads(record.payload)
            except ValueError:
                version = record.payload.strip()
            version = (version.get("pytorch_version") or "") if isinstance(version, dict) else version
            self._learn("torch_version", str(version))

    def _learn(self, name: str, value: Any) -> None:
        """Set a field of the environment to what is recorded first. Raises TypeError and ValueError."""
        if value is not None and name not in self._learned:
            setattr(self._rows.environment, name, value)
            self._learned.add(name)

    def _on_graph_break(self, record: Record, compile_id: str) -> None:
        text = record.payload or ""
        break_ = (self._frames.epoch, compile_id, text)
        if break_ in self._breaks:  # met again in the next attempt
            self._breaks[break_].count += 1
            return
        row = compile_rows.break_row(text, source=self._source)
        row.key.CopyFrom(self._frames.now(compile_id).key)
        row.attempt = record.attempt
        self._breaks[break_] = row

    def _on_recompile(self, record: Record, compile_id: str) -> None:
        frame = self._frames.now(compile_id)
        if frame.recompile is None:
            frame.recompile = pb.Recompile(key=frame.key)
        for reason in compile_rows.parse_recompile_reasons(record.payload or ""):
            text = reason if self._source else compile_rows.withhold_source(reason)
            if text not in frame.recompile.reasons:
                frame.recompile.reasons.append(text)

    def _on_cache(self, cache: str, result: str, record: Record, compile_id: str) -> None:
        details = self._loads(record.payload or "{}")
        frame, direction = self._frames.now(compile_id), self._direction(record, compile_id)
        if cache == "fx_graph" and (key := compile_rows.text_of(details.get("key"))):
            graph = next((graph for graph in reversed(frame.graphs) if not graph.graph_key), None)
            if graph is None:  # old versions write a cache hit before its code
                frame.cache_keys.append(key)
            else:
                graph.graph_key, direction = key, graph.direction  # in logs without spans the code says so
        row = self._caches.row(cache, result, details, frame.key, direction)
        lane = (record.thread, compile_id)
        in_backward = bool(frame.backwards) and self._lanes.is_inside(lane, records.BACKWARD_ROOTS)
        (frame.backwards[-1] if in_backward else frame.forward_row()).cache.append(row)

    def _on_output_code(self, record: Record, compile_id: str) -> None:
        code = record.payload or ""
        self.codes[hash(code)] += 1
        frame = self._frames.now(compile_id)
        if (backward := artifacts.is_backward_code(code)) is None:
            backward = self._direction(record, compile_id) == pb.BACKWARD
        frame.graphs.append(
            pb.Graph(
                key=frame.key,
                direction=pb.BACKWARD if backward else pb.FORWARD,
                graph_key=frame.cache_keys.pop(0) if frame.cache_keys else "",
                output_code_file=str(record.metadata[records.OUTPUT_CODE].get("filename") or ""),
                kernels=compile_rows.generated_kernels(code),
                index=len(frame.graphs),
            )
        )

    def _on_dump(self, record: Record, compile_id: str) -> None:
        """Add the dump of a graph's code: AOTInductor writes it in two texts, in older torch in one."""
        details, frame = record.metadata[records.DUMP], self._frames.now(compile_id)
        name, graphs = f"{records.DUMP}_{details.get('name')}", frame.graphs
        if name in artifacts.WRAPPER_CODE:
            file = str(details.get("filename") or "")
            graphs.append(pb.Graph(key=frame.key, output_code_file=file, index=len(graphs)))
        if name in artifacts.AOT_CODE and graphs:
            names_of_graph = {kernel.name for kernel in graphs[-1].kernels}
            kernels = compile_rows.generated_kernels(record.payload or "")
            graphs[-1].kernels.extend(kernel for kernel in kernels if kernel.name not in names_of_graph)
        if name in artifacts.WRAPPER_CODE:
            while frame.kernel_infos:
                compile_rows.add_kernel_info(graphs[-1], frame.kernel_infos.pop(0))

    def _on_inference_graph(self, record: Record, compile_id: str) -> None:
        self._frames.now(compile_id).for_inference = True

    def _on_kernel_info(self, record: Record, compile_id: str) -> None:
        frame, info = self._frames.now(compile_id), self._loads(record.payload or "{}")
        if frame.graphs and not is_ahead_of_time(compile_id):
            compile_rows.add_kernel_info(frame.graphs[-1], info)
        else:
            frame.kernel_infos.append(info)

    def compiling(self) -> tuple[list[CompileSpan], compile_rows.CompiledFrame | None, int]:
        """Return the open spans of what began last, the innermost last, its frame, and how many compilations began."""
        spans = self._lanes.still_open()
        # Work of compile workers without a frame is part of what waits for it.
        of_frames = [span for span in spans if span.row.key.compile_id] or spans
        last = max(of_frames, key=lambda span: span.row.start_ns, default=None)
        frame = self._frames.find(last.row.key.epoch, last.row.key.compile_id) if last else None
        return [span for span in spans if last and span.lane == last.lane], frame, self._frames.count_begun()

    def summary(self) -> pb.CompileSummary:
        """Return all that is known so far; of `environment`, what records do not hold is the caller's."""
        summary = pb.CompileSummary(format_version=FORMAT_VERSION, compile_times_complete=False)
        summary.MergeFrom(self._rows)
        last_ns = 0
        if self._range_ns:
            first_ns, last_ns = self._range_ns
            summary.environment.recording_start_ns, summary.environment.written_ns = first_ns, last_ns
        self._frames.put(summary)
        summary.graph_breaks.extend(self._breaks.values())
        summary.spans.sort(key=lambda span: (span.start_ns, -span.duration_ns))
        for span in self._lanes.still_open():
            row = summary.spans.add()
            row.CopyFrom(span.row)
            row.unfinished, row.duration_ns = True, max(0, last_ns - row.start_ns)
        summary.compile_times.extend(
            pb.FunctionTimes(function=name, seconds=s) for name, s in self._times.items()
        )
        return summary


def _is_root(name: str, compile_id: str) -> bool:
    """Whether a span is the whole compilation of a frame, or of a package."""
    return name in records.FRAME_ROOTS or (name in records.AOT_ROOTS and is_ahead_of_time(compile_id))


def _text(value: object) -> str:
    return "" if value is None else str(value)
