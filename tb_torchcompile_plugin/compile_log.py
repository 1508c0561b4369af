"""Compile records → CompileSummary: one path for live records and for lines of a TORCH_TRACE log.

torch describes what it compiles as a stream of records: a metadata dict (one key names the kind, the others
say for which compilation it holds) and a payload text. `CompileLog.add` takes one at a time and never raises;
what it cannot read it counts by cause, what it does not know by kind. `summary` may be called at any time, again and again.
Imports protobuf and the standard library only, because it runs inside training.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tb_torchcompile_plugin import compile_text
from tb_torchcompile_plugin.compile_spans import BACKWARD_ROOTS, FRAME_ROOTS, PHASES, Lanes, Span
from tb_torchcompile_plugin.summary import FORMAT_VERSION
from tb_torchcompile_plugin.summary_pb2 import (
    BACKWARD,
    FORWARD,
    Artifact,
    CacheResult,
    Compilation,
    CompileKey,
    CompileSummary,
    Direction,
    Failure,
    Frame,
    FunctionTimes,
    GeneratedKernel,
    Graph,
    GraphBreak,
    Payload,
    Phase,
    PhaseSpan,
    Recompile,
)

__all__ = ["PHASES", "CompileLog", "Record", "compile_id_of", "kind_of"]

ENVELOPE = frozenset(
    "rank compiled_autograd_id frame_id frame_compile_id attempt subgraph_name stack has_payload "
    "severity timestamp pathname lineno thread process".split()
)
# Kinds that torch 2.4 to 2.13 writes and that this module understands or keeps for later. All others are unknown.
KINDS = frozenset(
    "artifact chromium_event str dynamo_start dynamo_output_graph dynamo_cpp_guards_str dynamo_guards "
    "aot_joint_graph aot_forward_graph aot_backward_graph aot_inference_graph inductor_pre_grad_graph "
    "inductor_post_grad_graph inductor_output_code inductor_input_graph compilation_metrics bwd_compilation_metrics "
    "compilation_metrics_runtime bwd_compilation_metrics_runtime create_symbol create_unbacked_symbol "
    "symbolic_shape_specialization guard_added guard_added_fast optimize_ddp_split_graph optimize_ddp_split_child "
    "describe_storage describe_tensor describe_source link dump_file compiled_autograd_graph graph_dump "
    "expression_created propagate_real_tensors propagate_real_tensors_provenance mismatched_fake_kernel "
    "missing_fake_kernel guard_on_data_dependent_error export exported_program log_file_version "
    "put_local_code_state get_local_code_state put_remote_code_state get_remote_code_state "
    "get_extra_remote_code_state".split()
)
_CONFIG_FIELDS = ("dynamo_config", "inductor_config", "compiler_config", "functorch_config")
# Metrics whose text may quote the user's code; numbers are always kept.
_SAFE_TEXT_METRICS = frozenset(
    "compile_id frame_key co_name co_filename fail_type fail_user_frame_filename cuda_version triton_version "
    "python_version pytorch_version remote_cache_version inductor_fx_remote_cache_backend_type".split()
)
# Payloads that are not kept as artifacts: marks of spans, and cache records, whose bulk repeats the graph.
_NOT_KEPT = frozenset({"chromium_event"})


@dataclass(slots=True)
class Record:
    """One record. thread: the Python thread id, 0 where unknown (a log does not tell)."""

    metadata: dict[str, Any]
    payload: str | None = None
    thread: int = 0


def kind_of(metadata: dict[str, Any]) -> str:
    """The record key of an envelope ("chromium_event"), "" if there is none. Old logs carry explicit nulls."""
    return next((key for key, value in metadata.items() if key not in ENVELOPE and value is not None), "")


def compile_id_of(metadata: dict[str, Any]) -> str:
    """The compile id in torch's spelling: "0/0", "!1/2/0" or "!1" under compiled autograd, "" if there is none."""
    autograd, frame = metadata.get("compiled_autograd_id"), metadata.get("frame_id")
    parts = [] if autograd is None else [f"!{autograd}"]
    if frame is not None:
        parts.append(f"{frame}/{metadata.get('frame_compile_id')}")
    return "/".join(parts)


