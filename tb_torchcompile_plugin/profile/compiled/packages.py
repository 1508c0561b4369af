"""Which package of AOTInductor does a kernel belong to? It runs in C++, in no compiled region, so its kernels tell.

A name that exactly one package defines is its own. Where the trace has Python's stacks, or the package was compiled
with labels, all that one call launches belongs to one package: its library kernels, and names that several define.
"""

from __future__ import annotations

import numpy as np

from tb_torchcompile_plugin.generated_code.generated_code import GeneratedCode
from tb_torchcompile_plugin.profile.compiled.ownership import Ownership, Timelines
from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.profile.slices import package_calls
from tb_torchcompile_plugin.reader.trace.kineto import Trace
from tb_torchcompile_plugin.torch_names.kernels import defined_name


def add_packages(
    trace: Trace, names: Int64s, launch: Int64s, compile_id: Int64s, ownership: Ownership, code: GeneratedCode
) -> None:
    """Fills in `compile_id` of kernels that nothing around their launch owns."""
    if not code.packages:
        return
    free = compile_id < 0
    for name in np.unique(names[free]).tolist():
        owner = code.packages.get(trace.names[name]) or code.packages.get(defined_name(trace.names[name]))
        if owner is not None:
            compile_id[free & (names == name)] = ownership.code(owner)
    _by_call(trace, launch, compile_id, free)


def _by_call(trace: Trace, launch: Int64s, compile_id: Int64s, free: np.ndarray) -> None:
    calls = package_calls(trace).tolist()
    around = Timelines(trace, [(index, index) for index in calls]).at(launch)
    for call in np.unique(around[free & (around >= 0)]).tolist():
        here = free & (around == call)
        owners = np.unique(compile_id[here & (compile_id >= 0)])
        if len(owners) == 1:
            compile_id[here] = owners[0]
