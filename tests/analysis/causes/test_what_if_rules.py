"""Findings that follow from the model of the step: one cause is told once, at its root."""

from pathlib import Path

import pytest

from mendable import steps
from profiles import data_of, profile_with
from tb_torchcompile_plugin.analysis.causes.findings import span_findings
from tb_torchcompile_plugin.analysis.causes.overview import overview
from tb_torchcompile_plugin.analysis.causes.registry import PRICED
from tb_torchcompile_plugin.analysis.finding import Finding
from tb_torchcompile_plugin.compile_log.summary_pb2 import CompileSummary
from traces import AUTOGRAD, Event, compiled_call, kernel, launch, slice_


def launches(many: int, first: float, every: float) -> list[Event]:
    """So many launches, each of a kernel of 2 µs that begins 4 µs later."""
    begins = (first + every * place for place in range(many))
    return [event for at in begins for event in launch("k", at, at + 4, 2)]


EIGHTY = [*compiled_call("0/0", (20, 900), (40, 870)), *launches(80, 50, 10)]  # of a compiled graph


def found_in(folder: Path, events: list[Event], summary: CompileSummary | None = None) -> list[Finding]:
    return span_findings(profile_with(folder, events, data_of(summary) if summary else None))


def rule(findings: list[Finding], name: str) -> Finding:
    (row,) = [row for row in findings if row.rule == name]
    return row


def test_an_operator_and_its_backward_are_one_cause(tmp_path: Path) -> None:
    forward = [slice_("aten::_cudnn_attention_forward", 0, 300), *launch("k", 290, 300, 10)]
    backward = [
        slice_("aten::_cudnn_attention_backward", 400, 400, tid=AUTOGRAD),
        *launch("k", 790, 800, 10, AUTOGRAD),
    ]
    row = rule(found_in(tmp_path, steps(*forward, *backward)), "operator")
    assert row.title.startswith("aten::_cudnn_attention_forward and _backward takes host time")
    assert row.predicted is not None and row.predicted.after_us < 450, "both are gone"


def test_an_optimizer_is_not_its_closure(tmp_path: Path) -> None:
    """Lightning runs forward and backward inside of `optimizer.step`."""
    closure = [*compiled_call("0/0", (20, 500), (30, 480)), *launches(20, 40, 20)]
    label = slice_("Optimizer.step#AdamW.step", 10, 900, "user_annotation")
    row = rule(found_in(tmp_path, steps(label, *closure, *launches(30, 600, 10))), "fused_optimizer")
    assert row.title.startswith("The optimizer launches 30 kernels per step")
    assert row.predicted is not None and row.predicted.after_us > 600, "the closure stays"


def test_what_a_closure_does_behind_its_backward_is_not_the_optimizers(tmp_path: Path) -> None:
    """Lightning's hooks: histograms of all gradients, each copied to the host, before a fused optimizer steps."""
    closure = [*compiled_call("0/0", (20, 100), (30, 80))]
    closure += launch("k", 40, 45, 2)
    for place in range(30):
        closure += launch("Memcpy DtoH", 150 + 20 * place, 152 + 20 * place, 2)
        closure.append(slice_("cudaStreamSynchronize", 155 + 20 * place, 10, "cuda_runtime"))
    own = launch("multi_tensor_apply_kernel<FusedOptimizerTensorListMetadata<4>>", 800, 804, 20)
    label = slice_("Optimizer.step#AdamW.step", 10, 900, "user_annotation")
    rows = found_in(tmp_path, steps(label, *closure, *own))
    assert rows and "fused_optimizer" not in {row.rule for row in rows}


def test_an_optimizer_that_waits_at_its_end_is_one_all_the_same(tmp_path: Path) -> None:
    wait = slice_("cudaStreamSynchronize", 860, 20, "cuda_runtime")
    label = slice_("Optimizer.step#AdamW.step", 90, 800, "user_annotation")
    assert rule(found_in(tmp_path, steps(label, *launches(30, 100, 20), wait)), "fused_optimizer").predicted


