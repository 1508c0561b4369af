"""Calls of torch.export, and what draft export tells of them."""

from profiles import data_of
from tb_torchcompile_plugin.analysis.compile.compilations import compilations
from tb_torchcompile_plugin.analysis.compile.exports import exports
from tb_torchcompile_plugin.analysis.compile.recompiles import recompiled_frames
from tb_torchcompile_plugin.compile_log import summary_pb2 as pb

DRAFT = pb.CompileKey(compile_id="export/1")


def an_export(number: int) -> pb.Compilation:
    key = pb.CompileKey(compile_id=f"export/{number}")
    return pb.Compilation(key=key, function="draft_export", file="/app/serve.py", line=9 + number)


def test_each_issue_stands_once_with_its_line_where_that_is_known() -> None:
    at = [pb.Frame(file="/app/model.py", line=4, function="forward")]
    taken = pb.ExportIssue(key=DRAFT, kind="propagate_real_tensors", subject="u0 > 3", details="True")
    placed = pb.ExportIssue(
        key=DRAFT, kind="propagate_real_tensors_provenance", subject="u0 > 3", details="True", stack=at
    )
    missing = pb.ExportIssue(key=DRAFT, kind="missing_fake_kernel", subject="my.op")
    later = pb.ExportIssue(key=DRAFT, kind="of_a_newer_torch", subject="x")
    issues = [missing, taken, placed, placed, later]
    summary = pb.CompileSummary(compilations=[an_export(1), an_export(0)], export_issues=issues)
    answer = data_of(summary).of(exports)
    values = [(row.compile_id, row.line, row.issues) for row in answer.exports]
    assert values == [("export/0", 9, 0), ("export/1", 10, 2)]
    assert [(row.kind, row.subject, row.line, row.times) for row in answer.issues] == [
        ("missing fake kernel", "my.op", None, 1),
        ("value of the example input used", "u0 > 3", 4, 2),
    ]
    assert answer.sentences == ("2 exports with 2 issues: first missing fake kernel (my.op).",)


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
