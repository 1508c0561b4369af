"""findings/: each rule fires where it should, is silent where it should, and is documented."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mendable import accumulated, moved
from mendable import steps as of_a_ms
from profiles import data_of, profile_with
from recordings import Recording
from tb_torchcompile_plugin.analysis import thresholds
from tb_torchcompile_plugin.analysis.causes.findings import (
    compile_findings,
    findings,
    merge_findings,
    sort_findings,
    span_findings,
)
from tb_torchcompile_plugin.analysis.causes.registry import BY_ID, CAUSES
from tb_torchcompile_plugin.analysis.finding import (
    SEVERITIES,
    Finding,
    Role,
    Severity,
    prediction,
    severity_of,
)
from tb_torchcompile_plugin.analysis.formatting import duration, percent
from tb_torchcompile_plugin.api.report import read_report, whole_report
from tb_torchcompile_plugin.api.session import Session
from tb_torchcompile_plugin.compile_log import summary_pb2 as pb
from traces import Event, compiled_call, in_steps, kernel, launch, memory_event, slice_

DOCUMENT = (Path(__file__).parents[3] / "docs" / "reference" / "findings.md").read_text()
H200 = {
    "deviceProperties": [
        {"id": 0, "name": "NVIDIA H200", "computeMajor": 9, "totalGlobalMem": 150_110_011_392}
    ]
}
BASE_NS = 1_790_000_000_000_000_000
GEMM = "nvjet_tst_128x256_64x4_1x2_h_bz_coopA_NTT"
KEY = pb.CompileKey(compile_id="0/0")
UNSUPPORTED = pb.Failure(type="Unsupported", reason="Data-dependent branching")


def steps(*, busy: float = 96, number: int = 3, name: str = GEMM) -> list[Event]:
    """Steps of 100 µs in each of which one kernel runs, launched by compiled code in the step."""
    make = [slice_("Torch-Compiled Region: 0/0", 0, 2), *launch(name, 0, 2, busy)]
    return in_steps(*make, every=100, number=number)


def by_rule(
    folder: Path, events: list[Event], summary: pb.CompileSummary | None = None, **header: Any
) -> dict[str, Finding]:
    profile = profile_with(folder, events, data_of(summary) if summary else None, **{**H200, **header})
    return {row.rule: row for row in span_findings(profile)}


def test_a_healthy_run_yields_none(tmp_path: Path) -> None:
    """But for where its time goes: tests/analysis/runtime/test_ledger.py."""
    assert by_rule(tmp_path, steps()).keys() <= {"large_site"}


def small(launches: int, *, apart: float = 8, number: int = 3) -> list[Event]:
    """Steps in which compiled code launches so many kernels of 1 µs, one each `apart` µs."""
    length = launches * apart + 10
    make = [*compiled_call("0/0", (0, length - 5), (0, length - 6))]
    for place in range(launches):
        make += launch("triton_poi_fused_add_0", apart * place, apart * place + 3, 1)
    return in_steps(*make, every=length, number=number)


def test_a_launch_bound_run_is_told_what_graphs_bring(tmp_path: Path) -> None:
    """Of 100 launches 8 µs apart one is left, which takes 60 µs; what runs behind the graph stays."""
    row = by_rule(tmp_path, small(100))["launch_bound"]
    assert row.predicted is not None and row.predicted.step_us == 810
    assert row.predicted.after_us == 229, (
        "the replay, a µs for each kernel and one between them, and what is behind"
    )
    assert row.predicted.low_us < row.predicted.after_us < row.predicted.high_us
    assert (row.severity, row.panel, row.section) == ("critical", "step", "idle")
    assert 'mode="reduce-overhead"' in row.next_step


def test_graphs_that_are_used_or_were_asked_for_are_not_recommended(tmp_path: Path) -> None:
    replay = slice_("cudaGraphLaunch", 1, 1, "cuda_runtime", correlation=77)
    rows = by_rule(tmp_path, [*small(100), replay, kernel("k", 5, 1, correlation=77)])
    assert "launch_bound" not in rows
    left = rows["cuda_graphs_used"]
    assert left.severity == "info" and left.evidence["launches_per_step"] * 3 == 300, left
    summary = pb.CompileSummary()
    summary.counters.add(group="inductor", name="cudagraph_skips", value=1)
    assert "launch_bound" not in by_rule(tmp_path, small(100), summary)
    (skipped,) = compile_findings(data_of(summary))
    assert (skipped.rule, skipped.evidence) == ("cudagraphs_skipped", {"skips": 1})


def test_reasons_to_skip_graphs_are_told_with_what_helps() -> None:
    summary = pb.CompileSummary()
    for compile_id in ("0/0", "1/0"):
        row = summary.compilations.add(key=pb.CompileKey(compile_id=compile_id))
        row.metrics["cudagraph_skip_reason"] = json.dumps(
            "skipping cudagraphs due to skipping cudagraphs due to mutated inputs (1 instances). Found from :\n …"
        )
    (skipped,) = compile_findings(data_of(summary))
    assert skipped.title == "CUDA graphs are skipped for 2 compilations: mutated inputs"
    assert "in place" in skipped.next_step and skipped.row == "compilation:0/0,0,forward"
    late = pb.CompileSummary()
    late.runtime_metrics.add().metrics["cudagraph_skip_reason"] = '"skipping cudagraphs due to a late input"'
    (skipped,) = compile_findings(data_of(late))
    assert (skipped.title, skipped.row) == ("CUDA graphs are skipped: a late input", None)


def test_inputs_of_cuda_graphs_that_move_too_often_can_be_copied() -> None:
    """In the words of torch 2.15 with `cudagraph_managed_input_rerecord_action = "skip"`."""
    summary = pb.CompileSummary()
    summary.runtime_metrics.add().metrics["cudagraph_skip_reason"] = json.dumps(
        "skipping cudagraph due to function 3 reaching the cudagraph-managed input re-recording threshold (=5) on "
        "cudagraph node 2 for input indices [0]."
    )
    (skipped,) = compile_findings(data_of(summary))
    assert skipped.code == 'torch._inductor.config.triton.cudagraph_managed_input_rerecord_action = "copy"'


def test_waiting_for_others_is_told(tmp_path: Path) -> None:
    """The GPU idles from 52 µs of a step to 2 µs of the next one; the host waits from 55 to 95."""
    waits = [slice_("nccl:all_reduce", 100 * step + 55, 40, "user_annotation") for step in range(3)]
    row = by_rule(tmp_path, [*steps(busy=50), *waits])["communication"]
    assert row.saves_us == 80  # nothing follows the last gap, so nobody is to blame for it
    assert row.severity == "critical" and row.evidence["share_percent"] == pytest.approx(80 / 3)


def test_what_the_host_waits_for_outside_of_torch_is_gone_in_the_prediction(tmp_path: Path) -> None:
    waits = [slice_(WAIT, 100 * step + 55, 40, "user_annotation") for step in range(3)]
    row = by_rule(tmp_path, [*steps(busy=50), *waits])["data_loading"]
    assert row.predicted is not None
    assert (row.predicted.step_us, row.predicted.after_us) == (100, 60)
    assert (row.severity, row.saves_us) == ("critical", 120)


def test_communication_that_runs_alone_is_exposed(tmp_path: Path) -> None:
    alone = [kernel("ncclDevKernel_AllReduce_Sum", 100 * step + 60, 30) for step in range(3)]
    assert by_rule(tmp_path, [*steps(busy=60), *alone])["communication"].saves_us == 84  # 2 + 60 … 90


def test_compiling_and_tuning_inside_the_steps(tmp_path: Path) -> None:
    events = [
        *steps(),
        slice_("entire_frame_compile (dynamo_timed)", 110, 10),
        slice_("CachingAutotuner.benchmark_all_configs (dynamo_timed)", 112, 4),
        slice_("CachingAutotuner.benchmark_all_configs (dynamo_timed)", 210, 5),
    ]
    rows = by_rule(tmp_path, events)
    assert (rows["compile_in_steps"].saves_us, rows["autotune_in_steps"].saves_us) == (10, 5)
    assert "recompiles" not in rows


def test_building_a_kernel_is_not_tuning_it(tmp_path: Path) -> None:
    """By the phases that compile time is told in: `CachingAutotuner.precompile` compiles what is tuned later."""
    built = slice_("CachingAutotuner.precompile (dynamo_timed)", 210, 50)
    assert "autotune_in_steps" not in by_rule(tmp_path, [*steps(), built])


def test_compiling_again_is_told_apart(tmp_path: Path) -> None:
    summary = pb.CompileSummary()
    for compile_id, start, dur in (("0/0", -5_000, 1_000), ("0/1", 110_000, 20_000), ("1/0", 250_000, 7_000)):
        row = summary.compilations.add(start_ns=BASE_NS + start, duration_ns=dur)
        row.key.compile_id = compile_id
    summary.recompiles.add(key=pb.CompileKey(compile_id="0/1"), reasons=["0/0: s == 0.0"])
    rows = by_rule(tmp_path, steps(), summary)
    assert (rows["recompiles"].saves_us, rows["recompiles"].evidence["recompiles"]) == (20, 1)
    assert "float" in rows["recompiles"].next_step and rows["recompiles"].row == "recompiles:0/1,0"
    assert rows["compile_in_steps"].saves_us == 7
    assert rows["compile_in_steps"].title.startswith("First-time compilation took 7.00 µs")


def test_expensive_guards(tmp_path: Path) -> None:
    lookups = [slice_("TorchDynamo Cache Lookup", 100 * step + 60, 30) for step in range(3)]
    row = by_rule(tmp_path, [*steps(busy=50), *lookups])["guards"]
    assert row.predicted is not None and row.predicted.after_us == 70
    assert (row.severity, row.panel, row.evidence["times_per_step"]) == ("critical", "compilations", 1)


def eager(us: float, *, compiled: bool = True) -> list[Event]:
    """Behind the compiled code of each step, if any, an operator launches kernels for so many µs, one each 4 µs."""
    make = [*([slice_("Torch-Compiled Region: 0/0", 0, 2)] if compiled else []), *launch(GEMM, 0, 2, 2)]
    for at in range(5, 5 + 4 * round(us / 4), 4):
        make += [slice_("aten::mul", at, 4), *launch("at::native::elementwise_kernel", at + 1, at + 3, 1)]
    return in_steps(*make, every=100)


def test_what_still_runs_eager(tmp_path: Path) -> None:
    row = by_rule(tmp_path, eager(80))["eager_remainder"]
    assert row.predicted is not None and row.predicted.after_us < 60 < row.predicted.step_us
    assert row.title.startswith("20 eager operators per step, such as aten::mul")


def test_that_nothing_is_compiled_is_told_in_place_of_what_runs_eager(tmp_path: Path) -> None:
    alone = eager(80, compiled=False)
    rows = by_rule(tmp_path, alone)
    assert "eager_remainder" not in rows and rows["nothing_compiled"].severity == "critical"
    assert "the reason is unknown" in rows["nothing_compiled"].title, "no compile data"
    hooks = pb.CompileSummary()
    hooks.compilations.add(function="_start_recording_forward").key.compile_id = "0/0"
    (finding, *others) = by_rule(tmp_path, alone, hooks).values()
    assert finding.rule == "profiler_hooks" and "nothing_compiled" not in {row.rule for row in others}
    assert "only a profiler's own hooks" in finding.title and "record_module_names=False" in finding.next_step


def test_without_a_gpu_it_is_the_hosts_time_that_tells_whether_anything_is_compiled(tmp_path: Path) -> None:
    """As a program on a CPU is recorded: operators, and no launches."""

    def on_cpu(*make: Event) -> dict[str, Finding]:
        return by_rule(tmp_path, in_steps(*make, every=100), deviceProperties=[])

    row = on_cpu(slice_("aten::mm", 10, 50))["nothing_compiled"]
    assert row.severity == "critical" and row.title.startswith("No compiled code runs in the profiled steps")
    assert "nothing_compiled" not in on_cpu(slice_("aten::mm", 10, 4)), "4 % of a step"
    region = slice_("Torch-Compiled Region: 0/0", 70, 20)
    assert "nothing_compiled" not in on_cpu(slice_("aten::mm", 10, 50), region)


def test_that_nothing_is_compiled_is_no_alarm_where_compiling_brings_little(tmp_path: Path) -> None:
    little, nothing = (by_rule(tmp_path, eager(us, compiled=False))["nothing_compiled"] for us in (24, 20))
    assert little.severity == "warning" and little.predicted is not None and little.predicted.after_us == 99
    assert nothing.severity == "warning" and nothing.predicted is None


def test_a_region_that_holds_no_graph_compiles_nothing(tmp_path: Path) -> None:
    summary = pb.CompileSummary()
    row = summary.compilations.add(key=KEY, function="forward", graph_ops=0)
    finding = by_rule(tmp_path, eager(80), summary)["nothing_compiled"]
    assert "the compiled code (1 frame) contains no operation" in finding.title
    assert "before anything wraps it" in finding.next_step
    broke = summary.graph_breaks.add(file="/home/me/m.py", line=7, reason="Data-dependent branching")
    broke.key.compile_id = "0/0"
    finding = by_rule(tmp_path, eager(80), summary)["nothing_compiled"]
    assert "m.py:7 breaks the graph" in finding.title
    assert finding.where == ["m.py:7"] and "Move that line out" in finding.next_step
    row.graph_ops = 3
    assert "nothing_compiled" not in by_rule(tmp_path, eager(80), summary)


def test_a_break_in_a_wrapper_of_torchs_is_not_for_the_user_to_move(tmp_path: Path) -> None:
    """As DistributedDataParallel breaks what is compiled around it."""
    summary = pb.CompileSummary()
    summary.compilations.add(function="inner", graph_ops=0).key.compile_id = "0/0"
    file = "/venv/lib/python3.12/site-packages/torch/nn/parallel/distributed.py"
    summary.graph_breaks.add(file=file, line=1566, reason="Unsupported call").key.compile_id = "0/0"
    finding = by_rule(tmp_path, eager(80), summary)["nothing_compiled"]
    assert "distributed.py:1566" in finding.title and "before anything wraps it" in finding.next_step


def test_what_was_compiled_but_not_called_is_told_so(tmp_path: Path) -> None:
    summary = pb.CompileSummary()
    summary.compilations.add(function="forward", graph_ops=3).key.compile_id = "0/0"
    finding = by_rule(tmp_path, eager(80, compiled=False), summary)["nothing_compiled"]
    assert "the compiled code (1 compilation) is not called here" in finding.title


def test_a_backward_graph_is_compiled_though_its_forward_ran_before_the_recording(tmp_path: Path) -> None:
    """As where a library's step begins behind the forward."""
    alone = eager(80, compiled=False)
    assert "nothing_compiled" in by_rule(tmp_path, alone)
    backward = slice_("## Call CompiledFxGraph fabc ##", 2, 3)
    assert "nothing_compiled" not in by_rule(tmp_path, [*alone, backward])


