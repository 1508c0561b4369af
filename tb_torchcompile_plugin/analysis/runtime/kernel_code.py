"""Show what a launch is: which call in the generated code, in which module, with which grid and block.

The calls of an operator stand in the generated code in the order in which they run: where there are as many of both,
the k-th call inside a graph's execution is the k-th in its code. Calls inside CUDA graphs are unknown.
"""

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Annotated, NamedTuple

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis.runtime.op_shapes import decoded, is_shape
from tb_torchcompile_plugin.analysis.sheet import column_head
from tb_torchcompile_plugin.generated_code.artifacts import Frame
from tb_torchcompile_plugin.generated_code.generated_code import GraphCode
from tb_torchcompile_plugin.generated_code.output_code import CodeCall
from tb_torchcompile_plugin.generated_code.user_lines import distinct_lines
from tb_torchcompile_plugin.profile.columns import (
    Floats,
    codes_of,
    distinct,
    groups_of_equal,
    mask_of,
    ordinals,
    values_at,
)
from tb_torchcompile_plugin.profile.compiled.ownership import Ownership
from tb_torchcompile_plugin.profile.compiled.regions import generated_code
from tb_torchcompile_plugin.profile.gpu.launches import Device, Launches, kernel_launches
from tb_torchcompile_plugin.profile.gpu_work import device_properties
from tb_torchcompile_plugin.profile.intervals import Int64s, us
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.arrays import grouped
from tb_torchcompile_plugin.reader.trace.kineto import Trace
from tb_torchcompile_plugin.reader.trace.nest import first_ancestor, outermost_ancestor
from tb_torchcompile_plugin.torch_names.python_frames import is_module_call, module_of
from tb_torchcompile_plugin.torch_names.slices import OPERATOR, is_graph_call

_COLUMNS = ("grid", "block", "registers", "shared_memory", "occupancy")
Call = tuple[GraphCode, CodeCall]


class ExternLines(NamedTuple):
    """The calls in the generated code that the launches of one device are, where known."""

    # of each launch the row of the outermost operator inside a graph's execution, -1 without one
    tops: Int64s
    executions: Int64s  # the row of that execution
    start: Int64s  # when each launch ran
    by_top: dict[int, Call]  # by the row of the outermost operator

    def of(self, indices: Int64s) -> list[Frame]:
        """Return the distinct lines of these launches."""
        return distinct_lines(line for graph, call in self.calls(indices) for line in graph.call_lines(call))

    def calls(self, indices: Int64s) -> list[Call]:
        """Return each call of these launches, with the graph in whose code it stands."""
        tops = np.unique(self.tops[indices]).tolist()
        calls = (self.by_top[top] for top in tops if top in self.by_top)
        return list({id(call): (graph, call) for graph, call in calls}.values())

    def each(self, indices: Int64s) -> Iterator[tuple[Int64s, Call | None]]:
        """Yield these launches by their call, None for those of which it is unknown."""
        tops, top_of = np.unique(self.tops[indices], return_inverse=True)
        calls = [self.by_top.get(top) for top in tops.tolist()]
        numbers = {id(call[1]): number for number, call in enumerate(calls) if call}
        number_of = np.array([numbers[id(call[1])] if call else -1 for call in calls], np.int64)[top_of]
        for same in groups_of_equal(np.arange(len(indices)), number_of):
            number = number_of[same[0]]
            yield indices[same], calls[number] if number >= 0 else None

    def order(self, indices: Int64s, calls: int) -> Int64s:
        """Return which of so many calls in its graph's code each launch is; -1 if the execution has more or fewer."""
        execution = self.executions[indices]
        order = np.lexsort((self.start[indices], execution))
        _, run_of, count = np.unique(execution, return_inverse=True, return_counts=True)
        number = np.empty(len(indices), np.int64)
        number[order] = ordinals(execution[order])
        return np.where((execution >= 0) & (count[run_of] == calls), number, -1)


