"""Test how much of the profiled time runs compiled, and why the rest does not."""

from pathlib import Path

from profiles import data_of, profile_of, profile_with
from recordings import Recording
from tb_torchcompile_plugin.analysis.runtime.compiled_regions import CompiledShare, coverage
from tb_torchcompile_plugin.analysis.runtime.eager import eager_time
from tb_torchcompile_plugin.compile_log.summary_pb2 import CompileSummary
from traces import Event, launch, slice_


def step(function: str = "train.py(3): step") -> list[Event]:
    """A step of 100 µs: a region of 60 that launches 30 µs of work, and an eager operator that launches 10."""
    return [
        slice_("ProfilerStep#1", 0, 100, "user_annotation"),
        slice_(function, 0, 99, "python_function"),
        slice_("Torch-Compiled Region: 0/0", 10, 60),
        slice_("## Call CompiledFxGraph key ##", 12, 50),
        *launch("triton_poi_fused_add_0", 20, 25, 30),
        slice_("aten::mul", 80, 10),
        *launch("k", 82, 90, 10),
    ]


def test_shares_are_of_what_a_step_launched_and_of_its_time(tmp_path: Path) -> None:
    summary = CompileSummary()
    for ops in (0, 3):
        summary.compilations.add(graph_ops=ops).key.compile_id = f"{ops}/0"
    share = coverage(profile_with(tmp_path, step(), data_of(summary)))
    assert share == CompiledShare(gpu_percent=75, host_percent=60, empty_compilations=1)


def test_unknown_is_none(tmp_path: Path) -> None:
    assert coverage(profile_with(tmp_path, [slice_("aten::mm", 0, 5)])) == CompiledShare(None, 0, None)


def test_why_an_operator_ran_eager(tmp_path: Path) -> None:
    def why(function: str) -> str | None:
        folder = tmp_path / function.partition(": ")[2]
        (row,) = [
            row for row in eager_time(profile_with(folder, step(function))).ops if row.name == "aten::mul"
        ]
        return row.why

    assert why("train.py(3): step") == "not_compiled"
    assert why("pytorch_lightning/profilers/pytorch.py(72): _start_recording_forward") == "profiler_hook"


def test_breaks_leave_a_part_eager(recording: Recording) -> None:
    (path,) = recording("breaks").rglob("*.pt.trace.json")
    profile = profile_of(path)
    share = coverage(profile)
    assert share.gpu_percent is not None and share.host_percent is not None
    assert 80 < share.gpu_percent < 90 and 70 < share.host_percent < 80
    assert {row.why for row in eager_time(profile).ops if row.kind == "graph_break"} == {"graph_break"}
