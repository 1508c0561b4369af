"""Test step_breakdown.py: every nanosecond of a step has one part; slow steps and their reasons."""

import gc
import json
import random
import re
import time
from collections import Counter, defaultdict
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from live import fresh_recorder, needs_torch, torch_before
from profiles import ns, profile_of, profile_with
from recordings import Recording
from tb_torchcompile_plugin import tensorboard_trace_handler
from tb_torchcompile_plugin.analysis.runtime.step_breakdown import (
    StepBreakdown,
    StepReport,
    StepRow,
    slow_from_us,
    step_breakdown,
    step_breakdowns,
    window_breakdown,
)
from tb_torchcompile_plugin.api.report import SpanReport, read_report
from tb_torchcompile_plugin.cli.command import main
from tb_torchcompile_plugin.compile_log.summary_pb2 import FORWARD, CompileSummary
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.torch_names.kernels import category_of
from traces import Event, frame, launch, region, slice_, step, write_trace

BASE_NS = 1_790_000_000_000_000_000
Slice = tuple[int, int, str, str]  # start, end in ns, name, cat


def report(folder: Path, events: list[Event], data: CompileData | None = None) -> StepReport:
    return step_breakdown(profile_with(folder, events, data))


def slow_ones(answer: StepReport) -> list[StepRow]:
    return [row for row in answer.steps if row.slow_because]


def parts(row: StepBreakdown) -> dict[tuple[str, str], int]:
    return {(part.kind, part.part): ns(part.time_us) for part in row.parts}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["breaks", "resnet18", "resnet18_eager"])
def test_every_moment_of_a_step_by_brute_force(recording: Recording, name: str) -> None:
    """From the JSON alone: at each moment what runs on the GPU, else what the thread does that launches next."""
    (path,) = recording(name).glob("*.trace.json")
    rows = step_breakdowns(profile_of(path))
    events = [
        event
        for event in json.loads(path.read_text(), parse_float=Decimal)["traceEvents"]
        if event["ph"] == "X"
    ]
    steps = [event for event in events if event["name"].startswith("ProfilerStep") and event["cat"][0] == "u"]
    steps.sort(key=lambda event: event["ts"])
    assert [row.step for row in rows] == [event["name"] for event in steps]
    assert parts(rows[0]) == ByHand(events).parts(*when(steps[0]))


def when(event: Event) -> tuple[int, int]:
    start = int(event["ts"] * 1000)
    return start, start + int(event["dur"] * 1000)


GRAPHS = re.compile(r"CompiledFunction(Backward)?$|## Call CompiledFxGraph")
RULES = (  # of a name, first match; "op" and "call" are of a kind of event
    ("compiling", r".*\(dynamo_timed\)"),
    ("waiting_for_gpu", r"cuda\w*Synchronize$|cudaMemcpy$"),
    ("guards", r"TorchDynamo Cache Lookup|Pregraph bytecode|AOTDispatcher Runtime Wrapper Prologue"),
)
LAST = ["communication", "memcpy", "memset"]


class ByHand:
    """All intervals as lists, looked through for each moment between two changes."""

    def __init__(self, events: list[Event]) -> None:
        gpu = [event for event in events if event["cat"] in ("kernel", "gpu_memcpy", "gpu_memset")]
        self.gpu = sorted((*when(e), category_of(e["name"], e["cat"]), e["args"]["correlation"]) for e in gpu)
        host = [event for event in events if event not in gpu and event["cat"] != "gpu_user_annotation"]
        self.thread_of = {
            event["args"]["correlation"]: event["tid"] for event in host if event["cat"].startswith("cuda_")
        }
        self.host: dict[int, list[Slice]] = defaultdict(list)
        for event in host:
            self.host[event["tid"]].append((*when(event), event["name"], event["cat"]))
        ids = {event["args"].get("External id") for event in events if event in gpu} - {None}
        self.launching = {
            (*when(event), event["name"])
            for event in host
            if event["cat"] == "cpu_op" and event["args"].get("External id") in ids
        }
        self.gaps = {tid: breaks(slices) for tid, slices in self.host.items()}

    def parts(self, begin: int, end: int) -> dict[tuple[str, str], int]:
        sums: Counter[tuple[str, str]] = Counter()
        edges = {begin, end} | {edge for start, stop, *_ in self.gpu for edge in (start, stop)}
        edges |= {edge for slices in self.host.values() for one in slices for edge in one[:2]}
        edges |= {edge for gaps in self.gaps.values() for gap in gaps for edge in gap}
        times = sorted(edge for edge in edges if begin <= edge <= end)
        for start, stop in pairwise(times):
            sums[self.what(start)] += stop - start
        return dict(sums)

    def what(self, moment: int) -> tuple[str, str]:
        running = [category for start, end, category, _ in self.gpu if start <= moment < end]
        if running:
            return "gpu", min(
                running, key=lambda name: (name in LAST, LAST.index(name) if name in LAST else 0)
            )
        after = [correlation for start, *_, correlation in self.gpu if start > moment]
        if not after:
            return "idle", "unaccounted"
        tid = self.thread_of[after[0]]
        now = [one for one in self.host[tid] if one[0] <= moment < one[1]]
        return "idle", self.cause(now, any(start <= moment < end for start, end in self.gaps[tid]))

    def cause(self, now: list[Slice], in_a_break: bool) -> str:
        for cause, pattern in RULES:
            if any(re.match(pattern, name) for *_, name, _ in now):
                return cause
        graph = any(GRAPHS.match(name) for *_, name, _ in now)
        regions = ("Torch-Compiled Region", "## Call", "CompiledFunction")
        op = any(cat == "cpu_op" and not name.startswith(regions) for *_, name, cat in now)
        launches = graph or any(one[:3] in self.launching for one in now)
        if (op and launches) or any(cat.startswith("cuda_") for *_, cat in now):
            return "kernel_launches"
        if in_a_break and not graph:
            return "graph_breaks"
        if op:
            return "eager_operators"
        return "python" if now else "unaccounted"


