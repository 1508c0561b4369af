"""Write frontend/src/api/types.ts from the objects that the server answers (`make types`).

One schema, two languages: the TypeScript interfaces are made from the msgspec structs, never by hand.
`--check` fails when the file in the tree is not what this would write.
"""

from __future__ import annotations

import sys
from pathlib import Path

from msgspec import inspect

from tb_torchcompile_plugin import (
    compile_report,
    findings_report,
    gpu_report,
    report,
    step_report,
    timeline_wire,
)
from tb_torchcompile_plugin.analysis import (
    kernel_details,
    timeline,
    timeline_range,
    timeline_search,
    timeline_slice,
)
from tb_torchcompile_plugin.analysis.collectives import Collectives
from tb_torchcompile_plugin.analysis.eager import EagerTime
from tb_torchcompile_plugin.analysis.hot_spots import HotSpots
from tb_torchcompile_plugin.analysis.memory import Memory
from tb_torchcompile_plugin.analysis.modules import Modules
from tb_torchcompile_plugin.analysis.operators import Operators
from tb_torchcompile_plugin.analysis.rank_differences import RankDifferences
from tb_torchcompile_plugin.compare_report import ComparedTables, CompareReport
from tb_torchcompile_plugin.errors import ApiErrorBody
from tb_torchcompile_plugin.readings import Progress

TARGET = Path(__file__).parent.parent / "frontend" / "src" / "api" / "types.ts"
ROOTS = (
    report.Runs,
    report.Compile,
    report.Span,
    EagerTime,
    kernel_details.Kernels,
    kernel_details.KernelDetails,
    gpu_report.GpuUtilization,
    step_report.StepReport,
    findings_report.Findings,
    compile_report.CompileTime,
    compile_report.Compilations,
    RankDifferences,
    compile_report.CompilationDetails,
    compile_report.GuardChecks,
    timeline.TimelineLanes,
    timeline_wire.WindowHeader,
    Operators,
    timeline_slice.TimelineSlice,
    timeline_search.TimelineHits,
    timeline_range.TimelineRange,
    Collectives,
    HotSpots,
    Memory,
    Modules,
    CompareReport,
    ComparedTables,
    Progress,
    ApiErrorBody,
)
PRINT_WIDTH = 110  # of frontend/.prettierrc
HEADER = "// Made by tools/make_types.py from the structs of report.py. Do not edit.\n"


def main() -> int:
    wanted = generate()
    if "--check" in sys.argv:
        if TARGET.read_text() != wanted:
            print(f"{TARGET} is stale: run `make types`", file=sys.stderr)
            return 1
        return 0
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    TARGET.write_text(wanted)
    return 0


def generate() -> str:
    """The interfaces of ROOTS and of everything they hold, by name, each once."""
    found: dict[str, str] = {}
    for root in ROOTS:
        _add(inspect.type_info(root), found)
    return HEADER + "".join(f"\n{found[name]}" for name in sorted(found))


def _add(kind: inspect.Type, found: dict[str, str]) -> None:
    if not isinstance(kind, (inspect.StructType, inspect.DataclassType)) or kind.cls.__name__ in found:
        return
    name = kind.cls.__name__
    found[name] = ""  # claims the name: an interface may hold itself
    fields = "".join(_field(field.encode_name, _spell(field.type, found)) for field in kind.fields)
    found[name] = f"export interface {name} {{\n{fields}}}\n"


def _field(name: str, spelled: str) -> str:
    """As prettier lays it out: a union that is too long for a line has a line for each option."""
    line = f"  {name}: {spelled};\n"
    if len(line) <= PRINT_WIDTH + 1 or " | " not in spelled:
        return line
    return f"  {name}:" + "".join(f"\n    | {option}" for option in spelled.split(" | ")) + ";\n"


def _spell(kind: inspect.Type, found: dict[str, str]) -> str:
    """The TypeScript for a type; adds the interfaces that it names."""
    _add(kind, found)
    if isinstance(kind, (inspect.StructType, inspect.DataclassType)):
        return kind.cls.__name__
    if isinstance(kind, (inspect.ListType, inspect.VarTupleType)):
        item = _spell(kind.item_type, found)
        return f"({item})[]" if " | " in item else f"{item}[]"
    if isinstance(kind, inspect.DictType):
        return f"Record<string, {_spell(kind.value_type, found)}>"
    if isinstance(kind, inspect.UnionType):
        return " | ".join(_spell(option, found) for option in kind.types)
    if isinstance(kind, inspect.LiteralType):
        return " | ".join(f"'{value}'" for value in kind.values)
    plain = {
        inspect.StrType: "string",
        inspect.IntType: "number",
        inspect.FloatType: "number",
        inspect.BoolType: "boolean",
        inspect.NoneType: "null",
        inspect.AnyType: "unknown",
    }
    return plain[type(kind)]


if __name__ == "__main__":
    sys.exit(main())
