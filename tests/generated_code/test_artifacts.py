"""Texts in the order of the pipeline, each with the graph and the direction that it belongs to."""

from collections import Counter

import pytest

from compile_records import artifact, summary_of
from profiles import data_of
from recordings import Recording
from tb_torchcompile_plugin.compile_log import summary_pb2 as pb
from tb_torchcompile_plugin.generated_code.output_code import Artifact, artifacts
from tb_torchcompile_plugin.reader.torch_trace.structured_log import payload_at, read_log
from tb_torchcompile_plugin.torch_names.artifacts import is_backward_code

KEY = pb.CompileKey(compile_id="0/0")
PROGRAMS = ["breaks", "resnet18", "recompiles", "ddp"]


def summary(*names: str, directions: tuple[int, ...] = ()) -> pb.CompileSummary:
    return pb.CompileSummary(
        artifacts=[pb.Artifact(key=KEY, name=name) for name in names],
        graphs=[pb.Graph(key=KEY, direction=direction) for direction in directions],  # type: ignore[arg-type]
    )


def of(summary: pb.CompileSummary) -> list[Artifact]:
    return artifacts(data_of(summary), 0, "0/0")


def test_the_order_is_that_of_the_pipeline_and_not_of_the_log() -> None:
    shuffled = summary(
        "dynamo_config",
        "dynamo_cpp_guards_str",
        "f_MODIFIED_BYTECODE",
        "inductor_output_code",
        "aot_forward_graph",
        "aot_joint_graph",
        "inductor_post_grad_graph",
        "dynamo_output_graph",
        "f_ORIGINAL_BYTECODE",
        "never_seen_before",
    )
    assert [row.name for row in of(shuffled)] == [
        "f_ORIGINAL_BYTECODE",
        "dynamo_output_graph",
        "f_MODIFIED_BYTECODE",
        "aot_joint_graph",
        "aot_forward_graph",
        "inductor_post_grad_graph",
        "inductor_output_code",
        "dynamo_cpp_guards_str",
        "dynamo_config",
        "never_seen_before",
    ]


def test_texts_about_a_graph_stay_together() -> None:
    names = ("fx_graph_runnable", "inductor_post_grad_graph", "inductor_output_code", "fx_graph_cache_miss")
    rows = of(summary(*names, *names, directions=(pb.FORWARD, pb.BACKWARD)))
    assert [row.graph for row in rows] == [0] * 4 + [1] * 4
    assert [row.direction for row in rows] == ["forward"] * 4 + ["backward"] * 4


def test_the_parts_that_inductor_compiles_are_told_apart() -> None:
    """As torch 2.13 writes them where only marked regions of a frame go to inductor."""
    parts = ("__marked_inductor_submod0", "__marked_inductor_submod1")
    records = [artifact("before_post_grad_graph", part, subgraph_name=part) for part in parts]
    assert [row.title for row in of(summary_of(records, payloads=True))] == [
        "Before post-grad passes of __marked_inductor_submod0",
        "Before post-grad passes of __marked_inductor_submod1",
    ]


def test_a_graph_says_itself_that_it_is_a_backward() -> None:
    """Compiled inside its forward frame, so that when it was written tells nothing."""
    rows = of(
        summary("aot_backward_graph", "aot_forward_graph", "inductor_output_code", directions=(pb.BACKWARD,))
    )
    assert {row.name: row.direction for row in rows} == {
        "aot_forward_graph": "forward",
        "aot_backward_graph": "backward",
        "inductor_output_code": "backward",
    }


@pytest.mark.parametrize(
    ("name", "encoding", "language"),
    [
        ("inductor_output_code", "", "python"),
        ("aot_forward_graph", "", "python"),
        ("f_ORIGINAL_BYTECODE", "string", "text"),
        ("dynamo_cpp_guards_str", "", "text"),
        ("fx_graph_cache_miss", "json", "json"),
        ("inductor_config", "", "json"),
        ("never_seen_before", "string", "text"),
    ],
)
def test_the_language_of_a_text(name: str, encoding: str, language: str) -> None:
    message = pb.Artifact(key=KEY, name=name, encoding=encoding)
    (row,) = of(pb.CompileSummary(artifacts=[message]))
    assert (row.language, row.encoding) == (language, encoding)


def test_a_cpp_wrapper_is_cpp() -> None:
    compiled = summary("inductor_output_code", directions=(pb.FORWARD,))
    compiled.graphs[0].output_code_file = "/tmp/c/xyz.cpp"
    assert of(compiled)[0].language == "cpp"


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_text_of_a_recording_is_there_and_paired_with_its_graph(
    recording: Recording, program: str
) -> None:
    """The graph of each output code, and its direction, as its own header says."""
    for log in recording(program).glob("*.log"):
        compiled = read_log(str(log))
        kinds = Counter(row.name for row in compiled.artifacts)
        for kind, count in compiled.records.by_kind.items():
            if kind in ("dynamo_output_graph", "inductor_output_code", "dynamo_cpp_guards_str"):
                assert kinds[kind] == count
        for key in {(row.key.epoch, row.key.compile_id) for row in compiled.artifacts}:
            for row in artifacts(data_of(compiled), *key):
                assert row.bytes
                if row.name == "inductor_output_code":
                    place = compiled.artifacts[row.id]
                    code = payload_at(str(log), place.log_offset, place.log_bytes, row.name)
                    assert (row.direction == "backward") is bool(is_backward_code(code))
                    assert row.graph is not None
