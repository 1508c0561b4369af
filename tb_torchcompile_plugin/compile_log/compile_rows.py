"""Rows of the summary from what torch says about one compilation. Pure functions; standard library and protobuf.

Each takes `source`: without it, nothing that quotes the user's code gets into the row.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tb_torchcompile_plugin.compile_log import prose
from tb_torchcompile_plugin.compile_log import summary_pb2 as pb
from tb_torchcompile_plugin.compile_log.record import nanoseconds
from tb_torchcompile_plugin.compile_log.spans import CompileSpan
from tb_torchcompile_plugin.torch_names import records as metric_names
from tb_torchcompile_plugin.torch_names.caches import is_export
from tb_torchcompile_plugin.torch_names.graph_breaks import exception_name
from tb_torchcompile_plugin.torch_names.kernels import category_of
from tb_torchcompile_plugin.torch_names.records import tuned_operator


@dataclass
class Recovered:
    """Rows from before recording began (writer/recover.py), all marked so. codes: the output code of each graph."""

    compilations: list[pb.Compilation] = field(default_factory=list)
    recompiles: list[pb.Recompile] = field(default_factory=list)
    graph_breaks: list[pb.GraphBreak] = field(default_factory=list)
    graphs: list[pb.Graph] = field(default_factory=list)
    codes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def stack_rows(entries: list[dict[str, Any]], files: dict[int, str], *, source: bool) -> list[pb.Frame]:
    """A stack as records have it. files: torch's table of file names by number."""
    frames = []
    for entry in entries:
        name = entry.get("filename")
        file = files.get(name, f"file {name}") if isinstance(name, int) else str(name or "")
        frame = pb.Frame(file=file, line=entry.get("line") or 0, function=entry.get("name") or "")
        if source and entry.get("loc"):
            frame.source = entry["loc"]
        frames.append(frame)
    return frames


def break_row(text: str, *, source: bool, count: int = 1) -> pb.GraphBreak:
    """A graph break from torch's text, without any of the user's code unless `source`."""
    parsed = prose.parse_graph_break(text)
    row = pb.GraphBreak(docs_url=parsed.docs_url, file=parsed.file, stack=parsed.stack, count=count)
    if parsed.line is not None:
        row.line = parsed.line
    if source:
        row.reason, row.explanation, row.text = parsed.reason, parsed.explanation, text
        row.hints.extend(parsed.hints)
        return row
    row.reason = prose.withhold_break_reason(parsed)
    for frame in row.stack:
        frame.ClearField("source")
    return row


def fill_from_metrics(row: pb.Compilation, metrics: dict[str, Any], *, source: bool) -> None:
    """Copies what torch's compilation metrics say into a row. What spans have told before stands."""
    row.function = row.function or text_of(metrics.get("co_name"))
    row.file = row.file or text_of(metrics.get("co_filename"))
    for target, name in metric_names.COUNTS:
        if metrics.get(name) is not None:
            setattr(row, target, int(metrics[name]))
    if not row.HasField("start_ns") and (start := _start_ns(metrics)) is not None:
        row.start_ns = start
    whole = not is_export(row.key.compile_id)  # of an export the metrics tell dynamo's part alone
    if (
        whole
        and not row.HasField("duration_ns")
        and (duration := _duration_ns(row.direction, metrics)) is not None
    ):
        row.duration_ns = duration
    _fill_failure(row, metrics, source)
    row.metrics.update(metrics_json(metrics, source=source))
    if limit := metric_names.RECOMPILE_LIMIT_SET.search(text_of(metrics.get(metric_names.CONFIG_FIELDS[0]))):
        row.metrics[metric_names.RECOMPILE_LIMIT] = limit[1]


def metrics_json(metrics: dict[str, Any], *, source: bool) -> dict[str, str]:
    """Every field that is not null, as JSON by name, but for the settings, which are stored as texts."""
    return {
        name: str(value) if type(value) is int else json.dumps(value, default=repr)  # most are numbers
        for name, value in metrics.items()
        if value is not None and name not in metric_names.CONFIG_FIELDS and (source or _is_safe(name, value))
    }


def _is_safe(name: str, value: object) -> bool:
    return isinstance(value, int | float) or name in metric_names.SAFE_TEXTS


def _fill_failure(row: pb.Compilation, metrics: dict[str, Any], source: bool) -> None:
    if metrics.get("fail_type"):
        kind, file = (text_of(metrics.get(name)) for name in ("fail_type", "fail_user_frame_filename"))
        row.failure.CopyFrom(pb.Failure(type=exception_name(kind), file=file))
        row.failure.reason = text_of(metrics.get("fail_reason")) if source else prose.WITHHELD
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
    return None if metrics.get("start_time") is None else nanoseconds(float(metrics["start_time"]) * 1e6)