@dataclass
class _Frame:
    """All that is known of one compile id in one epoch."""

    key: CompileKey
    started: bool = False
    forward: Compilation | None = None
    backwards: list[Compilation] = field(default_factory=list)
    backwards_measured: int = 0
    graphs: list[Graph] = field(default_factory=list)
    cache_keys: list[str] = field(default_factory=list)  # of cache records that came before their code
    recompile: Recompile | None = None
    attempt: int | None = None

    def forward_row(self) -> Compilation:
        if self.forward is None:
            self.forward = Compilation(key=self.key, direction=FORWARD)
        return self.forward


class CompileLog:
    """Collects records of one process.

    source: keep source lines, break texts and other strings that quote the user's code (`capture="full"`).
    payloads: keep the payload texts themselves, compressed and each once (`summary.artifacts`).
    """

    def __init__(self, *, source: bool = True, payloads: bool = False) -> None:
        self._source = source
        self._keep_payloads = payloads and source
        self._lanes = Lanes()
        self._frames: dict[tuple[int, str], _Frame] = {}
        self._epoch = 0
        self._breaks: dict[tuple[int, str, str], GraphBreak] = {}
        self._spans: list[PhaseSpan] = []
        self._times: dict[str, list[float]] = {}
        self._payload_index: dict[bytes, int] = {}
        self._payloads: list[Payload] = []
        self._artifacts: list[Artifact] = []
        self.files: dict[int, str] = {}  # torch's table of file names by number
        self.by_kind: Counter[str] = Counter()
        self.unknown: Counter[str] = Counter()
        self.unreadable: Counter[str] = Counter()
        self.facts: dict[str, Any] = {}  # of the environment: versions, rank, first and last time
        self._handlers: dict[str, Callable[[Record, str], None]] = {
            "str": self._on_str,
            "dynamo_start": self._on_dynamo_start,
            "chromium_event": self._on_chromium_event,
            "compilation_metrics": self._on_metrics,
            "bwd_compilation_metrics": self._on_backward_metrics,
            "inductor_output_code": self._on_output_code,
            "artifact:dynamo_graph_break_reason": self._on_graph_break,
            "artifact:recompile_reasons": self._on_recompile,
            "artifact:triton_kernel_info": self._on_kernel_info,
            "artifact:torch_version": self._on_torch_version,
        }
        for cache, kind in (("fx_graph", "fx_graph_cache"), ("aotautograd", "aotautograd_cache")):
            for result in ("hit", "miss", "bypass"):
                self._handlers[f"artifact:{kind}_{result}"] = self._cache_handler(cache, result)

    # -- records in ---------------------------------------------------------------------------------------------

    def add(self, record: Record) -> None:
        """Takes one record. Never raises."""
        kind = "record"
        try:
            kind = kind_of(record.metadata)
            if not kind:
                self.unreadable["without a kind"] += 1
                return
            if kind == "artifact":
                kind = f"artifact:{record.metadata['artifact']['name']}"
            self._count(kind)
            self._add(kind, record)
        except Exception as error:
            self.unreadable[f"{kind[:60]}: {type(error).__name__}"] += 1

    def _count(self, kind: str) -> None:
        self.by_kind[kind] += 1
        if kind not in KINDS and not kind.startswith("artifact:"):
            self.unknown[kind] += 1

    def _add(self, kind: str, record: Record) -> None:
        compile_id = compile_id_of(record.metadata)
        if record.metadata.get("rank") is not None:
            self.facts.setdefault("rank", record.metadata["rank"])
        if handler := self._handlers.get(kind):
            handler(record, compile_id)
        if compile_id and record.metadata.get("attempt") is not None:
            frame = self._frame(compile_id)
            frame.attempt = max(frame.attempt or 0, int(record.metadata["attempt"]))
        if self._keep_payloads and record.payload and kind not in _NOT_KEPT:
            self._keep(kind, record, compile_id)

    def _frame(self, compile_id: str) -> _Frame:
        key = (self._epoch, compile_id)
        frame = self._frames.get(key)
        if frame is None:
            frame = self._frames[key] = _Frame(CompileKey(compile_id=compile_id, epoch=self._epoch))
        return frame

    def _begin_frame(self, compile_id: str) -> _Frame:
        """The frame of an id whose compilation begins. If it has begun before, torch was reset: a new epoch."""
        frame = self._frame(compile_id)
        if frame.started:
            self._epoch += 1
            frame = self._frame(compile_id)
        return frame

    def _in_backward(self, record: Record, compile_id: str) -> bool:
        return self._lanes.is_inside((record.thread, compile_id), BACKWARD_ROOTS)

    def _row(self, record: Record, compile_id: str) -> Compilation:
        """The row that a record belongs to: the backward that is being compiled, or the frame."""
        frame = self._frame(compile_id)
        if frame.backwards and self._in_backward(record, compile_id):
            return frame.backwards[-1]
        return frame.forward_row()

    # -- one handler for each kind ------------------------------------------------------------------------------

    def _on_str(self, record: Record, compile_id: str) -> None:
        name, number = record.metadata["str"]
        self.files[int(number)] = str(name)

    def _on_dynamo_start(self, record: Record, compile_id: str) -> None:
        frame = self._begin_frame(compile_id)
        frame.started = True
        row = frame.forward_row()
        row.thread = record.thread
        del row.stack[:]
        row.stack.extend(self._stack(record.metadata["dynamo_start"].get("stack") or []))

    def _stack(self, entries: list[dict[str, Any]]) -> list[Frame]:
        frames = []
        for entry in entries:
            name = entry.get("filename")
            file = self.files.get(name, f"file {name}") if isinstance(name, int) else str(name or "")
            frame = Frame(file=file, line=entry.get("line") or 0, function=entry.get("name") or "")
            if self._source and entry.get("loc"):
                frame.source = entry["loc"]
            frames.append(frame)
        return frames

    def _on_chromium_event(self, record: Record, compile_id: str) -> None:
        event = json.loads(record.payload) if record.payload else record.metadata["chromium_event"]
        mark = event.get("ph")
        if mark not in ("B", "E"):
            return
        arguments = event.get("args") or {}
        told = str(arguments.get("compile_id") or "None")
        compile_id = compile_id if told == "None" else told
        time_ns = nanoseconds(event["ts"])
        self._see_time(time_ns)
        name = str(event["name"])
        # Work that compile workers did for nobody in particular must not be paired with a frame's own.
        lane = (record.thread, compile_id) if compile_id else (record.thread, "", name)
        if mark == "B":
            self._begin_span(
                Span(name, str(arguments.get("fn_name") or name), time_ns, "", lane), compile_id, record
            )
        else:
            for span in self._lanes.end(lane, name, time_ns):
                self._end_span(span)

    def _begin_span(self, span: Span, compile_id: str, record: Record) -> None:
        if span.name in FRAME_ROOTS or span.name == "dynamo":
            self._begin_frame(compile_id)
        span.compile_id, span.epoch, span.thread = compile_id, self._epoch, record.thread
        span.worker_process = not compile_id and span.name == "compile_file"
        if span.name in BACKWARD_ROOTS and compile_id:
            frame = self._frame(compile_id)
            frame.backwards.append(
                Compilation(key=frame.key, direction=BACKWARD, start_ns=span.start_ns, thread=record.thread)
            )
        elif span.name in FRAME_ROOTS:
            row = self._frame(compile_id).forward_row()
            row.start_ns, row.thread = span.start_ns, record.thread
        self._lanes.begin(span)

    def _end_span(self, span: Span) -> None:
        assert span.duration_ns is not None
        self._spans.append(_span_row(span))
        if span.unfinished:
            return
        self._times.setdefault(span.function, []).append(span.duration_ns / 1e9)
        frame = self._frames.get((span.epoch, span.compile_id))
        if frame is None:
            return
        if span.name in FRAME_ROOTS:
            _set_duration(frame.forward_row(), span)
        elif span.name in BACKWARD_ROOTS:
            for row in reversed(frame.backwards):
                if row.start_ns == span.start_ns:
                    _set_duration(row, span)
                    break

    def _see_time(self, time_ns: int) -> None:
        self.facts["first_ns"] = min(time_ns, self.facts.get("first_ns", time_ns))
        self.facts["last_ns"] = max(time_ns, self.facts.get("last_ns", time_ns))

    def _on_metrics(self, record: Record, compile_id: str) -> None:
        metrics = record.metadata["compilation_metrics"]
        row = self._frame(compile_id or str(metrics.get("compile_id") or "")).forward_row()
        fill_from_metrics(row, metrics, source=self._source)
        self._keep_configs(metrics, compile_id, record)
        self._learn_versions(metrics)

    def _on_backward_metrics(self, record: Record, compile_id: str) -> None:
        metrics = record.metadata["bwd_compilation_metrics"]
        frame = self._frame(compile_id or str(metrics.get("compile_id") or ""))
        if frame.backwards_measured == len(frame.backwards):
            frame.backwards.append(Compilation(key=frame.key, direction=BACKWARD, thread=record.thread))
        row = frame.backwards[frame.backwards_measured]
        frame.backwards_measured += 1
        fill_from_metrics(row, metrics, source=self._source)
        self._learn_versions(metrics)

    def _keep_configs(self, metrics: dict[str, Any], compile_id: str, record: Record) -> None:
        if self._keep_payloads:
            for name in _CONFIG_FIELDS:
                if isinstance(metrics.get(name), str):
                    self._store(name, metrics[name], compile_id, record, "json")

    def _learn_versions(self, metrics: dict[str, Any]) -> None:
        for fact, name in (
            ("torch_version", "pytorch_version"),
            ("python_version", "python_version"),
            ("cuda_version", "cuda_version"),
            ("triton_version", "triton_version"),
        ):
            if metrics.get(name):
                self.facts.setdefault(fact, str(metrics[name]))

    def _on_torch_version(self, record: Record, compile_id: str) -> None:
        if record.payload:
            self.facts.setdefault("torch_version", record.payload.strip().strip('"'))

    def _on_graph_break(self, record: Record, compile_id: str) -> None:
        text = record.payload or ""
        known = self._breaks.get((self._epoch, compile_id, text))
        if known is not None:  # the same break, met again in the next attempt
            known.count += 1
            return
        row = break_row(text, source=self._source)
        row.key.CopyFrom(self._frame(compile_id).key)
        row.attempt = int(record.metadata.get("attempt") or 0)
        self._breaks[self._epoch, compile_id, text] = row

    def _on_recompile(self, record: Record, compile_id: str) -> None:
        frame = self._frame(compile_id)
        if frame.recompile is None:
            frame.recompile = Recompile(key=frame.key)
        for reason in compile_text.parse_recompile_reasons(record.payload or ""):
            text = reason if self._source else compile_text.withhold_source(reason)
            if text not in frame.recompile.reasons:
                frame.recompile.reasons.append(text)

    def _cache_handler(self, cache: str, result: str) -> Callable[[Record, str], None]:
        return lambda record, compile_id: self._on_cache(cache, result, record, compile_id)

    def _on_cache(self, cache: str, result: str, record: Record, compile_id: str) -> None:
        details = json.loads(record.payload or "{}")
        row = CacheResult(cache=cache, result=result, key=_text(details.get("key")))
        if _text(details.get("cache_bypass_reason")):
            row.reason = _text(details["cache_bypass_reason"]) if self._source else compile_text.WITHHELD
        if details.get("time_saved_ns") is not None:
            row.time_saved_ns = int(details["time_saved_ns"])
        self._row(record, compile_id).cache.append(row)
        if cache == "fx_graph" and row.key:
            self._name_graph(self._frame(compile_id), row.key)

    @staticmethod
    def _name_graph(frame: _Frame, key: str) -> None:
        """A cache record follows the code of its graph; only in old versions a hit comes before it."""
        for graph in reversed(frame.graphs):
            if not graph.graph_key:
                graph.graph_key = key
                return
        frame.cache_keys.append(key)

    def _on_output_code(self, record: Record, compile_id: str) -> None:
        code = record.payload or ""
        frame = self._frame(compile_id)
        backward = compile_text.is_backward_code(code)
        if backward is None:
            backward = self._in_backward(record, compile_id)
        frame.graphs.append(
            Graph(
                key=frame.key,
                direction=BACKWARD if backward else FORWARD,
                graph_key=frame.cache_keys.pop(0) if frame.cache_keys else "",
                output_code_file=str(record.metadata["inductor_output_code"].get("filename") or ""),
                kernels=compile_text.generated_kernels(code),
                index=len(frame.graphs),
            )
        )

    def _on_kernel_info(self, record: Record, compile_id: str) -> None:
        graphs = self._frame(compile_id).graphs
        kernels = {kernel.name: kernel for kernel in graphs[-1].kernels} if graphs else {}
        for name, details in json.loads(record.payload or "{}").items():
            kernel = kernels.get(name)
            if kernel is not None and isinstance(details, str | dict):
                _add_tuning(kernel, details)

    # -- payloads -----------------------------------------------------------------------------------------------

    def _keep(self, kind: str, record: Record, compile_id: str) -> None:
        encoding = ""
        payload = record.payload or ""
        if kind.startswith("artifact:"):
            encoding = str(record.metadata["artifact"].get("encoding") or "")
        if "_cache_" in kind and encoding == "json":
            payload = _without_components(payload)
        self._store(kind.removeprefix("artifact:"), payload, compile_id, record, encoding)

    def _store(self, name: str, text: str, compile_id: str, record: Record, encoding: str) -> None:
        artifact = Artifact(
            key=CompileKey(compile_id=compile_id, epoch=self._epoch),
            attempt=int(record.metadata.get("attempt") or 0),
            name=name,
            encoding=encoding,
            payload=self._payload(text),
            direction=BACKWARD if self._in_backward(record, compile_id) else FORWARD,
        )
        self._artifacts.append(artifact)

    def _payload(self, text: str) -> int:
        data = text.encode("utf-8", "surrogatepass")
        digest = hashlib.sha256(data).digest()
        index = self._payload_index.get(digest)
        if index is None:
            index = self._payload_index[digest] = len(self._payloads)
            packed = zlib.compress(data, 6)
            small = len(packed) < len(data)
            codec = Payload.ZLIB if small else Payload.RAW
            self._payloads.append(Payload(sha256=digest, codec=codec, data=packed if small else data))
        return index

    # -- summary out --------------------------------------------------------------------------------------------

    def summary(self) -> CompileSummary:
        """All that is known so far. `environment` holds what the records tell; the rest is the caller's."""
        summary = CompileSummary(format_version=FORMAT_VERSION, compile_times_complete=False)
        self._put_environment(summary)
        for frame in self._frames.values():
            self._put_frame(summary, frame)
        summary.compilations.sort(key=lambda row: row.start_ns or 0)
        summary.graph_breaks.extend(self._breaks.values())
        summary.spans.extend(sorted(self._spans, key=lambda span: (span.start_ns, -span.duration_ns)))
        summary.spans.extend(self._open_spans())
        summary.compile_times.extend(
            FunctionTimes(function=name, seconds=s) for name, s in self._times.items()
        )
        self._put_counts(summary)
        summary.payloads.extend(self._payloads)
        summary.artifacts.extend(self._artifacts)
        return summary

    def _put_environment(self, summary: CompileSummary) -> None:
        environment, facts = summary.environment, self.facts
        for name in ("torch_version", "python_version", "cuda_version", "triton_version", "rank"):
            if name in facts:
                setattr(environment, name, facts[name])
        if "first_ns" in facts:
            environment.recording_start_ns, environment.written_ns = facts["first_ns"], facts["last_ns"]

    def _put_frame(self, summary: CompileSummary, frame: _Frame) -> None:
        forward = frame.forward
        if forward is not None:
            if frame.attempt is not None:
                forward.attempts = frame.attempt + 1
            _place_from_stack(forward)
            summary.compilations.append(forward)
        for row in frame.backwards:
            if forward is not None and not row.function:
                _copy_place(row, forward)
            summary.compilations.append(row)
        if frame.recompile is not None:
            if forward is not None:
                _copy_place(frame.recompile, forward)
            summary.recompiles.append(frame.recompile)
        summary.graphs.extend(frame.graphs)

    def _open_spans(self) -> list[PhaseSpan]:
        rows = []
        for span in self._lanes.still_open():
            row = _span_row(span)
            row.unfinished = True
            row.duration_ns = max(0, self.facts["last_ns"] - span.start_ns)
            rows.append(row)
        return rows

    def _put_counts(self, summary: CompileSummary) -> None:
        for counter, target in (
            (self.by_kind, summary.records.by_kind),
            (self.unknown, summary.records.unknown),
            (self.unreadable, summary.records.unreadable),
        ):
            for name, count in counter.items():
                target[name] = count
        if self._lanes.unmatched_ends:
            summary.records.unreadable["chromium_event: end without a beginning"] = self._lanes.unmatched_ends


