"""regions.py, graph_break_costs.py, compiled_regions.py: what a graph break costs, by hand and on a recording."""

import json

import msgspec
import pytest

from profiles import answered, profile_of, profile_with
from tb_torchcompile_plugin.analysis.compile.graph_breaks import graph_break_costs
from tb_torchcompile_plugin.analysis.runtime.compiled_regions import compiled_regions
from tb_torchcompile_plugin.api.report import read_report
from tb_torchcompile_plugin.profile.compiled.regions import (
    BreakLine,
    Resumes,
    all_calls,
    region_calls,
    resumes,
)
from traces import AUTOGRAD, kernel, region, slice_, step, write_trace


def lookup(ts, dur):
    return slice_("TorchDynamo Cache Lookup", ts, dur)


def pregraph(ts, dur):
    return slice_("Pregraph bytecode", ts, dur)


def prologue(ts, dur):
    return slice_("AOTDispatcher Runtime Wrapper Prologue", ts, dur)


def graph(ts, dur):
    return [slice_("CompiledFunction", ts, dur), slice_("## Call CompiledFxGraph fk ##", ts, dur)]


def priced(folder, events, resumed=(), breaks=None):
    """(break costs, compiled regions) with the given compile ids as resume functions."""
    known = Resumes(frozenset(resumed), breaks or {}, {})
    profile = answered(profile_with(folder, events), resumes, known)
    return graph_break_costs(profile), compiled_regions(profile)


ONE_BREAK = [
    *(lookup(0, 5), region("0/0", 6, 94), pregraph(8, 2), prologue(11, 3), *graph(20, 10)),
    *(lookup(45, 4), region("1/0", 50, 45), pregraph(52, 3), *graph(60, 20)),
    step(3, 0, 200),
]


def test_a_break_lasts_from_graph_to_graph(tmp_path):
    events = [*ONE_BREAK, kernel("triton_poi_fused_0", 25, 10), kernel("triton_poi_fused_0", 58, 5)]
    (row,), (first, second) = priced(tmp_path, events, ["1/0"], {"0/0": BreakLine("train.py", 7)})
    assert (row.compile_id, row.resume_compile_id, row.file, row.line) == ("0/0", "1/0", "train.py", 7)
    assert (row.calls, row.host_us, row.resume_guard_us, row.resume_overhead_us) == (1, 30, 4, 3)
    assert row.gpu_idle_us == 30 - 5 - 2  # 30 … 35 and 58 … 60 were busy
    assert (first.cpu_us, first.guard_us, first.overhead_us, first.graph_us) == (94 - 45, 5, 2 + 3, 10)
    assert (second.cpu_us, second.guard_us, second.overhead_us, second.graph_us) == (45, 4, 3, 20)


def test_what_is_compiled_while_a_graph_is_broken_is_no_part_of_its_price(tmp_path):
    compiling = [slice_(name, 36, 8) for name in ("entire_frame_compile (dynamo_timed)", "compile_inner")]
    kernels = [kernel("triton_poi_fused_0", ts, dur) for ts, dur in ((25, 10), (43, 5))]
    (row,), _ = priced(tmp_path, [*ONE_BREAK, *compiling, *kernels], ["1/0"])
    assert row.host_us == 30 - 8
    assert row.gpu_idle_us == 30 - 5 - 8 - 4  # one kernel was still running when compiling ended, at 44


def test_what_another_thread_compiles_meanwhile_is_no_matter_of_a_breaks(tmp_path):
    (row,), _ = priced(tmp_path, [*ONE_BREAK, slice_("compile_inner", 30, 40, tid=AUTOGRAD)], ["1/0"])
    assert row.host_us == 30


def test_a_nested_region_that_is_no_resume_is_a_called_frame(tmp_path):
    costs, regions = priced(tmp_path, ONE_BREAK)
    assert costs == []
    assert [(row.compile_id, row.cpu_us) for row in regions] == [("0/0", 94 - 45), ("1/0", 45)]


def test_two_graphs_in_one_region_are_no_break(tmp_path):
    costs, (row,) = priced(tmp_path, [region("4/1", 0, 100), *graph(10, 10), *graph(50, 10)])
    assert costs == [] and (row.graph_us, row.cpu_us) == (20, 100)


def test_without_a_graph_before_it_a_break_starts_after_what_prepared_the_region(tmp_path):
    events = [region("0/0", 0, 100), pregraph(5, 5), lookup(40, 2), region("1/0", 43, 50), *graph(60, 5)]
    (row,), _ = priced(tmp_path, events, ["1/0"])
    assert row.host_us == 60 - 10
    (row,), _ = priced(tmp_path, [event for event in events if event["name"] != "Pregraph bytecode"], ["1/0"])
    assert row.host_us == 60 - 0


def test_a_resume_without_a_graph_does_not_charge_the_next_break_twice(tmp_path):
    events = [
        *(region("0/0", 0, 200), *graph(10, 10)),
        *(region("1/0", 40, 160), pregraph(45, 5)),
        *(region("2/0", 100, 90), *graph(120, 10)),
    ]
    rows, _ = priced(tmp_path, events, ["1/0", "2/0"])
    assert {row.resume_compile_id: row.host_us for row in rows} == {"1/0": 50 - 20, "2/0": 120 - 50}


def test_a_lookup_that_led_nowhere_is_nobodys(tmp_path):
    stray = [lookup(10, 5), lookup(1000, 5)]
    frame = [lookup(10_000, 5), region("0/0", 10_006, 100), *graph(10_010, 50)]
    _, (row,) = priced(tmp_path, stray + frame)
    assert (row.cpu_us, row.guard_us) == (100, 5)