def test_regions_without_ids_are_compiled_all_the_same(tmp_path: Path) -> None:
    """torch before 2.6 writes none: nothing is known of them but that they ran."""
    make = [*launch(GEMM, 0, 2, 96), slice_("TorchDynamo Cache Lookup", 1, 2)]
    events = in_steps(*make, slice_("Torch-Compiled Region", 4, 90), every=100)
    assert not {"nothing_compiled", "frame_given_up"} & set(by_rule(tmp_path, events))


def test_a_frame_that_was_given_up_is_told_first(tmp_path: Path) -> None:
    summary = pb.CompileSummary()
    summary.compilations.add(key=KEY, function="forward", file="m.py", line=3, failure=UNSUPPORTED)
    summary.graph_breaks.add(reason="Data-dependent branching").key.compile_id = "0/0"
    rows = by_rule(tmp_path, eager(80), summary)
    finding = rows["frame_given_up"]
    assert finding.title.startswith("forward runs eagerly: Data-dependent branching. ")
    assert finding.predicted is not None and next(iter(rows)) == "frame_given_up"


@pytest.mark.parametrize(
    ("name", "fires"),
    [
        ("sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize32x32x8_stage3_warpsize1x2x1_ffma_aligna4", True),
        ("ampere_sgemm_32x32_sliced1x4_tn", True),
        ("cutlass_80_simt_sgemm_128x64_8x5_nt_align1", True),
        ("sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize32x32x8", False),
        ("cutlass_80_tensorop_s1688gemm_tf32_sgemm", False),
        (GEMM, False),
    ],
)
def test_float32_products_on_a_card_with_tensor_cores(tmp_path: Path, name: str, fires: bool) -> None:
    assert ("fp32_matmul" in by_rule(tmp_path, ahead((name, 90)))) == fires
    old = [{"id": 0, "name": "Tesla V100", "computeMajor": 7}]
    assert "fp32_matmul" not in by_rule(tmp_path, ahead((name, 90)), deviceProperties=old)


