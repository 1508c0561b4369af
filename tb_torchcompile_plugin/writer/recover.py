"""Compilations from before recording began, put together from what torch keeps of them.

Warming up before the profiler is built is the normal use, so this is no corner case. torch keeps the metrics of
the last 64 compilations, the reasons of graph breaks (until torch._dynamo.reset()), counters, and, reachable from the
compiled functions, the generated code. Rows made from these carry `recovered`: no phases, no guards' text.
Nothing here imports a torch module that is not loaded yet: without torch._dynamo nothing was compiled.
"""

from __future__ import annotations

import gc
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tb_torchcompile_plugin.compile_log import compile_rows, prose
from tb_torchcompile_plugin.compile_log import summary_pb2 as pb
from tb_torchcompile_plugin.compile_log.compile_rows import Recovered
from tb_torchcompile_plugin.compile_log.record import readable
from tb_torchcompile_plugin.torch_names.artifacts import is_backward_code
from tb_torchcompile_plugin.torch_names.graph_breaks import BRANCH, BRANCH_INSIDE
from tb_torchcompile_plugin.torch_names.python_frames import summary_place

# torch._dynamo.utils.DEFAULT_COMPILATION_METRICS_LIMIT
METRICS_KEPT = 64


@dataclass
class KnownObjects:
    """What torch kept when listening paused: its own objects, told apart by identity. All of it is known already."""

    metrics: list[object] = field(default_factory=list)
    breaks: list[object] = field(default_factory=list)
    counted: dict[str, int] = field(default_factory=dict)  # text of a graph break → how often

    def compiled_since(self, before: KnownObjects) -> int:
        """How many compilations are known that were not known before."""
        fields = map(_fields, _others(self.metrics, before.metrics))
        return sum(_is_compilation(metrics) for metrics in fields)


def known_now() -> KnownObjects:
    """To be given to `recover` when listening goes on. Some µs."""
    utils = sys.modules.get("torch._dynamo.utils")
    if utils is None:
        return KnownObjects()
    return KnownObjects(
        _metrics(utils), list(getattr(utils, "graph_break_reasons", [])), dict(_break_counts(utils))
    )


def recover(
    *, source: bool, known: KnownObjects | None = None, known_codes: Counter[int] | None = None
) -> Recovered:
    """All that torch still knows, without what is `known`; `known_codes` counts hashes of known output code.

    About 0.2 s for each million Python objects; nothing without torch._dynamo, or if nothing new was compiled.
    """
    recovered = Recovered()
    utils = sys.modules.get("torch._dynamo.utils")
    if utils is None:
        return recovered
    kept = _metrics(utils)
    metrics = kept if known is None else _others(kept, known.metrics)
    if known is not None and not metrics:
        return recovered
    _add_compilations(recovered, [_fields(entry) for entry in metrics], source)
    _add_breaks(recovered, utils, known or KnownObjects(), source)
    _add_graphs(recovered, Counter(known_codes or {}))
    if len(metrics) >= METRICS_KEPT:
        when, remedy = "before recording began", "Create the handler before the first call of the model"
        if known is not None:
            when, remedy = "while nothing was recording", "Keep one recorder open"
        recovered.warnings.append(
            f"{METRICS_KEPT} or more compilations ran {when}; torch keeps the last {METRICS_KEPT}. "
            f"{remedy} to record them all."
        )
    return recovered


def _metrics(utils: Any) -> list[object]:
    return list(getattr(utils, "get_compilation_metrics", list)())


def _break_counts(utils: Any) -> Mapping[str, int]:
    counts: Mapping[str, int] = getattr(utils, "counters", {}).get("graph_break", {})
    return counts


def _others(things: Iterable[Any], known: Iterable[object]) -> list[Any]:
    ids = {id(thing) for thing in known}
    return [thing for thing in things if id(thing) not in ids]


def _fields(entry: object) -> dict[str, Any]:
    """Fields of a CompilationMetrics, whatever this torch version has of them."""
    names: Iterable[str] = getattr(entry, "__dataclass_fields__", ())
    return {name: readable(getattr(entry, name, None)) for name in names}


def _is_compilation(metrics: dict[str, Any]) -> bool:
    return bool(metrics.get("compile_id")) and not metrics.get("is_runtime")


def _add_compilations(recovered: Recovered, entries: list[dict[str, Any]], source: bool) -> None:
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
        row.stack.extend(_frames_from_text(metrics.get("stack_trace") or []))
        recovered.compilations.append(row)
        if metrics.get("recompile_reason"):
            _add_recompile(recovered, row, str(metrics["recompile_reason"]), source)