def test_a_lookup_inside_a_region_is_not_the_next_ones(tmp_path):
    first = [lookup(0, 5), region("0/0", 6, 100), *graph(10, 10), lookup(50, 5)]
    _, (_, row) = priced(tmp_path, [*first, lookup(5000, 5), region("1/0", 5006, 100), *graph(5010, 50)])
    assert (row.compile_id, row.guard_us) == ("1/0", 5)


def test_a_lookup_that_led_to_a_compilation_is_part_of_that(tmp_path):
    compiling = slice_("_compile.compile_inner (dynamo_timed)", 20, 900)
    _, (row,) = priced(tmp_path, [lookup(0, 5), compiling, region("0/0", 1000, 50), *graph(1010, 5)])
    assert (row.cpu_us, row.guard_us) == (50, 0)


def test_a_thousand_nested_regions_are_no_trouble(tmp_path):
    events = [region(f"{n}/0", n, 5000 - 2 * n) for n in range(1500)]
    _, regions = priced(tmp_path, events, {f"{n}/0" for n in range(1, 1500)})
    assert len(regions) == 1500 and all(row.cpu_us == 2 for row in regions[:-1])


def test_without_a_gpu_idle_is_unknown(tmp_path):
    (row,), _ = priced(tmp_path, ONE_BREAK, ["1/0"])
    assert row.gpu_idle_us is None


def test_a_region_cut_off_at_the_end_of_the_trace_still_counts(tmp_path):
    (row,), _ = priced(tmp_path, [event for event in ONE_BREAK if event["ts"] < 60], ["1/0"])
    assert row.host_us == 55 - 30  # up to the end of what prepared the resumed region


def span_of(folder):
    (worker,) = read_report(str(folder)).runs[0].workers
    return json.loads(msgspec.json.encode(worker.spans[0]))


def test_the_four_breaks_of_the_recording_cost_what_a_hand_calculation_says(recording):
    rows = sorted(span_of(recording("breaks"))["graph_break_costs"], key=lambda row: row["line"])
    assert [(row["line"], row["calls"]) for row in rows] == [(line, 3) for line in (26, 27, 28, 29)]
    # Of the three steps.
    assert sum(row["host_us"] for row in rows) == pytest.approx(636.703 + 523.926 + 505.275)


def test_break_sites_are_ordered_by_what_they_cost_a_step(recording):
    span = span_of(recording("breaks"))
    sites = span["graph_break_sites"]
    saved = [row["saves_us"] for row in sites]
    assert saved == sorted(saved, reverse=True) and min(saved) > 0
    sites.sort(key=lambda row: -row["host_us"])
    assert [row["line"] for row in sites] == [28, 26, 29, 27]
    assert [row["calls_per_step"] for row in sites] == [1, 1, 1, 1]
    assert sites[0]["reason"] == "Data-dependent branching" and sites[0]["compile_ids"] == ["2/0"]
    assert sites[0]["step_mean_us"] == pytest.approx(514.162 / 3)
    assert sites[0]["step_gpu_idle_us"] == pytest.approx(509.874 / 3)
    assert sites[0]["host_us"] == 514.162
    wall = sum(step["wall_us"] for step in span["steps"])
    assert sum(row["share_percent"] for row in sites) == pytest.approx(100 * 1665.904 / wall)


def test_the_chain_alternates_graphs_and_breaks(recording):
    chain = span_of(recording("breaks"))["break_chain"]
    assert chain["sentence"].startswith("One call of 0/0 in ProfilerStep#3: ")  # of median cost
    kinds = [(link["kind"], link["compile_id"], link["line"]) for link in chain["links"]]
    ids = ["0/0", "1/0", "2/0", "3/0", "4/0"]
    assert kinds[::2] == [("graph", compile_id, None) for compile_id in ids]
    assert kinds[1::2] == [("break", compile_id, line) for compile_id, line in zip(ids, (26, 27, 28, 29))]
    assert sum(link["duration_us"] for link in chain["links"][1::2]) == pytest.approx(523.926)


def test_a_break_that_the_steps_did_not_execute_has_no_price(recording):
    """rank 0 broke in 0/0 … 2/0 and 0/1 while compiling; none of them resumes inside the profile."""
    (first, _) = read_report(str(recording("ddp"))).runs[0].workers
    rows = json.loads(msgspec.json.encode(first.spans[0]))["graph_break_sites"]
    assert len(rows) == 2 and all(row["calls"] is None and row["host_us"] is None for row in rows)
    assert {"0/0", "0/1"} <= {compile_id for row in rows for compile_id in row["compile_ids"]}


def test_stacks_tell_of_resumes_where_there_is_no_log(recording, tmp_path):
    (trace,) = recording("breaks").glob("*.trace.json")
    (tmp_path / trace.name).symlink_to(trace)
    rows = sorted(span_of(tmp_path)["graph_break_costs"], key=lambda row: row["line"])
    lines = [(row["file"], row["line"], row["calls"]) for row in rows]
    assert lines == [("capture.py", line, 3) for line in (26, 27, 28, 29)]


def test_with_neither_log_nor_stacks_nobody_knows(tmp_path):
    write_trace(tmp_path, ONE_BREAK)
    span = span_of(tmp_path)
    assert span["graph_break_costs"] is None
    assert [row["calls"] for row in span["compiled_regions"]] == [1, 1]


@pytest.mark.parametrize("name", ["resnet18", "resnet18_eager"])
def test_nothing_broke_nothing_is_priced(recording, name):
    assert not span_of(recording(name))["graph_break_costs"]


def test_ddp_splits_are_called_frames_with_two_graphs(recording):
    profile = profile_of(next(recording("ddp").glob("rank0*.json")))
    calls = [call for call in all_calls(region_calls(profile)) if call.compile_id == "4/1"]
    assert [len(call.graphs) for call in calls] == [2, 2, 2]
