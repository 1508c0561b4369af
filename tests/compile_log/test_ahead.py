"""Compilations that torch gives no compile id: AOTInductor's packages, and exports."""

import json
from typing import Any

import compile_records
from compile_records import a_compilation, artifact, envelope, mark
from tb_torchcompile_plugin.compile_log.record import Record
from tb_torchcompile_plugin.compile_log.summary_pb2 import CompileSummary

FILES = [
    "/app/serve.py",
    "/venv/site-packages/torch/_inductor/__init__.py",
    "/venv/site-packages/torch/export/__init__.py",
]
WRAPPER = """
#include <torch/csrc/inductor/aoti_include/cuda.h>
static inline void call_triton_poi_fused_relu_0(const float* in_ptr0) {
    /*
    async_compile.triton('triton_poi_fused_relu_0', '''
    import triton
    def triton_poi_fused_relu_0(in_ptr0, XBLOCK):
        pass
    ''', device_str='cuda')
    */
}
"""
KERNELS = """
#include <torch/csrc/inductor/cpp_prefix.h>
extern "C" void cpp_fused_sum_1(const float* in_ptr0)
{
}
"""


def summary_of(records: list[Record], **options: Any) -> CompileSummary:
    files = [Record({"str": [name, number]}) for number, name in enumerate(FILES)]
    summary = compile_records.summary_of([*files, *records], readable=True, payloads=True, **options)
    assert not summary.records.unknown
    return summary


def called(line: int, torchs: int, function: str) -> list[dict[str, Any]]:
    """A stack: the program's line, and what of torch it calls."""
    return [
        {"filename": 0, "line": line, "name": "main", "loc": f"{function}(model)"},
        {"filename": torchs, "line": 150, "name": function},
    ]


def dump(name: str, code: str, **more: Any) -> Record:
    kind = {"name": f"inductor_aot_{name}_code", "type": "cpp", "filename": f"/tmp/{name}.cpp"}
    return Record(envelope("graph_dump", kind, "", **more), code)


def a_package(line: int = 9, begin_us: float = 0.0) -> list[Record]:
    """1000 µs, of which C++ takes 600."""
    stack = called(line, 1, "aoti_compile_and_package")
    info = {"triton_poi_fused_relu_0": {"num_configs": 2, "autotune_cache_state": "miss"}}
    return [
        mark("B", "compile_fx_aot", begin_us, ""),
        artifact("before_pre_grad_graph", "relu", "", stack=stack),
        artifact("triton_kernel_info", json.dumps(info), "", stack=stack),
        mark("B", "AotCodeCompiler.compile", begin_us + 300, ""),
        dump("wrapper", WRAPPER, stack=stack),
        dump("kernel", KERNELS, stack=stack),
        mark("E", "AotCodeCompiler.compile", begin_us + 900, ""),
        Record(envelope("compilation_metrics", {"compile_id": None, "start_time": 1}, "", stack=stack)),
        mark("E", "compile_fx_aot", begin_us + 1000, ""),
    ]


def described(line: int, describer: int, function: str = "export") -> Record:
    details = {"describer_id": describer, "id": 0, "source": "L['x']"}
    return Record(envelope("describe_source", details, "", stack=called(line, 2, function)))


def test_packages_are_told_apart_and_frames_beside_them_stay_what_they_are() -> None:
    summary = summary_of([*a_package(9), *a_compilation("0/0", 2000), *a_package(9, 4000)])
    rows = {row.key.compile_id: row for row in summary.compilations}
    assert list(rows) == ["aot/0", "0/0", "aot/1"]
    package = rows["aot/0"]
    assert (package.function, package.file, package.line) == ("aoti_compile_and_package", "/app/serve.py", 9)
    assert package.duration_ns == 1_000_000 == sum(phase.exclusive_ns for phase in package.phases)
    values = {phase.name: phase.exclusive_ns for phase in package.phases}
    assert values == {"inductor": 400_000, "triton": 600_000}
    assert rows["0/0"].function == "forward"
    assert [one.name for one in summary.artifacts if one.key.compile_id == "aot/1"] == [
        *("before_pre_grad_graph", "triton_kernel_info"),
        *("graph_dump_inductor_aot_wrapper_code", "graph_dump_inductor_aot_kernel_code"),
    ]


def test_the_kernels_of_a_package_stand_in_its_cpp() -> None:
    graph, _ = summary_of([*a_package(), *a_package(begin_us=2000)]).graphs
    assert graph.output_code_file == "/tmp/wrapper.cpp"
    kernels = [(kernel.name, kernel.category, kernel.num_configs) for kernel in graph.kernels]
    assert kernels == [("triton_poi_fused_relu_0", "triton_pointwise", 2), ("cpp_fused_sum_1", "cpp", 0)]


def test_without_spans_a_graph_that_follows_on_a_code_begins_another_package() -> None:
    """As older torch writes it."""
    graph, code = Record(envelope("aot_inference_graph", {}, ""), "relu"), dump("wrapper", WRAPPER)
    old = Record(envelope("graph_dump", {"name": "inductor_aot_code", "filename": "/tmp/x.cpp"}, ""), WRAPPER)
    summary = summary_of([graph, code, dump("kernel", KERNELS), graph, old])
    assert [row.key.compile_id for row in summary.graphs] == ["aot/0", "aot/1"]
    assert [row.key.compile_id for row in summary.artifacts] == ["aot/0"] * 3 + ["aot/1"] * 2
    assert not any(row.HasField("duration_ns") for row in summary.compilations)


def test_exports_are_told_apart_by_their_line_and_their_inputs() -> None:
    calls = [described(3, 0), described(3, 0), described(3, 1), described(4, 2)]
    draft = [described(5, number, "draft_export") for number in (3, 4)]
    summary = summary_of([*calls, *draft])
    assert [(row.key.compile_id, row.function, row.line) for row in summary.compilations] == [
        ("export/0", "export", 3),
        ("export/1", "export", 3),
        ("export/2", "export", 4),
        ("export/3", "draft_export", 5),
    ]