def break_row(text: str, *, source: bool, count: int = 1) -> GraphBreak:
    """A graph break from torch's text, without any of the user's code unless `source`."""
    found = compile_text.parse_graph_break(text)
    row = GraphBreak(docs_url=found.docs_url, file=found.file, stack=found.stack, count=count)
    if found.line is not None:
        row.line = found.line
    if source:
        row.reason, row.explanation, row.text = found.reason, found.explanation, text
        row.hints.extend(found.hints)
        return row
    row.reason = compile_text.withhold_break_reason(found)
    for frame in row.stack:
        frame.ClearField("source")
    return row


def fill_from_metrics(row: Compilation, metrics: dict[str, Any], *, source: bool) -> None:
    """Copies what torch's compilation metrics say into a row. What spans have told before stands."""
    row.function = row.function or _text(metrics.get("co_name"))
    row.file = row.file or _text(metrics.get("co_filename"))
    for target, name in (
        ("line", "co_firstlineno"),
        ("guards", "guard_count"),
        ("graph_ops", "graph_op_count"),
        ("graph_nodes", "graph_node_count"),
        ("graph_inputs", "graph_input_count"),
    ):
        if metrics.get(name) is not None:
            setattr(row, target, int(metrics[name]))
    if not row.HasField("start_ns") and (start := _start_ns(metrics)) is not None:
        row.start_ns = start
    if not row.HasField("duration_ns") and (duration := _duration_ns(row.direction, metrics)) is not None:
        row.duration_ns = duration
    _fill_failure(row, metrics, source)
    for name, value in metrics.items():
        if value is not None and name not in _CONFIG_FIELDS and (source or _is_safe(name, value)):
            row.metrics[name] = json.dumps(value, default=repr)


