"""Which lines of the user's program does a library call inside a compiled graph compute?

The calls of an operator stand in the generated code in the order in which they run: the k-th call inside a graph's
execution is the k-th in its code, where there are as many of one as of the other. Else nothing is claimed. Kernels that
a CUDA graph replays have no calls.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis.runtime.op_shapes import decoded, is_shape
from tb_torchcompile_plugin.generated_code.artifacts import Frame
from tb_torchcompile_plugin.generated_code.generated_code import GeneratedCode, GraphCode
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


class ExternLines:
    """The calls in the generated code that the launches of one device are, where they can be told."""

    def __init__(self, trace: Trace, rows: Launches, ownership: Ownership, code: GeneratedCode) -> None:
        self._tops, self._executions = _tops(trace, rows)
        self._start = trace.ts[rows.index]
        self._calls: dict[int, tuple[GraphCode, CodeCall]] = {}  # by the row of the call
        for (compile_id, key), calls in self._by_graph(rows).items():
            graph = code.graph(ownership.name(compile_id), ownership.name(key))
            if graph is not None:
                self._learn(trace, graph, calls)

    def of(self, places: Int64s) -> list[Frame]:
        """The distinct lines of these launches."""
        return distinct_lines(frame for graph, call in self.calls(places) for frame in graph.call_lines(call))

    def calls(self, places: Int64s) -> list[tuple[GraphCode, CodeCall]]:
        """Each call of these launches, with the graph in whose code it stands."""
        tops = np.unique(self._tops[places]).tolist()
        called = (self._calls[top] for top in tops if top in self._calls)
        return list({id(call): (graph, call) for graph, call in called}.values())

    def each(self, places: Int64s) -> Iterator[tuple[Int64s, tuple[GraphCode, CodeCall] | None]]:
        """These launches by the call that they are of, None for those of which nothing tells."""
        tops, place = np.unique(self._tops[places], return_inverse=True)
        known = [self._calls.get(top) for top in tops.tolist()]
        numbers = {id(call[1]): number for number, call in enumerate(known) if call}
        number = np.array([numbers[id(call[1])] if call else -1 for call in known], np.int64)[place]
        for mine in alike(np.arange(len(places)), number):
            yield places[mine], known[number[mine[0]]] if number[mine[0]] >= 0 else None

    def order(self, places: Int64s, calls: int) -> Int64s:
        """Of launches of one kernel that its graph calls so often: which of these calls each is, by the order of time
        in its execution. -1 in an execution that has more of them or fewer, and for none."""
        execution = self._executions[places]
        order = np.lexsort((self._start[places], execution))
        _, first, which, count = np.unique(
            execution[order], return_index=True, return_inverse=True, return_counts=True
        )
        number = np.empty(len(places), np.int64)
        number[order] = np.where(count[which] == calls, np.arange(len(places)) - first[which], -1)
        return np.where(execution >= 0, number, -1)

    def _by_graph(self, rows: Launches) -> dict[tuple[int, int], list[tuple[int, int]]]:
        """(row of the call, row of the graph's execution) for each compile id and key."""
        known = self._tops >= 0
        columns = rows.compile_id, rows.graph_key, self._tops, self._executions
        keys, _ = distinct(*(column[known] for column in columns))
        by_graph = grouped(keys.T.tolist(), lambda row: (row[0], row[1]))
        return {graph: [(top, execution) for *_, top, execution in rows] for graph, rows in by_graph.items()}

    def _learn(self, trace: Trace, graph: GraphCode, calls: list[tuple[int, int]]) -> None:
        in_order = sorted(calls, key=lambda call: int(trace.ts[call[0]]))
        by_execution = grouped(in_order, lambda call: (call[1], trace.names[trace.name[call[0]]]))
        for (_, operator), executed in by_execution.items():
            written = [call for call in graph.calls if call.operator == operator]
            if len(executed) == len(written):
                for (row, _), call in zip(executed, written, strict=True):
                    self._calls[row] = graph, call


def extern_lines(profile: Profile) -> dict[Device, ExternLines]:
    """By device."""
    owners, code = profile.of(Ownership), profile.of(generated_code)
    return {
        rows.device: ExternLines(profile.trace, rows, owners, code) for rows in profile.of(kernel_launches)
    }


def _tops(trace: Trace, rows: Launches) -> tuple[Int64s, Int64s]:
    """For each launch the outermost operator around it inside a graph's execution, and that execution; -1 without one.

    Python frames, which stand between them where stacks were recorded, are passed over.
    """
    is_graph = mask_of(trace.names, is_graph_call)
    is_op = mask_of(trace.cats, OPERATOR.__eq__)
    tops, executions = (np.full(len(rows.op), -1, np.int64) for _ in range(2))
    here = np.flatnonzero((rows.graph_key >= 0) & (rows.op >= 0))
    at = outermost = rows.op[here]
    while len(here):
        outermost = np.where(is_op[trace.cat[at]], at, outermost)
        parent = trace.parent[at]
        inside = (parent >= 0) & is_graph[trace.name[parent]]
        tops[here[inside]] = outermost[inside]
        executions[here[inside]] = parent[inside]
        climb = ~inside & (parent >= 0)
        here, at, outermost = here[climb], parent[climb], outermost[climb]
    return tops, executions


# In which modules of the model was a kernel launched? As Python stacks tell, where they were recorded.


def module_names(trace: Trace, rows: Launches, groups: list[Int64s]) -> list[list[str]]:
    """For each group of launches the innermost modules around them, most launches first.

    torch numbers the instances of a class: `Linear_3` is the fourth Linear that ran.
    """
    around = _innermost(trace, rows)
    named = []
    for places in groups:
        codes, counts = np.unique(around[places], return_counts=True)
        order = np.argsort(-counts, kind="stable")
        named.append([module_of(trace.names[codes[i]]) or "" for i in order if codes[i] >= 0])
    return named


def _innermost(trace: Trace, rows: Launches) -> Int64s:
    """The code (into trace.names) of the innermost module's frame around each launch; -1 without one."""
    is_module = mask_of(trace.names, is_module_call)
    if not is_module.any():
        return np.full(len(rows.op), -1, np.int64)
    frame = climb(trace.parent, rows.op, is_module[trace.name])
    return np.where(frame >= 0, trace.name[frame], -1)


# How was a kernel launched: grid, block, registers, shared memory, occupancy? One kernel may have several
# ways.


_COLUMNS = ("grid", "block", "registers", "shared_memory", "occupancy")


class LaunchConfig(msgspec.Struct, frozen=True):
    """`warps` of a block. `occupancy_percent` is CUPTI's estimate. What the trace does not tell is None, and so is an
    occupancy of zero where every multiprocessor had a warp: CUPTI could not tell."""

    grid: list[int]
    block: list[int]
    warps: int | None
    registers: int | None
    shared_memory_bytes: int | None
    occupancy_percent: int | None
    launches: int
    time_us: float


class LaunchConfigs:
    """The configurations of the launches of one device."""

    def __init__(self, trace: Trace, rows: Launches) -> None:
        self._trace = trace
        self._dur = rows.dur
        self._columns = [codes_of(trace, name, rows.index) for name in _COLUMNS]
        _, self._same = distinct(*self._columns[::-1])
        self._warp, self._many = _property(trace, "warpSize", 32), _property(trace, "numSms", 1)

    def of(self, places: Int64s) -> list[LaunchConfig]:
        """Those of these launches, most time first; [] on the CPU and for copies."""
        launched = places[self._columns[0][places] >= 0]
        configs = [self._config(same) for same in alike(launched, self._same)]
        return sorted(configs, key=lambda row: -row.time_us)

    def _config(self, places: Int64s) -> LaunchConfig:
        codes = [int(column[places[0]]) for column in self._columns]
        registers, shared_memory, occupancy = (code if code >= 0 else None for code in codes[2:])
        grid, block = _sizes(self._trace, "grid", codes[0]), _sizes(self._trace, "block", codes[1])
        warps = math.ceil(math.prod(block) / self._warp) if block else None
        if occupancy == 0 and math.prod(grid) * (warps or 0) >= self._many:
            occupancy = None
        return LaunchConfig(
            grid=grid,
            block=block,
            warps=warps,
            registers=registers,
            shared_memory_bytes=shared_memory,
            occupancy_percent=occupancy,
            launches=len(places),
            time_us=us(self._dur[places].sum()),
        )


def share_of_gpu(trace: Trace, index: Int64s) -> Floats:
    """What share of a GPU the blocks of each kernel keep busy: 1 if they are as many as multiprocessors, or unknown."""
    code, many = codes_of(trace, "grid", index), _property(trace, "numSms", 0)
    grids = [_whole(text) for text in trace.texts.get("grid") or ()]
    shares = [math.prod(grid) / many if many and all(grid) and grid else 1.0 for grid in grids]
    return np.where(code >= 0, np.minimum([*shares, 1.0], 1.0)[code], 1.0)


def _sizes(trace: Trace, column: str, code: int) -> list[int]:
    return [*_whole(trace.texts[column][code])] if code >= 0 else []


@lru_cache(maxsize=4096)
def _whole(text: str) -> Sequence[int]:
    """A list of sizes; [] where they are no numbers."""
    sizes = decoded(text)
    whole = [int(size) if isinstance(size, float) and math.isfinite(size) else size for size in sizes]
    return whole if is_shape(whole) else []


def _property(trace: Trace, name: str, otherwise: int) -> int:
    """Of the first device. A warp has 64 threads on AMD's data center cards."""
    value = next((row.get(name) for row in device_properties(trace)), None)
    return value if isinstance(value, int) and value > 0 else otherwise
