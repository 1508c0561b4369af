"""Which kernels does an output code define and call, where are they from, and what do they cost in a span?"""

from __future__ import annotations

import msgspec

from tb_torchcompile_plugin.analysis.kernels.kernel_rows import Kernel
from tb_torchcompile_plugin.analysis.kernels.kernels import kernel_table
from tb_torchcompile_plugin.generated_code.artifacts import Frame
from tb_torchcompile_plugin.generated_code.generated_code import GeneratedCode, GraphCode, LinesFrom
from tb_torchcompile_plugin.generated_code.output_code import Definition, call_places
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.compile_data import CompileData, read_payload
from tb_torchcompile_plugin.torch_names.kernels import defined_name


class CodeKernel(msgspec.Struct, frozen=True):
    """One definition. `line`: its own, and `calls`: those that call it, from 1. `source_nodes`: operators of the user's
    graph that were fused. `lines`: the user's, as in `Kernel`. `launches` and `time_us` are None where it did not run
    in the span, or there is none."""

    name: str
    line: int
    calls: list[int]
    source_nodes: list[str]
    lines: list[Frame]
    lines_from: LinesFrom | None
    launches: int | None
    time_us: float | None


class CodeKernels(msgspec.Struct, frozen=True):
    rows: list[CodeKernel]


def code_kernels(about: Profile | CompileData, artifact: int) -> CodeKernels:
    """In the order of the code; none for a text that is no output code. Raises NotFound and UserError for no text."""
    data = about.data if isinstance(about, Profile) else about
    if data is None:
        return CodeKernels([])
    ran = about.of(kernel_table).rows if isinstance(about, Profile) else []
    mine = [row for row in ran if row.artifact == artifact]
    graph = next((one for one in data.of(GeneratedCode).graphs if one.artifact == artifact), None)
    if graph is None:
        return CodeKernels([])
    places = call_places(read_payload(data, artifact))
    return CodeKernels(
        [_row(graph, one, places.get(one.variable, []), mine) for one in graph.definitions.values()]
    )


def _row(graph: GraphCode, definition: Definition, calls: list[int], ran: list[Kernel]) -> CodeKernel:
    lines, known_from = graph.lines(definition)
    mine = [row for row in ran if definition.name in (row.name, defined_name(row.name))]
    return CodeKernel(
        name=definition.name,
        line=definition.line,
        calls=calls,
        source_nodes=definition.source_nodes,
        lines=lines,
        lines_from=known_from,
        launches=sum(row.launches for row in mine) if mine else None,
        time_us=sum(row.time_us for row in mine) if mine else None,
    )