def _is_safe(name: str, value: object) -> bool:
    return isinstance(value, int | float) or name in _SAFE_TEXT_METRICS


def _fill_failure(row: Compilation, metrics: dict[str, Any], source: bool) -> None:
    if metrics.get("fail_type"):
        row.failure.CopyFrom(
            Failure(type=_text(metrics["fail_type"]), file=_text(metrics.get("fail_user_frame_filename")))
        )
        row.failure.reason = _text(metrics.get("fail_reason")) if source else compile_text.WITHHELD
        if metrics.get("fail_user_frame_lineno") is not None:
            row.failure.line = int(metrics["fail_user_frame_lineno"])
    del row.restart_reasons[:]
    reasons = metrics.get("restart_reasons") or []
    for reason in sorted(reasons) if isinstance(reasons, list | set | tuple | frozenset) else [reasons]:
        text = str(reason)
        row.restart_reasons.append(text if source else break_row(text, source=False).reason)


def _start_ns(metrics: dict[str, Any]) -> int | None:
    if metrics.get("start_time_us") is not None:
        return int(metrics["start_time_us"]) * 1000
    return None if metrics.get("start_time") is None else round(metrics["start_time"] * 1e9)


_FORWARD_DURATIONS = (
    ("entire_frame_compile_time_s", 1e9),
    ("dynamo_cumulative_compile_time_us", 1e3),
    ("duration_us", 1e3),
)
_BACKWARD_DURATIONS = (
    ("backward_cumulative_compile_time_us", 1e3),
    ("duration_us", 1e3),
    ("inductor_compile_time_s", 1e9),
)


