"""Describe one row of the kernels panel, what each category takes of the span, and what one launch is.

The calls of an operator stand in the generated code in the order in which they run: where there are as many of both,
the k-th call inside a graph's execution is the k-th in its code. Calls inside CUDA graphs are unknown.
"""

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from hashlib import blake2s
from typing import Annotated, NamedTuple

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis.formatting import column_head
from tb_torchcompile_plugin.analysis.runtime.roofline import Precision, WorkFrom, decoded, is_shape
from tb_torchcompile_plugin.compile_log.record import Direction
from tb_torchcompile_plugin.generated_code.generated_code import GraphCode, LineOrigin
from tb_torchcompile_plugin.generated_code.output_code import CodeCall, Frame
from tb_torchcompile_plugin.generated_code.user_lines import distinct_lines
from tb_torchcompile_plugin.profile.columns import (
    Floats,
    Int64s,
    Mask,
    codes_of,
    distinct,
    groups_of_equal,
    mask_of,
    ordinals,
    share_percent,
    us,
    values_at,
)
from tb_torchcompile_plugin.profile.compiled.ownership import Ownership
from tb_torchcompile_plugin.profile.compiled.regions import generated_code
from tb_torchcompile_plugin.profile.gpu.launches import Device, Launches, kernel_launches
from tb_torchcompile_plugin.profile.gpu_work import device_properties
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import StepWindows, launching, steady_steps
from tb_torchcompile_plugin.reader.arrays import grouped
from tb_torchcompile_plugin.reader.trace.kineto import Trace
from tb_torchcompile_plugin.reader.trace.nest import first_ancestor, outermost_ancestor
from tb_torchcompile_plugin.torch_names.kernels import CATEGORIES, Category, has_triton_prefix
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
        calls = (self.by_top[top] for top in np.unique(self.tops[indices]).tolist() if top in self.by_top)
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
            if graph := code.graph(ownership.name(compile_id), ownership.name(key)):
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


_KEY_NAME, _KEY_GRAPH = 100, 12  # characters of name and graph in a key, which stands in addresses
# Generated code that mostly moves data: templates multiply matrices.
DATA_MOVING_CATEGORIES = tuple(
    name for name in CATEGORIES if has_triton_prefix(name) and name != "triton_template"
)


class KernelCategory(msgspec.Struct, frozen=True):
    """The kernels of one category on one device."""

    device: Device
    category: Category
    launches: int
    distinct_kernels: int
    time_us: float
    gpu_time_percent: float | None  # of the device's summed GPU event time; None on the CPU
    wall_time_percent: float | None  # of the whole span


class Kernel(msgspec.Struct, frozen=True):
    """One row per (device, name, compile id, graph key), with all that is known of it."""

    key: str  # identifies the row
    name: Annotated[str, column_head("Kernel", grow=True)]
    time_us: Annotated[float, column_head(total=True)]
    # of the device's summed time
    share_percent: Annotated[float, column_head("Share", bar=True, total=True)]
    launches: Annotated[int, column_head(total=True)]
    mean_us: float
    # How much longer the launches took than they need at the peak of what bounds them; None where that is unknown.
    above_floor_us: Annotated[float | None, column_head("More than at peak", total=True)]
    bandwidth_gb_s: Annotated[float | None, column_head("GB/s", hidden=True)]
    bandwidth_percent: Annotated[float | None, column_head("Share of peak GB/s", bar=True)]
    source_lines: Annotated[list[str], column_head("Your lines")]  # `lines` as "file:line"
    compile_id: Annotated[str | None, column_head(hidden=True)]
    device: Annotated[Device, column_head(hidden=True)]
    category: Annotated[Category, column_head(hidden=True)]
    direction: Annotated[Direction | None, column_head(hidden=True)]
    min_us: Annotated[float, column_head("Shortest", hidden=True)]
    max_us: Annotated[float, column_head("Longest", hidden=True)]
    # of the span, where concurrent work counts twice
    wall_percent: Annotated[float | None, column_head("Share of the span", hidden=True)]
    # inductor computed it, estimated from recorded shapes, or what a copy records
    bandwidth_from: Annotated[WorkFrom | None, column_head("Bytes from", hidden=True)]
    bytes_per_launch: Annotated[float | None, column_head("Bytes per launch", hidden=True)]  # the mean
    tflop_s: Annotated[float | None, column_head("TFLOP/s", hidden=True)]
    tflop_percent: Annotated[float | None, column_head("Share of peak TFLOP/s, %", hidden=True)]
    tflop_from: Annotated[WorkFrom | None, column_head("Operations from", hidden=True)]
    # whose peak `tflop_percent` refers to; bf16 stands for float16, too
    precision: Annotated[Precision | None, column_head(hidden=True)]
    # of launches where both are known
    flop_per_byte: Annotated[float | None, column_head("FLOP per byte", hidden=True)]
    # in the steps, while nothing else ran on the device
    alone_us: Annotated[float | None, column_head("Running alone", hidden=True)]
    # What a step gains at most if the kernel takes half its time: half of `alone_us`, of the wall time of the steps, or
    # of the work that they launched if that takes longer.
    twice_as_fast_percent: Annotated[float | None, column_head("Gain if twice as fast", hidden=True)]
    aten_ops: Annotated[list[str], column_head("Fused operators", hidden=True)]
    modules: Annotated[list[str], column_head(hidden=True)]
    lines: list[Frame]  # the user's lines that it computes
    lines_from: Annotated[LineOrigin | None, column_head(hidden=True)]  # None where there are none
    graph_key: Annotated[str | None, column_head(hidden=True)]
    # this and the next two: where inductor defined it
    output_code_file: Annotated[str | None, column_head("Output code", hidden=True)]
    artifact: Annotated[int | None, column_head(unseen=True)]
    code_line: Annotated[int | None, column_head(unseen=True)]
    config: LaunchConfig | None  # the one that took most time, of `configs`
    configs: Annotated[int, column_head(unseen=True)]


