"""Calls of torch.export."""

from profiles import data_of
from tb_torchcompile_plugin.analysis.compile.compilations import compilations, exports
from tb_torchcompile_plugin.analysis.compile.recompiles import recompiled_frames
from tb_torchcompile_plugin.compile_log import summary_pb2 as pb


def an_export(number: int) -> pb.Compilation:
    key = pb.CompileKey(compile_id=f"export/{number}")
    return pb.Compilation(key=key, function="draft_export", file="/app/serve.py", line=9 + number)


def test_an_export_is_no_compilation_without_an_end() -> None:
    data = data_of(pb.CompileSummary(compilations=[an_export(0)]))
    assert [row.status for row in data.of(compilations)] == ["exported"]
    assert data_of(pb.CompileSummary()).of(exports).sentences == ("torch.export was not called.",)


def test_neither_exports_nor_packages_are_recompiles_of_each_other() -> None:
    packages = [pb.Compilation(key=pb.CompileKey(compile_id=f"aot/{n}"), duration_ns=5) for n in range(2)]
    data = data_of(pb.CompileSummary(compilations=[an_export(0), an_export(1), *packages]))
    assert data.of(recompiled_frames) == []


def test_an_id_without_a_number_is_an_id() -> None:
    odd = pb.Compilation(key=pb.CompileKey(compile_id="export/x"))
    rows = data_of(pb.CompileSummary(compilations=[odd, an_export(10), an_export(2)])).of(exports).exports
    assert [row.compile_id for row in rows] == ["export/2", "export/x", "export/10"]
