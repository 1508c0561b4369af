"""analysis/runtime/ledger.py: whose time each nanosecond of a step is."""

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from profiles import profile_in, profile_with, spans_in, the_ledger_sums_to_the_step
from recordings import Recording
from tb_torchcompile_plugin.analysis.causes.findings import span_findings
from tb_torchcompile_plugin.analysis.runtime.ledger import Ledger, ledger
from tb_torchcompile_plugin.profile.profile import Profile
from traces import Event, frame, in_steps, launch, slice_

CASES = Path(__file__).parents[2] / "data" / "cases"


def by_kind(found: Ledger) -> dict[str, float]:
    times = defaultdict[str, float](float)
    for row in found.rows:
        times[row.kind] += row.time_us
    return {kind: round(time, 3) for kind, time in times.items()}


def test_where_the_gpu_limits_the_steps_its_work_is_the_path(tmp_path: Path) -> None:
    """Each step launches 90 µs of work in 10 µs: the host is on the path only while the GPU idles."""
    events = in_steps(every=10, number=5)
    for at in range(5):
        events += launch("void gemm_kernel", 10 * at + 1, 5 + 100 * at, 60)
        events += launch("void at::native::add", 10 * at + 4, 70 + 100 * at, 30)
    profile = profile_with(tmp_path, events)
    the_ledger_sums_to_the_step(profile)
    assert by_kind(ledger(profile)) == {"gemm": 60, "aten": 30, "unaccounted": 10}


def test_where_the_host_limits_them_it_is_the_host_and_what_it_waits_for(tmp_path: Path) -> None:
    """Of 100 µs: 49 in an operator, 1 in its launch, 20 waiting while a kernel runs, 5 more waiting, 25 in between."""
    make = [slice_("aten::embedding", 10, 50), *launch("void gemm_kernel", 59, 65, 20)]
    make.append(slice_("cudaStreamSynchronize", 65, 25, "cuda_runtime"))
    profile = profile_with(tmp_path, in_steps(*make, every=100))
    the_ledger_sums_to_the_step(profile)
    times = by_kind(ledger(profile))
    assert (times["gemm"], times["waiting_for_gpu"]) == (20, 5)
    assert (times["eager_operators"], times["kernel_launches"]) == (49, 1)
    assert times["unaccounted"] == 25 and sum(times.values()) == 100


def test_small_rows_together_are_no_site(tmp_path: Path) -> None:
    """400 operators of different shapes, each of 0.2 % of a step: the rest of the table is no place."""
    events: list[Event] = []
    for at in range(400):
        shapes: dict[str, Any] = {"Input Dims": [[at + 1, 8]]}
        events.append(slice_(f"aten::op{at}", 50 * at, 49, "cpu_op", **shapes))
        events += launch("void elementwise", 50 * at + 2, 50 * at + 4, 3)
    profile = profile_with(tmp_path, in_steps(*events, every=20_100))
    the_ledger_sums_to_the_step(profile)
    rest = [row for row in profile.of(ledger).rows if any("smaller rows" in name for name in row.names)]
    assert rest and {row.site for row in rest} == {""}
    assert len({(row.kind, row.is_gpu) for row in rest}) == len(rest)
    assert large_sites(profile) == []


def test_an_operator_on_the_cpu_is_work(tmp_path: Path) -> None:
    profile = profile_with(tmp_path, in_steps(slice_("aten::sort", 100, 5000), every=6000))
    (row,) = [row for row in span_findings(profile) if row.rule == "large_site"]
    assert row.severity == "info" and row.where == ["aten::sort"]
    assert "Python" not in row.next_step and "with_stack" not in row.next_step


def test_rows_of_one_site_are_added_up(recording: Recording) -> None:
    found = ledger(profile_in(recording("breaks")))
    (site,) = [row for row in found.sites if row.site == "capture.py:25"]
    parts = [row for row in found.rows if row.site == site.site]
    assert len(parts) > 2 and site.host_us == pytest.approx(sum(row.time_us for row in parts))
    assert {row.kind for row in parts} >= {"kernel_launches", "python", "guards", "graph_breaks"}
    assert found.sites[0].step_percent == max(row.step_percent for row in found.sites)


def large_sites(profile: Profile) -> list[str]:
    return [row.where[0] for row in span_findings(profile) if row.rule == "large_site"]


def test_time_without_a_line_has_its_position_and_is_named() -> None:
    (profile,) = spans_in(CASES / "compile_in_loop")
    first = ledger(profile).sites[0]
    assert first.site == "after Torch-Compiled Region: 0/1 and before TorchDynamo Cache Lookup"
    assert first.kinds == ["unaccounted"] and first.step_percent > 70
    assert large_sites(profile) == []  # a finding explains it: compiling in the loop


def test_a_large_site_without_a_cause_is_a_finding() -> None:
    (profile,) = spans_in(CASES / "pytorch190757_cpu_kernel")
    assert large_sites(profile) == ["program.py:3"]


def test_a_large_site_names_the_library_that_takes_most_of_it(tmp_path: Path) -> None:
    """On the CPU, where no fix is predicted."""
    events = [frame("train.py(3): main", 1, 1998), slice_("aten::mm", 10, 100)]
    events += [frame("torchmetrics/metric.py(300): forward", 200, 1000)]
    profile = profile_with(tmp_path, [*in_steps(every=2000, number=2), *events])
    (found,) = [row for row in span_findings(profile) if row.where == ["train.py:3"]]
    assert found.next_step.startswith("torchmetrics computes metrics there. Compute metrics once per epoch")


def test_a_function_of_torch_is_not_to_be_moved_out_of_the_step(tmp_path: Path) -> None:
    events = [frame("train.py(3): main", 1, 1998), slice_("aten::mm", 10, 100)]
    for name, moves in (("torch/_tensor.py(566): backward", False), ("train.py(9): tokenize", True)):
        inside = frame(name, 200, 1700)
        profile = profile_with(tmp_path, [*in_steps(every=2000, number=2), *events, inside])
        found = [row for row in span_findings(profile) if row.rule in ("large_site", "python")]
        assert any("out of the step" in row.next_step for row in found) is moves, found


def test_a_site_of_the_host_brings_no_more_than_the_idle_time_of_its_gpu() -> None:
    (profile,) = spans_in(CASES / "torchtitan4362_streams")
    assert ledger(profile).sites[0].step_percent > 60 and large_sites(profile) == []


def test_a_site_that_a_finding_explains_is_not_named_again(recording: Recording) -> None:
    assert large_sites(profile_in(recording("breaks"))) == []
