"""Two spans side by side, row by row: kernels, operators, modules, memory. What takes longer to say than `compare`."""

from __future__ import annotations

from typing import Literal

import msgspec

from tb_torchcompile_plugin.analysis.compare.kernel_matching import (
    KernelDifference,
    match_kernels,
    step_launches,
)
from tb_torchcompile_plugin.analysis.compare.operators import (
    MemoryDifference,
    ModuleDifference,
    OperatorDifference,
    compare_memory,
    compare_modules,
    compare_operators,
)
from tb_torchcompile_plugin.analysis.compare.sides import Sides, as_a_whole
from tb_torchcompile_plugin.profile.gpu_work import gpu_work

JobTable = Literal["ranks", "late", "collectives"]


class TableLayout(msgspec.Struct, frozen=True):
    """How a table is shown: the field that holds its rows, and the head of each text and each number of a row. more:
    numbers that are shown when somebody chooses them."""

    rows: Literal["kernels", "kernel_categories", "operators", "modules", "compilations"] | JobTable
    label: str
    texts: dict[str, str]
    numbers: dict[str, str]
    more: dict[str, str] = {}


_WORK = {"time_us": "Time", "launches": "Launches"}
_OPERATOR = {"self_host_us": "Self host", "self_device_us": "Self GPU", "calls": "Calls"}
_MODULE = {"host_us": "Host", "device_us": "GPU", "calls": "Calls"}
_COMPILATION = {"function": "Function", "direction": "Direction", "compile_ids": "Compile ids"}
LAYOUT = [
    TableLayout("kernels", "Kernels", {"name": "Kernels of", "category": "Category"}, _WORK),
    TableLayout("kernel_categories", "Categories", {"category": "Category"}, _WORK),
    TableLayout("operators", "Operators", {"name": "Operator", "kind": "Kind"}, _OPERATOR),
    TableLayout("modules", "Modules", {"path": "Module"}, _MODULE),
    TableLayout(
        "compilations", "Compilations", _COMPILATION, {"duration_s": "Time", "graph_ops": "Graph ops"}
    ),
]


class ComparedTables(msgspec.Struct, frozen=True):
    """Of an average step, or of the whole spans where a side has no steps. Empty where a side recorded nothing.
    `layout` is of these tables, and of those in `Comparison`."""

    kernels: list[KernelDifference]
    operators: list[OperatorDifference]
    modules: list[ModuleDifference]
    memory: list[MemoryDifference]
    layout: list[TableLayout]


def compare_tables(sides: Sides) -> ComparedTables:
    """All rows that either side has."""
    a, b = sides.a, sides.b
    if a.profile is None or b.profile is None:
        return ComparedTables([], [], [], [], LAYOUT)
    ran, whole = (a.profile, b.profile), as_a_whole(a, b)
    on_gpu = all(len(side.of(gpu_work).index) for side in ran)
    return ComparedTables(
        kernels=match_kernels(*(step_launches(side, whole=whole) for side in ran)) if on_gpu else [],
        operators=compare_operators(*ran, whole=whole),
        modules=compare_modules(*ran, whole=whole),
        memory=compare_memory(*ran),
        layout=LAYOUT,
    )