def moving(num_gb: float | None, busy: float, name: str = "triton_poi_fused_index_0") -> list[Event]:
    """Steps of 100 µs with a product of 30 µs and a kernel of so many that moves so much, as inductor told."""
    args: dict[str, Any] = {} if num_gb is None else {"kernel_num_gb": num_gb}
    make = [*launch(GEMM, 0, 1, 30), slice_(name, 1, 3, **args), *launch(name, 2, 32, busy)]
    return in_steps(*make, every=100)


@pytest.mark.parametrize(
    ("num_gb", "busy", "name", "fires"),
    [
        (0.05, 60, "triton_poi_fused_index_0", True),  # 0.05 GB in 60 µs: 833 GB/s, 17 % of an H200's memory
        (0.05, 20, "triton_red_fused_sum_1", False),  # 2500 GB/s
        (0.01, 20, "triton_red_fused_sum_1", True),  # 500 GB/s, though a product takes longer
        (0.2, 60, "triton_poi_fused_index_0", False),  # 3333 GB/s
        (0.001, 8, "triton_poi_fused_index_0", False),  # a fifth of the GPU time
        (0.05, 60, "triton_tem_fused_mm_0", False),  # multiplies matrices
        (None, 60, "triton_poi_fused_index_0", False),  # nothing tells what it moves
    ],
)
def test_one_kernel_that_dominates_at_low_bandwidth(
    tmp_path: Path, num_gb: float | None, busy: float, name: str, fires: bool
) -> None:
    row = by_rule(tmp_path, moving(num_gb, busy, name)).get("kernel_low_bandwidth")
    assert (row is not None) == fires
    if row is not None and num_gb is not None:
        share = num_gb * 1e9 / busy / 1e3 / 48  # % of 4800 GB/s
        assert row.evidence["bandwidth_percent"] == pytest.approx(share)
        assert row.saves_us == pytest.approx(3 * busy * (1 - share / 100))
        assert name in row.title and "--extract" not in row.title


