"""findings/: each rule fires where it should, is silent where it should, and is documented."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tb_torchcompile_plugin.analysis.findings import (
    COMPILE_RULES,
    RULES,
    SPAN_RULES,
    Finding,
    compile_findings,
    ranked,
    span_findings,
    thresholds,
)
from tb_torchcompile_plugin.analysis.findings.words import duration, percent
from tb_torchcompile_plugin.analysis.profile import Profile
from tb_torchcompile_plugin.api import Session
from tb_torchcompile_plugin.findings_report import Findings
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.reader.kineto import read_trace
from tb_torchcompile_plugin.summary_pb2 import CompileSummary
from traces import Event, kernel, launch, slice_, write_trace

DOCUMENT = (Path(__file__).parent.parent / "docs" / "findings.md").read_text()
H200 = {
    "deviceProperties": [
        {"id": 0, "name": "NVIDIA H200", "computeMajor": 9, "totalGlobalMem": 150_110_011_392}
    ]
}
BASE_NS = 1_790_000_000_000_000_000
GEMM = "nvjet_tst_128x256_64x4_1x2_h_bz_coopA_NTT"


def steps(*, busy: float = 90, number: int = 3, name: str = GEMM) -> list[Event]:
    """Steps of 100 µs in each of which one kernel runs, launched in the step."""
    events: list[Event] = []
    for step in range(number):
        begin = 100 * step
        events.append(slice_(f"ProfilerStep#{step}", begin, 100, "user_annotation"))
        events += launch(name, begin, begin + 2, busy)
    return events


def found(
    folder: Path, events: list[Event], summary: CompileSummary | None = None, **header: Any
) -> dict[str, Finding]:
    trace = read_trace(str(write_trace(folder, events, **{**H200, **header})), workers=1)
    data = CompileData(summary, "summary", "", []) if summary else None
    return {row.rule: row for row in span_findings(Profile(trace, data))}


def test_a_healthy_run_yields_none(tmp_path: Path) -> None:
    assert found(tmp_path, steps()) == {}


def test_a_launch_bound_run_is_told_what_graphs_could_bring(tmp_path: Path) -> None:
    row = found(tmp_path, steps(busy=10))["launch_bound"]
    assert row.title == (
        "The GPU waits for launches 90.0 % of the time: CUDA graphs could bring 100 µs a step down to 10.0 µs at best"
    )
    assert (row.severity, row.saves_us, row.panel) == ("critical", 270, "gpu_utilization")
    assert row.evidence["launches_per_step"] == 1 and 'mode="reduce-overhead"' in row.next_step


def test_graphs_that_are_used_or_were_asked_for_are_not_recommended(tmp_path: Path) -> None:
    replay = slice_("cudaGraphLaunch", 1, 1, "cuda_runtime", correlation=77)
    assert "launch_bound" not in found(tmp_path, [*steps(busy=10), replay, kernel("k", 5, 1, correlation=77)])
    summary = CompileSummary()
    summary.counters.add(group="inductor", name="cudagraph_skips", value=1)
    assert "launch_bound" not in found(tmp_path, steps(busy=10), summary)
    (skipped,) = compile_findings(summary)
    assert (skipped.rule, skipped.evidence) == ("cudagraphs_skipped", {"skips": 1})


def test_reasons_to_skip_graphs_are_told_with_what_helps() -> None:
    summary = CompileSummary()
    for compile_id in ("0/0", "1/0"):
        row = summary.compilations.add()
        row.key.compile_id = compile_id
        row.metrics["cudagraph_skip_reason"] = json.dumps(
            "skipping cudagraphs due to skipping cudagraphs due to mutated inputs (1 instances). Found from :\n …"
        )
    (skipped,) = compile_findings(summary)
    assert skipped.title == "CUDA graphs are skipped for 2 compilations: mutated inputs (1 instances)"
    assert "in place" in skipped.next_step and skipped.row == "compilation:0/0,0,forward"
    late = CompileSummary()
    late.runtime_metrics.add().metrics["cudagraph_skip_reason"] = '"skipping cudagraphs due to a late input"'
    (skipped,) = compile_findings(late)
    assert (skipped.title, skipped.row) == ("CUDA graphs are skipped: a late input", None)


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "data_loading"),
        ("nccl:all_reduce", "communication"),
    ],
)
def test_waiting_for_others_is_told(tmp_path: Path, name: str, rule: str) -> None:
    """The GPU idles from 52 µs of a step to 2 µs of the next one; the host waits from 55 to 95."""
    waits = [slice_(name, 100 * step + 55, 40, "user_annotation") for step in range(3)]
    row = found(tmp_path, [*steps(busy=50), *waits])[rule]
    assert row.saves_us == 80  # nothing follows the last gap, so nobody is to blame for it
    assert row.severity == "critical" and row.evidence["share_percent"] == pytest.approx(80 / 3)


def test_communication_that_runs_alone_is_exposed(tmp_path: Path) -> None:
    alone = [kernel("ncclDevKernel_AllReduce_Sum", 100 * step + 60, 30) for step in range(3)]
    assert found(tmp_path, [*steps(busy=60), *alone])["communication"].saves_us == 84  # 2 + 60 … 90


def test_compiling_and_tuning_inside_the_steps(tmp_path: Path) -> None:
    events = [
        *steps(),
        slice_("entire_frame_compile (dynamo_timed)", 110, 10),
        slice_("CachingAutotuner.benchmark_all_configs (dynamo_timed)", 112, 4),
        slice_("CachingAutotuner.benchmark_all_configs (dynamo_timed)", 210, 5),
    ]
    rows = found(tmp_path, events)
    assert (rows["compile_in_steps"].saves_us, rows["autotune_in_steps"].saves_us) == (10, 5)
    assert "recompiles" not in rows


def test_building_a_kernel_is_not_tuning_it(tmp_path: Path) -> None:
    """By the phases that compile time is told in: `CachingAutotuner.precompile` compiles what is tuned later."""
    built = slice_("CachingAutotuner.precompile (dynamo_timed)", 210, 50)
    assert "autotune_in_steps" not in found(tmp_path, [*steps(), built])


def test_compiling_again_is_told_apart(tmp_path: Path) -> None:
    summary = CompileSummary()
    for compile_id, start, dur in (("0/0", -5_000, 1_000), ("0/1", 110_000, 20_000), ("1/0", 250_000, 7_000)):
        row = summary.compilations.add(start_ns=BASE_NS + start, duration_ns=dur)
        row.key.compile_id = compile_id
    again = summary.recompiles.add(reasons=["0/0: s == 0.0"])
    again.key.compile_id = "0/1"
    rows = found(tmp_path, steps(), summary)
    assert (rows["recompiles"].saves_us, rows["recompiles"].evidence["recompiles"]) == (20, 1)
    assert "float" in rows["recompiles"].next_step and rows["recompiles"].row == "recompiles:0/1,0"
    assert rows["compile_in_steps"].saves_us == 7


def test_expensive_guards(tmp_path: Path) -> None:
    calls = [
        event
        for step in range(3)
        for event in (
            slice_("TorchDynamo Cache Lookup", 100 * step + 10, 6),
            slice_("Torch-Compiled Region: 0/0", 100 * step + 16, 10),
        )
    ]
    row = found(tmp_path, [*steps(), *calls])["guards"]
    assert (row.saves_us, row.severity, row.evidence["guard_us_per_step"]) == (18, "warning", 6)
    assert row.row == "compiled_regions:0/0"


def test_what_still_runs_eager(tmp_path: Path) -> None:
    region = slice_("Torch-Compiled Region: 0/0", 50, 10)
    ops = [slice_("aten::mul", 100 * step + 60, 35) for step in range(3)]
    row = found(tmp_path, [*steps(), region, *ops])["eager_remainder"]
    assert (
        row.saves_us == pytest.approx(105 + 3) and row.severity == "critical"
    )  # each launch is a call of 1 µs
    assert "aten::mul, 35.0 µs a step" in row.next_step
    assert "eager_remainder" not in found(tmp_path, [*steps(), *ops])  # nothing is compiled here


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
    assert ("fp32_matmul" in found(tmp_path, steps(name=name))) == fires
    old = [{"id": 0, "name": "Tesla V100", "computeMajor": 7}]
    assert "fp32_matmul" not in found(tmp_path, steps(name=name), deviceProperties=old)


def moving(num_gb: float | None, busy: float, name: str = "triton_poi_fused_index_0") -> list[Event]:
    """Steps of 100 µs with a product of 30 µs and a kernel of so many that moves so much, as inductor told."""
    args: dict[str, Any] = {} if num_gb is None else {"kernel_num_gb": num_gb}
    events: list[Event] = []
    for step in range(3):
        begin = 100 * step
        events.append(slice_(f"ProfilerStep#{step}", begin, 100, "user_annotation"))
        events += launch(GEMM, begin, begin + 1, 30)
        events += [slice_(name, begin + 1, 3, **args), *launch(name, begin + 2, begin + 32, busy)]
    return events


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
    row = found(tmp_path, moving(num_gb, busy, name)).get("kernel_low_bandwidth")
    assert (row is not None) == fires
    if row is not None and num_gb is not None:
        share = num_gb * 1e9 / busy / 1e3 / 48  # % of 4800 GB/s
        assert row.evidence["bandwidth_percent"] == pytest.approx(share)
        assert row.saves_us == pytest.approx(3 * busy * (1 - share / 100))
        assert name in row.title and "--extract" not in row.title


Build = Callable[[float], list[Event]]
WAIT = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def beside(name: str, cat: str, at: int, **kwargs: Any) -> Build:
    """In each of three steps, in which the GPU works for 50 µs, a slice of so many µs on the host."""
    return lambda us: [*steps(busy=50), *[slice_(name, 100 * s + at, us, cat, **kwargs) for s in range(3)]]


def work(name: str, at: int) -> Build:
    """The same on the GPU, in steps that are busy already."""
    return lambda us: [*steps(busy=60), *[kernel(name, 100 * s + at, us) for s in range(3)]]


def held(gb: float) -> Event:
    """An allocation after which the allocator holds so much."""
    args = {"Device Type": 1, "Device Id": 0, "Addr": 4096, "Bytes": 512, "Total Allocated": 512}
    return {
        **slice_("[memory]", 10, 0, "cpu_instant_event", **args, **{"Total Reserved": round(gb * 1e9)}),
        "ph": "i",
        "s": "t",
    }


# rule → (what it looks at, an amount over its threshold, one below)
AMOUNTS: dict[str, tuple[Build, float, float]] = {
    "launch_bound": (lambda busy: steps(busy=busy), 49, 51),
    "data_loading": (beside(WAIT, "user_annotation", 55), 16, 14),  # two of the three waits are before work
    "communication": (work("ncclDevKernel_AllReduce_Sum", 62), 11, 9),
    "fp32_matmul": (work("cutlass_80_simt_sgemm_128x64_8x5_nt_align1", 62), 7, 6),
    "kernel_low_bandwidth": (lambda busy: moving(0.001, busy), 11, 9),
    "names_disabled": (work("triton__0d1d2de", 62), 1, 0.5),
    "compile_in_steps": (beside("entire_frame_compile (dynamo_timed)", "cpu_op", 5), 1.1, 0.9),
    "autotune_in_steps": (
        beside("CachingAutotuner.benchmark_all_configs (dynamo_timed)", "cpu_op", 5),
        1.1,
        0.9,
    ),
    "guards": (
        lambda us: [
            *beside("TorchDynamo Cache Lookup", "cpu_op", 10)(us),
            *beside("Torch-Compiled Region: 0/0", "cpu_op", 30)(10)[-3:],
        ],
        5.1,
        4.9,
    ),
    "eager_remainder": (
        lambda us: [
            slice_("Torch-Compiled Region: 0/0", 20, 10),
            *beside("aten::mul", "cpu_op", 40)(us),
        ],
        31,
        28,  # the launches are operators of 1 µs, too
    ),
    "garbage_collection": (beside("Python GC", "python_function", 60), 5.1, 4.9),
    "memory_limit": (lambda gb: [*steps(), held(gb)], 135.2, 135.0),
    "empty_profile": (lambda number: steps(number=round(number)), 1, 2),
}


@pytest.mark.parametrize("rule", AMOUNTS)
def test_a_rule_speaks_above_its_threshold_and_is_silent_below(tmp_path: Path, rule: str) -> None:
    build, over, below = AMOUNTS[rule]
    assert rule in found(tmp_path, build(over))
    assert rule not in found(tmp_path, build(below))


def test_recompiling_counts_from_its_threshold_on(tmp_path: Path) -> None:
    def told(us: int) -> bool:
        summary = CompileSummary()
        row = summary.compilations.add(start_ns=BASE_NS + 110_000, duration_ns=us * 1000)
        row.key.compile_id = "0/1"
        summary.recompiles.add(reasons=["0/0: L['x'].size()[0] == 4"]).key.compile_id = "0/1"
        return "recompiles" in found(tmp_path, steps(), summary)

    assert (told(4), told(2)) == (True, False)  # of 300 µs


def test_every_rule_has_a_case_on_either_side() -> None:
    """Those that are not in the table have tests of their own."""
    others = {"graph_breaks", "recompiles", "cudagraphs_old_driver", "data_parallel", "slow_backend"}
    assert {rule.id for rule in SPAN_RULES} == set(AMOUNTS) | others
    assert {rule.id for rule in COMPILE_RULES} == {"recompile_limit", "cudagraphs_skipped", "cache_missed"}
    assert compile_findings(CompileSummary()) == []


def test_several_gpus_in_one_process(tmp_path: Path) -> None:
    label = slice_("DataParallel.forward", 1, 90, "user_annotation")
    assert "data_parallel" not in found(tmp_path, [*steps(), label])
    row = found(tmp_path, [*steps(), label, kernel(GEMM, 5, 80, device=1)])["data_parallel"]
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
    assert ("slow_backend" in found(tmp_path, steps(), distributedInfo=info)) == fires
    assert "slow_backend" not in found(tmp_path, [slice_("aten::mm", 0, 1)], distributedInfo=info)


def test_cheap_breaks_are_left_alone(
    recording: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They cost 9.22 % of a step in `breaks`."""
    session = Session([("", str(recording("breaks")))])
    for threshold, fires in ((9.0, True), (9.5, False)):
        monkeypatch.setattr(thresholds, "graph_breaks_percent", threshold)
        assert any(row.rule == "graph_breaks" for row in session.report().findings) == fires


