"""Read what torch keeps but does not record: earlier compilations, CUDA graphs and the choices of autotuning.

Warming up before the profiler is created is the normal use. torch keeps the metrics of the last 64 compilations, the
reasons of graph breaks (until torch._dynamo.reset()), counters, and, reachable from the compiled functions, the
generated code. Rows from these have `recovered` set: no phases, no guards' text. Nothing here imports a torch module
that is not loaded yet: without torch._dynamo nothing was compiled.

Of CUDA graphs torch counts nothing and logs reasons only at a level that costs time at each call; its own trees hold
everything at no cost per step. Replays leave nothing behind: those of a profiled span are in its trace. Choices are in
inductor's autotuners, which are in the modules of generated code that torch keeps loaded. Reading them takes
microseconds per graph, when a summary is written. Nothing of torch is changed.
"""

import gc
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from tb_torchcompile_plugin.compile_log import compile_rows
from tb_torchcompile_plugin.compile_log import summary_pb2 as pb
from tb_torchcompile_plugin.compile_log.record import Reason, readable
from tb_torchcompile_plugin.torch_names.artifacts import is_backward_code
from tb_torchcompile_plugin.torch_names.graph_breaks import BRANCH, BRANCH_INSIDE
from tb_torchcompile_plugin.torch_names.kernels import launches
from tb_torchcompile_plugin.torch_names.python_frames import frame_of_summary, traceback_frames
from tb_torchcompile_plugin.torch_names.slices import CONTAINERS, TREES_MODULE
from tb_torchcompile_plugin.writer.environment import loaded

_COUNT = re.compile(r"count\((-?\d+)")
# Recordings of one device. A bound on the size of a summary: a program that records more has a finding long before.
_MAX_RECORDINGS = 4096

_Recorded = tuple[Any, int | None]  # torch's node, and the id of the recording before it on its path


def add_cuda_graphs(summary: pb.CompileSummary, *, source: bool) -> None:
    """Fill in `cuda_graph_trees`. Takes milliseconds where there are thousands of recordings."""
    epochs = {row.key.compile_id: row.key.epoch for row in summary.compilations}
    for device, manager in _managers():
        tree = summary.cuda_graph_trees.add(device=device)
        # Warm-up runs are numbered from -1 downwards; the counter's repr shows the next number without using it up.
        if match := _COUNT.match(repr(getattr(manager, "warmup_node_counter", None))):
            tree.warm_ups = -1 - int(match[1])
        if (size := _pool_bytes(manager)) is not None:
            tree.pool_bytes = size
        for row in _functions(manager, source):
            row.key.epoch = epochs.get(row.key.compile_id, 0)
            tree.functions.append(row)


def _managers() -> list[tuple[int, Any]]:
    trees: Any = sys.modules.get(TREES_MODULE)
    if trees is None:
        return []
    import torch

    containers = getattr(trees.local, CONTAINERS, None)
    if containers is None and torch._C._is_key_in_tls(CONTAINERS):
        containers = torch._C._get_obj_in_tls(CONTAINERS)
    return [
        (device, container.tree_manager)
        for device, container in list((containers or {}).items())
        if container.tree_manager is not None
    ]


def _pool_bytes(manager: Any) -> int | None:
    """Return what the graphs' memory pool has reserved.

    None while torch keeps a history of its memory: the snapshot would copy all of that, too.
    """
    import torch

    pool = getattr(manager, "cuda_graphs_thread_pool", None)
    if pool is None or torch._C._cuda_isHistoryEnabled():
        return None
    try:
        segments = torch.cuda.memory_snapshot(tuple(pool))
    except TypeError:  # an older torch gives all pools at once
        segments = torch.cuda.memory_snapshot()
    return sum(
        int(segment["total_size"]) for segment in segments if tuple(segment["segment_pool_id"]) == tuple(pool)
    )


def _functions(manager: Any, source: bool) -> Iterator[pb.CudaGraphFunction]:
    nodes: dict[Any, list[_Recorded]] = defaultdict(list)
    for node, after in sorted(_nodes(manager), key=lambda recorded: recorded[0].id.id)[:_MAX_RECORDINGS]:
        nodes[node.wrapped_function.id].append((node, after))
    hints = list(manager.non_cudagraph_managed_mutation_hint.values())
    seen: set[tuple[str, str, str]] = set()  # functions of one graph differ in their sizes
    for function_id, function in sorted(manager.ids_to_funcs.items(), key=lambda item: item[0].id):
        mode = manager.id_to_mode[function_id].name
        row = pb.CudaGraphFunction(
            key=pb.CompileKey(compile_id=str(manager.id_to_compile_id[function_id] or "")),
            direction=pb.BACKWARD if mode == "BACKWARD" else pb.FORWARD,
            function_id=function_id.id,
            name=str(getattr(function.model, "__name__", "")),
            warmed_up=function_id in manager.warmed_up_functions,
            mutates=any(hint.get(function_id) for hint in hints),
        )
        row.over_limit = any(
            manager.exceed_rerecord_limit(node, function_id)
            for node, counts in list(getattr(manager, "num_rerecord", {}).items())
            if function_id in counts
        )
        kind = (row.key.compile_id, mode, row.name)
        row.recordings.extend(_recordings(nodes[function_id], "size" if kind in seen else "first", source))
        seen.add(kind)
        yield row