def ahead(*parts: tuple[str, float], operator: str = "aten::mm", number: int = 3) -> list[Event]:
    """Steps of 50 µs on the host, which runs ahead: the kernels that they launch take longer, one after the other."""
    events: list[Event] = []
    free = 3.0
    for step in range(number):
        begin = 50 * step
        events.append(slice_(f"ProfilerStep#{step}", begin, 50, "user_annotation"))
        events.append(slice_("Torch-Compiled Region: 0/0", begin, 30))
        for place, (name, us) in enumerate(parts):
            at = begin + 2 + 8 * place
            events += [slice_(operator if place else "aten::mm", at, 4), *launch(name, at + 1, free, us)]
            free += us
    return events


Build = Callable[[float], list[Event]]
WAIT = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def beside(name: str, cat: str, at: int, **kwargs: Any) -> Build:
    """In each of three steps, in which the GPU works for 50 µs, a slice of so many µs on the host."""
    return lambda us: [*steps(busy=50), *[slice_(name, 100 * s + at, us, cat, **kwargs) for s in range(3)]]


def behind_a_product(*make: Event, every: float, length: float, busy: float = 2) -> list[Event]:
    """Steps in which compiled code launches a product first."""
    product = [slice_("Torch-Compiled Region: 0/0", 0, 2), *launch(GEMM, 0, 2, busy)]
    return in_steps(*product, *make, every=every, length=length)


def waiting(us: float) -> list[Event]:
    """In each step the host waits for a kernel that takes so long, and goes on for 30 µs."""
    wait = [slice_("aten::item", 5, us), slice_("cudaStreamSynchronize", 6, us - 2, "cuda_runtime")]
    return behind_a_product(*wait, every=200, length=us + 40, busy=us)


def copy(at: float, held_us: float, start: float, us: float) -> list[Event]:
    """A copy from memory that is not pinned, whose call takes so long."""
    ids = {"correlation": 9_000}
    name = "Memcpy HtoD (Pageable -> Device)"
    call = slice_("cudaMemcpyAsync", at, held_us, "cuda_runtime", **ids)
    return [call, kernel(name, start, us, cat="gpu_memcpy", bytes=1 << 20, **ids)]


def copied(us: float) -> list[Event]:
    """In each step a copy holds the host so long."""
    return behind_a_product(*copy(95, us, 96, us - 2), every=1000, length=100 + us, busy=90)


def test_a_wait_that_ends_a_copy_is_not_told_beside_it(tmp_path: Path) -> None:
    """cudaMemcpyAsync gives way to a synchronisation, which waits for the copy and what is before it."""
    make = [
        *launch(GEMM, 0, 2, 200),
        slice_("aten::to", 10, 580),
        *copy(11, 5, 205, 370),
        slice_("cudaStreamSynchronize", 17, 560, "cuda_runtime"),
    ]
    rules = by_rule(tmp_path, in_steps(*make, every=1000, length=600))
    assert "copies" in rules and "synchronise" not in rules


def optimizing(launches: float) -> list[Event]:
    """In each step an optimizer launches so many kernels, one each 10 µs."""
    length = 10 * launches + 20
    make = [slice_("Optimizer.step#SGD.step", 5, length - 6, "user_annotation")]
    for place in range(round(launches)):
        make += launch("multi_tensor", 6 + 10 * place, 8 + 10 * place, 1)
    return behind_a_product(*make, every=length, length=length)


def under(operator: str) -> Build:
    """Steps of 100 µs of the GPU, of which a kernel that this operator launches takes so many."""
    return lambda us: ahead((GEMM, 100 - us), ("elementwise", us), operator=operator)


def led_by(name: str, cat: str) -> Build:
    """In steps of which the GPU works 2 µs, a slice of so many µs beside others of 4 µs."""

    def build(us: float) -> list[Event]:
        fillers = [
            slice_("aten::view", 100 * step + at, 4) for step in range(3) for at in range(8 + int(us), 94, 5)
        ]
        mine = [slice_(name, 100 * step + 3, us, cat) for step in range(3)]
        return [*steps(busy=2), *mine, *fillers]

    return build


def nan_checked(times: float) -> list[Event]:
    """In each step autograd looks so often for a NaN, each time behind a node."""
    make: list[Event] = []
    for at in range(10, 10 + 20 * round(times), 20):
        make.append(slice_("autograd::engine::evaluate_function: MulBackward0", at, 19))
        make += [slice_("aten::isnan", at + 1, 15), *launch("isnan", at + 2, at + 5, 3)]
        make.append(slice_("aten::item", at + 16, 1))
    return behind_a_product(*make, every=200, length=200)


def backwards(times: float) -> list[Event]:
    """Steps in which one graph runs forward once, and backward so often, 40 µs each time."""
    numbered: dict[str, Any] = {"Sequence number": 0}
    make = [
        slice_("Torch-Compiled Region: 0/0", 0, 30),
        slice_("CompiledFunction", 1, 28, **numbered),
        *launch(GEMM, 2, 5, 2),
    ]
    for at in range(40, 40 + 50 * round(times), 50):
        make += [slice_("CompiledFunctionBackward", at, 40, **numbered), *launch(GEMM, at + 2, at + 5, 30)]
    return in_steps(*make, every=200)


def work(name: str, at: int) -> Build:
    """The same on the GPU, in steps that are busy already."""
    return lambda us: [*steps(busy=60), *[kernel(name, 100 * s + at, us) for s in range(3)]]