def _duration_ns(direction: Direction, metrics: dict[str, Any]) -> int | None:
    for name, factor in _FORWARD_DURATIONS if direction == FORWARD else _BACKWARD_DURATIONS:
        if metrics.get(name) is not None:
            return round(metrics[name] * factor)
    return None


def _set_duration(row: Compilation, span: Span) -> None:
    assert span.duration_ns is not None
    row.start_ns, row.duration_ns, row.thread = span.start_ns, span.duration_ns, span.thread
    del row.phases[:]
    row.phases.extend(Phase(name=name, exclusive_ns=ns) for name, ns in span.phases().items())


def _span_row(span: Span) -> PhaseSpan:
    return PhaseSpan(
        key=CompileKey(compile_id=span.compile_id, epoch=span.epoch),
        name=span.name,
        start_ns=span.start_ns,
        duration_ns=span.duration_ns or 0,
        thread=span.thread,
        function=span.function if span.function != span.name else "",
        worker_process=span.worker_process,
        unfinished=span.unfinished,
    )


def _place_from_stack(row: Compilation) -> None:
    """Without metrics (the process died, or is still compiling) the innermost frame names the place."""
    if row.stack and not row.file:
        row.function, row.file, row.line = row.stack[-1].function, row.stack[-1].file, row.stack[-1].line


def _copy_place(row: Compilation | Recompile, forward: Compilation) -> None:
    row.file = forward.file
    if forward.HasField("line"):
        row.line = forward.line
    if isinstance(row, Compilation):
        row.function = forward.function


def _add_tuning(kernel: GeneratedKernel, details: str | dict[str, Any]) -> None:
    if isinstance(details, str):
        details = json.loads(details)
    if details.get("num_configs") is not None:
        kernel.num_configs = int(details["num_configs"])
    elif details.get("only_config") is not None:
        kernel.num_configs = 1
    if details.get("compile_time_us") is not None:
        kernel.compile_ns = int(details["compile_time_us"]) * 1000


def _without_components(payload: str) -> str:
    """A cache record without its `components`: a dump of graph and settings, 70 % of a log's bytes."""
    details = json.loads(payload)
    details.pop("components", None)
    return json.dumps(details)


def nanoseconds(microseconds: float) -> int:
    """Epoch µs of a chromium event → ns. Multiplying the double as a whole would lose 256 ns."""
    whole = int(microseconds)
    return whole * 1000 + round((microseconds - whole) * 1000)


def _text(value: object) -> str:
    """A string field that may be missing, null, or the word "None"."""
    return "" if value is None or value == "None" else str(value)
