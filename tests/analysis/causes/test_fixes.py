"""what_if/: what the fixes of autograd, of frames that were given up, and of graph breaks take out of a step."""

import re
from pathlib import Path
from typing import Any

import pytest

from mendable import fix, kinds, steps
from profiles import data_of, profile_of, profile_with
from tb_torchcompile_plugin.analysis.causes.break_costs import break_sites, direct_us
from tb_torchcompile_plugin.analysis.causes.eager_points import calls_in_given_up, given_up
from tb_torchcompile_plugin.analysis.causes.findings import span_findings
from tb_torchcompile_plugin.analysis.causes.registry import fixes
from tb_torchcompile_plugin.analysis.causes.scenario import scenario
from tb_torchcompile_plugin.analysis.finding import Finding
from tb_torchcompile_plugin.compile_log.summary_pb2 import CompileSummary
from tb_torchcompile_plugin.profile.compiled.regions import compiled_calls
from tb_torchcompile_plugin.profile.host.eager_roots import lookups_in_vain
from tb_torchcompile_plugin.profile.profile import Profile
from traces import AUTOGRAD, Event, compiled_call, launch, slice_, step, write_trace

pytestmark = pytest.mark.usefixtures("exact_ranges")

EVALUATE = "autograd::engine::evaluate_function: "
NODE = f"{EVALUATE}MulBackward0"
POINTWISE = "triton_poi_fused_add_0"
ELEMENTWISE = "void at::native::vectorized_elementwise_kernel<4>"


def found(profile: Profile, rule: str) -> Finding:
    """The only finding of a rule."""
    (row,) = (row for row in span_findings(profile) if row.rule == rule)
    return row


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
    # a hook of the user's asks otherwise
    alone = [event for event in checked(10) if event["name"] != "aten::item"]
    assert "anomaly_mode" not in kinds(profile_with(tmp_path, steps(*alone)))
    assert row.predicted.after_us == pytest.approx(700, abs=1)


def test_the_stacks_that_anomaly_mode_keeps_are_gone_with_it(tmp_path: Path) -> None:
    stack = [
        slice_("traceback.py(221): format_stack", 500, 300, "python_function"),
        slice_("traceback.py(29): format_list", 510, 200, "python_function"),
    ]
    row = fix(profile_with(tmp_path, steps(*checked(10), *stack)), "anomaly_mode")
    assert row.predicted.after_us == pytest.approx(400, abs=1)


def test_what_anomaly_mode_does_without_a_slice_is_in_its_range(tmp_path: Path) -> None:
    """Of a step of 1000 µs: 10 checks of 30 µs; a forward of 200 beyond the usual 50; 250 at most of nothing."""
    forward: dict[str, Any] = {"Sequence number": 3}
    events = [*checked(10), slice_("aten::mul", 460, 250, **forward), *launch("mul", 708, 709, 1)]
    profile = profile_with(tmp_path, steps(*events))
    row = fix(profile, "anomaly_mode")
    assert row.predicted.high_us == pytest.approx(700, abs=1), "the checks"
    assert row.predicted.after_us == pytest.approx(700 - 198, abs=2), "and the stacks of forwards"
    assert row.predicted.low_us < 300
    assert re.search(r"\(30–\d+ %\)$", found(profile, "anomaly_mode").title)


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
    # While something is compiled it is unknown which lookups led to it, and which to eager code.
    compiling = slice_("_compile.compile_inner (dynamo_timed)", 2, 3)
    eager = [slice_("aten::add", 700, 50), *launch("k", 720, 725, 5)]
    none_in_vain = profile_with(tmp_path, steps(*looked_up(6, 6), *eager))
    for other in (profile_with(tmp_path, steps(*looked_up(6, 1), compiling)), none_in_vain):
        assert (other.of(lookups_in_vain), given_up(other)) == (0, False)
    assert "frames" not in kinds(none_in_vain) and "eager" in kinds(none_in_vain)


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
    graph = [*compiled_call("1/0", (300, 100), (310, 80)), *launch(POINTWISE, 320, 325, 5)]
    marked = profile_with(tmp_path, steps(*region, *graph))
    assert {call.compile_id for call in compiled_calls(marked)} == {"1/0"}
    assert {call.compile_id for call in compiled_calls(profile_with(tmp_path, steps(*region)))} == {"0/0"}
    summary = CompileSummary()
    summary.compilations.add(graph_ops=0).key.compile_id = "0/0"
    assert not compiled_calls(profile_with(tmp_path, steps(*region), data_of(summary)))


