"""Test kernels of AOTInductor's packages, which one process compiles and another runs."""

from pathlib import Path

from tb_torchcompile_plugin.analysis.causes.findings import span_findings
from tb_torchcompile_plugin.analysis.compile.compilations import compilations
from tb_torchcompile_plugin.analysis.runtime.kernels import kernel_table
from tb_torchcompile_plugin.api.session import Session
from tb_torchcompile_plugin.compile_log import summary_pb2 as pb
from tb_torchcompile_plugin.compile_log.summary import save
from tb_torchcompile_plugin.reader.compile_data import read_payload
from traces import frame, launch, write_trace

CALL = "torch/export/pt2_archive/_package.py(737): __call__"
SHARED = "triton_poi_fused_relu_0"  # a name that both packages define


def package(number: int, *kernels: str) -> tuple[pb.Compilation, pb.Graph]:
    key = pb.CompileKey(compile_id=f"aot/{number}")
    row = pb.Compilation(key=key, function="aoti_compile_and_package", start_ns=5 + number, duration_ns=7)
    return row, pb.Graph(key=key, kernels=[pb.GeneratedKernel(name=name) for name in kernels])


def recorded(folder: Path, *, with_stack: bool) -> Session:
    """A process that compiled two packages, and one that ran them and compiled nothing."""
    packages = [package(0, SHARED, "triton_per_fused_sum_1"), package(1, SHARED, "triton_poi_fused_tanh_1")]
    made = pb.CompileSummary(
        compilations=[row for row, _ in packages],
        graphs=[graph for _, graph in packages],
        payloads=[pb.Payload(data=b"code")],
    )
    made.artifacts.add(key=pb.CompileKey(compile_id="aot/1"), name="graph_dump_inductor_aot_wrapper_code")
    save(made, str(folder / "maker.1.pt.compile.pb"))
    events = []
    for at, kernels in (
        (0, (SHARED, "triton_per_fused_sum_1", "nvjet_mm")),
        (500, (SHARED, "triton_poi_fused_tanh_1")),
    ):
        events += [frame(CALL, at, 400)] if with_stack else []
        for place, name in enumerate(kernels):
            events += launch(name, at + 10 + 50 * place, at + 20 + 50 * place, 5)
    events += launch("at::native::fill", 950, 960, 5)
    write_trace(folder, events, "runner.2.pt.trace.json")
    save(pb.CompileSummary(artifacts=[pb.Artifact()]), str(folder / "runner.2.pt.compile.pb"))
    return Session([("", str(folder))], ahead=False)


def owners(session: Session) -> set[tuple[str, str | None]]:
    return {(row.name, row.compile_id) for row in session.profile(".", "runner", "2").of(kernel_table).rows}


def test_a_name_that_one_package_defines_is_its_own(tmp_path: Path) -> None:
    assert owners(recorded(tmp_path, with_stack=False)) == {
        (SHARED, None),
        ("triton_per_fused_sum_1", "aot/0"),
        ("triton_poi_fused_tanh_1", "aot/1"),
        ("nvjet_mm", None),
        ("at::native::fill", None),
    }


def test_with_stacks_all_that_a_call_launches_is_its_packages(tmp_path: Path) -> None:
    assert owners(recorded(tmp_path, with_stack=True)) == {
        (SHARED, "aot/0"),
        (SHARED, "aot/1"),
        ("triton_per_fused_sum_1", "aot/0"),
        ("triton_poi_fused_tanh_1", "aot/1"),
        ("nvjet_mm", "aot/0"),
        ("at::native::fill", None),
    }


def test_whoever_runs_a_package_has_its_code_and_not_its_compile_time(tmp_path: Path) -> None:
    session = recorded(tmp_path, with_stack=False)
    data = session.compile_data(".", "runner")
    rows = [(row.compile_id, row.status, row.duration_s) for row in data.of(compilations)]
    assert rows == [("aot/0", "compiled_elsewhere", None), ("aot/1", "compiled_elsewhere", None)]
    assert read_payload(data, 1) == "code"  # 0 is its own
    values = [row.status for row in session.compile_data(".", "maker").of(compilations)]
    assert values == ["compiled", "compiled"]
    rules = {row.rule for row in session.profile(".", "runner", "2").of(span_findings)}
    assert "nothing_compiled" not in rules