def test_cuda_graphs_that_are_recorded_anew_are_not_recommended(tmp_path: Path) -> None:
    findings = found_in(tmp_path, steps(*EIGHTY, slice_("cudagraphify.get_container", 42, 5)))
    assert "launch_bound" not in {row.rule for row in findings}
    row = rule(findings, "graph_capture")
    assert row.title.startswith("0/0 ran kernel by kernel in 3 of 3 calls, for new sizes. ")
    assert (row.panel, row.section) == ("compilations", "cuda_graphs") and "Pad the sizes" in row.next_step


def test_cuda_graphs_are_not_advised_where_sizes_change(tmp_path: Path) -> None:
    assert rule(found_in(tmp_path, steps(*EIGHTY)), "launch_bound").predicted is not None
    summary = with_changing_sizes("0/0")
    row = rule(found_in(tmp_path, steps(*EIGHTY), summary), "launch_bound")
    assert (row.predicted, row.severity) == (None, "info") and "sizes change (s77)" in row.title
    assert not row.advised and row.code is None
    profile = profile_with(tmp_path, steps(*EIGHTY), data_of(summary))
    assert overview(profile).considered[0] == row.title


def broken_graph(first: int, second: int) -> list[Event]:
    """So many launches of a graph, and of the one behind its break."""
    return [
        *compiled_call("0/0", (20, 900), (30, 10 * first + 10)),
        *launches(first, 40, 10),
        *compiled_call("1/0", (890 - 10 * second, 20 + 10 * second), (895 - 10 * second, 10 + 10 * second)),
        *[event for at in range(second) for event in launch("k", 900 - 10 * (second - at), 905, 2)],
    ]


def with_changing_sizes(compile_id: str) -> CompileSummary:
    summary = CompileSummary()
    summary.shape_events.add(kind="create_symbol", symbol="s77").key.compile_id = compile_id
    return summary


def test_graphs_whose_sizes_stay_the_same_are_advised_beside_one_whose_sizes_change(tmp_path: Path) -> None:
    events = steps(*broken_graph(60, 15))
    whole = rule(found_in(tmp_path, events), "launch_bound")
    row = rule(found_in(tmp_path, events, with_changing_sizes("1/0")), "launch_bound")
    assert row.predicted and whole.predicted and row.advised and row.fix == "cuda_graphs"
    assert whole.predicted.after_us < row.predicted.after_us < row.predicted.step_us - 400
    assert "1 compiled graph per step" in row.title, "the other stays"
    assert row.code and row.code in row.next_step and "sizes of 1/0 change (s77)" in row.next_step


def test_graphs_of_fixed_sizes_that_bring_nothing_leave_it_at_why_not(tmp_path: Path) -> None:
    events = steps(*broken_graph(2, 70))
    row = rule(found_in(tmp_path, events, with_changing_sizes("1/0")), "launch_bound")
    assert not row.advised and "sizes change (s77)" in row.title


def test_what_would_bring_little_is_told_after_what_would_not_help(tmp_path: Path) -> None:
    waits = [slice_("cudaDeviceSynchronize", 100, 30, "cuda_runtime")]
    profile = profile_with(tmp_path, steps(*launch("k", 5, 10, 20), *waits))
    little = overview(profile).considered
    assert little and all(" % of a step" in said for said in little)
    worth = [float(said.split("worth ")[1].split()[0]) for said in little]
    assert worth == sorted(worth, reverse=True) and all(1 <= gain < 5 for gain in worth)


def test_the_code_of_a_finding_is_in_its_next_step(tmp_path: Path) -> None:
    assert all(cause.words.next_step.count("`") % 2 == 0 for cause in PRICED.values())
    row = rule(found_in(tmp_path, steps(*EIGHTY)), "launch_bound")
    assert row.advised and row.code == 'torch.compile(model, mode="reduce-overhead")'
    assert row.code in row.next_step and "`" not in row.next_step