class KernelName(NamedTuple):
    """What identifies a row of kernels."""

    device: Device
    name: str
    compile_id: str | None
    graph_key: str | None

    @property
    def key(self) -> str:
        """Return a key short enough for an address: names of templates have a thousand characters."""
        name, graph = short_name(self.name), (self.graph_key or "")[:_KEY_GRAPH]
        return f"{self.device},{name},{self.compile_id or ''},{graph}"


def short_name(name: str) -> str:
    """Return a name that fits into a key: of a long one the start and a hash."""
    if len(name) <= _KEY_NAME:
        return name
    # 40 characters of _KEY_NAME: enough to recognise a kernel; chosen by eye
    return f"{name[:40]}~{blake2s(name.encode(), digest_size=5).hexdigest()}"


def kernel_name(profile: Profile, rows: Launches, indices: Int64s) -> KernelName:
    """Return what identifies one of `groups`."""
    ownership, first = profile.of(Ownership), indices[0]
    return KernelName(
        rows.device,
        profile.trace.names[rows.name[first]],
        ownership.name(int(rows.compile_id[first])),
        ownership.name(int(rows.graph_key[first])),
    )


def kernel_categories(profile: Profile) -> list[KernelCategory]:
    """Return one row per device and category, most time first."""
    first, last = profile.trace.window()
    categories = []
    for rows in profile.of(kernel_launches):
        total = int(rows.dur.sum())
        for same in groups_of_equal(np.arange(len(rows.dur)), rows.category):
            time = int(rows.dur[same].sum())
            row = KernelCategory(
                device=rows.device,
                category=CATEGORIES[rows.category[same[0]]],
                launches=len(same),
                distinct_kernels=len(np.unique(rows.name[same])),
                time_us=us(time),
                gpu_time_percent=None if rows.device == "cpu" else share_percent(time, total),
                wall_time_percent=share_percent(time, last - first),
            )
            categories.append(row)
    return sorted(categories, key=lambda row: (str(row.device), -row.time_us))


def category_sums(profile: Profile, *, whole: bool = False) -> tuple[int, dict[Category, tuple[int, int]]]:
    """Return how many steady steps there are, and time (ns) and launches of each category in all of them.

    Of the span, which counts as one step, if `whole`, or without steps.
    """
    windows, steady = profile.of(StepWindows), None if whole else profile.of(steady_steps)
    sums = np.zeros((2, len(CATEGORIES)), np.int64)
    for rows in profile.of(kernel_launches):
        if rows.device != "cpu":
            counted = np.ones(len(rows.dur), bool)
            if steady is not None:
                counted = np.isin(launching(windows.windows, profile.trace, rows.launch), steady.rows)
            np.add.at(sums[0], rows.category[counted], rows.dur[counted])
            np.add.at(sums[1], rows.category[counted], 1)
    named = {name: (ns, count) for name, ns, count in zip(CATEGORIES, *sums.tolist()) if count}
    return 1 if steady is None else len(steady.rows), named


def distinct_kernels(profile: Profile) -> int:
    """Return how many kernels there are by device and name: a name has one row for each graph that launches it."""
    return sum(len(np.unique(rows.name)) for rows in profile.of(kernel_launches))


def launched_in_steps(profile: Profile, rows: Launches) -> Mask:
    """Return which launches were made inside a step; all where there are no steps."""
    steps = profile.of(StepWindows)
    in_step = launching(steps.windows, profile.trace, rows.launch) >= 0
    return in_step if len(steps) else np.ones_like(in_step)


def alone_ns(trace: Trace, rows: Launches, groups: list[Int64s], counted: Mask) -> Int64s:
    """Return by how much the device's busy time is shorter without each group, of launches that count."""
    nobody = len(groups)
    owner = np.full(len(rows.index), nobody, np.int64)
    for number, indices in enumerate(groups):
        owner[indices] = number
    owner[~counted] = nobody
    starts = trace.ts[rows.index]
    times = np.concatenate([starts, starts + rows.dur])
    order = np.argsort(times, kind="stable")
    sign = np.concatenate([np.ones(len(owner), np.int64), -np.ones(len(owner), np.int64)])[order]
    owners = np.concatenate([owner, owner])[order]
    running, total, squares = (np.cumsum(sign * weight)[:-1] for weight in (1, owners, owners * owners))
    length = np.diff(times[order])
    # All numbers are the same where the sum of their squares is no larger than their mean requires.
    single = (running > 0) & (running * squares == total * total) & (length > 0)
    return np.bincount(total[single] // running[single], length[single], nobody + 1)[:-1].astype(np.int64)
