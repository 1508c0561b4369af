"""The report of real recordings against independent reference numbers, by equality."""

import json
from collections import Counter
from decimal import Decimal

import msgspec
import pytest

from tb_torchcompile_plugin.api.report import read_report

PROGRAMS = ["breaks", "resnet18", "resnet18_eager", "recompiles", "resnet18_compile", "ddp"]


@pytest.fixture(scope="module")
def report(recording):
    """recording name → its report as plain JSON, each made once."""
    made = {}

    def of(name):
        if name not in made:
            made[name] = json.loads(msgspec.json.encode(read_report(str(recording(name)))))
        return made[name]

    return of


def workers(report):
    return [worker for run in report["runs"] for worker in run["workers"]]


def spans(report):
    return {span["trace_file"]: span for worker in workers(report) for span in worker["spans"]}


def exact_sum(values):
    return float(sum(Decimal(str(value)) for value in values))


@pytest.mark.parametrize("name", PROGRAMS)
def test_gpu_numbers_equal_the_reference(report, expected, name):
    for file, reference in expected(name)["traces"].items():
        span = spans(report(name))[file]
        (gpu,) = span["gpu"]
        assert span["events"] == reference["events"]
        assert gpu["busy_us"] == reference["busy_us"] and gpu["span_us"] == reference["gpu_span_us"]
        parts = ("compute_us", "exposed_communication_us", "exposed_memory_us", "idle_us")
        assert exact_sum(gpu[part] for part in parts) == gpu["span_us"]
        marked = span["steps"] if span["step_time"]["source"] == "profiler" else ()
        assert len(marked) == reference["steps"]
        assert sum(row["launches"] for row in span["kernel_categories"]) == reference["gpu_events"]
        assert exact_sum(row["time_us"] for row in span["kernel_categories"]) == reference["gpu_time_us"]
        assert exact_sum(row["time_us"] for row in span["kernels"]) == reference["gpu_time_us"]


@pytest.mark.parametrize("name", PROGRAMS)
def test_triton_categories_equal_the_reference(report, expected, name):
    for file, reference in expected(name)["traces"].items():
        rows = {row["category"]: row for row in spans(report(name))[file]["kernel_categories"]}
        for category, numbers in reference["categories"].items():
            if category != "other":
                row = rows[category]
                assert (row["launches"], row["distinct_kernels"]) == (numbers["count"], numbers["distinct"])
                assert row["time_us"] == numbers["time_us"]


@pytest.mark.parametrize("name", PROGRAMS)
def test_regions_are_called_as_often_as_in_the_reference(report, expected, name):
    for file, reference in expected(name)["traces"].items():
        regions = {row["compile_id"]: row["calls"] for row in spans(report(name))[file]["compiled_regions"]}
        assert regions == {label.split(": ")[1]: calls for label, calls in reference["regions"].items()}


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name != "resnet18_eager"])
def test_every_triton_kernel_has_its_compilation_and_graph(report, name):
    for span in spans(report(name)).values():
        rows = [row for row in span["kernels"] if row["category"].startswith("triton")]
        assert rows and all(row["compile_id"] and row["graph_key"] for row in rows)


def test_one_graph_key_serves_two_compilations(report):
    """In `breaks` 1/0 and 4/0 share a graph: the key alone does not tell whose kernel it is."""
    (span,) = spans(report("breaks")).values()
    owners = Counter((row["graph_key"], row["compile_id"]) for row in span["kernels"] if row["graph_key"])
    by_key: dict[str, set[str | None]] = {}
    for key, compile_id in owners:
        by_key.setdefault(key, set()).add(compile_id)
    assert {"1/0", "4/0"} in by_key.values()


def test_ranks_have_their_own_logs(report):
    by_name = {worker["worker"]: worker for worker in workers(report("ddp"))}
    assert {name: worker["rank"] for name, worker in by_name.items()} == {"rank0": 0, "rank1": 1}
    actual = {name: len(worker["compile"]["recompiles"]) for name, worker in by_name.items()}
    assert actual == {"rank0": 2, "rank1": 0}


def test_compile_time_inside_the_profile_is_told(report):
    (span,) = spans(report("breaks")).values()
    assert span["compile_overlap"] == {"inside_us": 0.0, "window": "the profiled steps"}
    (span,) = spans(report("resnet18_compile")).values()
    overlap = span["compile_overlap"]
    assert overlap["inside_us"] > 10_000_000 and overlap["window"] == "this span"


def test_what_a_span_tells_compile_data_does_not_tell_again(recording):
    """A frame that hit the recompile limit: with its price, and not once more without."""
    rules = [row.rule for row in read_report(str(recording("exam") / "limit_hit")).findings]
    assert rules.count("frame_given_up") == 1 and "recompile_limit" not in rules
