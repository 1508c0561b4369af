"""compiled_regions.py: compilations with the regions that ran them, and what ran without a compilation of its own."""

from pathlib import Path
from typing import Any

import pytest

from profiles import data_of, profile_with
from tb_torchcompile_plugin.analysis.runtime.compiled_regions import CompilationTable, compilation_table
from tb_torchcompile_plugin.compile_log import summary_pb2 as pb
from traces import AUTOGRAD, slice_


def call(ts: float, region: str = "0/0") -> list[dict[str, Any]]:
    number: dict[str, Any] = {"Sequence number": ts}
    return [
        slice_("TorchDynamo Cache Lookup", ts, 5),
        slice_(f"Torch-Compiled Region: {region}", ts + 6, 50),
        slice_("CompiledFunction", ts + 20, 22, **number),
    ]


def backward(ts: float, of: float) -> dict[str, Any]:
    number: dict[str, Any] = {"Sequence number": of}
    return slice_("CompiledFunctionBackward", ts, 40, tid=AUTOGRAD, **number)


def compiled(compile_id: str, **fields: Any) -> pb.Compilation:
    key = pb.CompileKey(compile_id=compile_id)
    return pb.Compilation(key=key, function="f", duration_ns=10**9, graph_ops=3, **fields)


def facts(table: CompilationTable) -> list[tuple[object, ...]]:
    return [
        (row.key, row.status, row.calls, row.guard_us_per_call, row.host_us_per_call)
        for row in table.compilations
    ]


def test_a_region_is_part_of_the_row_of_its_compilation(tmp_path: Path) -> None:
    events = [*call(0), *call(100), backward(200, 0)]
    rows = [compiled("0/0"), compiled("1/0"), compiled("0/0", direction=pb.BACKWARD, start_ns=1)]
    data = data_of(pb.CompileSummary(compilations=rows))
    table = compilation_table(profile_with(tmp_path, events, data))
    assert sorted(facts(table)) == [
        ("0/0,0,backward", "compiled", 1, None, 40),
        ("0/0,0,forward", "compiled", 2, 5, 50),
        ("1/0,0,forward", "compiled", None, None, None),
    ]
    assert table.sentences[0] == "2 compilations without problems." and not table.uses_cuda_graphs
    assert table.sentences[1].startswith("Guards of 2 calls take 10.0 µs in this span")
    alone = compilation_table(data)
    assert alone.sentences == table.sentences[:1] and {row.calls for row in alone.compilations} == {None}


@pytest.mark.parametrize("logged", [True, False])
def test_what_ran_without_a_compilation_has_a_row(tmp_path: Path, logged: bool) -> None:
    """All without a log; with one, a backward that was compiled with its forward."""
    data = data_of(pb.CompileSummary(compilations=[compiled("0/0")])) if logged else None
    table = compilation_table(profile_with(tmp_path, [*call(0), backward(200, 0)], data))
    assert facts(table) == [
        ("0/0,0,forward", "compiled" if logged else None, 1, 5, 50),
        ("0/0,0,backward", None, 1, None, 40),
    ]
