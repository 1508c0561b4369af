"""What the handler wrote on a real GPU, read back: trace and summary joined, nothing from a log."""

import json

import msgspec
import pytest

from tb_torchcompile_plugin.api.report import read_report


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