def _nodes(manager: Any) -> Iterator[_Recorded]:
    pending = [(node, None) for nodes in (manager.roots or {}).values() for node in nodes]
    while pending:
        node, after = pending.pop()
        yield node, after
        pending += [(child, node.id.id) for children in node.children.values() for child in children]


def _recordings(nodes: list[_Recorded], first: Reason, source: bool) -> Iterator[pb.CudaGraphRecording]:
    latest: dict[int | None, Any] = {}  # by the recording before it
    for index, (node, after) in enumerate(nodes):
        row = pb.CudaGraphRecording(graph_id=node.id.id, reason=first if index == 0 else "order")
        row.sizes.extend(size for size in node.reconstructed_inputs if isinstance(size, int))
        if after is not None:
            row.after = after
        if after in latest:
            _compare(row, node, latest[after], source)
        latest[after] = node
        yield row


def _compare(row: pb.CudaGraphRecording, node: Any, before: Any, source: bool) -> None:
    """Fill in what differs from the function's previous recording at this place, in the order of torch's checks."""
    pointers, pointers_before = node.static_input_data_ptrs, before.static_input_data_ptrs
    managed = {*node.cudagraph_managed_idxs, *before.cudagraph_managed_idxs}
    if any(pointers[index] != pointers_before[index] for index in managed):
        row.reason = "earlier_result"
        return
    moved = [i for i in node.non_managed_static_input_idxs if pointers[i] != pointers_before[i]]
    row.reason = "static_input" if moved else "liveness"
    placeholders = [node.wrapped_function.placeholders[index] for index in moved]
    if source:
        row.inputs.extend(readable(placeholder.name) for placeholder in placeholders)
    for placeholder in placeholders:  # the line that uses the first input whose line is known
        for text in (placeholder.stack_trace, *(use.stack_trace for use in placeholder.users)):
            if frames := list(traceback_frames(text or "")):
                row.file, row.line = readable(frames[-1].file), frames[-1].line
                return


def add_autotune_choices(summary: pb.CompileSummary) -> None:
    """Fill in `config` of kernels that had a choice and have made it, where torch keeps the generated code loaded."""
    cache = loaded("torch._inductor.codecache", "PyCodeCache")
    modules = {getattr(module, "__file__", ""): module for module in list(getattr(cache, "modules", ()))}
    for graph in summary.graphs:
        kernels = [kernel for kernel in graph.kernels if kernel.num_configs > 1 and not kernel.config]
        if kernels and graph.output_code_file in modules:
            _add_choices(kernels, vars(modules[graph.output_code_file]))


def _add_choices(kernels: list[pb.GeneratedKernel], variables: dict[str, Any]) -> None:
    tuners = {
        name: value
        for name, value in variables.items()
        if any(kind.__name__ == "CachingAutotuner" for kind in type(value).__mro__)
    }
    for kernel in kernels:
        # The variable of a user's own kernel ends with a number that its name does not have.
        found = [tuner for name, tuner in tuners.items() if launches(name, kernel.name)]
        configs = {_config_in_use(tuner) for tuner in found} - {""}
        if len(configs) == 1:
            kernel.config = configs.pop()


def _config_in_use(tuner: Any) -> str:
    """Return block sizes, then warps and stages, as torch's own records have it; "" before there is a choice."""
    launchers = list(getattr(tuner, "launchers", ()))
    if len(launchers) != 1:
        return ""
    config = launchers[0].config
    sizes = {**config.kwargs, "num_warps": config.num_warps, "num_stages": config.num_stages}
    return ", ".join(f"{name}={value}" for name, value in sizes.items())


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
    *, source: bool, before: TorchState | None, codes_before: Counter[int]
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
    codes = _add_graphs(recovered, Counter(codes_before))
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
    for metrics in filter(_is_compilation, entries):
        compile_id = str(metrics["compile_id"])
        backward = metrics.get("is_forward") is False or "co_name" not in metrics
        if not backward:
            if compile_id in seen:  # ids begin again after torch._dynamo.reset()
                epoch, seen = epoch + 1, set()
            seen.add(compile_id)
        key = pb.CompileKey(compile_id=compile_id, epoch=epoch)
        row = pb.Compilation(key=key, direction=pb.BACKWARD if backward else pb.FORWARD, recovered=True)
        compile_rows.fill_from_metrics(row, metrics, source=source)
        for line in metrics.get("stack_trace") or []:
            if frame := frame_of_summary(str(line)):
                row.stack.add(file=frame.file, line=frame.line, function=frame.function)
        recovered.compilations.append(row)
        if metrics.get("recompile_reason"):
            reason = str(metrics["recompile_reason"])
            reasons = [reason if source else compile_rows.withhold_source(reason)]
            recovered.recompiles.add(key=key, file=row.file, line=row.line, recovered=True, reasons=reasons)


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
        recovered.graphs.add(
            key=keys.get(number),
            direction=pb.BACKWARD if is_backward else pb.FORWARD,
            graph_key=compile_rows.text_of(getattr(thing, "_fx_graph_cache_key", None)),
            kernels=compile_rows.generated_kernels(code),
            recovered=True,
        )
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
