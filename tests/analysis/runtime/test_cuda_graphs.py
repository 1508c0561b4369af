"""Test cuda_graphs.py, against programs that counted what torch did and against torch's own objects."""

from pathlib import Path

import pytest

from profiles import GraphProgram, counted, data_of, profile_with
from tb_torchcompile_plugin.analysis.causes.findings import findings
from tb_torchcompile_plugin.analysis.formatting import significant
from tb_torchcompile_plugin.analysis.runtime.cuda_graphs import CudaGraphReport, cuda_graphs
from tb_torchcompile_plugin.compile_log.summary_pb2 import CompileKey, CompileSummary
from tb_torchcompile_plugin.profile.gpu.captures import graph_runs
from traces import Event, kernel, region, slice_, step

STATES = {
    "stable": {"replayed"},
    "training": {"replayed"},
    "shared_pool": {"replayed"},
    "host_op_partitioned": {"replayed"},
    "sizes_dynamic": {"replayed"},
    "sizes_without_end": {"new_sizes"},
    "moved_parameters": {"recorded_again"},
    "output_kept": {"waiting"},
    "mutated_input": {"skipped"},
    "host_op_skipped": {"skipped"},
}
NOT_SERVED = {
    "sizes_without_end": ("graph_capture", "graphs.py:41"),
    "moved_parameters": ("graph_capture", "graphs.py:43"),
    "output_kept": ("graph_capture", "graphs.py:41"),
    "mutated_input": ("cudagraphs_skipped", "graphs.py:131"),
    "host_op_skipped": ("cudagraphs_skipped", "graphs.py:149"),
}


def test_what_ran_is_what_the_program_counted(programs: dict[str, GraphProgram]) -> None:
    """Of the later steps, which are all there. Each recording launches its own graph once."""
    for name, wanted in STATES.items():
        program = programs[name]
        report = program.spans[-1].of(cuda_graphs)
        assert {row.state for row in report.functions} >= wanted, name
        launches = int(program.spans[-1].of(graph_runs).launches.sum())
        assert launches == program.truth[-1]["replayed"] + program.truth[-1]["recorded"], name
        assert sum(row.calls for row in report.functions) >= 6, name


def test_torchs_objects_count_with_the_log(programs: dict[str, GraphProgram]) -> None:
    """Recordings of the whole process, and the bytes of the pool that torch's allocator told the program."""
    for name in set(STATES) - {"host_op_skipped"}:
        program = programs[name]
        report, truth = program.spans[-1].of(cuda_graphs), counted(program.measured["all"])
        assert len(report.recordings) == truth["recorded"], name
        pool_bytes = program.measured["pool_bytes"].get("(0, 1)", 0)
        shared = f"The graphs share {significant(pool_bytes / 1e6)} MB of GPU memory."
        assert (shared in report.sentences) == (pool_bytes > 0), name


def test_why_each_was_recorded_again_or_not_at_all(programs: dict[str, GraphProgram]) -> None:
    """As torch's own objects tell it: inputs that moved, sizes that were new, results that were kept."""

    def report_of(name: str) -> CudaGraphReport:
        return programs[name].spans[-1].of(cuda_graphs)

    moved = report_of("moved_parameters")
    again = moved.recordings[1:]
    assert len(again) == 87 and {row.reason for row in again} == {"static_input"}
    assert {(row.file.rpartition("/")[2], row.line) for row in again} == {("graphs.py", 43)}
    assert {tuple(row.inputs) for row in again} == {
        tuple(f"arg{number}_1" for number in (0, 1, *range(3, 9)))
    }
    dynamic = report_of("sizes_dynamic").recordings
    assert [row.reason for row in dynamic] == ["first", *["size"] * 5]
    assert [row.sizes for row in dynamic] == ["32", "40", "48", "56", "64", "72"]
    (kept,) = report_of("output_kept").functions
    assert (kept.plain_calls, kept.recordings) == (6, 0)


def test_first_steps(programs: dict[str, GraphProgram]) -> None:
    """Without the very first: one of its six warm-ups lies in it."""
    program = programs["sizes_dynamic"]
    report, truth = program.spans[0].of(cuda_graphs), program.truth[0]
    runs = program.spans[0].of(graph_runs)
    assert runs.launches.sum() == truth["replayed"] + truth["recorded"]
    assert runs.preparations.sum() == truth["warm_up"] - 1
    (row,) = report.functions
    assert (row.recorded_calls, row.recordings) == (truth["recorded"], truth["recorded"])
    assert (row.state, row.why) == ("recorded_again", "new sizes, 5 times")


