"""what_if/: what the fixes of autograd, of frames that were given up, and of graph breaks take out of a step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mendable import fix, kinds, steps
from profiles import data_of, profile_of, profile_with
from tb_torchcompile_plugin.analysis.findings.findings import span_findings
from tb_torchcompile_plugin.analysis.what_if.eager_fixes import given_up
from tb_torchcompile_plugin.analysis.what_if.scenario import scenario
from tb_torchcompile_plugin.compile_log.summary_pb2 import CompileSummary
from tb_torchcompile_plugin.profile.compiled.regions import compiled_calls, lookups_in_vain
from traces import AUTOGRAD, Event, launch, slice_, write_trace

NODE = "autograd::engine::evaluate_function: MulBackward0"
POINTWISE = "triton_poi_fused_add_0"
ELEMENTWISE = "void at::native::vectorized_elementwise_kernel<4>"


def checked(times: int, around: str = NODE) -> list[Event]:
    """A launch, then so many checks for a NaN of 30 µs each, a kernel in each, inside of this slice; a launch."""
    events = launch("k", 10, 20, 5)
    for place in range(times):
        at = 50 + 40 * place
        events += [
            slice_(around, at, 32),
            slice_("aten::isnan", at + 1, 28),
            *launch("n", at + 2, at + 10, 18),
            slice_("aten::item", at + 29, 2),
        ]
    return [*events, *launch("k", 900, 905, 5)]


def test_without_anomaly_mode_its_checks_are_gone_and_what_they_launch(tmp_path: Path) -> None:
    """Of a step of 1000 µs ten checks of 30 µs."""
    row = fix(profile_with(tmp_path, steps(*checked(10))), "anomaly_mode")
    assert row.times == 10
    alone = [
        event for event in checked(10) if event["name"] != "aten::item"
    ]  # a hook of the user's asks otherwise
    assert "anomaly_mode" not in kinds(profile_with(tmp_path, steps(*alone)))
    assert row.predicted.after_us == pytest.approx(700, abs=1)


def test_the_stacks_that_anomaly_mode_keeps_are_gone_with_it(tmp_path: Path) -> None:
    stack = [
        slice_("traceback.py(221): format_stack", 500, 300, "python_function"),
        slice_("traceback.py(29): format_list", 510, 200, "python_function"),
    ]
    row = fix(profile_with(tmp_path, steps(*checked(10), *stack)), "anomaly_mode")
    assert row.predicted.after_us == pytest.approx(400, abs=1)


@pytest.mark.parametrize(("times", "around"), [(7, NODE), (10, "train.py(3): look_for_nan")])
def test_a_program_may_look_for_a_nan_itself(tmp_path: Path, times: int, around: str) -> None:
    assert "anomaly_mode" not in kinds(profile_with(tmp_path, steps(*checked(times, around))))


def backwards(forwards: int, backwards_: int) -> list[Event]:
    """So many calls of one graph of 50 µs, and backwards of it of 80 µs, in each of which a kernel runs for 70."""
    events: list[Event] = []
    numbered: dict[str, Any] = {"Sequence number": 7}
    for place in range(forwards):
        at = 10 + 60 * place
        events += [
            slice_("Torch-Compiled Region: 0/0", at, 50),
            slice_("CompiledFunction", at + 1, 48, **numbered),
            *launch("k", at + 5, at + 10, 20),
        ]
    for place in range(backwards_):
        at = 300 + 100 * place
        events += [
            slice_("CompiledFunctionBackward", at, 80, tid=AUTOGRAD, **numbered),
            *launch("b", at + 2, at + 5, 70, AUTOGRAD),
        ]
    return [*events, *launch("accumulate", 985, 988, 5, AUTOGRAD)]


def test_one_backward_in_place_of_four(tmp_path: Path) -> None:
    row = fix(profile_with(tmp_path, steps(*backwards(1, 4))), "repeated_backward")
    assert row.times == 3
    assert row.predicted.after_us == pytest.approx(1000 - 3 * 80, abs=1)


@pytest.mark.parametrize(("forwards", "times"), [(1, 1), (2, 2), (3, 3), (2, 5)])
def test_a_backward_for_each_forward_is_none_too_many(tmp_path: Path, forwards: int, times: int) -> None:
    """Nor is one of which the trace does not say which of the forwards it goes back through."""
    assert "repeated_backward" not in kinds(profile_with(tmp_path, steps(*backwards(forwards, times))))


def looked_up(times: int, regions: int) -> list[Event]:
    """So many cache lookups, the first of which lead to a region that launches; behind each of the others three eager
    operators 20 µs apart that copy tensors of a few kilobytes."""
    events: list[Event] = []
    for place in range(times):
        at = 10 + 100 * place
        events.append(slice_("TorchDynamo Cache Lookup", at, 4))
        if place < regions:
            events += [
                slice_("Torch-Compiled Region: 0/0", at + 5, 60),
                *launch(POINTWISE, at + 20, at + 25, 5),
            ]
            continue
        for number in range(3):
            when = at + 10 + 20 * number
            events += [slice_("aten::add", when, 15), *launch(ELEMENTWISE, when + 10, when + 14, 6)]
    return events


def test_calls_that_dynamo_looked_up_in_vain_ran_eager(tmp_path: Path) -> None:
    """Nothing tells of compilations: five of six lookups have no region behind them."""
    profile = profile_with(tmp_path, steps(*looked_up(6, 1)))
    assert (profile.of(lookups_in_vain), given_up(profile)) == (15, True)
    row = fix(profile, "frames")
    assert row.name == "aten::add"
    assert row.predicted.after_us < 600, "one launch of one kernel in place of fifteen"


def test_a_lookup_before_each_region_is_none_in_vain(tmp_path: Path) -> None:
    profile = profile_with(
        tmp_path, steps(*looked_up(6, 6), slice_("aten::add", 700, 50), *launch("k", 720, 725, 5))
    )
    assert (profile.of(lookups_in_vain), given_up(profile)) == (0, False)
    assert "frames" not in kinds(profile) and "eager" in kinds(profile)


def test_a_lookup_that_leads_to_compiling_is_none_in_vain(tmp_path: Path) -> None:
    """While something is compiled nobody knows which lookups led to it, and which to eager code."""
    compiling = slice_("_compile.compile_inner (dynamo_timed)", 2, 3)
    profile = profile_with(tmp_path, steps(*looked_up(6, 1), compiling))
    assert (profile.of(lookups_in_vain), given_up(profile)) == (0, False)


def test_a_frame_that_was_given_up_runs_without_its_waits(tmp_path: Path) -> None:
    """What made torch give it up, a question to the GPU, is part of what the fix takes out."""
    summary = CompileSummary()
    row = summary.compilations.add(function="forward", file="m.py", line=3)
    row.key.compile_id = "0/0"
    row.failure.type, row.failure.reason = "Unsupported", "Data-dependent branching"
    asks = [slice_("aten::item", 700, 250), slice_("cudaStreamSynchronize", 705, 240, "cuda_runtime")]
    events = steps(*looked_up(6, 1), *launch("gemm", 680, 685, 255), *asks)
    with_data = profile_with(tmp_path, events, data_of(summary))
    assert given_up(with_data)
    frames, eager = fix(with_data, "frames").predicted, fix(with_data, "eager").predicted
    assert frames.after_us < eager.after_us - 100


def test_a_region_that_holds_no_graph_is_not_compiled(tmp_path: Path) -> None:
    """Torch marks the graphs that it made, and this one has none; without marks the compile data tells."""
    region = [slice_("Torch-Compiled Region: 0/0", 10, 200), *launch(ELEMENTWISE, 20, 25, 5)]
    graph = [
        slice_("Torch-Compiled Region: 1/0", 300, 100),
        slice_("## Call CompiledFxGraph key ##", 310, 80),
        *launch(POINTWISE, 320, 325, 5),
    ]
    marked = profile_with(tmp_path, steps(*region, *graph))
    assert {call.compile_id for call in compiled_calls(marked)} == {"1/0"}
    assert {call.compile_id for call in compiled_calls(profile_with(tmp_path, steps(*region)))} == {"0/0"}
    summary = CompileSummary()
    summary.compilations.add(graph_ops=0).key.compile_id = "0/0"
    assert not compiled_calls(profile_with(tmp_path, steps(*region), data_of(summary)))


def broken(first: str, second: str, *, resumes: bool) -> tuple[list[Event], CompileSummary]:
    """A region of three graphs of a launch each: with two breaks, or a frame that it calls, which has a break."""
    events = [
        slice_("Torch-Compiled Region: 0/0", 10, 700),
        slice_("## Call CompiledFxGraph key0 ##", 20, 60),
        *launch(first, 60, 65, 100),
        slice_("Torch-Compiled Region: 1/0", 350, 350),
        slice_("## Call CompiledFxGraph key1 ##", 380, 60),
        *launch(second, 390, 395, 80),
        slice_("Torch-Compiled Region: 2/0", 600, 100),
        slice_("## Call CompiledFxGraph key2 ##", 610, 60),
        *launch("gemm", 620, 625, 80),
    ]
    summary = CompileSummary()
    for compile_id, function in (
        ("0/0", "forward"),
        ("1/0", "torch_dynamo_resume_in_forward_at_3" if resumes else "helper"),
        ("2/0", f"torch_dynamo_resume_in_{'forward' if resumes else 'helper'}_at_4"),
    ):
        summary.compilations.add(function=function, graph_ops=1).key.compile_id = compile_id
    return events, summary


@pytest.mark.parametrize("resumes", [True, False])
def test_breaks_closed_take_the_frames_in_between_with_them(tmp_path: Path, resumes: bool) -> None:
    """Between the launches at 60, 390 and 620 µs are 329 and 229 µs; a frame that a broken one calls is inlined."""
    events, summary = broken("gemm", "gemm", resumes=resumes)
    row = fix(profile_with(tmp_path, steps(*events), data_of(summary)), "graph_breaks")
    assert row.predicted.after_us == pytest.approx(1000 - 329 - 229, abs=1)


def test_kernels_on_both_sides_of_a_break_become_one(tmp_path: Path) -> None:
    """Of two pointwise kernels of 100 and 80 µs the longer is left, and one launch; of products both."""
    after = {}
    for kernel in ("gemm", POINTWISE):
        events, summary = broken(kernel, kernel, resumes=True)
        wait = slice_("cudaDeviceSynchronize", 750, 3, "cuda_runtime")
        profile = profile_with(tmp_path, steps(*events, wait), data_of(summary))
        after[kernel] = fix(profile, "graph_breaks").predicted
    assert after["gemm"].after_us - after[POINTWISE].after_us == pytest.approx(80, abs=10)
    assert after[POINTWISE].high_us == pytest.approx(after["gemm"].after_us, abs=10), "surely: without fusing"


def test_of_a_trace_that_is_cut_nothing_is_predicted(tmp_path: Path) -> None:
    path = write_trace(tmp_path, steps(slice_("aten::mm", 10, 50), *launch("k", 20, 25, 5)))
    text = path.read_text()
    path.write_text(text[: text.index('"cuLaunchKernelEx"') - 30])
    why = scenario(profile_of(path)).why_nothing
    assert why == (
        "No work of a GPU is in what could be read of this trace: nothing is predicted from a part of it."
    )


def saved(inside: list[Event]) -> list[Event]:
    """A step that saves a checkpoint for 600 µs: 250 of Python, 350 of an operator; and what is launched inside."""
    return [
        *launch("k", 10, 20, 5),
        slice_("train.py(3): step", 50, 700, "python_function"),
        slice_("torch/serialization.py(945): save", 100, 600, "python_function"),
        slice_("aten::copy_", 200, 350),
        *inside,
        *launch("k", 900, 905, 5),
    ]


def test_a_function_of_torchs_that_launches_no_kernel_goes_with_all_inside_of_it(tmp_path: Path) -> None:
    row = fix(profile_with(tmp_path, steps(*saved([]))), "library")
    assert row.predicted.after_us == pytest.approx(400, abs=1)
    assert row.predicted.high_us == pytest.approx(750, abs=51), "surely: its own time beyond the usual"


def test_one_that_launches_a_kernel_does_something_that_the_step_needs(tmp_path: Path) -> None:
    row = fix(profile_with(tmp_path, steps(*saved(launch("k", 210, 215, 5)))), "library")
    assert row.predicted.after_us == row.predicted.high_us == pytest.approx(750, abs=52)


def called_one_by_one() -> tuple[list[Event], CompileSummary]:
    """A model that dynamo does not compile as a whole, as both of its layers break; behind the breaks is no graph."""
    events = [slice_("Torch-Compiled Region: 0/0", 10, 700)]
    for at, compile_id in ((100, "1/0"), (400, "1/1")):
        events += [
            slice_(f"Torch-Compiled Region: {compile_id}", at, 150),
            slice_(f"## Call CompiledFxGraph key{at} ##", at + 10, 60),
            *launch("gemm", at + 50, at + 55, 20),
        ]
    summary = CompileSummary()
    for compile_id in ("0/0", "1/0", "1/1"):
        summary.compilations.add(function="forward", graph_ops=1).key.compile_id = compile_id
        row = summary.graph_breaks.add(file="/train.py", line=5, reason="Tensor.item()")
        row.key.compile_id = compile_id
    return events, summary


def test_layers_that_python_calls_one_by_one_as_each_of_them_breaks_would_be_one_graph(
    tmp_path: Path,
) -> None:
    """Between the launches at 150 and 450 µs are 299."""
    events, summary = called_one_by_one()
    profile = profile_with(tmp_path, steps(*events), data_of(summary))
    row = fix(profile, "graph_breaks")
    assert row.times == 2
    assert row.predicted.after_us == pytest.approx(1000 - 299, abs=1)
    (finding,) = [one for one in profile.of(span_findings) if one.rule == "graph_breaks"]
    assert finding.title.startswith("1 graph break at train.py:5: without it a step takes 701 µs")
    assert (finding.evidence, finding.saves_us) == ({"breaks": 1}, None), (
        "what is between them has no price of its own"
    )


def test_frames_that_did_not_break_are_none_that_were_cut(tmp_path: Path) -> None:
    events, summary = called_one_by_one()
    del summary.graph_breaks[:]
    assert "graph_breaks" not in kinds(profile_with(tmp_path, steps(*events), data_of(summary)))


@pytest.mark.parametrize(("copies", "launches_a_step"), [(1, 4), (4, 7), (5, 3)])
def test_a_few_copies_between_eager_kernels_are_compiled_with_them(
    tmp_path: Path, copies: int, launches_a_step: int
) -> None:
    """A compiled region and three eager kernels, the last two with copies between them, and one copy behind: of many in
    a row somebody wants the copy."""
    events = [
        slice_("Torch-Compiled Region: 0/0", 10, 50),
        slice_("## Call CompiledFxGraph key ##", 15, 40),
        *launch(POINTWISE, 20, 25, 5),
    ]
    for at in (100, 200, 700):
        events += [slice_("aten::add", at, 60), *launch(ELEMENTWISE, at + 10, at + 15, 5)]
    for at in (*range(300, 300 + 50 * copies, 50), 900):
        call, copied = launch("Memcpy DtoD (Device -> Device)", at, at + 5, 5)
        events += [call, copied | {"cat": "gpu_memcpy"}]
    row = fix(profile_with(tmp_path, steps(*events)), "eager")
    assert row.times == launches_a_step