def _duration_ns(direction: pb.Direction, metrics: dict[str, Any]) -> int | None:
    for name, factor in (
        metric_names.FORWARD_DURATIONS if direction == pb.FORWARD else metric_names.BACKWARD_DURATIONS
    ):
        if metrics.get(name) is not None:
            return round(float(metrics[name]) * factor)
    return None


def set_duration(row: pb.Compilation, span: CompileSpan) -> None:
    """Times of a row from the span of the whole compilation, with its phases."""
    assert span.duration_ns is not None
    row.start_ns, row.duration_ns, row.thread = span.start_ns, span.duration_ns, span.thread
    del row.phases[:]
    row.phases.extend(pb.Phase(name=name, exclusive_ns=ns) for name, ns in span.phases().items())


def span_row(span: CompileSpan) -> pb.PhaseSpan:
    """The stored form of a span."""
    return pb.PhaseSpan(
        key=pb.CompileKey(compile_id=span.compile_id, epoch=span.epoch),
        name=span.name,
        start_ns=span.start_ns,
        duration_ns=span.duration_ns or 0,
        thread=span.thread,
        function=span.function if span.function != span.name else "",
        worker_process=span.worker_process,
        unfinished=span.unfinished,
        kernel=span.kernel,
        choices=span.choices,
    )


def open_span_rows(spans: Iterable[CompileSpan], last_ns: int) -> Iterator[pb.PhaseSpan]:
    """Of spans that did not end until then."""
    for span in spans:
        row = span_row(span)
        row.unfinished, row.duration_ns = True, max(0, last_ns - span.start_ns)
        yield row


def add_autotuned(span: CompileSpan, arguments: dict[str, Any]) -> None:
    """Which kernel a span autotuned, or which operator and shapes, and what came of it, from its end mark."""
    if arguments.get("kernel_name"):
        span.kernel = str(arguments["kernel_name"])
    elif arguments.get("autotune_shape"):
        span.kernel = f"{tuned_operator(span.name)} ({arguments['autotune_shape']})"
    span.choices = text_of(arguments.get("autotune_choices_stats"))


def place_from_stack(row: pb.Compilation) -> None:
    """Without metrics (the process died, or is still compiling) the innermost frame names the place."""
    if row.stack and not row.file:
        row.function, row.file, row.line = row.stack[-1].function, row.stack[-1].file, row.stack[-1].line


def place_of_call(row: pb.Compilation, function: str, stack: list[pb.Frame]) -> None:
    """Of a compilation ahead of time: the program's line, and what of torch it calls there."""
    row.stack.extend(stack)
    if stack:
        row.file, row.line = stack[-1].file, stack[-1].line
    row.function = function


def torch_version(payload: str) -> str:
    """Of the record of that name: an object since torch 2.13, a bare or quoted text before."""
    try:
        versions = json.loads(payload)
    except ValueError:
        return payload.strip()
    return str(versions.get("pytorch_version") or "") if isinstance(versions, dict) else str(versions)


def copy_place(row: pb.Compilation | pb.Recompile, forward: pb.Compilation) -> None:
    """A backward and a recompile have the place of their frame."""
    row.file = forward.file
    if forward.HasField("line"):
        row.line = forward.line
    if isinstance(row, pb.Compilation):
        row.function = forward.function


def add_kernel_info(graph: pb.Graph, info: dict[str, dict[str, Any]]) -> None:
    """`triton_kernel_info`: configurations tried and compile time by kernel.

    The code is the reference for which kernels a graph has; only where none was found in it (a C++ wrapper) the
    names are taken from here.
    """
    if not graph.kernels:
        graph.kernels.extend(pb.GeneratedKernel(name=name, category=category_of(name)) for name in info)
    for kernel in graph.kernels:
        details = info.get(kernel.name) or {}
        if details.get("num_configs") is not None:
            kernel.num_configs = int(details["num_configs"])
        elif details.get("only_config") is not None:
            kernel.num_configs = 1
        if details.get("compile_time_us") is not None:
            kernel.compile_ns = int(details["compile_time_us"]) * 1000
        kernel.autotune = text_of(details.get("autotune_cache_state"))
        kernel.config = _config(details.get("best_config") or details.get("only_config"))


def _config(pairs: object) -> str:
    """[["XBLOCK", 128], ["num_warps", 4]] → "XBLOCK=128, num_warps=4"."""
    if not isinstance(pairs, list | tuple):
        return ""
    return ", ".join(
        f"{pair[0]}={pair[1]}" for pair in pairs if isinstance(pair, list | tuple) and len(pair) == 2
    )


def text_of(value: object) -> str:
    """A string field that may be missing, null, or the word "None"."""
    return "" if value is None or value == "None" else str(value)