# rule → (what it looks at, an amount over its threshold, one below)
AMOUNTS: dict[str, tuple[Build, float, float]] = {
    "launch_bound": (lambda launches: small(round(launches)), 100, 3),
    "data_loading": (led_by(WAIT, "user_annotation"), 8, 4),
    "communication": (work("ncclDevKernel_AllReduce_Sum", 62), 11, 9),
    "fp32_matmul": (lambda us: ahead((GEMM, 100 - us), ("cutlass_80_simt_sgemm_128x64_8x5", us)), 9, 5),
    "double_precision": (lambda us: ahead((GEMM, 100 - us), ("sm90_xmma_gemm_f64f64_f64f64", us)), 9, 5),
    "kernel_low_bandwidth": (lambda busy: moving(0.001, busy), 11, 9),
    "compile_in_steps": (beside("entire_frame_compile (dynamo_timed)", "cpu_op", 5), 1.1, 0.9),
    "autotune_in_steps": (
        beside("CachingAutotuner.benchmark_all_configs (dynamo_timed)", "cpu_op", 5),
        1.1,
        0.9,
    ),
    "guards": (led_by("TorchDynamo Cache Lookup", "cpu_op"), 8, 4),
    "eager_remainder": (eager, 80, 4),
    "garbage_collection": (led_by("Python GC", "python_function"), 8, 4),
    "python": (led_by("train.py(3): count", "python_function"), 8, 4),
    "library": (led_by("torch/optim/adam.py(3): count", "python_function"), 60, 52),
    "operator": (led_by("aten::normal_", "cpu_op"), 60, 52),
    "nothing": (lambda us: [*steps(busy=2), *_fillers(us)], 60, 50),
    "allocation": (led_by("cudaMalloc", "cuda_runtime"), 8, 4),
    "module_load": (led_by("cuModuleLoadData", "cuda_driver"), 8, 4),
    "graph_capture": (led_by("cudaGraphInstantiate", "cuda_runtime"), 8, 4),
    "synchronise": (waiting, 60, 3),
    "copies": (copied, 300, 5),
    "fused_optimizer": (optimizing, 60, 19),
    "layout": (under("aten::contiguous"), 9, 4),
    "casts": (under("aten::_to_copy"), 9, 4),
    "joined": (under("aten::cat"), 9, 4),
    "anomaly_mode": (nan_checked, 8, 7),
    "repeated_backward": (backwards, 2, 1),
    "batch": (lambda times: of_a_ms(*accumulated(round(times))), 4, 3),
    "reduced_once": (lambda times: of_a_ms(*accumulated(round(times), reduced=True)), 8, 1),
    "small_collectives": (lambda times: of_a_ms(*moved(round(times), 1000, "")), 16, 15),
    "memory_limit": (
        lambda gb: [*steps(), memory_event(10, 512, 512, reserved=round(gb * 1e9))],
        135.2,
        135.0,
    ),
    "empty_profile": (lambda number: steps(number=round(number)), 1, 2),
}


def _fillers(us: float) -> list[Event]:
    """Operators of 4 µs that leave so many µs free in each step."""
    return [
        slice_("aten::view", 100 * step + at, 4) for step in range(3) for at in range(3 + round(us), 95, 4)
    ]


@pytest.mark.parametrize("rule", AMOUNTS)
def test_a_rule_speaks_above_its_threshold_and_is_silent_below(tmp_path: Path, rule: str) -> None:
    build, over, below = AMOUNTS[rule]
    assert rule in by_rule(tmp_path, build(over))
    assert rule not in by_rule(tmp_path, build(below))


def test_recompiling_counts_from_its_threshold_on(tmp_path: Path) -> None:
    def recompiles(us: int) -> bool:
        summary = pb.CompileSummary()
        row = summary.compilations.add(start_ns=BASE_NS + 110_000, duration_ns=us * 1000)
        row.key.compile_id = "0/1"
        summary.recompiles.add(reasons=["0/0: L['x'].size()[0] == 4"]).key.compile_id = "0/1"
        return "recompiles" in by_rule(tmp_path, steps(), summary)

    assert (recompiles(4), recompiles(2)) == (True, False)  # of 300 µs


def test_every_rule_has_a_case_on_either_side() -> None:
    """Those that are not in the table have tests of their own."""
    others = {"graph_breaks", "recompiles", "data_parallel", "slow_backend"}
    others |= {
        "profiler_hooks",
        "nothing_compiled",
        "frame_given_up",
        "cudagraphs_skipped",
        "cuda_graphs_used",
    }
    # test_fixes.py, test_recomputed.py, test_attention.py
    others |= {"debug_backend", "recurrent_cells", "repeated_operators", "zeroed_gradients", "deterministic"}
    others |= {"weight_casts", "recomputed", "attention"}
    # test_pays.py, test_what_if_rules.py, test_dynamic_shapes.py, test_ledger.py, tests/cases
    others |= {"compile_does_not_pay", "dominant_kernel", "dynamic_shapes", "large_site"}
    others |= {"compile_in_loop", "unnamed_cpu_kernels"}
    of_data = {"no_trace", "recompile_limit", "compile_failed", "cache_missed", "modules_compiled_apart"}
    assert {cause.id for cause in CAUSES} == set(AMOUNTS) | others | of_data
    assert compile_findings(data_of(pb.CompileSummary())) == []


def test_of_compile_data_alone_only_rules_about_it_looked(tmp_path: Path) -> None:
    data = data_of(pb.CompileSummary())
    assert findings(data).rules == 6  # these, and cudagraphs_skipped
    assert findings(profile_with(tmp_path, steps(), data)).rules == len(CAUSES)


@pytest.mark.parametrize(
    ("guard", "seconds", "is_found"),
    [("self.index == {}", 1.1, True), ("self.index == {}", 0.9, False), ("self.training == True", 9, False)],
)
def test_modules_that_hold_numbers_of_their_own_do_not_share(
    guard: str, seconds: float, is_found: bool
) -> None:
    summary = pb.CompileSummary()
    for number in range(3):
        row = summary.compilations.add(function="forward", start_ns=number, duration_ns=round(seconds * 1e9))
        row.key.compile_id = f"0/{number}"
        row.metrics.update({"module_class": '"Block"', "module_count": "4"})
        if number:
            again = summary.recompiles.add(reasons=[f"0/{number - 1}: {guard.format(number - 1)}"])
            again.key.compile_id = row.key.compile_id
    found = [row for row in compile_findings(data_of(summary)) if row.rule == "modules_compiled_apart"]
    assert [row.evidence["modules"] for row in found] == [4] * is_found


