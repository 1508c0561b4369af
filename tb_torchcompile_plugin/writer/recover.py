"""Recover compilations from before recording started from the data that torch keeps.

Warming up before the profiler is created is the normal use. torch keeps the metrics of the last 64 compilations, the
reasons of graph breaks (until torch._dynamo.reset()), counters, and, reachable from the compiled functions, the
generated code. Rows from these have `recovered` set: no phases, no guards' text. Nothing here imports a torch module
that is not loaded yet: without torch._dynamo nothing was compiled.
"""

import gc
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from tb_torchcompile_plugin.compile_log import compile_rows
from tb_torchcompile_plugin.compile_log import summary_pb2 as pb
from tb_torchcompile_plugin.compile_log.record import readable
from tb_torchcompile_plugin.torch_names.artifacts import is_backward_code
from tb_torchcompile_plugin.torch_names.graph_breaks import BRANCH, BRANCH_INSIDE
from tb_torchcompile_plugin.torch_names.python_frames import frame_of_summary
from tb_torchcompile_plugin.writer.environment import loaded

# torch._dynamo.utils.DEFAULT_COMPILATION_METRICS_LIMIT
METRICS_KEPT = 64


class TorchState(NamedTuple):
    """What torch kept when recording paused: its own objects, distinguished by identity."""

    metrics: Sequence[object] = ()
    breaks: Sequence[object] = ()
    counted: Mapping[str, int] = MappingProxyType({})  # text of a graph break → how often

    def compiled_since(self, before: "TorchState") -> int:
        """Count the compilations that were not known before."""
        return sum(_is_compilation(_fields(entry)) for entry in _without(self.metrics, before.metrics))


def torch_state() -> TorchState:
    """Return what torch keeps, for `recover` when recording goes on. Takes some µs."""
    utils = "torch._dynamo.utils"
    return TorchState(
        metrics=list(loaded(utils, "get_compilation_metrics", list)()),
        breaks=list(loaded(utils, "graph_break_reasons", [])),
        counted=dict(loaded(utils, "counters", {}).get("graph_break", {})),
    )


def recover(
    *, source: bool, before: TorchState | None = None, codes_before: Counter[int] | None = None
) -> tuple[pb.CompileSummary, list[str]]:
    """Return the rows of everything that torch still keeps, without what it kept `before`, and the code of each graph.

    codes_before: how often each hash of output code was recovered before. Takes about 0.2 s per million Python objects;
    nothing without torch._dynamo, or if nothing new was compiled.
    """
    recovered = pb.CompileSummary()
    now, earlier = torch_state(), before or TorchState()
    metrics = _without(now.metrics, earlier.metrics)
    if "torch._dynamo.utils" not in sys.modules or (before is not None and not metrics):
        return recovered, []
    _add_compilations(recovered, [_fields(entry) for entry in metrics], source)
    _add_breaks(recovered, now, earlier, source)
    codes = _add_graphs(recovered, Counter(codes_before or {}))
    if len(metrics) >= METRICS_KEPT:
        when, remedy = "before recording began", "Create the handler before the first call to the model"
        if before is not None:
            when, remedy = "while nothing was recording", "Keep one recorder open"
        recovered.warnings.append(
            f"{METRICS_KEPT} or more compilations ran {when}; torch keeps the last {METRICS_KEPT}. "
            f"{remedy} to record them all."
        )
    return recovered, codes


def _without(entries: Iterable[Any], others: Iterable[object]) -> list[Any]:
    ids = {id(other) for other in others}
    return [entry for entry in entries if id(entry) not in ids]


def _fields(entry: object) -> dict[str, Any]:
    """Return the fields of a CompilationMetrics that this torch version has."""
    names: Iterable[str] = getattr(entry, "__dataclass_fields__", ())
    return {name: readable(getattr(entry, name, None)) for name in names}


def _is_compilation(metrics: dict[str, Any]) -> bool:
    return bool(metrics.get("compile_id")) and not metrics.get("is_runtime")


