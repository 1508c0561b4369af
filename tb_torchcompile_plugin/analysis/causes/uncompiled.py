"""How long would a step be without torch.compile? Fused kernels become operators in the model of the steps."""

from collections import Counter
from typing import NamedTuple

import numpy as np

from tb_torchcompile_plugin.analysis.causes import fix
from tb_torchcompile_plugin.analysis.causes.what_if import after_ns, why_nothing
from tb_torchcompile_plugin.analysis.runtime.kernel_rows import KernelName, kernel_name
from tb_torchcompile_plugin.generated_code.generated_code import GraphCode
from tb_torchcompile_plugin.profile.columns import indices_in, mask_of
from tb_torchcompile_plugin.profile.compiled import regions
from tb_torchcompile_plugin.profile.gpu.launches import groups, kernel_launches
from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.profile.model.gpu_queue import gpu_queue
from tb_torchcompile_plugin.profile.model.launch_sequence import host_segments, launch_sequence
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.torch_names.kernels import CATEGORIES, has_triton_prefix
from tb_torchcompile_plugin.torch_names.operators import ATEN, is_view
from tb_torchcompile_plugin.torch_names.slices import OPERATOR

_SHORTEST_NS = 1_500  # of a kernel, however little it does; chosen by eye on the recordings
_TRITON = [code for code, name in enumerate(CATEGORIES) if has_triton_prefix(name)]


class Assumed(NamedTuple):
    """What one eager operator is assumed to take; chosen by eye."""

    tensors: float  # that it reads and writes
    launch_ns: int  # of host time


USUAL, LEAST, MOST = Assumed(2.25, 10_000), Assumed(1.5, 5_000), Assumed(3.0, 18_000)


def uncompiled(profile: Profile) -> tuple[float, float, float] | None:
    """Predict a step without torch.compile (µs), with the lowest and the highest value.

    None without a prediction, a generated kernel or its code.

    In the model each fused kernel becomes its operators. Each of those reads and writes its tensors by itself, at the
    bandwidth of the fused kernel; its launch takes the host as long as an operator's does. The guards and wrappers of
    compiled code are gone, kernels of libraries stay. What an operator moves and what its launch takes is not known
    exactly: so there is a range.
    """
    if profile.of(why_nothing):
        return None
    operators, _ = profile.of(_fused)
    if not operators.any():
        return None
    trace = profile.trace
    inside = fix.time_inside(profile, profile.of(fix.compiled_times))
    aten = mask_of(trace.names, lambda name: name.startswith(ATEN))[trace.name]
    is_operator = aten & mask_of(trace.cats, OPERATOR.__eq__)[trace.cat]
    # Row -1, where nothing was recorded, is the last.
    by_library = np.append(is_operator, False)[profile.of(host_segments).row]
    no_wrappers = fix.without_host_time(np.where(by_library, 0, inside))
    changes = (fix.in_sequence(no_wrappers, _unfused(profile, assumed)) for assumed in (USUAL, LEAST, MOST))
    times = [after_ns(profile, change) / 1000 for change in changes]
    return times[0], min(times), max(times)


def _unfused(profile: Profile, assumed: Assumed) -> fix.Change:
    queue, lane, (operators, tensors) = profile.of(gpu_queue), profile.of(launch_sequence), profile.of(_fused)
    generated = operators > 0
    alone = operators * assumed.tensors / np.maximum(tensors, 1)
    longer = np.where(operators > 1, np.maximum(alone, 1.0), 1.0)
    dur = np.maximum((queue.dur * longer).astype(np.int64), operators * _SHORTEST_NS)
    launches = np.zeros(len(lane), np.int64)
    np.add.at(launches, queue.point[generated], operators[generated])
    return fix.in_sequence(
        fix.with_call_time(launches > 0, launches * assumed.launch_ns),
        fix.with_durations(np.flatnonzero(generated), dur[generated]),
    )


def _fused(profile: Profile) -> tuple[Int64s, Int64s]:
    """Return of how many operators each work of the queue is made, 0 for unknown, and how many tensors it moves."""
    queue_rows = profile.of(gpu_queue).row
    operators, tensors = np.zeros((2, len(queue_rows)), np.int64)
    for rows in profile.of(kernel_launches):
        for launches in groups(rows) if rows.device != "cpu" else ():
            if rows.category[launches[0]] in _TRITON:
                work = indices_in(queue_rows, rows.index[launches])
                work = work[work >= 0]
                operators[work], tensors[work] = _made_of(profile, kernel_name(profile, rows, launches))
    return operators, tensors


def _made_of(profile: Profile, kernel: KernelName) -> tuple[int, int]:
    """Return the (operators, tensors) of one launch; zeros where the code of the kernel is unknown."""
    generated = profile.of(regions.generated_code).find(kernel.name, kernel.compile_id, kernel.graph_key)
    if generated is None:
        return 0, 0
    definition = generated.definition
    times = profile.of(_kernels_by_node, generated.code)
    nodes = sum(1 / times[node] for node in definition.source_nodes if not is_view(node))
    # Kernels without nodes are counted by operators instead.
    named = 0 if definition.source_nodes else sum(not is_view(name) for name in definition.aten_ops)
    return max(round(nodes), named, 1), (definition.signature or "").count("_ptr")


def _kernels_by_node(profile: Profile, code: GraphCode) -> Counter[str]:
    """Return how many kernels of a graph each node is part of: a reduction in two parts is one operator."""
    return Counter(node for row in code.definitions.values() for node in set(row.source_nodes))