def test_several_gpus_in_one_process(tmp_path: Path) -> None:
    label = slice_("DataParallel.forward", 1, 90, "user_annotation")
    assert "data_parallel" not in by_rule(tmp_path, [*steps(), label])
    row = by_rule(tmp_path, [*steps(), label, kernel(GEMM, 5, 80, device=1)])["data_parallel"]
    assert row.title.startswith("One process drives 2 GPUs") and "DistributedDataParallel" in row.next_step


@pytest.mark.parametrize(
    ("backend", "ranks", "fires"),
    [
        ("gloo", 2, True),
        ("mpi", 8, True),
        ("gloo", 1, False),
        ("nccl", 2, False),
        ("cpu:gloo,cuda:nccl", 2, False),
    ],
)
def test_a_backend_of_the_host(tmp_path: Path, backend: str, ranks: int, fires: bool) -> None:
    info = {"backend": backend, "world_size": ranks, "rank": 0}
    assert ("slow_backend" in by_rule(tmp_path, steps(), distributedInfo=info)) == fires
    assert "slow_backend" not in by_rule(tmp_path, [slice_("aten::mm", 0, 1)], distributedInfo=info)


def test_cheap_breaks_are_left_alone(recording: Recording, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without them a step of `breaks` would take 40.6 % less."""
    for threshold, fires in ((40.0, True), (41.0, False)):
        monkeypatch.setattr(thresholds, "gain_percent", threshold)
        session = Session([("", str(recording("breaks")))])  # a new one: answers are remembered
        assert any(row.rule == "graph_breaks" for row in whole_report(session).findings) == fires


@pytest.mark.parametrize(("compiled_us", "left_us"), [(0, 55.0), (50, 5.0)])
def test_a_break_does_not_count_what_was_compiled_in_it(
    tmp_path: Path, compiled_us: int, left_us: float
) -> None:
    """On a CPU, where nothing is predicted: torch recompiles what goes on behind it, which recompiles tell."""
    events = [
        slice_("ProfilerStep#0", 0, 100, "user_annotation"),
        *compiled_call("0/0", (0, 95), (5, 10)),
        *compiled_call("1/0", (66, 28), (70, 10)),
    ]
    again = pb.Compilation(key=pb.CompileKey(compile_id="1/0"), function="torch_dynamo_resume_in_f_at_9")
    again.start_ns, again.duration_ns = BASE_NS + 16_000, 1000 * compiled_us
    broken = pb.GraphBreak(key=KEY, file="/u/train.py", line=9, reason="print")
    summary = pb.CompileSummary(compilations=[again], graph_breaks=[broken])
    row = by_rule(tmp_path, events, summary, baseTimeNanoseconds=BASE_NS)["graph_breaks"]
    assert row.evidence["direct_us_per_step"] == pytest.approx(left_us)
    cost = f"direct cost is {duration(left_us)} per step, {percent(left_us)} of the profiled step"
    assert row.title.endswith(cost)


def test_a_frame_that_torch_puts_around_a_module_is_told_with_the_line_that_led_to_it(tmp_path: Path) -> None:
    inner = pb.Frame(file="/venv/lib/python3.12/site-packages/torch/_dynamo/external_utils.py", line=67)
    caller = pb.Frame(file="/home/user/train.py", line=62, function="step")
    again = pb.Compilation(
        key=pb.CompileKey(compile_id="0/1"), function="inner", file=inner.file, line=inner.line
    )
    again.stack.extend([caller, inner])
    again.start_ns, again.duration_ns = BASE_NS + 10_000, 80_000
    made = pb.Recompile(key=again.key, file=inner.file, line=inner.line)
    summary = pb.CompileSummary(compilations=[again], recompiles=[made])
    row = by_rule(tmp_path, steps(), summary, baseTimeNanoseconds=BASE_NS)["recompiles"]
    assert row.title.startswith("Torch recompiled inner (external_utils.py:67), called at train.py:62, once")
    assert row.where == ["train.py:62"]


LIBRARY = "/venv/lib/python3.12/site-packages/graphs/loop.py"
USERS = "/home/user/train.py"


def broken_twice(first: str, second: str) -> tuple[list[Event], pb.CompileSummary]:
    """Steps of a millisecond with a break of 300 µs in the first of these files, and one of 100 µs in the second."""
    events = [
        *compiled_call("0/0", (10, 700), (20, 60)),
        *launch("gemm", 60, 65, 20),
        *compiled_call("1/0", (350, 350), (380, 60)),
        *launch("gemm", 390, 395, 20),
        *compiled_call("2/0", (540, 100), (550, 60)),
        *launch("gemm", 560, 565, 20),
    ]
    summary = pb.CompileSummary()
    for place, name in enumerate(("f", "torch_dynamo_resume_in_f_at_9", "torch_dynamo_resume_in_f_at_12")):
        summary.compilations.add(function=name, graph_ops=1).key.compile_id = f"{place}/0"
    for place, (file, line) in enumerate(((first, 113), (second, 29))):
        stack = [pb.Frame(file=USERS, line=35, function="forward"), pb.Frame(file=file, line=line)]
        broke = summary.graph_breaks.add(file=file, line=line, hints=[f"Mend {line}"], stack=stack)
        broke.key.compile_id = f"{place}/0"
    return of_a_ms(*events), summary


def test_next_to_a_break_in_a_library_the_most_expensive_own_one_is_named(tmp_path: Path) -> None:
    row = by_rule(tmp_path, *broken_twice(LIBRARY, USERS))["graph_breaks"]
    assert row.where == ["loop.py:113", "train.py:29"] and "your own code at train.py:29" in row.title
    assert "Mend 113" in row.next_step and row.next_step.endswith("At train.py:29: Mend 29")


OF_ANY = (
    "It may be possible to write Dynamo tracing rules for this code. Please report an issue to PyTorch if …"
)


@pytest.mark.parametrize(
    ("hints", "said"),
    [
        ([OF_ANY, "Use `torch.cond`."], "Use `torch.cond`."),
        ([OF_ANY], "Rewrite this call with torch operators, or move it out of the compiled function"),
    ],
)
def test_what_torch_says_of_any_break_is_no_advice(tmp_path: Path, hints: list[str], said: str) -> None:
    events, summary = broken_twice(USERS, USERS)
    summary.graph_breaks[0].reason = "attempted to trace numpy function unsupported by PyTorch"
    summary.graph_breaks[0].hints[:] = hints
    row = by_rule(tmp_path, events, summary)["graph_breaks"]
    assert row.next_step == f"Start with the most expensive, train.py:113. {said}"


def test_a_frame_that_is_compiled_too_often_is_told_with_the_guard_that_fails(tmp_path: Path) -> None:
    summary = pb.CompileSummary()
    for version in range(3):
        row = summary.compilations.add(function="forward", file=USERS, line=33)
        row.key.compile_id = f"0/{version}"
        if version:
            reason = f"0/{version - 1}: self.global_step == {version - 1}   # self.global_step += 1"
            summary.recompiles.add(reasons=[reason], file=USERS, line=33).key.compile_id = f"0/{version}"
    row.failure.type, row.failure.reason = "RecompileLimitExceeded", "recompile_limit reached"
    given_up = by_rule(tmp_path, eager(80), summary)["frame_given_up"]
    assert given_up.title.startswith("forward runs eagerly: it hit the recompile limit. If it were compiled")
    assert given_up.next_step.startswith(
        "A guard that fails is self.global_step == 1. The compiled code holds"
    )
    assert "allow_unspec_int_on_nn_module = True" in given_up.next_step


def test_a_failed_compilation_is_a_finding_without_a_trace() -> None:
    summary = pb.CompileSummary()
    failure = pb.Failure(type="BackendCompilerFailed", reason="RuntimeError: no such device")
    summary.compilations.add(key=KEY, function="head", file=USERS, line=33, failure=failure)
    (failed,) = compile_findings(data_of(summary))
    assert (failed.rule, failed.severity, failed.where) == ("compile_failed", "critical", ["train.py:33"])
    assert "no such device" in failed.title


def test_a_break_in_a_library_is_told_with_the_line_that_led_to_it(tmp_path: Path) -> None:
    row = by_rule(tmp_path, *broken_twice(LIBRARY, LIBRARY))["graph_breaks"]
    assert row.where == ["loop.py:113", "train.py:35"] and "(called at train.py:35)" in row.title
    mine = by_rule(tmp_path, *broken_twice(USERS, LIBRARY))["graph_breaks"]
    assert mine.where == ["train.py:113"] and "called at" not in mine.title


def test_a_librarys_frame_that_was_given_up_is_told_with_the_line_that_calls_it(tmp_path: Path) -> None:
    """Torch keeps no stack of the compilation that it gave up; it does of the earlier ones of that frame."""
    summary = pb.CompileSummary()
    for version in range(2):
        row = summary.compilations.add(function="wrapper", file=LIBRARY, line=933)
        row.key.compile_id = f"0/{version}"
        if not version:
            row.stack.extend(
                [pb.Frame(file=USERS, line=46, function="train"), pb.Frame(file=LIBRARY, line=933)]
            )
    row.failure.type, row.failure.reason = "Unsupported", "Data-dependent branching"
    summary.graph_breaks.add(reason="Data-dependent branching").key.compile_id = "0/1"
    given_up = by_rule(tmp_path, eager(80), summary)["frame_given_up"]
    assert given_up.title.startswith("wrapper (loop.py:933), called at train.py:46, runs eagerly")
    assert given_up.where == ["train.py:46"]


def test_profiles_that_hold_too_little(tmp_path: Path) -> None:
    def empty_profile(events: list[Event], **header: Any) -> tuple[str, str] | None:
        row = by_rule(tmp_path, events, **header).get("empty_profile")
        return (row.severity, row.title) if row else None

    assert empty_profile([]) == ("critical", "The trace contains 0 events: the profiler was not active")
    on_host = [slice_("aten::mm", 0, 5)]
    assert empty_profile(on_host) == ("warning", "The trace contains 0 GPU events, although there is a GPU")
    assert empty_profile(on_host, deviceProperties=[]) is None
    one = empty_profile(steps(number=1))
    assert one and one[0] == "info" and one[1].startswith("Only 1 step was profiled")


@pytest.mark.parametrize(
    ("failure", "compile_ids", "versions"),
    [
        ("FailOnRecompileLimitHit", ("2/0", "2/1", "2/2", "2/3"), 3),
        # Ids of compiled autograd have a part more: !1/0 and !1/1 are two frames.
        ("RecompileLimitExceeded", ("!1/0/0", "!1/0/1", "!1/1/0", "!1/1/1", "!1/1/2"), 2),
    ],
)
def test_the_recompile_limit(failure: str, compile_ids: tuple[str, ...], versions: int) -> None:
    summary = pb.CompileSummary()
    for compile_id in compile_ids:
        row = summary.compilations.add(function="forward", file="m.py", line=3)
        row.key.compile_id = compile_id
    row.failure.type, row.failure.reason = failure, "recompile_limit reached"
    (limit,) = compile_findings(data_of(summary))
    assert (limit.rule, limit.severity) == ("recompile_limit", "critical")
    assert limit.evidence == {"versions": versions}
    assert limit.title.startswith(f"forward hit the recompile limit after {versions} compilations")


def test_caches_that_did_not_help() -> None:
    summary = pb.CompileSummary()
    row = summary.compilations.add(duration_ns=29 * 10**9)
    row.cache.add(cache="fx_graph", result="miss")
    assert compile_findings(data_of(summary)) == []
    row.duration_ns = 31 * 10**9
    row.cache.add(cache="aotautograd", result="bypass", reason="it holds a custom op")
    backward = summary.compilations.add()  # of the same compilation
    backward.cache.add(cache="fx_graph", result="miss")
    slow, bypassed = compile_findings(data_of(summary))
    assert slow.title == "1 compilation missed the compile cache and took 31.0 s"
    assert "bypassed once (it holds a custom op)" in bypassed.title


def test_findings_of_a_recording(recording: Recording) -> None:
    session = Session([("", str(recording("breaks")))])
    report = whole_report(session)
    assert [row.rule for row in report.findings] == ["graph_breaks", "launch_bound", "eager_remainder"]
    breaks = report.findings[0]
    assert breaks.where[0] == "capture.py:26" and breaks.evidence["breaks"] == 4
    assert breaks.predicted and breaks.evidence["gain_us_per_step"] == breaks.predicted.gain_us
    assert (breaks.worker, breaks.severity) == ("vm_1027", "critical")
    (span,) = report.runs[0].workers[0].spans
    assert breaks.span == span.span
    answer = session.profile(".", "vm_1027", span.span).of(findings)
    assert [row.rule for row in answer.findings] == [row.rule for row in report.findings]


def test_cuda_graphs_silence_the_rule_that_asks_for_them(recording: Recording) -> None:
    folder = recording("small_batch")
    rules = {
        mode: {row.rule for row in read_report(str(folder / mode)).findings}
        for mode in ("eager", "compiled", "cudagraphs")
    }
    assert "launch_bound" in rules["compiled"]
    assert "nothing_compiled" in rules["eager"] and "launch_bound" not in rules["eager"]
    assert "launch_bound" not in rules["cudagraphs"]


def finding(
    rule: str,
    gain_percent: float = 0,
    severity: Severity | None = None,
    role: Role | None = None,
    saves_us: float | None = None,
    share_percent: float = 0,
) -> Finding:
    """One that says nothing. gain_percent: of a step, as predicted; 0 for no prediction."""
    predicted = prediction(100, 100 - gain_percent) if gain_percent else None
    cause = BY_ID.get(rule)
    return Finding(
        rule=rule,
        severity=severity or severity_of(gain_percent),
        title="",
        evidence={"share_percent": share_percent} if share_percent else {},
        saves_us=saves_us,
        panel="overview",
        row=None,
        next_step="",
        predicted=predicted,
        role=role or (cause.role if cause else "specific"),
    )


def order_of(*rows: Finding) -> list[str]:
    return [row.rule for row in sort_findings(rows)]


def test_most_severe_comes_first_then_most_time_to_save() -> None:
    rows = [finding("a"), finding("b", saves_us=5), finding("c", saves_us=9)]
    assert order_of(*rows, finding("d", severity="critical")) == ["d", "c", "b", "a"]
    assert order_of(finding("a", 6), finding("b", severity="critical"), finding("c", 21)) == ["c", "b", "a"]


def test_what_is_wrong_with_a_program_comes_before_what_would_make_any_faster() -> None:
    """From 15 % of a step on, and a third of what the generic advice brings."""
    assert order_of(finding("a", 50, role="generic"), finding("b", 17))[0] == "b"
    assert order_of(finding("a", 40, role="generic"), finding("b", 14.9))[0] == "a"
    assert order_of(finding("a", 80, role="generic"), finding("b", 27))[0] == "b"
    assert order_of(finding("a", 80, role="generic"), finding("b", 26))[0] == "a"


def test_a_blocking_cause_is_the_first_whatever_it_brings() -> None:
    assert order_of(finding("a", 90), finding("b", 6, role="blocking")) == ["b", "a"]


def test_what_nobody_can_act_on_comes_after_what_can_be_fixed() -> None:
    """But before what is worth nothing, or much less."""
    rows = [finding("nothing", 12), finding("a", 11), finding("b"), finding("c", 6, role="generic")]
    assert order_of(*rows) == ["a", "c", "nothing", "b"]
    assert order_of(*rows[1:], finding("nothing", 40))[0] == "nothing"


def test_no_price_is_worth_half_of_the_time_but_ten_percent_at_most() -> None:
    unpriced = finding("a", severity="warning", share_percent=80)
    assert order_of(unpriced, finding("b", 9), finding("c", 11)) == ["c", "a", "b"]


@given(
    st.lists(
        st.builds(
            finding,
            st.sampled_from("abcdef"),
            st.integers(0, 99),
            st.just(None),
            st.sampled_from(get_args(Role)),
            share_percent=st.integers(0, 99),
        )
    )
)
def test_severity_never_contradicts_the_order(rows: list[Finding]) -> None:
    ordered = sort_findings(rows)
    levels = [SEVERITIES.index(row.severity) for row in ordered]
    assert levels == sorted(levels)
    assert sorted(row.rule for row in ordered) == sorted(row.rule for row in rows)
    assert sort_findings(ordered) == ordered


def test_each_run_keeps_its_order_whatever_others_show() -> None:
    one = [finding("a", 30, "critical"), finding("b", 35)]
    other = [finding("c", 60), finding("nothing", 10)]
    assert [row.rule for row in merge_findings([one, other])] == ["c", "a", "b", "nothing"]
    assert merge_findings([one]) == one and merge_findings([]) == []


def test_causes_and_thresholds_are_documented_and_nothing_else_is() -> None:
    assert len({cause.id for cause in CAUSES}) == len(CAUSES)
    values = re.findall(r"`(\w+)` = (\"[\d.]+\"|[\d.]+)", DOCUMENT)
    assert {name: json.loads(value) for name, value in values} == {
        name: value
        for name, value in vars(thresholds).items()
        if name.islower() and isinstance(value, (int, float, str)) and not name.startswith("__")
    }


def test_times_and_shares_have_three_digits() -> None:
    texts = [duration(us) for us in (0, 0.5, 166.4, 999.7, 2_380, 1.5e6, 101.24e6, 1500e6, 7200e6)]
    assert texts[:5] == ["0 µs", "0.500 µs", "166 µs", "1.00 ms", "2.38 ms"]
    assert texts[5:] == ["1.50 s", "101 s", "25.0 min", "2.00 h"]
    texts = [percent(value) for value in (8346.3, 100, 92.34, 9.223, 0.5)]
    assert texts == ["8,346 %", "100 %", "92.3 %", "9.22 %", "0.500 %"]