def test_kernels_without_names(tmp_path: Path) -> None:
    assert found(tmp_path, steps(name="triton_"))["names_disabled"].severity == "warning"
    assert "names_disabled" not in found(tmp_path, steps(name="triton_poi_fused_add_0"))


@pytest.mark.parametrize(
    ("header", "fires"),
    [
        ({"cuda_driver_version": 11080, "cuda_runtime_version": 11080}, True),
        ({"cuda_driver_version": 12020, "cuda_runtime_version": 11080}, True),
        ({"cuda_driver_version": "525.60.13", "cuda_runtime_version": 12000}, True),
        ({"cuda_driver_version": "525.85.12", "cuda_runtime_version": 12000}, False),
        ({"cuda_driver_version": 13000, "cuda_runtime_version": 13000}, False),
        ({}, False),
    ],
)
def test_old_drivers_lose_kernels_of_graphs(tmp_path: Path, header: dict[str, Any], fires: bool) -> None:
    replay = slice_("cudaGraphLaunch", 1, 1, "cuda_runtime", correlation=77)
    graphs = [*steps(), replay, kernel("k", 5, 1, correlation=77)]
    assert ("cudagraphs_old_driver" in found(tmp_path, graphs, **header)) == fires
    assert "cudagraphs_old_driver" not in found(tmp_path, steps(), **header)


