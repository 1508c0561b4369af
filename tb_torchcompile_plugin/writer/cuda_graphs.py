"""Read torch's CUDA graph trees: functions, their recordings, and why each was made. Nothing is changed.

torch counts none of this and logs reasons only at a level that costs time at each call; its own objects hold everything
at no cost per step. Replays leave nothing behind: those of a profiled span are in its trace.
"""

import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from tb_torchcompile_plugin.compile_log import summary_pb2 as pb
from tb_torchcompile_plugin.compile_log.record import Reason, readable
from tb_torchcompile_plugin.torch_names.python_frames import traceback_frames
from tb_torchcompile_plugin.torch_names.slices import CONTAINERS, TREES_MODULE

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
    """Return the tree managers of this thread with their devices."""
    trees: Any = sys.modules.get(TREES_MODULE)
    if trees is None:
        return []
    import torch

    containers = getattr(trees.local, CONTAINERS, None)
    if containers is None and torch._C._is_key_in_tls(CONTAINERS):
        containers = torch._C._get_obj_in_tls(CONTAINERS)
    managers = [(device, container.tree_manager) for device, container in list((containers or {}).items())]
    return [(device, manager) for device, manager in managers if manager is not None]


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