def test_a_kernel_of_ones_own_that_sets_the_pace_is_told(tmp_path: Path) -> None:
    own = found_in(tmp_path, steps(*launch("scale_rows", 5, 10, 950)))
    assert rule(own, "dominant_kernel").where == ["scale_rows"]
    by_their_own = [slice_("mine::scale", 2, 8), *launch("scale_rows", 5, 10, 950)]
    assert rule(found_in(tmp_path, steps(*by_their_own)), "dominant_kernel").where == ["scale_rows"]


@pytest.mark.parametrize(
    ("name", "operator"),
    [
        ("nvjet_tst_128x64", "mine::product"),
        ("void at::native::(anonymous namespace)::multi_tensor_apply_kernel<FusedAdamMathFunctor>", ""),
        ("void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>", "aten::fill_"),
        ("a_kernel_of_a_library_that_nobody_knows", "aten::_fused_adam_"),
    ],
)
def test_nobody_is_told_to_change_a_kernel_that_torch_brought(
    tmp_path: Path, name: str, operator: str
) -> None:
    """By its name, or by the operator of torch's own that launches it."""
    around = [slice_(operator, 2, 8)] if operator else []
    rows = found_in(tmp_path, steps(*around, *launch(name, 5, 10, 950)))
    assert "dominant_kernel" not in {row.rule for row in rows}