def test_profiles_that_hold_too_little(tmp_path: Path) -> None:
    def told(events: list[Event], **header: Any) -> tuple[str, str] | None:
        row = found(tmp_path, events, **header).get("empty_profile")
        return (row.severity, row.title) if row else None

    assert told([]) == ("critical", "The trace holds 0 events: the profiler was not active")
    on_host = [slice_("aten::mm", 0, 5)]
    assert told(on_host) == ("warning", "The trace holds 0 GPU events, though there is a GPU")
    assert told(on_host, deviceProperties=[]) is None
    one = told(steps(number=1))
    assert one and one[0] == "info" and one[1].startswith("Only 1 step was profiled")


def test_the_recompile_limit() -> None:
    summary = CompileSummary()
    for version in range(3):
        summary.compilations.add(function="forward", file="m.py", line=3).key.compile_id = f"2/{version}"
    last = summary.compilations.add(function="forward", file="m.py", line=3)
    last.key.compile_id = "2/3"
    last.failure.type, last.failure.reason = "FailOnRecompileLimitHit", "recompile_limit reached"
    (row,) = compile_findings(summary)
    assert (row.rule, row.severity, row.evidence) == ("recompile_limit", "critical", {"versions": 3})
    assert row.title.startswith("forward was compiled 3 times and now runs eager")