def extern_lines(profile: Profile) -> dict[Device, ExternLines]:
    """Return the calls in the generated code by device."""
    trace, ownership, code = profile.trace, profile.of(Ownership), profile.of(generated_code)
    lines: dict[Device, ExternLines] = {}
    for rows in profile.of(kernel_launches):
        tops, executions = _tops(trace, rows)
        in_graph = tops >= 0
        columns = rows.compile_id, rows.graph_key, tops, executions
        keys, _ = distinct(*(column[in_graph] for column in columns))
        by_top: dict[int, Call] = {}
        for (compile_id, key), calls in grouped(keys.T.tolist(), lambda row: (row[0], row[1])).items():
            graph = code.graph(ownership.name(compile_id), ownership.name(key))
            if graph is not None:
                by_top |= _matched(trace, graph, [(top, execution) for *_, top, execution in calls])
        lines[rows.device] = ExternLines(tops, executions, trace.ts[rows.index], by_top)
    return lines


def _matched(trace: Trace, graph: GraphCode, calls: list[tuple[int, int]]) -> dict[int, Call]:
    """Match calls (row of the operator, row of the graph's execution) to the calls in the code of their graph."""
    in_order = sorted(calls, key=lambda call: int(trace.ts[call[0]]))
    executed = grouped(in_order, lambda call: (call[1], trace.names[trace.name[call[0]]]))
    matched: dict[int, Call] = {}
    for (_, operator), rows in executed.items():
        written = [call for call in graph.calls if call.operator == operator]
        if len(rows) == len(written):
            matched |= {row: (graph, call) for (row, _), call in zip(rows, written, strict=True)}
    return matched


def _tops(trace: Trace, rows: Launches) -> tuple[Int64s, Int64s]:
    """Return for each launch the outermost operator inside a graph's execution, and that execution; -1 without one."""
    is_graph = mask_of(trace.names, is_graph_call)[trace.name]
    is_op = mask_of(trace.cats, OPERATOR.__eq__)[trace.cat]
    op = np.where(rows.graph_key >= 0, rows.op, -1).astype(np.int64)
    executions = first_ancestor(trace.parent, values_at(trace.parent, op).astype(np.int64), is_graph)
    in_graph = np.where(is_graph[trace.parent], -1, trace.parent)
    tops = outermost_ancestor(in_graph, op, is_op.__getitem__)  # Python frames are passed over
    return np.where(executions >= 0, tops, -1), executions


def module_names(trace: Trace, rows: Launches, groups: list[Int64s]) -> list[list[str]]:
    """Return for each group of launches the innermost modules in the stacks around them, most launches first."""
    is_module = mask_of(trace.names, is_module_call)
    if not is_module.any():
        return [[] for _ in groups]
    frame = first_ancestor(trace.parent, rows.op, is_module[trace.name])
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
    shared_memory_bytes: Annotated[int | None, column_head("Shared")]
    # CUPTI's estimate; None where it is 0 although each multiprocessor had a warp.
    occupancy_percent: int | None
    launches: int
    time_us: float


def launch_configs(trace: Trace, rows: Launches, groups: list[Int64s]) -> Iterator[list[LaunchConfig]]:
    """Yield the configurations of each group of launches, most time first; [] on the CPU and for copies."""
    columns = [codes_of(trace, name, rows.index) for name in _COLUMNS]
    _, config_of = distinct(*columns[::-1])
    # A warp has 64 threads on AMD's data center cards.
    warp_size, multiprocessors = _property(trace, "warpSize", 32), _property(trace, "numSms", 1)
    for group in groups:
        configs = []
        for indices in groups_of_equal(group[columns[0][group] >= 0], config_of):
            codes = [int(column[indices[0]]) for column in columns]
            registers, shared_memory, occupancy = (code if code >= 0 else None for code in codes[2:])
            grid, block = (
                [*_sizes(trace.texts[column][code])] if code >= 0 else []
                for column, code in zip(_COLUMNS, codes[:2])
            )
            warps = math.ceil(math.prod(block) / warp_size) if block else None
            if occupancy == 0 and math.prod(grid) * (warps or 0) >= multiprocessors:
                occupancy = None
            config = LaunchConfig(
                grid=grid,
                block=block,
                warps=warps,
                registers=registers,
                shared_memory_bytes=shared_memory,
                occupancy_percent=occupancy,
                launches=len(indices),
                time_us=us(rows.dur[indices].sum()),
            )
            configs.append(config)
        yield sorted(configs, key=lambda row: -row.time_us)


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
    value = next((row.get(name) for row in device_properties(trace)), None)
    return value if isinstance(value, int) and value > 0 else otherwise