def broken(first: str, second: str, *, resumes: bool) -> tuple[list[Event], CompileSummary]:
    """A region of three graphs of a launch each: with two breaks, or a frame that it calls, which has a break."""
    events = [
        *compiled_call("0/0", (10, 700), (20, 60)),
        *launch(first, 60, 65, 100),
        *compiled_call("1/0", (350, 350), (380, 60)),
        *launch(second, 390, 395, 80),
        *compiled_call("2/0", (600, 100), (610, 60)),
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


@pytest.mark.parametrize("last", ['"cuLaunchKernelEx"', '"aten::add"'])
def test_of_a_trace_that_is_cut_nothing_is_predicted(tmp_path: Path, last: str) -> None:
    """Whether or not there is work of a GPU in what is left of it."""
    events = steps(slice_("aten::mm", 10, 50), *launch("k", 20, 25, 5))
    path = write_trace(tmp_path, [*events, slice_("aten::add", 5000, 1)])
    text = path.read_text()
    path.write_text(text[: text.index(last) - 30])
    profile = profile_of(path)
    assert "cut off" in (scenario(profile).why_nothing or "")
    assert not [row for row in span_findings(profile) if row.predicted]


def test_of_a_trace_whose_gpu_events_are_damaged_nothing_is_predicted(tmp_path: Path) -> None:
    path = write_trace(tmp_path, steps(slice_("aten::mm", 10, 50), *launch("k", 20, 25, 5)))
    path.write_text(re.sub(r'"cat": ?"kernel"', '"cat": ?', path.read_text()))
    answer = scenario(profile_of(path))
    assert answer.why_nothing and "left no GPU record" in answer.why_nothing and not answer.fixes


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
            *compiled_call(compile_id, (at, 150), (at + 10, 60)),
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
    finding = found(profile, "graph_breaks")
    assert finding.title.startswith("1 graph break at train.py:5 costs")
    assert (finding.evidence["gain_us_per_step"], finding.saves_us) == (299, 3 * 299)
    assert break_sites(profile)[0].saves_us == 299 and direct_us(profile) is None


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
    events = [*compiled_call("0/0", (10, 50), (15, 40)), *launch(POINTWISE, 20, 25, 5)]
    for at in (100, 200, 700):
        events += [slice_("aten::add", at, 60), *launch(ELEMENTWISE, at + 10, at + 15, 5)]
    for at in (*range(300, 300 + 50 * copies, 50), 900):
        call, copied = launch("Memcpy DtoD (Device -> Device)", at, at + 5, 5)
        events += [call, copied | {"cat": "gpu_memcpy"}]
    row = fix(profile_with(tmp_path, steps(*events)), "eager")
    assert row.times == launches_a_step


def recomputed(marks: str) -> list[Event]:
    """A forward of 100 µs that a backward runs once more, for 200 µs and a kernel of 150, before its own kernel. marks:
    what tells of it."""
    sequence: dict[str, Any] = {} if marks == "own backward" else {"Sequence number": 4}
    linear = slice_("aten::linear", 210, 190, tid=AUTOGRAD, **sequence)
    again = [*launch("k", 220, 230, 150, AUTOGRAD), linear]
    around = {
        "stack": [
            slice_(NODE, 200, 300, tid=AUTOGRAD),
            slice_("torch/utils/checkpoint.py(1588): recompute_fn", 201, 199, "python_function", AUTOGRAD),
        ],
        "operators": [slice_(NODE, 200, 300, tid=AUTOGRAD)],
        "own backward": [slice_(NODE, 200, 300, tid=AUTOGRAD)],
        "reentrant": [
            slice_("CheckpointFunctionBackward", 200, 300, tid=AUTOGRAD),
            slice_(NODE, 400, 80, tid=AUTOGRAD),
        ],
        "": [],
    }[marks]
    return [*launch("k", 10, 20, 90), *around, *again, *launch("back", 410, 420, 100, AUTOGRAD)]


@pytest.mark.parametrize("marks", ["stack", "operators", "reentrant"])
def test_what_checkpoints_compute_anew_is_gone(tmp_path: Path, marks: str) -> None:
    row = fix(profile_with(tmp_path, steps(*recomputed(marks), *launch("last", 950, 960, 5))), "recomputed")
    assert row.times == 1
    assert row.predicted.after_us == pytest.approx(800, abs=2)


@pytest.mark.parametrize("marks", ["", "own backward"])
def test_a_forward_outside_of_the_way_back_is_none_that_is_computed_anew(tmp_path: Path, marks: str) -> None:
    """Nor is what a backward of somebody's own calls: nobody goes back from there."""
    assert "recomputed" not in kinds(profile_with(tmp_path, steps(*recomputed(marks))))


def zeroed(*, kept: bool, rounds: int = 1) -> list[Event]:
    """Gradients are given back, or set to zero by a kernel of 90 µs and added to by one of 80 in each round."""
    zero = "Optimizer.zero_grad#SGD.zero_grad"
    events = [slice_(zero, 10, 100, "user_annotation"), *(launch("fill", 15, 20, 90) if kept else [])]
    for place in range(rounds):
        at = 120 + 200 * place
        events += [
            *launch("forward", at, at + 5, 30),
            slice_("aten::mm", at + 40, 30, tid=AUTOGRAD),
            slice_("MmBackward0", at + 39, 32, tid=AUTOGRAD),
            *launch("backward", at + 50, at + 55, 30, AUTOGRAD),
            slice_(f"{EVALUATE}torch::autograd::AccumulateGrad", at + 80, 90, tid=AUTOGRAD),
        ]
        if kept:
            events.append(slice_("aten::add_", at + 85, 80, tid=AUTOGRAD))
            events += launch("add", at + 90, at + 92, 80, AUTOGRAD)
        events += launch("next", at + 180, at + 182, 5, AUTOGRAD)
    return [*events, *launch("last", 950, 960, 5)]


def test_gradients_that_are_given_back_need_no_kernel(tmp_path: Path) -> None:
    """100 µs of setting to zero, of which the label's own stays with it, and 80 of adding."""
    row = fix(profile_with(tmp_path, steps(*zeroed(kept=True))), "zeroed_gradients")
    assert row.predicted.after_us == pytest.approx(1000 - 100 - 80, abs=3)
    assert row.predicted.high_us == pytest.approx(1000 - 100, abs=3), "somebody may add to them on purpose"
    assert "zeroed_gradients" not in kinds(profile_with(tmp_path, steps(*zeroed(kept=False))))


def scattered(around: str) -> list[Event]:
    """An addition at indices that is sorted first, by a kernel of 200 µs before one of 50; memory that is filled."""
    return [
        *launch("k", 10, 20, 5),
        slice_(around, 50, 320),
        slice_("aten::index_put_", 51, 318),
        *launch("DeviceRadixSortOnesweepKernel", 60, 70, 200),
        *launch("indexing_backward_kernel<float, 4>", 300, 310, 50),
        slice_("aten::empty", 500, 100),
        slice_("aten::fill_", 510, 80),
        *launch("FillFunctor<float>", 520, 525, 60),
        *launch("last", 950, 960, 5),
    ]


def test_without_deterministic_algorithms_nothing_is_sorted_or_filled(tmp_path: Path) -> None:
    row = fix(profile_with(tmp_path, steps(*scattered("aten::scatter_add_"))), "deterministic")
    assert (row.name, row.times) == ("aten::scatter_add_", 1)
    assert row.predicted.after_us == pytest.approx(1000 - 317 - 79, abs=5)


def test_a_program_may_put_and_fill_itself(tmp_path: Path) -> None:
    assert "deterministic" not in kinds(profile_with(tmp_path, steps(*scattered("train.py(3): put"))))


@pytest.mark.parametrize(
    ("is_on", "sorts", "expected"), [(True, True, 1), (True, False, 0), (False, True, 0)]
)
def test_deterministic_algorithms_are_believed_where_they_were_noted(
    tmp_path: Path, is_on: bool, sorts: bool, expected: int
) -> None:
    """An interpolation puts at indices by itself; what noted that they are off is believed of scatters, too."""
    events = scattered(f"{EVALUATE}UnsafeIndexBackward0" if is_on else "aten::scatter_add_")
    if not sorts:
        events = [event for event in events if "Sort" not in event["name"]]
    summary = CompileSummary()
    summary.environment.deterministic_algorithms = is_on
    rows = profile_with(tmp_path, steps(*events), data_of(summary)).of(fixes)
    assert [row.subject[0] for row in rows if row.kind == "deterministic"] == ["aten::index_put_"] * expected


def slow(name: str, *, launches: bool, sizes: list[int]) -> list[Event]:
    """Steps of 1000 µs with a call of an operator of 600 µs for each size, 0 for one that was not recorded."""
    events: list[Event] = []
    for number, size in enumerate(sizes):
        dims: dict[str, Any] = {"Input Dims": [[size, 3]]} if size else {}
        make = [*launch("k", 10, 20, 5), slice_(name, 50, 600, **dims), *launch("last", 950, 960, 5)]
        if launches:
            make += launch("work", 640, 645, 5)
        events += [step(number, 1000 * number, 1000)]
        events += [event | {"ts": event["ts"] + 1000 * number} for event in make]
    return events


@pytest.mark.parametrize(
    ("name", "launches", "sizes", "advice"),
    [
        ("aten::sort", False, [4, 5, 6], "This operator runs on the CPU"),
        ("aten::sort", False, [0, 0, 0], "This operator runs on the CPU"),
        ("aten::empty", False, [4, 4, 4], "The input shapes are the same"),
        ("aten::cudnn_convolution", True, [4, 5, 6], "The input shapes change"),
        ("aten::cudnn_convolution", True, [4, 4, 4], "The input shapes are the same"),
        ("aten::cudnn_convolution", True, [0, 0, 0], "This operator does more than launch"),
    ],
)
def test_a_slow_operator_has_new_shapes_only_where_they_change(
    tmp_path: Path, name: str, launches: bool, sizes: list[int], advice: str
) -> None:
    profile = profile_with(tmp_path, slow(name, launches=launches, sizes=sizes))
    assert found(profile, "operator").next_step.startswith(advice)


@pytest.mark.parametrize(
    ("function", "rule"),
    [
        ("torch/optim/adam.py(3): count", "library"),
        ("torch/optim/optimizer.py(484): wrapper", None),
        ("torch/profiler/profiler.py(805): step", None),
        ("torch/autograd/profiler.py(789): __enter__", None),
        ("train.py(9): count", "python"),
        ("tb_torchcompile_plugin/writer/handler.py(9): write", None),
    ],
)
def test_what_a_profiler_does_is_no_finding(tmp_path: Path, function: str, rule: str | None) -> None:
    events = [slice_("train.py(3): main", 49, 602, "python_function"), *launch("k", 10, 20, 5)]
    events += [slice_(function, 50, 600, "python_function"), *launch("last", 950, 960, 5)]
    rules = {row.rule for row in span_findings(profile_with(tmp_path, steps(*events)))}
    assert rules & {"library", "python"} == ({rule} if rule else set())


@pytest.mark.parametrize("around", ["nn.Module: BinaryF1Score_0", "torch/_compile.py(40): inner"])
def test_what_a_library_does_is_named_with_what_it_launches(tmp_path: Path, around: str) -> None:
    """A metric of 580 µs, of which an operator that launches takes 300; torch calls it as a module."""
    events = [slice_("train.py(3): main", 49, 602, "python_function"), *launch("k", 10, 20, 5)]
    events += [slice_(around, 50, 600, "python_function")]
    events += [slice_("torchmetrics/metric.py(300): forward", 60, 580, "python_function")]
    events += [slice_("aten::eq", 100, 300), *launch("eq", 200, 210, 5), *launch("last", 950, 960, 5)]
    row = found(profile_with(tmp_path, steps(*events)), "python")
    assert row.title.startswith("torchmetrics computes metrics at train.py:3.")
    assert "once per epoch" in row.next_step and row.predicted
    assert row.predicted.after_us == pytest.approx(1000 - 580, abs=10)


def test_a_library_that_calls_the_program_back_runs_what_a_step_needs(tmp_path: Path) -> None:
    events = [slice_("train.py(3): main", 49, 602, "python_function"), *launch("k", 10, 20, 5)]
    events += [slice_("pandas/core/frame.py(60): apply", 60, 580, "python_function")]
    events += [slice_("train.py(40): loss", 90, 400, "python_function"), slice_("aten::eq", 100, 390)]
    events += [*launch("eq", 200, 210, 5), *launch("last", 950, 960, 5)]
    row = found(profile_with(tmp_path, steps(*events)), "python")
    assert row.title.startswith("pandas prepares data at train.py:")
    assert row.predicted and row.predicted.after_us == pytest.approx(1000 - 202, abs=2)


def test_casts_of_compiled_inference_could_be_made_once(tmp_path: Path) -> None:
    """Not of training, whose weights are float32 on purpose, nor what casts and computes."""
    cast = [*launch("triton_poi_fused__to_copy_7", 10, 20, 400), *launch("gemm", 30, 425, 500)]
    assert "weight_casts" in kinds(profile_with(tmp_path, steps(*cast)))
    backward = slice_("autograd::engine::evaluate_function: MmBackward0", 600, 20, tid=AUTOGRAD)
    assert "weight_casts" not in kinds(profile_with(tmp_path, steps(*cast, backward)))
    computes = [*launch("triton_poi_fused__to_copy_add_7", 10, 20, 400), *launch("gemm", 30, 425, 500)]
    assert "weight_casts" not in kinds(profile_with(tmp_path, steps(*computes)))


def captured(phase: str) -> tuple[list[Event], CompileSummary]:
    """A region of twenty eager kernels, of a frame that this phase compiled."""
    events = [slice_("Torch-Compiled Region: 0/0", 10, 700), slice_("CompiledFunction", 20, 680)]
    for place in range(20):
        at = 30 + 30 * place
        events += [slice_("aten::add", at, 20), *launch(ELEMENTWISE, at + 10, at + 14, 20)]
    summary = CompileSummary()
    row = summary.compilations.add(function="forward", file="m.py", line=3, graph_ops=20)
    row.key.compile_id = "0/0"
    row.phases.add(name=phase, exclusive_ns=1000)
    return [*events, *launch("last", 950, 960, 5)], summary


def test_frames_that_another_backend_runs_operator_by_operator(tmp_path: Path) -> None:
    events, summary = captured("aot_autograd")
    profile = profile_with(tmp_path, steps(*events), data_of(summary))
    row = found(profile, "debug_backend")
    assert row.predicted is not None and row.predicted.after_us < 600
    assert row.next_step.startswith("Remove backend=…")
    stance = {"kind": "stance", "subject": "default", "reason": "eager"}
    summary.compiler_calls.add(**stance, file="/u/train.py", line=7, start_ns=0)
    row = found(profile_with(tmp_path, steps(*events), data_of(summary)), "debug_backend")
    assert row.next_step == 'Remove force_backend="eager" from set_stance at train.py:7'
    by_inductor = profile_with(tmp_path, steps(*events), data_of(captured("inductor")[1]))
    assert "backend" not in kinds(by_inductor)


@pytest.mark.parametrize(("kernel_us", "is_gpu_bound"), [(2, False), (50, True)])
def test_compiling_eager_code_may_bring_what_it_fuses_on_the_gpu_alone(
    kernel_us: int, is_gpu_bound: bool, tmp_path: Path
) -> None:
    """Where the host is the limit that is nothing: calls of graphs may take it as long as what they launch."""
    events: list[Event] = []
    for number in range(16):
        at = 100 + 20 * number
        start = max(at + 10, 110 + (kernel_us + 1) * number)
        events += [slice_("aten::add", at, 18), *launch(ELEMENTWISE, at + 5, start, kernel_us)]
    end = 110 + 16 * 51
    events.append(slice_("cudaDeviceSynchronize", 500, end - 500 if is_gpu_bound else 3, "cuda_runtime"))
    row = found(profile_with(tmp_path, steps(*events)), "nothing_compiled")
    range_ = re.search(r"up to (\d+) % less time(?: \(\d+–(\d+) %\))?$", row.title)
    assert range_ and range_[2] == (range_[1] if is_gpu_bound else None)


def given_up_caller(*, below: bool) -> tuple[list[Event], CompileSummary]:
    """Two regions 300 µs apart, each of a product, with the question between them for which the frame that calls both
    was given up."""
    events: list[Event] = []
    for place in range(2):
        at = 10 + 400 * place
        events += [
            *compiled_call(f"{place + 1}/0", (at, 90), (at + 10, 70)),
            *launch("gemm", at + 60, at + 65, 60),
        ]
    events += [slice_("aten::item", 120, 250), slice_("cudaStreamSynchronize", 125, 240, "cuda_runtime")]
    summary = CompileSummary()
    frames = (("0/0", "forward", 3), ("1/0", "first", 10), ("2/0", "second", 20))
    for compile_id, function, line in frames:
        row = summary.compilations.add(function=function, file="m.py", line=line, graph_ops=1)
        row.key.compile_id = compile_id
        led = "train.py" if below or compile_id == "0/0" else "other.py"
        row.stack.add(file=led, line=7, function="train")
        row.stack.add(file="m.py", line=line, function=function)
    failed = summary.compilations[0]
    failed.failure.type, failed.failure.reason = "Unsupported", "graph break in loop"
    failed.failure.file, failed.failure.line = "/lib/python3.12/site-packages/pool.py", 48
    broke = summary.graph_breaks.add(reason="item", file="/lib/python3.12/site-packages/pool.py", line=48)
    broke.key.compile_id = "0/0"
    broke.stack.add(file="m.py", line=5, function="forward")
    broke.stack.add(file="/lib/python3.12/site-packages/pool.py", line=48, function="pool")
    return [*events, *launch("add", 700, 705, 5), *launch("last", 950, 960, 5)], summary


def test_what_a_frame_calls_that_was_given_up_would_be_part_of_its_graph(tmp_path: Path) -> None:
    """Between the launches at 70 and 470 µs are 399 µs."""
    events, summary = given_up_caller(below=True)
    profile = profile_with(tmp_path, steps(*events), data_of(summary))
    nested = [[call.compile_id for call in row.nested] for row in profile.of(calls_in_given_up)]
    assert nested == [["1/0", "2/0"]] * 3
    row = found(profile, "frame_given_up")
    assert row.predicted is not None and row.predicted.after_us < 1000 - 399 + 25
    assert row.where == ["m.py:5"] and "pool.py:48, called at m.py:5" in row.title


def test_what_others_call_has_nothing_to_do_with_a_frame_that_was_given_up(tmp_path: Path) -> None:
    events, summary = given_up_caller(below=False)
    assert profile_with(tmp_path, steps(*events), data_of(summary)).of(calls_in_given_up) == []


def called_cell_by_cell(many: int) -> list[Event]:
    """So many cells 50 µs apart, of a launch each, after a launch of something else."""
    events = launch("k", 10, 20, 5)
    for place in range(many):
        at = 50 + 50 * place
        events += [slice_("aten::lstm_cell", at, 40), *launch("lstm_cell_forward", at + 20, at + 25, 3)]
    return [*events, *launch("last", 950, 960, 5)]


def test_a_sequence_at_once_is_launched_in_a_few(tmp_path: Path) -> None:
    """From the first of sixteen cells to the last are 790 µs, in place of which come 250."""
    row = fix(profile_with(tmp_path, steps(*called_cell_by_cell(16))), "recurrent_cells")
    assert row.times == 16 and row.predicted.after_us == pytest.approx(1000 - 790 + 250, abs=2)
    assert "recurrent_cells" not in kinds(profile_with(tmp_path, steps(*called_cell_by_cell(7))))


def transformed_one_by_one(many: int, *names: str, kernel_us: float = 3) -> list[Event]:
    """So many samples, 50 µs apart, with an operator for each name, which launches a kernel."""
    events = launch("k", 10, 20, 5)
    for sample in range(many):
        for number, name in enumerate(names):
            at = 50 + 50 * sample + 23 * number
            events += [slice_(name, at, 15), *launch(name, at + 5, at + 10, kernel_us)]
    return [*events, *launch("last", 950, 960, 5)]


@pytest.mark.parametrize(
    "names",
    [
        ("aten::flip", "aten::addmm"),  # a layer
        ("aten::flip", "aten::batch_norm"),
        ("aten::flip", "c10d::allreduce_"),
        ("aten::flip", "triton_poi_fused_add_0"),
        ("autograd::engine::evaluate_function: MulBackward0", "aten::flip"),
        ("aten::copy_",),  # of each tensor of a state
    ],
)
def test_not_a_loop_over_samples(tmp_path: Path, names: tuple[str, ...]) -> None:
    profile = profile_with(tmp_path, steps(*transformed_one_by_one(16, *names)))
    assert "repeated_operators" not in kinds(profile)


def test_a_loop_over_samples_at_once(tmp_path: Path) -> None:
    """From the second of 16 samples to the last are 700 µs, in which the GPU has 84 to do."""
    events = transformed_one_by_one(16, "aten::flip", "aten::mul")
    row = fix(profile_with(tmp_path, steps(*events)), "repeated_operators")
    assert (row.times, row.name) == (16, "2 operators (aten::flip, aten::mul)")
    assert row.predicted.after_us == pytest.approx(1000 - 700, abs=100)
    assert row.predicted.high_us == 1000, "each iteration may need the one before"
    few = profile_with(tmp_path, steps(*transformed_one_by_one(7, "aten::flip", "aten::mul")))
    assert "repeated_operators" not in kinds(few)


def test_a_batch_takes_the_gpu_as_long(tmp_path: Path) -> None:
    events = transformed_one_by_one(16, "aten::flip", "aten::mul", kernel_us=22)
    row = fix(profile_with(tmp_path, steps(*events)), "repeated_operators")
    assert row.predicted.after_us > 22 * 32


@pytest.mark.parametrize(("shape", "sure"), [([2, 32, 128, 128], True), ([2, 32, 128, 128, 128], False)])
def test_that_volumes_keep_their_layout_is_not_sure(tmp_path: Path, shape: list[int], sure: bool) -> None:
    """A U-Net of volumes took 35.5 ms in place of 37.4: its instance norms give the other layout back."""
    name = "void cudnn::engines_precompiled::nchwToNhwcKernel<float>"
    shapes: dict[str, Any] = {"Input Dims": [shape, [32, 32, 3, 3, 3]]}
    events = [slice_("aten::cudnn_convolution", 10, 50, **shapes)]
    events += [*launch(name, 20, 30, 500), *launch("conv", 30, 530, 300)]
    events.append(slice_("cudaDeviceSynchronize", 100, 890, "cuda_runtime"))
    predicted = fix(profile_with(tmp_path, steps(*events)), "layout").predicted
    assert predicted.after_us == predicted.low_us < predicted.high_us <= predicted.step_us
    assert (predicted.high_us < 0.9 * predicted.step_us) == sure