def _add_compilations(recovered: pb.CompileSummary, entries: list[dict[str, Any]], source: bool) -> None:
    epoch, seen = 0, set[str]()
    for metrics in entries:
        compile_id = metrics.get("compile_id")
        if not _is_compilation(metrics):
            continue
        backward = metrics.get("is_forward") is False or "co_name" not in metrics
        if not backward:
            if str(compile_id) in seen:  # ids begin again after torch._dynamo.reset()
                epoch, seen = epoch + 1, set()
            seen.add(str(compile_id))
        key = pb.CompileKey(compile_id=str(compile_id), epoch=epoch)
        row = pb.Compilation(key=key, direction=pb.BACKWARD if backward else pb.FORWARD, recovered=True)
        compile_rows.fill_from_metrics(row, metrics, source=source)
        for line in metrics.get("stack_trace") or []:
            if frame := frame_of_summary(str(line)):
                row.stack.add(file=frame.file, line=frame.line, function=frame.function)
        recovered.compilations.append(row)
        if metrics.get("recompile_reason"):
            reason = str(metrics["recompile_reason"])
            recompile = pb.Recompile(key=key, file=row.file, line=row.line, recovered=True)
            recompile.reasons.append(reason if source else compile_rows.withhold_source(reason))
            recovered.recompiles.append(recompile)


def _add_breaks(recovered: pb.CompileSummary, now: TorchState, before: TorchState, source: bool) -> None:
    """Add reasons with their user stack first; then texts that were only counted, without a place.

    None gets a compile id: torch does not keep it, and the frames' names do not distinguish a resume function.
    """
    placed: Counter[str] = Counter()
    unimplemented = loaded("torch._dynamo.utils", "counters", {}).get("unimplemented", {})
    branch = next((text for text in unimplemented if text.startswith(BRANCH)), "")
    for reason in _without(now.breaks, before.breaks):
        text = str(readable(reason.reason))
        placed[text] += 1
        if text.startswith(BRANCH_INSIDE) and branch:  # torch's internal name for it
            text = branch
        row = compile_rows.break_row(text, source=source)
        for summary in getattr(reason, "user_stack", None) or []:
            name, function = readable(summary.filename), readable(summary.name)
            frame = row.stack.add(file=name, line=summary.lineno or 0, function=function)
            if source and summary.line:
                frame.source = readable(summary.line)
        if row.stack and not row.file:
            row.file, row.line = row.stack[-1].file, row.stack[-1].line
        recovered.graph_breaks.append(row)
    for text, count in now.counted.items():
        if (rest := count - before.counted.get(text, 0) - placed[text]) > 0:
            recovered.graph_breaks.append(compile_rows.break_row(readable(text), source=source, count=rest))
    for row in recovered.graph_breaks:
        row.recovered = True


def _add_graphs(recovered: pb.CompileSummary, codes_before: Counter[int]) -> list[str]:
    """Add the graphs; return the code of each."""
    if "torch._inductor.output_code" not in sys.modules and "torch._inductor.codecache" not in sys.modules:
        return []
    # type() and not isinstance(): that would wake up proxies among a million foreign objects.
    graphs = [thing for thing in gc.get_objects() if type(thing).__name__ == "CompiledFxGraph"]
    unknown = []
    for thing in sorted(graphs, key=_graph_number):
        code = readable(getattr(thing, "source_code", None) or "")
        codes_before[hash(code)] -= 1
        if codes_before[hash(code)] < 0:
            unknown.append((_graph_number(thing), code, thing))
    keys = _keys_by_number(recovered, [number for number, _, _ in unknown])
    for number, code, thing in unknown:
        is_backward = _settings(thing).get("is_backward")
        if is_backward is None:
            is_backward = is_backward_code(code)
        graph = pb.Graph(
            key=keys.get(number),
            direction=pb.BACKWARD if is_backward else pb.FORWARD,
            graph_key=compile_rows.text_of(getattr(thing, "_fx_graph_cache_key", None)),
            kernels=compile_rows.generated_kernels(code),
            recovered=True,
        )
        recovered.graphs.append(graph)
    return [code for _, code, _ in unknown]


def _settings(graph: object) -> Mapping[str, Any]:
    settings = getattr(graph, "fx_kwargs", None)
    return settings if isinstance(settings, Mapping) else {}


def _graph_number(graph: object) -> int:
    number = _settings(graph).get("graph_id")
    return number if isinstance(number, int) else -1


def _keys_by_number(recovered: pb.CompileSummary, numbers: list[int]) -> dict[int, pb.CompileKey]:
    """Return compile ids by inductor's graph numbers, which follow the order of compilation.

    With one graph per frame the orders agree; with more of either (DDP splits, forgotten metrics) nothing is claimed.
    """
    rows = [row for row in recovered.compilations if row.direction == pb.FORWARD and row.graph_ops]
    distinct = sorted({number for number in numbers if number >= 0})
    return {n: row.key for n, row in zip(distinct, rows, strict=True)} if len(distinct) == len(rows) else {}