def test_caches_that_did_not_help() -> None:
    summary = CompileSummary()
    row = summary.compilations.add(duration_ns=29 * 10**9)
    row.cache.add(cache="fx_graph", result="miss")
    assert compile_findings(summary) == []
    row.duration_ns = 31 * 10**9
    row.cache.add(cache="aotautograd", result="bypass", reason="it holds a custom op")
    backward = summary.compilations.add()  # of the same compilation
    backward.cache.add(cache="fx_graph", result="miss")
    slow, bypassed = compile_findings(summary)
    assert slow.title == "The compile cache missed for 1 compilation, which took 31.0 s"
    assert bypassed.title == "The AOTAutograd cache was bypassed 1 time: it holds a custom op"


def test_findings_of_a_recording(recording: Callable[[str], Path]) -> None:
    """Every break in `breaks` is known to cost what the chain of graphs says; it is launch bound, in float32."""
    session = Session([("", str(recording("breaks")))])
    report = session.report()
    assert [row.rule for row in report.findings] == ["launch_bound", "graph_breaks", "fp32_matmul"]
    breaks = report.findings[1]
    assert breaks.title == "4 graph breaks cost 555 µs a step, 9.22 % of it"
    assert breaks.evidence["host_us_per_step"] == pytest.approx((636.737 + 523.9 + 505.267) / 3, abs=0.02)
    assert (breaks.worker, breaks.severity) == ("vm_1027", "warning")
    (span,) = report.runs[0].workers[0].spans
    assert breaks.span == span.span
    told = session.opened(".", "vm_1027", span.span).answer("findings")
    assert isinstance(told, Findings)
    assert [row.rule for row in told.findings] == [row.rule for row in report.findings]