def test_a_replay_launches_all_its_kernels(programs: dict[str, GraphProgram]) -> None:
    report = programs["training"].spans[-1].of(cuda_graphs)
    forward, backward = report.functions
    assert (forward.direction, backward.direction) == ("forward", "backward")
    assert (forward.launches_avoided, backward.launches_avoided) == (6 * 29, 6 * 21)
    assert (forward.recordings, backward.recordings) == (1, 1), "the log names no direction; its metrics do"
    assert sum(row.recording_us or 0 for row in report.functions) == 6017.0
    assert forward.replay_us is not None and forward.recording_steps is not None


def test_what_keeps_graphs_from_serving_is_found(programs: dict[str, GraphProgram]) -> None:
    """First, with its line, and with a prediction that is nearer to the mended twin than to what was recorded."""
    for name, (rule, where) in NOT_SERVED.items():
        first = findings(programs[name].spans[-1]).findings[0]
        assert first.rule == rule and first.where[:1] == [where], (name, first)
        assert first.predicted is not None and first.predicted.gain_percent > 60, name
        assert 'mode="reduce-overhead"' not in first.next_step, "it is on already"
    served = [row for name in ("stable", "training") for row in findings(programs[name].spans[-1]).findings]
    assert not {"graph_capture", "cudagraphs_skipped", "launch_bound"} & {row.rule for row in served}


def graph_call(at: float, *inside: Event) -> list[Event]:
    return [region("0/0", at, 90), slice_("## Call CompiledFxGraph k ##", at + 5, 80), *inside]


def replay(at: float, correlation: int) -> list[Event]:
    call = slice_("cudaGraphLaunch", at, 2, "cuda_runtime", correlation=correlation)
    return [call, *(kernel("k", at + 5 + 3 * number, 2, correlation=correlation) for number in range(4))]


def summary_of(*reasons: str) -> CompileSummary:
    summary = CompileSummary()
    summary.compilations.add(function="step", file="/p/model.py", line=3).key.compile_id = "0/0"
    tree = summary.cuda_graph_trees.add(device=0, warm_ups=1, pool_bytes=2_000_000)
    function = tree.functions.add(key=CompileKey(compile_id="0/0"), function_id=0, warmed_up=True)
    for number, reason in enumerate(reasons):
        row = function.recordings.add(graph_id=number, reason=reason)
        if reason == "static_input":
            row.inputs.append("arg1_1")
            row.file, row.line = "/p/model.py", 7
    return summary


def test_torchs_objects_say_why(tmp_path: Path) -> None:
    record = slice_("CUDAGraphNode.record", 30, 30)
    events = [
        *(step(number, 100 * number, 100) for number in range(3)),
        *graph_call(5, record, *replay(70, 1)),
        *graph_call(105, record | {"ts": 130}, *replay(170, 2)),
        *graph_call(205, *replay(240, 3)),
    ]
    summary = summary_of("first", "static_input", "static_input")
    report = profile_with(tmp_path, events, data_of(summary)).of(cuda_graphs)
    (row,) = report.functions
    assert (row.calls, row.recorded_calls, row.replayed_calls) == (3, 2, 1)
    assert row.why == "inputs with a fixed address had moved, 2 times (arg1_1) at model.py:7"
    assert row.launches_avoided == 3
    assert [one.reason for one in report.recordings] == ["first", "static_input", "static_input"]
    assert "2.00 MB" in " ".join(report.sentences)


@pytest.mark.parametrize(("action", "does"), [("copy", "copies"), ("skip", "without CUDA graphs")])
def test_what_torch_does_after_the_limit_of_moved_results(tmp_path: Path, action: str, does: str) -> None:
    summary, prefix = summary_of("first", *["earlier_result"] * 2), "torch._inductor.config.triton.cudagraph"
    summary.environment.settings[f"{prefix}_managed_input_rerecord_limit"] = "2"
    summary.environment.settings[f"{prefix}_managed_input_rerecord_action"] = action
    record = slice_("CUDAGraphNode.record", 30, 30)
    events = graph_call(5, record, *replay(70, 1))
    (row,) = profile_with(tmp_path, events, data_of(summary)).of(cuda_graphs).functions
    assert "after 2 times, torch" in row.why and does in row.why


def test_nothing_is_said_of_a_program_without_cuda_graphs(tmp_path: Path) -> None:
    report = profile_with(tmp_path, graph_call(5), None).of(cuda_graphs)
    assert report.sentences == ('CUDA graphs are off (`mode="reduce-overhead"` turns them on).',)
    assert not report.functions


def test_a_graph_in_several_parts_is_one_call(tmp_path: Path) -> None:
    """Inductor cuts a graph around what no CUDA graph can hold."""
    events = graph_call(5, *replay(20, 1), *replay(50, 2))
    (row,) = profile_with(tmp_path, events, data_of(summary_of("first"))).of(cuda_graphs).functions
    assert (row.state, row.replayed_calls, row.launches_avoided) == ("replayed", 1, 6)