def test_a_profilers_hooks_come_first(tmp_path: Path) -> None:
    summary = CompileSummary()
    for place, function in enumerate(("_start_recording_forward", "forward")):
        summary.compilations.add(function=function).key.compile_id = f"{place}/0"
    waits = slice_("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 10, 800, "user_annotation")
    region = slice_("Torch-Compiled Region: 1/0", 820, 100)
    first, *others = found_in(tmp_path, steps(waits, region, *launch("k", 850, 860, 5)), summary)
    assert first.rule == "profiler_hooks" and "data_loading" in {row.rule for row in others}
    assert "without it, the program runs differently" in first.title


def test_communication_hides_behind_as_much_as_is_computed(tmp_path: Path) -> None:
    alone = kernel("ncclDevKernel_AllReduce_Sum", 300, 600, correlation=3)
    call = slice_("cudaLaunchKernel", 20, 5, "cuda_runtime", correlation=3)
    wait = slice_("cudaDeviceSynchronize", 40, 870, "cuda_runtime")
    row = rule(found_in(tmp_path, steps(*launch("k", 5, 10, 200), call, alone, wait)), "communication")
    assert row.predicted is not None
    gain, most = (row.predicted.step_us - us for us in (row.predicted.after_us, row.predicted.low_us))
    assert gain == pytest.approx(0.4 * 200) and most == pytest.approx(200)


def called(times: int) -> list[Event]:
    """Calls of one compiled graph, each of 20 launches 5 µs apart."""
    return [
        event
        for call in range(times)
        for event in (
            *compiled_call("0/0", (150 * call, 110), (150 * call + 2, 106)),
            *[e for n in range(20) for e in launch("k", 150 * call + 4 + 5 * n, 150 * call + 7 + 5 * n, 1)],
        )
    ]


def test_a_graph_that_is_called_often_is_worth_a_batch(tmp_path: Path) -> None:
    often = rule(found_in(tmp_path, steps(*called(4))), "launch_bound").next_step
    assert often.startswith("The same graph is called 4 times per step: ") and "into one batch" in often
    assert "Else: Let" in often or 'mode="reduce-overhead"' in often
    assert "batch" not in rule(found_in(tmp_path, steps(*called(3))), "launch_bound").next_step


def test_calls_that_were_given_up_are_told_though_nothing_says_why(tmp_path: Path) -> None:
    """A trace alone: five of six cache lookups a step have no compiled region behind them."""
    events = [slice_("Torch-Compiled Region: 0/0", 900, 20), *launch("k", 905, 908, 5)]
    for place in range(6):
        at = 10 + 100 * place
        events.append(slice_("TorchDynamo Cache Lookup", at if place else 890, 4))
        events += [slice_("model.py(7): adapt", at + 6, 80, "python_function")]
        events += [
            slice_("aten::add", at + 10, 60),
            *launch("at::native::elementwise_kernel", at + 60, at + 64, 6),
        ]
    findings = found_in(tmp_path, steps(*events))
    row = rule(findings, "frame_given_up")
    assert findings[0] is row and row.severity == "critical" and row.predicted is not None
    assert row.title.startswith("5 calls per step at model.py:7 run eagerly")
    assert (row.evidence, row.where) == ({"calls": 5}, ["model.py:7"])
    assert "recompile limit" in row.next_step and "eager_remainder" not in {one.rule for one in findings}


def test_a_wait_and_the_operator_around_it_do_not_claim_the_same_time(tmp_path: Path) -> None:
    waiting = [
        slice_("aten::conv2d", 10, 800),
        slice_("aten::cudnn_convolution", 12, 780),
        *launch("k", 15, 20, 60),
        slice_("cudaEventSynchronize", 70, 14, "cuda_runtime"),
        *launch("k", 780, 790, 4),
    ]
    rows = found_in(tmp_path, steps(*waiting))
    (row,) = (row for row in rows if row.rule in ("operator", "synchronise"))
    assert row.rule == "operator" and "cudnn_convolution" in row.title


def driver(frees: int, asks: int) -> list[Event]:
    """So many calls of 15 µs that give memory back in one function, and so many that ask for it in another."""
    frees_us, asks_us = 20 * frees + 5, 20 * asks + 5
    return [
        *launch("k", 5, 10, 5),
        slice_("train.py(13): run", 20, frees_us, "python_function"),
        *[slice_("cudaFree", 22 + 20 * at, 15, "cuda_runtime") for at in range(frees)],
        slice_("model.py(7): forward", 30 + frees_us, asks_us, "python_function"),
        *[slice_("cudaMalloc", 32 + frees_us + 20 * at, 15, "cuda_runtime") for at in range(asks)],
        *launch("k", 950, 955, 5),
    ]


def test_memory_that_is_given_back_is_told_with_the_line_that_does_it(tmp_path: Path) -> None:
    row = rule(found_in(tmp_path, steps(*driver(10, 10))), "allocation")
    assert "20 times per step (cudaFree and cudaMalloc)" in row.title and row.where == ["train.py:13"]
    assert row.next_step.startswith("Remove torch.cuda.empty_cache() if it is called at train.py:13, ")


def test_memory_that_is_asked_for_and_kept_is_told_so(tmp_path: Path) -> None:
    row = rule(found_in(tmp_path, steps(*driver(1, 10))), "allocation")
    assert "11 times per step (cudaMalloc) at model.py:7" in row.title
    assert row.next_step.startswith("Let torch reuse cached memory")


@pytest.mark.parametrize("kept", [True, False])
def test_cuda_graphs_are_advised_with_what_torch_refuses_before(tmp_path: Path, kept: bool) -> None:
    """Gradients that stay are what an earlier run of a graph gave: torch raises an error in the next step."""
    graph = [*compiled_call("0/0", (20, 700), (30, 680)), *launches(20, 40, 30)]
    zero = [slice_("Optimizer.zero_grad#SGD.zero_grad", 800, 90, "user_annotation")]
    zero += launch("fill", 805, 810, 3) if kept else []
    row = rule(found_in(tmp_path, steps(*graph, *zero, *launch("last", 950, 955, 5))), "launch_bound")
    assert ("zero_grad(set_to_none=True)" in row.next_step) is kept
