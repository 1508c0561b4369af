"""What the handler wrote on a real GPU, read back: trace and summary joined, nothing from a log."""

import json

import msgspec
import pytest

from tb_torchcompile_plugin.analysis.compile.compilation_details import compilation
from tb_torchcompile_plugin.analysis.compile.compilations import compilations
from tb_torchcompile_plugin.api.report import read_report
from tb_torchcompile_plugin.api.session import Session


@pytest.fixture(scope="module")
def worker(recording):
    def of(name):
        report = json.loads(msgspec.json.encode(read_report(str(recording(name)))))
        ((only,),) = [run["workers"] for run in report["runs"]]
        assert report["warnings"] == [] and only["warnings"] == [] and only["compile"]["warnings"] == []
        return only

    return of


def test_a_recorded_run_has_both_halves(worker):
    recorded = worker("handler_breaks")
    compiled, (span,) = recorded["compile"], recorded["spans"]
    assert compiled["source"] == "summary" and compiled["compile_times_complete"]
    assert compiled["environment"]["torch_version"] == "2.11.0+cu130"
    assert compiled["environment"]["device_names"] == [span["gpu"][0]["name"]] == ["NVIDIA H200"]
    lines = [(row["line"], row["source"].strip()) for row in compiled["graph_breaks"]]
    assert lines == [
        (27, "torch._dynamo.graph_break()"),
        (29, "torch._dynamo.graph_break()"),
        (30, "if b.sum() > 0:"),
        (33, 'print("", end="")'),
    ]
    values = [row["attempts"] for row in compiled["compilations"] if row["direction"] == "forward"]
    assert values == [2, 2, 1, 2, 1]
    times = compiled["compile_times"]["_compile.compile_inner"]
    forward = [row["duration_s"] for row in compiled["compilations"] if row["direction"] == "forward"]
    assert times == pytest.approx(forward, abs=1e-4)
    assert span["compile_overlap"] == {"inside_us": 0.0, "window": "the profiled steps"}


def test_generated_kernels_are_the_ones_that_ran(worker):
    recorded = worker("handler_breaks")
    generated = {
        (row["compile_id"], row["graph_key"], kernel)
        for row in recorded["compile"]["generated_kernels"]
        for kernel in row["kernels"]
    }
    (span,) = recorded["spans"]
    ran = {
        (row["compile_id"], row["graph_key"], row["name"])
        for row in span["kernels"]
        if row["category"].startswith("triton")
    }
    assert ran and ran <= generated


def test_what_was_compiled_before_the_handler_existed_is_recovered(worker):
    recorded = worker("handler_late")
    compiled = recorded["compile"]
    rows = [(row["compile_id"], row["direction"], row["recovered"]) for row in compiled["compilations"]]
    assert rows == [("0/0", "forward", True), ("0/0", "backward", True)]
    assert all(row["duration_s"] > 0 for row in compiled["compilations"])
    assert compiled["compile_times_complete"] and len(compiled["compile_times"]["compile_fx_inner"]) == 2
    assert sum(len(row["kernels"]) for row in compiled["generated_kernels"]) == 4


def test_kernels_replayed_by_cuda_graphs_keep_their_compilation(worker):
    for span in worker("handler_late")["spans"]:
        rows = [row for row in span["kernels"] if row["category"].startswith("triton")]
        assert (
            len(rows) == 4
            and {row["compile_id"] for row in rows} == {"0/0"}
            and all(row["graph_key"] for row in rows)
        )
        assert len(span["steps"]) == 2


def test_why_cuda_graphs_were_skipped_is_a_field_of_the_compilation(recording):
    """torch reports a mutated input when the code first runs, without a compile id, but quotes the function."""
    session = Session([("", str(recording("kernels") / "skips"))])
    ((run, worker),) = [(run.run, worker.worker) for run in session.runs().runs for worker in run.workers]
    reasons_of = {
        row.function: compilation(
            session.compile_data(run, worker), row.epoch, row.compile_id
        ).cudagraph_skip_reasons
        for row in session.compile_data(run, worker).of(compilations)
    }
    assert set(reasons_of) == {"mutates", "on_cpu", "fine"} and reasons_of["fine"] == []
    assert [
        reasons[0].splitlines()[0].split(" (")[0] for reasons in (reasons_of["mutates"], reasons_of["on_cpu"])
    ] == [
        "skipping cudagraphs due to mutated inputs",
        "skipping cudagraphs due to skipping cudagraphs due to cpu device",
    ]
