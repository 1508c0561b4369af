"""How long would a step take without torch.compile? Its model, with every fused kernel as the operators that it is of.

Each operator reads and writes its tensors by itself, at the bandwidth that the fused kernel reached; its launch takes
the host as long as an operator's does. What compiled code spends beside its launches, on guards and wrappers, is gone.
Kernels of libraries are the same. How much memory an operator moves and what its launch takes is not known to the
digit: so there are bounds.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np

from tb_torchcompile_plugin.analysis.kernels.kernel_rows import KernelName, kernel_name
from tb_torchcompile_plugin.analysis.what_if.change import Bools, Change
from tb_torchcompile_plugin.analysis.what_if.fix import slice_times, time_inside
from tb_torchcompile_plugin.analysis.what_if.reasons import why_nothing
from tb_torchcompile_plugin.analysis.what_if.scenario import recording_cost
from tb_torchcompile_plugin.analysis.what_if.what_if import after_ns
from tb_torchcompile_plugin.generated_code.generated_code import GraphCode
from tb_torchcompile_plugin.profile.columns import mask_of, places_in
from tb_torchcompile_plugin.profile.compiled.ownership import Ownership
from tb_torchcompile_plugin.profile.compiled.regions import compiled_calls, generated_code
from tb_torchcompile_plugin.profile.gpu.launches import groups, kernel_launches
from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.profile.model.gpu_queue import gpu_queue
from tb_torchcompile_plugin.profile.model.launch_sequence import host_lane, host_pieces
from tb_torchcompile_plugin.profile.model.model import Model
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.torch_names.kernels import CATEGORIES, is_triton
from tb_torchcompile_plugin.torch_names.operators import ATEN, only_looks
from tb_torchcompile_plugin.torch_names.slices import OPERATOR

_SHORTEST_NS = 1_500  # of a kernel, however little it does
_TRITON = [code for code, name in enumerate(CATEGORIES) if is_triton(name)]


class Assumed(NamedTuple):
    """Of one eager operator. tensors: how many it reads and writes. launch_ns: of the host."""

    tensors: float
    launch_ns: int


USUAL, LEAST, MOST = Assumed(2.25, 10_000), Assumed(1.5, 5_000), Assumed(3.0, 18_000)


class EagerStep(NamedTuple):
    """A predicted eager step (µs), and between what it may be. operators: of a step, that generated kernels are of."""

    step_us: float
    low_us: float
    high_us: float
    operators: float


class _Fused(NamedTuple):
    """Of each work of the queue: of how many operators it is (0: of none that is known), and how many tensors it moves
    itself."""

    operators: Int64s
    tensors: Int64s


def uncompiled(profile: Profile) -> EagerStep | None:
    """None where nothing can be predicted, where no generated kernel ran, and where their code is not known."""
    if profile.of(why_nothing):
        return None
    fused = profile.of(_fused)
    if not fused.operators.any():
        return None
    cost = profile.of(recording_cost)
    times = [after_ns(profile, _unfused(profile, one), cost) / 1000 for one in (USUAL, LEAST, MOST)]
    operators = int(fused.operators.sum()) / profile.of(host_lane).steps
    return EagerStep(times[0], min(times), max(times), operators)


def _unfused(profile: Profile, assumed: Assumed) -> Change:
    queue, lane, fused = profile.of(gpu_queue), profile.of(host_lane), profile.of(_fused)
    mine = fused.operators > 0
    alone = fused.operators * assumed.tensors / np.maximum(fused.tensors, 1)
    longer = np.where(fused.operators > 1, np.maximum(alone, 1.0), 1.0)
    dur = np.maximum((queue.dur * longer).astype(np.int64), fused.operators * _SHORTEST_NS)
    launches = np.zeros(len(lane), np.int64)
    np.add.at(launches, queue.point[mine], fused.operators[mine])
    beside = profile.of(_beside_operators)

    def change(model: Model) -> Model:
        return model._replace(
            host=np.maximum(model.host - beside, 0),
            own=np.where(launches > 0, launches * assumed.launch_ns, model.own),
            dur=np.where(mine, dur, model.dur),
        )

    return change


def _beside_operators(profile: Profile) -> Int64s:
    """Of each piece of host time the part that compiled code spends and no operator of a library in it."""
    rows = [call.index for call in profile.of(compiled_calls)]
    rows += [index for index, _ in profile.of(Ownership).backwards]
    inside = time_inside(profile, slice_times(profile, np.array(rows, np.int64)))
    return np.where(_is_operator(profile)[profile.of(host_pieces).row], 0, inside)


def _is_operator(profile: Profile) -> Bools:
    """Which slices are calls of ATen's operators; none where nothing was recorded (-1)."""
    trace = profile.trace
    aten = mask_of(trace.names, lambda name: name.startswith(ATEN))[trace.name]
    return np.append(aten & mask_of(trace.cats, OPERATOR.__eq__)[trace.cat], False)


def _fused(profile: Profile) -> _Fused:
    row = profile.of(gpu_queue).row
    operators, tensors = np.zeros((2, len(row)), np.int64)
    for rows in profile.of(kernel_launches):
        for places in groups(rows) if rows.device != "cpu" else ():
            if rows.category[places[0]] in _TRITON:
                at = places_in(row, rows.index[places])
                operators[at[at >= 0]], tensors[at[at >= 0]] = _made_of(
                    profile, kernel_name(profile, rows, places)
                )
    return _Fused(operators, tensors)


def _made_of(profile: Profile, kernel: KernelName) -> tuple[int, int]:
    """(operators, tensors) of one launch; zeros where the code of the kernel is not known."""
    made = profile.of(generated_code).find(kernel.name, kernel.compile_id, kernel.graph_key)
    if made is None:
        return 0, 0
    one = made.definition
    times = profile.of(_times_computed, made.code)
    nodes = sum(1 / times[node] for node in one.source_nodes if not only_looks(node))
    operators = max(round(nodes), 0 if one.source_nodes else _counted(one.aten_ops), 1)
    return operators, (one.signature or "").count("_ptr")


def _times_computed(profile: Profile, code: GraphCode) -> Counter[str]:
    """Of how many kernels of a graph each node is: a reduction in two parts is of one operator."""
    return Counter(node for one in code.definitions.values() for node in set(one.source_nodes))


def _counted(names: list[str]) -> int:
    return sum(not only_looks(name) for name in names)