def _add_recompile(recovered: Recovered, row: pb.Compilation, reason: str, source: bool) -> None:
    recompile = pb.Recompile(key=row.key, file=row.file, line=row.line, recovered=True)
    recompile.reasons.append(reason if source else prose.withhold_source(reason))
    recovered.recompiles.append(recompile)


def _frames_from_text(lines: Iterable[str]) -> list[pb.Frame]:
    places = (summary_place(str(line)) for line in lines)
    return [pb.Frame(file=place.file, line=place.line, function=place.function) for place in places if place]


def _add_breaks(recovered: Recovered, utils: Any, known: KnownObjects, source: bool) -> None:
    """Reasons with their user stack first; then texts that were only counted, without a place.

    None gets a compile id: torch does not keep it, and the frames' names do not tell a resume function apart.
    """
    placed: Counter[str] = Counter()
    unimplemented = getattr(utils, "counters", {}).get("unimplemented", {})
    branch = next((text for text in unimplemented if text.startswith(BRANCH)), "")
    for reason in _others(getattr(utils, "graph_break_reasons", []), known.breaks):
        text = str(readable(reason.reason))
        placed[text] += 1
        if text.startswith(BRANCH_INSIDE) and branch:  # torch's inner word for it
            text = branch
        row = compile_rows.break_row(text, source=source)
        _place(row, getattr(reason, "user_stack", None) or [], source)
        _add_break(recovered, row)
    for text, count in _break_counts(utils).items():
        if (rest := count - known.counted.get(text, 0) - placed[text]) > 0:
            _add_break(recovered, compile_rows.break_row(readable(text), source=source, count=rest))


def _add_break(recovered: Recovered, row: pb.GraphBreak) -> None:
    row.recovered = True
    recovered.graph_breaks.append(row)


def _place(row: pb.GraphBreak, stack: Iterable[Any], source: bool) -> None:
    for summary in stack:
        name, function = readable(summary.filename), readable(summary.name)
        frame = row.stack.add(file=name, line=summary.lineno or 0, function=function)
        if source and summary.line:
            frame.source = readable(summary.line)
    if row.stack and not row.file:
        row.file, row.line = row.stack[-1].file, row.stack[-1].line


def _add_graphs(recovered: Recovered, known_codes: Counter[int]) -> None:
    if "torch._inductor.output_code" not in sys.modules and "torch._inductor.codecache" not in sys.modules:
        return
    # type() and not isinstance(): that would wake up proxies among a million strangers.
    alive = [thing for thing in gc.get_objects() if type(thing).__name__ == "CompiledFxGraph"]
    numbered = sorted(
        ((_graph_number(thing), index, thing) for index, thing in enumerate(alive)), key=lambda t: t[:2]
    )
    unknown = []
    for number, _, thing in numbered:
        code = readable(getattr(thing, "source_code", None) or "")
        known_codes[hash(code)] -= 1
        if known_codes[hash(code)] < 0:
            unknown.append((number, code, thing))
    keys = _keys_by_number(recovered, [number for number, _, _ in unknown])
    for number, code, thing in unknown:
        graph = pb.Graph(
            key=keys.get(number),
            direction=pb.BACKWARD if _is_backward(thing, code) else pb.FORWARD,
            graph_key=compile_rows.text_of(getattr(thing, "_fx_graph_cache_key", None)),
            kernels=prose.generated_kernels(code),
            recovered=True,
        )
        recovered.graphs.append(graph)
        recovered.codes.append(code)


def _settings(thing: object) -> Mapping[str, Any]:
    settings = getattr(thing, "fx_kwargs", None)
    return settings if isinstance(settings, Mapping) else {}


def _graph_number(thing: object) -> int:
    number = _settings(thing).get("graph_id")
    return number if isinstance(number, int) else -1


def _is_backward(thing: object, code: str) -> bool:
    recorded = _settings(thing).get("is_backward")
    return bool(is_backward_code(code) if recorded is None else recorded)


def _keys_by_number(recovered: Recovered, numbers: list[int]) -> dict[int, pb.CompileKey]:
    """Inductor numbers its graphs in the order of compilation. With one graph for each frame the orders agree; with
    more of either (DDP splits, forgotten metrics) no one can tell, and nothing is claimed."""
    rows = [row for row in recovered.compilations if row.direction == pb.FORWARD and row.graph_ops]
    distinct = sorted({number for number in numbers if number >= 0})
    return {n: row.key for n, row in zip(distinct, rows, strict=True)} if len(distinct) == len(rows) else {}