def breaks(slices: list[Slice]) -> list[tuple[int, int]]:
    """From graph to graph inside of one region; all regions in these recordings that are nested are resumed ones."""
    regions = [one for one in slices if one[2].startswith("Torch-Compiled Region")]
    outer = [one for one in regions if not any(o[0] <= one[0] and one[1] < o[1] for o in regions)]
    graphs = [one for one in slices if one[2] == "CompiledFunction"]
    gaps = []
    for begin, end, *_ in outer:
        inside = sorted(one[:2] for one in graphs if begin <= one[0] and one[1] <= end)
        gaps += [(one[1], next_one[0]) for one, next_one in pairwise(inside)]
    return gaps


def test_each_part_by_hand(tmp_path: Path) -> None:
    events = [
        step(1, 0, 200),
        slice_("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 0, 10, "user_annotation"),
        slice_("inductor_compile (dynamo_timed)", 10, 20),
        slice_("TorchDynamo Cache Lookup", 30, 5),
        region("0/0", 35, 25),
        slice_("Pregraph bytecode", 35, 5),
        slice_("CompiledFunction", 40, 20),
        *launch("triton_poi_fused_add_0", 50, 60, 20),
        slice_("aten::mm", 80, 10),
        *launch("ampere_sgemm_128x64_tn", 85, 90, 20),
        *launch("ncclDevKernel_AllReduce_Sum", 87, 100, 20),
        *launch("Memcpy HtoD (Pageable -> Device)", 88, 115, 15, cat="gpu_memcpy"),
        slice_("cudaDeviceSynchronize", 130, 40, "cuda_runtime"),
        *launch("void at::native::fill", 172, 180, 5),
    ]
    (row,) = report(tmp_path, events).steps
    assert parts(row) == {
        ("gpu", "triton_pointwise"): 20_000,
        ("gpu", "gemm"): 20_000,
        ("gpu", "communication"): 10_000,
        ("gpu", "memcpy"): 10_000,
        ("gpu", "aten"): 5_000,
        ("idle", "data_loading"): 10_000,
        ("idle", "compiling"): 20_000,
        ("idle", "guards"): 10_000,
        ("idle", "kernel_launches"): 5_000,
        ("idle", "eager_operators"): 7_000,
        ("idle", "waiting_for_gpu"): 40_000,
        ("idle", "python"): 28_000,
        ("idle", "unaccounted"): 15_000,
    }
    assert sum(parts(row).values()) == 200_000


def test_without_steps_the_span_is_one_window(tmp_path: Path) -> None:
    answer = report(tmp_path, [slice_("aten::mm", 5, 2), *launch("ampere_sgemm_32x32_tn", 10, 20, 10)])
    assert not answer.steps and answer.times is None and answer.window
    assert (answer.window.step, answer.window.start_us, answer.window.wall_us) == (None, 15, 10)
    assert parts(answer.window) == {("gpu", "gemm"): 10_000}


def test_on_a_cpu_a_graph_runs_what_it_would_launch(tmp_path: Path) -> None:
    events = [step(1, 0, 100), region("0/0", 0, 60), slice_("CompiledFunction", 10, 50)]
    events += [slice_("graph_0_cpp_fused_relu_0", 20, 30), slice_("aten::mm", 70, 20)]
    (row,) = report(tmp_path, events).steps
    assert parts(row) == {
        ("host", "compiled_graph"): 50_000,
        ("host", "eager_operators"): 20_000,
        ("host", "python"): 30_000,
    }


def test_without_steps_and_gpu_the_busiest_thread_is_the_window(tmp_path: Path) -> None:
    events = [slice_("aten::add", 0, 5), slice_("aten::mm", 10, 20, tid=7), slice_("aten::mm", 40, 20, tid=7)]
    window = window_breakdown(profile_with(tmp_path, events))
    assert window and parts(window) == {("host", "eager_operators"): 40_000, ("host", "unaccounted"): 10_000}
    labels = window_breakdown(profile_with(tmp_path / "none", [slice_("f", 0, 5, "user_annotation")]))
    assert labels and parts(labels) == {("host", "unaccounted"): 5_000}


def steps_of(*lengths: float, inside: dict[int, list[tuple[str, str, float]]]) -> list[Event]:
    """Steps of these lengths; inside of a step slices (name, cat, length) one after the other."""
    events, at = [], 0.0
    for number, length in enumerate(lengths):
        events.append(step(number, at, length))
        start = at + 1
        for name, cat, took in inside.get(number, []):
            events.append(slice_(name, start, took, cat))
            start += took
        at += length
    return events


@pytest.mark.parametrize(
    ("slices", "reason", "explained_us"),
    [
        ([("Python GC", "python_function", 90.0)], "gc", 90),
        ([("<built-in function collect>", "python_function", 90.0)], "gc", 90),
        ([("inductor_compile (dynamo_timed)", "cpu_op", 90.0)], "compiling", 90),
        ([("CachingAutotuner.benchmark_all_configs (dynamo_timed)", "cpu_op", 90.0)], "autotune", 90),
        ([("enumerate(DataLoader)#x.__next__", "user_annotation", 90.0)], "data_loading", 90),
        ([("cudaDeviceSynchronize", "cuda_runtime", 90.0)], "waiting_for_gpu", 90),
        ([("cudaDeviceSynchronize", "cuda_runtime", 52.0)], "waiting_for_gpu", 52),
        ([("cudaDeviceSynchronize", "cuda_runtime", 49.0)], None, None),
        ([("CachingAutotuner.precompile (dynamo_timed)", "cpu_op", 90.0)], "compiling", 90),
        ([("train.py(3): f", "python_function", 90.0)], None, None),
        (  # the largest of three, but not half of it
            [
                ("enumerate(DataLoader)#x.__next__", "user_annotation", 40.0),
                ("cudaDeviceSynchronize", "cuda_runtime", 35.0),
            ],
            None,
            None,
        ),
        ([], None, None),
    ],
)
def test_the_reason_of_a_slow_step(
    tmp_path: Path, slices: list[tuple[str, str, float]], reason: str | None, explained_us: float | None
) -> None:
    (slow,) = slow_ones(report(tmp_path, steps_of(100, 102, 200, 99, inside={2: slices})))
    assert (slow.step, slow.excess_us, slow.reason) == ("ProfilerStep#2", 99, reason)
    assert slow.explained_us == explained_us


def test_garbage_of_another_thread_is_no_reason(tmp_path: Path) -> None:
    elsewhere = frame("Python GC", 203, 90, tid=7)
    (slow,) = slow_ones(report(tmp_path, [*steps_of(100, 102, 200, 99, inside={}), elsewhere]))
    assert slow.reason is None


def test_the_busiest_device_is_looked_at(tmp_path: Path) -> None:
    """In all steps together: in the second one the other is busier."""
    events = [step(0, 0, 100), step(1, 100, 100)]
    for device, at, dur in ((0, 10, 20), (1, 10, 80), (0, 110, 50), (1, 110, 40)):
        events += launch("sgemm", at, at, dur, device=device)
    rows = step_breakdowns(profile_with(tmp_path, events))
    assert [(row.device, parts(row)["gpu", "gemm"]) for row in rows] == [(1, 80_000), (1, 40_000)]


def test_what_every_step_does_is_no_reason(tmp_path: Path) -> None:
    load = [("enumerate(DataLoader)#x.__next__", "user_annotation", 90.0)]
    inside = dict.fromkeys(range(4), load)
    inside[2] = [*load, ("inductor_compile (dynamo_timed)", "cpu_op", 80.0)]
    (slow,) = slow_ones(report(tmp_path, steps_of(100, 102, 200, 99, inside=inside)))
    assert (slow.reason, slow.explained_us) == ("compiling", 80)


def test_a_recompile_is_named(tmp_path: Path) -> None:
    summary = CompileSummary(format_version=1)
    row = summary.compilations.add(direction=FORWARD, start_ns=BASE_NS + 205_000, duration_ns=90_000)
    row.key.compile_id = "0/1"
    summary.recompiles.add().key.compile_id = "0/1"
    inside = {2: [("entire_frame_compile (dynamo_timed)", "cpu_op", 90.0)]}
    data = CompileData(summary, "summary", "w.compile.pb", [])
    (slow,) = slow_ones(report(tmp_path, steps_of(100, 102, 200, 99, inside=inside), data))
    assert (slow.reason, slow.compile_ids) == ("recompile", ["0/1"])


def test_the_threshold_by_hand() -> None:
    """The usual deviation of 10, 12, 14, 16 is 1.4826 times 2; where steps are alike, 10 % of the median counts."""
    assert slow_from_us([10, 12, 14, 16]) == pytest.approx(13 + 3 * 1.4826 * 2)
    assert slow_from_us([100, 100, 100]) == pytest.approx(110)
    assert slow_from_us([1, 100]) is None
    assert slow_from_us([0, 0, 100]) is None


def test_a_normal_spread_is_rarely_slow() -> None:
    chance = random.Random(0)
    walls = [chance.gauss(100, 20) for _ in range(2000)]
    limit = slow_from_us(walls)
    assert limit and sum(wall > limit for wall in walls) <= 10


def test_one_slow_step_among_thousands(tmp_path: Path) -> None:
    lengths = [100.0] * 6000
    lengths[1234] = 300
    ran = profile_with(tmp_path, steps_of(*lengths, inside={}))
    (slow,) = slow_ones(step_breakdown(ran))
    assert (slow.step, slow.excess_us) == ("ProfilerStep#1234", 200)


def slow_run(folder: Path) -> None:
    """Step 3 waits for data, 5 collects garbage, 7 recompiles."""
    import torch
    from torch._C._profiler import _ExperimentalConfig
    from torch.profiler import ProfilerActivity, profile, schedule
    from torch.utils.data import DataLoader, Dataset

    class Rows(Dataset[torch.Tensor]):
        def __getitem__(self, index: int) -> torch.Tensor:
            time.sleep(0.3 * (index == 3))
            return torch.ones(3 if index == 7 else 2, 4)

        def __len__(self) -> int:
            return 10

    torch._dynamo.reset()
    forward = torch.compile(lambda x: (x @ x.T).sum(), backend="eager", dynamic=False)
    garbage: list[list[Any]] = [[] for _ in range(300_000)]
    for row in garbage:
        row.append(row)
    handler = tensorboard_trace_handler(str(folder), "w")
    forward(torch.ones(2, 4))
    gc.disable()
    try:
        with profile(
            activities=[ProfilerActivity.CPU],
            schedule=schedule(wait=0, warmup=1, active=9, repeat=1),
            with_stack=True,
            experimental_config=_ExperimentalConfig(record_python_gc_info=True),
            on_trace_ready=handler,
        ) as prof:
            for step, batch in enumerate(DataLoader(Rows(), batch_size=None)):
                forward(batch)
                if step == 5:
                    garbage.clear()
                    gc.collect()
                prof.step()
    finally:
        gc.enable()
        torch._dynamo.reset()


def test_the_report_tells_it_as_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inside = {2: [("Python GC", "python_function", 90.0)]}
    trace = write_trace(tmp_path, steps_of(100, 102, 200, 99, inside=inside))
    assert main(["report", str(trace), "--full"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "  A step takes 125 µs." in lines
    assert "  1 slow step: ProfilerStep#2 (garbage collection)." in lines
    (part,) = [line.split() for line in lines if line.startswith("host")]
    assert part == ["host", "python", "125", "µs", "100", "█" * 16]
    assert any(line.startswith("ProfilerStep#2") and "garbage collection" in line for line in lines)


@pytest.mark.skipif(torch_before("2.11"), reason="torch 2.8 cannot record garbage collections")
class TestLive:
    pytestmark = needs_torch

    def test_reasons_of_a_real_run(self, tmp_path: Path) -> None:
        with fresh_recorder():
            slow_run(tmp_path)
        (row,) = read_report(str(tmp_path)).runs[0].workers[0].spans
        assert isinstance(row, SpanReport)
        slow_steps = {step.step: step for step in slow_ones(row.step)}
        reasons = {step: slow_steps[f"ProfilerStep#{step}"].reason for step in (3, 5, 7)}
        assert reasons == {3: "data_loading", 5: "gc", 7: "recompile"}
        assert slow_steps["ProfilerStep#7"].compile_ids == ["0/1"]
        why = [slow_steps[f"ProfilerStep#{step}"].slow_because for step in (3, 5, 7)]
        assert why == ["data loading", "garbage collection", "recompile of 0/1"]
        for one in row.step.steps:
            assert sum(parts(one).values()) == ns(one.wall_us)
