"""Which lines of the user's take the time inside of compiled modules? As far as kernels tell their lines.

torch calls no modules in compiled code. But inductor tells the lines that each kernel computes, and which compilation
it is of; so where one module alone ran a compilation, its kernels' time is told by line.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import msgspec

from tb_torchcompile_plugin.analysis.kernels.kernel_rows import Kernel
from tb_torchcompile_plugin.analysis.kernels.kernels import kernel_table
from tb_torchcompile_plugin.generated_code.frame import Frame
from tb_torchcompile_plugin.profile.gpu_work import gpu_work
from tb_torchcompile_plugin.profile.profile import Profile


class CompiledLines(msgspec.Struct, frozen=True):
    """Kernels of one compilation that compute the same lines; `lines` is empty where they do not tell. `module`: the
    place of its row. Times are of the GPU, or of C++ kernels on the CPU in a trace without GPU events."""

    module: int
    compile_id: str
    lines: list[Frame]
    launches: int
    forward_us: float
    backward_us: float


def compiled_lines(profile: Profile, module_of: Mapping[str, int]) -> list[CompiledLines]:
    """Most time first within a module; [] without compile data. module_of: the row of the only module that ran a
    compilation."""
    if not module_of or profile.data is None:
        return []
    gpu = len(profile.of(gpu_work).index) > 0
    groups: dict[tuple[int, str, tuple[tuple[str, int], ...]], list[Kernel]] = defaultdict(list)
    for row in profile.of(kernel_table).rows:
        compile_id = row.compile_id or ""
        if compile_id in module_of and (row.device == "cpu") != gpu:
            lines = tuple(sorted((line.file, line.line) for line in row.lines))
            groups[module_of[compile_id], compile_id, lines].append(row)
    answer = [
        CompiledLines(
            module=module,
            compile_id=compile_id,
            lines=sorted(rows[0].lines, key=lambda line: (line.file, line.line)),
            launches=sum(row.launches for row in rows),
            forward_us=sum(row.time_us for row in rows if row.direction != "backward"),
            backward_us=sum(row.time_us for row in rows if row.direction == "backward"),
        )
        for (module, compile_id, _), rows in groups.items()
    ]
    return sorted(answer, key=lambda row: (row.module, -row.forward_us - row.backward_us))
