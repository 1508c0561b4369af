"""Two spans side by side, row by row: kernels, operators, modules, memory. What takes longer to say than `compare`."""

from __future__ import annotations

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
from tb_torchcompile_plugin.analysis.compare.sides import Side, as_a_whole
from tb_torchcompile_plugin.profile.gpu_work import gpu_work


class ComparedTables(msgspec.Struct, frozen=True):
    """Of an average step, or of the whole spans where a side has no steps. Empty where a side recorded nothing."""

    kernels: list[KernelDifference]
    operators: list[OperatorDifference]
    modules: list[ModuleDifference]
    memory: list[MemoryDifference]


def compare_tables(a: Side, b: Side) -> ComparedTables:
    """All rows that either side has."""
    if a.profile is None or b.profile is None:
        return ComparedTables([], [], [], [])
    ran, whole = (a.profile, b.profile), as_a_whole(a, b)
    on_gpu = all(len(side.of(gpu_work).index) for side in ran)
    return ComparedTables(
        kernels=match_kernels(*(step_launches(side, whole=whole) for side in ran)) if on_gpu else [],
        operators=compare_operators(*ran, whole=whole),
        modules=compare_modules(*ran, whole=whole),
        memory=compare_memory(*ran),
    )