def test_cuda_graphs_silence_the_rule_that_asks_for_them(recording: Callable[[str], Path]) -> None:
    folder = recording("small_batch")
    rules = {
        mode: {row.rule for row in Session([("", str(folder / mode))]).report().findings}
        for mode in ("eager", "compiled", "cudagraphs")
    }
    assert "launch_bound" in rules["eager"] & rules["compiled"]
    assert "launch_bound" not in rules["cudagraphs"]


def test_most_time_to_save_comes_first() -> None:
    def finding(rule: str, saves_us: float | None, severity: Any) -> Finding:
        return Finding(rule, severity, "", {}, saves_us, "", None, "")

    rows = [finding("a", None, "info"), finding("b", 5, "info"), finding("c", 9, "info")]
    rows.append(finding("d", None, "critical"))
    assert [row.rule for row in ranked(rows)] == ["c", "b", "d", "a"]


def test_rules_and_thresholds_are_documented_and_nothing_else_is() -> None:
    documented = re.findall(r"^\| `(\w+)` \|", DOCUMENT, re.MULTILINE)
    assert documented == [rule.id for rule in RULES]
    assert documented[-len(COMPILE_RULES) :] == [rule.id for rule in COMPILE_RULES]
    assert len(set(documented)) == len(SPAN_RULES) + len(COMPILE_RULES)
    told = {name: json.loads(value) for name, value in re.findall(r"`(\w+)` = (\"[\d.]+\"|[\d.]+)", DOCUMENT)}
    assert told == {
        name: value
        for name, value in vars(thresholds).items()
        if isinstance(value, (int, float, str)) and not name.startswith("__")
    }


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (0, "0 µs"),
        (0.5, "0.500 µs"),
        (166.4, "166 µs"),
        (2_380, "2.38 ms"),
        (1.5e6, "1.50 s"),
        (101.24e6, "101 s"),
        (1500e6, "25.0 min"),
        (7200e6, "2.00 h"),
        (999.7, "1.00 ms"),
    ],
)
def test_durations_have_three_digits(us: float, text: str) -> None:
    assert duration(us) == text


def test_shares_have_three_digits() -> None:
    told = [percent(value) for value in (8346.3, 100, 92.34, 9.223, 0.5)]
    assert told == ["8,346 %", "100 %", "92.3 %", "9.22 %", "0.500 %"]
