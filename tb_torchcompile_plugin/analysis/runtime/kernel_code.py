"""Show what a launch is: which call in the generated code, in which module, with which grid and block.

The calls of an operator stand in the generated code in the order in which they run: where there are as many of both,
the k-th call inside a graph's execution is the k-th in its code. Calls inside CUDA graphs are unknown.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis.runtime.op_shapes import decoded, is_shape
from tb_torchcompile_plugin.generated_code.artifacts import Frame
from tb_torchcompile_plugin.generated_code.generated_code import GraphCode
from tb_torchcompile_plugin.generated_code.output_code import CodeCall
from tb_torchcompile_plugin.generated_code.user_lines import distinct_lines
from tb_torchcompile_plugin.profile.columns import Floats, alike, codes_of, distinct, mask_of
from tb_torchcompile_plugin.profile.compiled.ownership import Ownership
from tb_torchcompile_plugin.profile.compiled.regions import generated_code
from tb_torchcompile_plugin.profile.gpu.launches import Device, Launches, kernel_launches
from tb_torchcompile_plugin.profile.gpu_work import device_properties
from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.units import us
from tb_torchcompile_plugin.reader.arrays import grouped
from tb_torchcompile_plugin.reader.trace.kineto import Trace
from tb_torchcompile_plugin.reader.trace.nest import climb
from tb_torchcompile_plugin.torch_names.python_frames import is_module_call, module_of
from tb_torchcompile_plugin.torch_names.slices import OPERATOR, is_graph_call

_COLUMNS = ("grid", "block", "registers", "shared_memory", "occupancy")
Call = tuple[GraphCode, CodeCall]


class ExternLines:
    """The calls in the generated code that the launches of one device are, where known."""

    def __init__(self, profile: Profile, rows: Launches) -> None:
        trace, ownership, code = profile.trace, profile.of(Ownership), profile.of(generated_code)
        self._tops, self._executions = _tops(trace, rows)
        self._start = trace.ts[rows.index]
        self._calls: dict[int, Call] = {}  # by the row of the outermost operator
        in_graph = self._tops >= 0
        columns = rows.compile_id, rows.graph_key, self._tops, self._executions
        keys, _ = distinct(*(column[in_graph] for column in columns))
        for (compile_id, key), calls in grouped(keys.T.tolist(), lambda row: (row[0], row[1])).items():
            graph = code.graph(ownership.name(compile_id), ownership.name(key))
            if graph is not None:
                self._match(trace, graph, [(top, execution) for *_, top, execution in calls])

    def _match(self, trace: Trace, graph: GraphCode, calls: list[tuple[int, int]]) -> None:
        """Match calls (row of the operator, row of the graph's execution) to the calls in the code of their graph."""
        in_order = sorted(calls, key=lambda call: int(trace.ts[call[0]]))
        executed = grouped(in_order, lambda call: (call[1], trace.names[trace.name[call[0]]]))
        for (_, operator), rows in executed.items():
            written = [call for call in graph.calls if call.operator == operator]
            if len(rows) == len(written):
                self._calls |= {row: (graph, call) for (row, _), call in zip(rows, written, strict=True)}

    def of(self, indices: Int64s) -> list[Frame]:
        """Return the distinct lines of these launches."""
        return distinct_lines(
            frame for graph, call in self.calls(indices) for frame in graph.call_lines(call)
        )

    def calls(self, indices: Int64s) -> list[Call]:
        """Return each call of these launches, with the graph in whose code it stands."""
        tops = np.unique(self._tops[indices]).tolist()
        calls = (self._calls[top] for top in tops if top in self._calls)
        return list({id(call): (graph, call) for graph, call in calls}.values())

    def each(self, indices: Int64s) -> Iterator[tuple[Int64s, Call | None]]:
        """Yield these launches by their call, None for those of which it is unknown."""
        tops, top_of = np.unique(self._tops[indices], return_inverse=True)
        calls = [self._calls.get(top) for top in tops.tolist()]
        numbers = {id(call[1]): number for number, call in enumerate(calls) if call}
        number_of = np.array([numbers[id(call[1])] if call else -1 for call in calls], np.int64)[top_of]
        for same in alike(np.arange(len(indices)), number_of):
            number = number_of[same[0]]
            yield indices[same], calls[number] if number >= 0 else None

    def order(self, indices: Int64s, calls: int) -> Int64s:
        """Return which of so many calls in its graph's code each launch is; -1 if the execution has more or fewer."""
        execution = self._executions[indices]
        order = np.lexsort((self._start[indices], execution))
        _, first, run_of, count = np.unique(
            execution[order], return_index=True, return_inverse=True, return_counts=True
        )
        number = np.empty(len(indices), np.int64)
        number[order] = np.where(count[run_of] == calls, np.arange(len(indices)) - first[run_of], -1)
        return np.where(execution >= 0, number, -1)


def extern_lines(profile: Profile) -> dict[Device, ExternLines]:
    """Return the calls in the generated code by device."""
    return {rows.device: ExternLines(profile, rows) for rows in profile.of(kernel_launches)}


def _tops(trace: Trace, rows: Launches) -> tuple[Int64s, Int64s]:
    """Return for each launch the outermost operator inside a graph's execution, and that execution; -1 without one."""
    is_graph = mask_of(trace.names, is_graph_call)
    is_op = mask_of(trace.cats, OPERATOR.__eq__)
    tops, executions = (np.full(len(rows.op), -1, np.int64) for _ in range(2))
    climbing = np.flatnonzero((rows.graph_key >= 0) & (rows.op >= 0))
    at = outermost = rows.op[climbing]
    while len(climbing):
        outermost = np.where(is_op[trace.cat[at]], at, outermost)  # Python frames are passed over
        parent = trace.parent[at]
        inside = (parent >= 0) & is_graph[trace.name[parent]]
        tops[climbing[inside]] = outermost[inside]
        executions[climbing[inside]] = parent[inside]
        further = ~inside & (parent >= 0)
        climbing, at, outermost = climbing[further], parent[further], outermost[further]
    return tops, executions


def module_names(trace: Trace, rows: Launches, groups: list[Int64s]) -> list[list[str]]:
    """Return for each group of launches the innermost modules in the stacks around them, most launches first."""
    is_module = mask_of(trace.names, is_module_call)
    if not is_module.any():
        return [[] for _ in groups]
    frame = climb(trace.parent, rows.op, is_module[trace.name])
    name = np.where(frame >= 0, trace.name[frame], -1)
    modules = []
    for indices in groups:
        codes, counts = np.unique(name[indices], return_counts=True)
        in_order = codes[np.argsort(-counts, kind="stable")].tolist()
        modules.append([module_of(trace.names[code]) or "" for code in in_order if code >= 0])
    return modules


class LaunchConfig(msgspec.Struct, frozen=True):
    """How a kernel was launched. None is not in the trace."""

    grid: list[int]
    block: list[int]
    warps: int | None  # of a block
    registers: int | None
    shared_memory_bytes: int | None
    occupancy_percent: (
        int | None
    )  # CUPTI's estimate; None where it is 0 though each multiprocessor had a warp
    launches: int
    time_us: float


class LaunchConfigs:
    """The configurations of the launches of one device."""

    def __init__(self, trace: Trace, rows: Launches) -> None:
        self._trace = trace
        self._dur = rows.dur
        self._columns = [codes_of(trace, name, rows.index) for name in _COLUMNS]
        _, self._config_of = distinct(*self._columns[::-1])
        # A warp has 64 threads on AMD's data center cards.
        self._warp_size, self._multiprocessors = (
            _property(trace, "warpSize", 32),
            _property(trace, "numSms", 1),
        )

    def of(self, indices: Int64s) -> list[LaunchConfig]:
        """Return the configurations of these launches, most time first; [] on the CPU and for copies."""
        launched = indices[self._columns[0][indices] >= 0]
        configs = [self._config(same) for same in alike(launched, self._config_of)]
        return sorted(configs, key=lambda row: -row.time_us)

    def _config(self, indices: Int64s) -> LaunchConfig:
        codes = [int(column[indices[0]]) for column in self._columns]
        registers, shared_memory, occupancy = (code if code >= 0 else None for code in codes[2:])
        grid, block = (
            [*_sizes(self._trace.texts[column][code])] if code >= 0 else []
            for column, code in zip(_COLUMNS, codes[:2])
        )
        warps = math.ceil(math.prod(block) / self._warp_size) if block else None
        if occupancy == 0 and math.prod(grid) * (warps or 0) >= self._multiprocessors:
            occupancy = None
        return LaunchConfig(
            grid=grid,
            block=block,
            warps=warps,
            registers=registers,
            shared_memory_bytes=shared_memory,
            occupancy_percent=occupancy,
            launches=len(indices),
            time_us=us(self._dur[indices].sum()),
        )


def share_of_gpu(trace: Trace, index: Int64s) -> Floats:
    """Return the share of multiprocessors that the blocks of each kernel keep busy, 1 where unknown."""
    code, multiprocessors = codes_of(trace, "grid", index), _property(trace, "numSms", 0)
    grids = [_sizes(text) for text in trace.texts.get("grid") or ()]
    shares = [
        math.prod(grid) / multiprocessors if multiprocessors and all(grid) and grid else 1.0 for grid in grids
    ]
    return np.where(code >= 0, np.minimum([*shares, 1.0], 1.0)[code], 1.0)


@lru_cache(maxsize=4096)
def _sizes(text: str) -> Sequence[int]:
    """Return the sizes in a JSON text; [] where they are no whole numbers."""
    sizes = decoded(text)
    whole = [int(size) if isinstance(size, float) and math.isfinite(size) else size for size in sizes]
    return whole if is_shape(whole) else []


def _property(trace: Trace, name: str, otherwise: int) -> int:
    """Return a property of the first device."""
    value = next((row.get(name) for row in device_properties(trace)), None)
    return value if isinstance(value, int) and value > 0 else otherwise
