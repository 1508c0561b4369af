"""Test kernels.py: each kernel with its compilation, source, lines and numbers, by hand from raw events."""

import json
import re
from collections import defaultdict
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiles import data_of, profile_of, profile_with, spans_in
from recordings import Recording
from tb_torchcompile_plugin.analysis.runtime.kernel_rows import (
    Kernel,
    KernelName,
    alone_ns,
    kernel_categories,
)
from tb_torchcompile_plugin.analysis.runtime.kernels import (
    KernelDetails,
    Kernels,
    kernel_details,
    kernel_table,
)
from tb_torchcompile_plugin.analysis.runtime.roofline import achieved, launched_work
from tb_torchcompile_plugin.analysis.runtime.span_report import unnamed_triton_kernels
from tb_torchcompile_plugin.analysis.timeline.slice import timeline_slice
from tb_torchcompile_plugin.analysis.timeline.timeline import Timeline
from tb_torchcompile_plugin.compile_log.summary_pb2 import CompileKey, CompileSummary
from tb_torchcompile_plugin.errors import NotFound
from tb_torchcompile_plugin.generated_code.output_code import Definition
from tb_torchcompile_plugin.profile.compiled.regions import generated_code
from tb_torchcompile_plugin.profile.gpu.launches import groups, kernel_launches
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.compile_data import CompileData, read_payload
from tb_torchcompile_plugin.torch_names.devices import Peak
from tb_torchcompile_plugin.torch_names.kernels import category_of, may_multiply
from traces import Event, kernel, launch, slice_, step, write_trace

RELU = "triton_poi_fused__native_batch_norm_legit_functional_relu_12"
OCCUPANCY = "est. achieved occupancy %"
WITH_LOG = ["breaks", "resnet18", "recompiles", "resnet18_compile", "ddp", "handler_breaks"]
Open = Callable[[str], list[Profile]]


@pytest.fixture(scope="module")
def opened(recording: Recording) -> Open:
    """Recording → its spans, each read once."""
    return cache(lambda name: spans_in(recording(name)))


def table(opened: Profile) -> Kernels:
    return opened.of(kernel_table)


def details_of(span: Profile, row: Kernel) -> KernelDetails:
    return kernel_details(span, "0", row.name, row.compile_id or "", row.graph_key or "")


def row_of(span: Profile, name: str) -> Kernel:
    """The first row of a kernel of this name."""
    return next(row for row in table(span).rows if row.name == name)


def raw_events(opened: Profile) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = json.loads(Path(opened.trace.path).read_text())["traceEvents"]
    return events


@pytest.mark.parametrize("name", WITH_LOG)
def test_every_triton_kernel_has_its_compilation_graph_source_and_lines(opened: Open, name: str) -> None:
    for span in opened(name):
        rows = [row for row in table(span).rows if row.category.startswith("triton")]
        assert rows
        for row in rows:
            assert row.compile_id and row.graph_key and row.output_code_file and row.direction
            generated = span.of(generated_code).find(row.name, row.compile_id, row.graph_key)
            assert generated is not None and f"def {row.name}(" in generated.definition.source
            assert row.code_line and row.artifact is not None
        whole = sum(row.time_us for row in rows)
        reached = sum(row.time_us for row in rows if row.source_lines and row.lines_from == "comments")
        assert reached >= 0.999 * whole


def test_the_lines_of_kernels_are_the_models_own(opened: Open) -> None:
    """Backward kernels and layout changes too. torchvision's resnet.py has the blocks at these lines."""
    (span,) = opened("resnet18")
    relu = row_of(span, RELU)
    lines = [(line.line, line.source) for line in relu.lines]
    assert lines == [(269, "x = self.bn1(x)"), (270, "x = self.relu(x)")]
    assert relu.aten_ops == ["aten._native_batch_norm_legit_functional", "aten.relu"]
    details = details_of(span, relu)
    assert [line.line for line in details.context] == [268, 269, 270, 271]
    assert details.context[3].source == "x = self.maxpool(x)"
    events = [span.trace.names[span.trace.name[row]] for row in details.launches.row]
    assert events == [relu.name] * 3, "rows are of the kernel's slices"
    shown = timeline_slice(span.of(Timeline), -1, details.launches.row[1])
    assert (shown.name, shown.dur_ns) == (relu.name, round(1000 * details.launches.duration_us[1]))
    layout = row_of(span, "triton_poi_fused_0").lines
    assert [line.source for line in layout] == ["x = self.conv1(x)"], "what takes its result"


def test_a_kernel_is_told_without_a_timeline(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    (span,) = opened("resnet18_eager")
    monkeypatch.setattr(Timeline, "__init__", None)
    row = table(span).rows[0]
    assert len(details_of(span, row).launches.row) == row.launches


def test_calls_of_libraries_have_their_lines(opened: Open) -> None:
    (span,) = opened("resnet18")
    for direction in ("forward", "backward"):
        rows = (row for row in table(span).rows if row.category == "convolution" and row.compile_id)
        sources = {line.source for row in rows if row.direction == direction for line in row.lines}
        assert sources and all("conv" in str(line) or "downsample" in str(line) for line in sources)


def test_stacks_do_not_stand_between_a_graph_and_its_library_calls(opened: Open) -> None:
    """`ddp` was recorded with stacks: Python frames lie around each call."""
    for span in opened("ddp"):
        rows = [row for row in table(span).rows if row.compile_id and row.category in ("gemm", "attention")]
        assert rows and all(row.lines for row in rows)


def test_the_piece_of_the_graph_behind_a_kernel(opened: Open) -> None:
    """Its lines are those of the artifact that it names: of kernels, library calls and layout changes alike."""
    (span,) = opened("resnet18")
    assert span.data is not None
    texts: dict[str, list[str]] = {}
    for row in table(span).rows:
        details = details_of(span, row)
        if details.graph is None:
            assert not row.compile_id or row.category in ("aten", "memset"), row.name
            continue
        graph = read_payload(span.data, details.graph.artifact).splitlines()
        assert [graph[number - 1].strip() for number in details.graph.lines] == details.graph.text
        texts.setdefault(row.category, []).extend(details.graph.text)
        assert {(line.file, line.line) for line in row.lines} <= {(c.file, c.line) for c in details.context}
    assert all("conv" in text for text in texts["convolution"])
    relu = details_of(span, row_of(span, RELU))
    assert relu.graph and any("aten.relu.default" in text for text in relu.graph.text)


@pytest.mark.parametrize("name", ["breaks", "resnet18", "resnet18_eager", "ddp"])
def test_rows_and_categories_are_sums_of_the_raw_events(opened: Open, name: str) -> None:
    """Time, count, mean, min, max and shares, by brute force."""
    for span in opened(name):
        raw: dict[tuple[int, str], list[float]] = defaultdict(list)
        for event in raw_events(span):
            if event.get("ph") == "X" and event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset"):
                raw[event["args"]["device"], event["name"]].append(event["dur"])
        rows = defaultdict(list)
        for row in table(span).rows:
            rows[row.device, row.name].append(row)
        assert rows.keys() == raw.keys()
        for key, durations in raw.items():
            same = rows[key]
            assert sum(row.launches for row in same) == len(durations)
            assert sum(row.time_us for row in same) == pytest.approx(sum(durations), abs=1e-6)
            assert min(row.min_us for row in same) == pytest.approx(min(durations))
            assert max(row.max_us for row in same) == pytest.approx(max(durations))
            assert all(row.mean_us == pytest.approx(row.time_us / row.launches) for row in same)
        whole = sum(map(sum, raw.values()))
        categories = kernel_categories(span)
        assert sum(row.time_us for row in categories) == pytest.approx(whole, abs=1e-6)
        assert sum(row.gpu_time_percent or 0 for row in categories) == pytest.approx(100)
        for category in categories:
            mine = sum(row.time_us for row in table(span).rows if row.category == category.category)
            assert mine == pytest.approx(category.time_us)


@pytest.mark.parametrize("name", ["breaks", "resnet18"])
def test_what_a_step_gains_is_what_its_busy_time_loses(opened: Open, name: str) -> None:
    """Half the difference between the device's busy time with and without a kernel, of the steps: by brute force."""
    (span,) = opened(name)
    events = raw_events(span)
    steps = [e for e in events if e.get("cat") == "user_annotation" and e["name"].startswith("ProfilerStep")]
    calls = {e["args"]["correlation"]: e for e in events if e.get("cat") in ("cuda_runtime", "cuda_driver")}
    gpu = [e for e in events if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset") and e["ph"] == "X"]

    def in_steps(event: dict[str, Any]) -> bool:
        call = calls.get(event["args"]["correlation"])
        return call is not None and any(s["ts"] <= call["ts"] < s["ts"] + s["dur"] for s in steps)

    def busy(events: list[dict[str, Any]]) -> float:
        total, end = 0.0, float("-inf")
        for e in sorted(events, key=lambda e: e["ts"]):
            total += max(0.0, e["ts"] + e["dur"] - max(end, e["ts"]))
            end = max(end, e["ts"] + e["dur"])
        return total

    wall = sum(step["dur"] for step in steps)
    for row in table(span).rows[:5]:
        if sum(other.name == row.name for other in table(span).rows) == 1:
            others = [e for e in gpu if e["name"] != row.name or not in_steps(e)]
            lost = busy(gpu) - busy(others)
            assert row.alone_us == pytest.approx(lost, abs=0.05)
            assert row.twice_as_fast_percent == pytest.approx(50 * lost / wall, abs=0.001)


def test_bandwidth_is_what_inductor_computed_over_the_measured_time(opened: Open) -> None:
    (span,) = opened("resnet18")
    events = raw_events(span)
    counted = (event for event in events if "kernel_num_gb" in event.get("args", {}))
    launches = {event["args"]["External id"]: event for event in counted}
    gb, ns = defaultdict[str, float](float), defaultdict[str, float](float)
    for event in events:
        launch = launches.get(event.get("args", {}).get("External id"))
        if event.get("cat") == "kernel" and launch is not None and launch["name"] == event["name"]:
            gb[event["name"]] += launch["args"]["kernel_num_gb"]
            ns[event["name"]] += event["dur"] * 1000
    rows = [row for row in table(span).rows if row.category.startswith("triton")]
    for row in rows:
        same = [other for other in rows if other.name == row.name]
        assert row.bandwidth_from == "inductor"
        if len(same) == 1:
            assert row.bandwidth_gb_s == pytest.approx(gb[row.name] * 1e9 / ns[row.name], rel=1e-9)
            assert row.bandwidth_percent == pytest.approx((row.bandwidth_gb_s or 0) / 48, rel=1e-12)
    assert max(row.bandwidth_percent or 0 for row in rows) > 100, "small ones run out of the cache"


def test_shapes_alone_give_an_estimate_that_is_marked(opened: Open, tmp_path: Path) -> None:
    """Within 5 % of inductor's own figure for most launches, as the definitions promise."""
    (span,) = opened("resnet18")
    exact = {(row.name, row.graph_key): row for row in table(span).rows}
    document = json.loads(Path(span.trace.path).read_text())
    for event in document["traceEvents"]:
        for name in ("kernel_num_gb", "kernel_flop"):
            event.get("args", {}).pop(name, None)
    (tmp_path / "w.1.pt.trace.json").write_text(json.dumps(document))
    without = table(profile_of(tmp_path / "w.1.pt.trace.json")).rows
    rows = [row for row in without if row.category.startswith("triton")]
    assert rows and all(row.bandwidth_from == "shapes" for row in rows)
    close = total = 0
    for row in rows:
        known = exact[row.name, row.graph_key].bandwidth_gb_s
        assert known and row.bandwidth_gb_s
        close += row.launches * (abs(row.bandwidth_gb_s / known - 1) <= 0.05)
        total += row.launches
    assert close / total > 0.6


def test_what_a_convolution_computes_follows_from_its_shapes(opened: Open) -> None:
    """The first convolution of resnet18 by hand: 5 images of 3x224x224, 64 filters of 7x7, stride 2, padding 3."""
    (span,) = opened("resnet18_eager")
    trace = span.trace
    names = ((row, trace.names[trace.name[row]]) for row in trace.select(cat="cpu_op"))
    first = next(row for row, name in names if name == "aten::cudnn_convolution")
    (rows,) = span.of(kernel_launches)
    places = np.flatnonzero(rows.op == first)
    main = places[np.argmax(rows.dur[places])]
    (work,) = span.of(launched_work)
    assert work.flop[main] == 2 * 5 * 64 * 112 * 112 * 3 * 7 * 7 and work.estimated[main]
    assert work.bytes[main] == 4 * (5 * 3 * 224 * 224 + 64 * 3 * 7 * 7 + 5 * 64 * 112 * 112)
    assert np.isnan(work.flop[places[places != main]]).all(), "what prepares it computes nothing of it"


def test_categories_are_those_that_inductor_prints(opened: Open, recording: Recording) -> None:
    """`python <output code> -p` prints its own table, in ms of one of the hundred runs: see docs/guides/kernels.md."""
    (span,) = opened("p_table")
    output = (recording("p_table") / "p_table.txt").read_text()
    total = r"== (\w+) category kernels ==.*?^Total +([\d.]+)"
    printed = dict(re.findall(total, output, re.DOTALL | re.MULTILINE))
    mine = {row.category: row.time_us / 1000 / 100 for row in kernel_categories(span)}
    for category in ("triton_pointwise", "triton_reduction", "triton_persistent_reduction"):
        assert mine.pop(category) == pytest.approx(float(printed.pop(category)), rel=5e-6)
    assert sum(mine.values()) == pytest.approx(float(printed.pop("unknown")), rel=5e-6) and not printed


def test_only_time_in_which_nothing_else_ran_can_be_gained(tmp_path: Path) -> None:
    """Of a from 10 to 20 and 60 to 70, of b from 30 to 50; what is launched later is in no step."""
    launches = ("a", 1, 10, 20), ("b", 2, 20, 30), ("a", 3, 60, 10), ("a", 200, 201, 10)
    events = [step(1, 0, 100), *(event for row in launches for event in launch(*row))]
    rows = {row.name: row for row in table(profile_with(tmp_path, events)).rows}
    assert (rows["a"].alone_us, rows["b"].alone_us) == (20, 20)
    assert (rows["a"].twice_as_fast_percent, rows["b"].twice_as_fast_percent) == (10, 10)


Slices = st.lists(
    st.tuples(st.integers(0, 40), st.integers(1, 15), st.sampled_from("abc")), min_size=1, max_size=12
)


@given(Slices)
def test_time_alone_is_what_the_busy_union_loses(
    tmp_path_factory: pytest.TempPathFactory, slices: Any
) -> None:
    events: list[Event] = [kernel(name, start, length) for start, length, name in slices]
    profile = profile_with(tmp_path_factory.mktemp("t"), events)
    (rows,) = profile.of(kernel_launches)
    grouped = groups(rows)
    alone = alone_ns(profile.trace, rows, grouped, np.ones(len(rows.index), bool))

    def covered(names: str) -> int:
        return len(
            {t for start, length, name in slices if name in names for t in range(start, start + length)}
        )

    for places, alone_of_group in zip(grouped, alone.tolist()):
        name = profile.trace.names[rows.name[places[0]]]
        assert alone_of_group == 1000 * (covered("abc") - covered("abc".replace(name, "")))


def test_without_names_of_their_own_kernels_have_that_of_their_launch(tmp_path: Path) -> None:
    """`unique_kernel_names` off: the GPU calls them all alike."""
    events = []
    for at, name in enumerate(("triton_poi_fused_add_0", "triton_red_fused_sum_1")):
        events += [slice_(name, 10 * at, 5), *launch("triton_", 10 * at + 1, 10 * at + 3, 4)]
    events.append(kernel("triton_", 50, 3))
    profile = profile_with(tmp_path, events)
    answer = table(profile)
    assert {(row.name, row.category) for row in answer.rows} == {
        ("triton_poi_fused_add_0", "triton_pointwise"),
        ("triton_red_fused_sum_1", "triton_reduction"),
        ("triton_", "triton_other"),
    }
    hint = unnamed_triton_kernels(profile)
    assert "Triton kernels that take 11.0 µs have" in hint and "The launches name 8.00 µs" in hint


def compile_data(kernels: dict[str, list[tuple[str, str]]]) -> CompileData:
    """graph key → (name, category) of its kernels, each graph in a compilation of its own."""
    summary = CompileSummary()
    for number, (key, names) in enumerate(kernels.items()):
        graph = summary.graphs.add(key=CompileKey(compile_id=f"{number}/0"), graph_key=key)
        for name, category in names:
            graph.kernels.add(name=name, category=category)
    return data_of(summary)


def test_a_kernel_launched_before_the_trace_belongs_to_the_only_graph_that_defines_it(tmp_path: Path) -> None:
    mine, ours = "triton_poi_fused_add_0", "triton_poi_fused_mul_1"
    data = compile_data(
        {"fa": [(mine, "triton_pointwise"), (ours, "triton_pointwise")], "fb": [(ours, "triton_pointwise")]}
    )
    events = [kernel(mine, 1, 2), kernel(ours, 4, 2), *launch(mine, 8, 9, 2)]
    answer = table(profile_with(tmp_path, events, data))
    owners = {(row.name, row.launches): (row.compile_id, row.graph_key) for row in answer.rows}
    assert owners == {(mine, 1): ("0/0", "fa"), (ours, 1): (None, None)} | {(mine, 1): owners[mine, 1]}
    assert sorted((row.compile_id or "") for row in answer.rows if row.name == mine) == ["", "0/0"]


def test_the_generated_code_tells_which_kernels_the_user_wrote(tmp_path: Path) -> None:
    """A CUDA graph replays them without a launch of their own."""
    data = compile_data({"fa": [("my_scale_kernel", "triton_user")]})
    answer = table(profile_of(write_trace(tmp_path, [kernel("my_scale_kernel", 1, 2)]), data))
    assert [(row.category, row.compile_id) for row in answer.rows] == [("triton_user", "0/0")]


def test_modules_are_known_where_stacks_were_recorded(tmp_path: Path) -> None:
    modules = {"Net_0": (0, 50), "Linear_3": (5, 20)}
    events = [slice_(f"nn.Module: {name}", *times, "python_function") for name, times in modules.items()]
    events += [slice_("aten::mm", 8, 6), *launch("k", 10, 12, 4)]
    events += [slice_("aten::mm", 30, 6), *launch("k", 31, 33, 4)]
    (row,) = table(profile_with(tmp_path, events)).rows
    assert sorted(row.modules) == ["Linear_3", "Net_0"]


def test_the_longest_launch_of_many_is_shown(tmp_path: Path) -> None:
    events = [kernel("k", 10 * at, 9 if at == 3333 else 1) for at in range(5000)]
    profile = profile_with(tmp_path, events)
    details = kernel_details(profile, "0", "k", "", "")
    assert isinstance(details, KernelDetails)
    assert details.launches.shown_every == 3 and len(details.launches.start_us) == 1667
    assert max(details.launches.duration_us) == 9
    with pytest.raises(NotFound):
        kernel_details(profile, "1", "k", "", "")


def test_a_kernel_tells_how_long_its_device_waited_for_it(tmp_path: Path) -> None:
    """Of the first launch nothing is known, the second came 30 µs after it, the third right behind another one."""
    events = [kernel("k", 0, 10), kernel("k", 40, 10), kernel("other", 60, 10), kernel("k", 70, 10)]
    details = kernel_details(profile_with(tmp_path, events), "0", "k", "", "")
    assert (details.idle_before_us, details.longest_idle_before_us) == (15, 30)
    other = kernel_details(profile_with(tmp_path, events[:1]), "0", "k", "", "")
    assert (other.idle_before_us, other.longest_idle_before_us) == (None, None)


def test_what_the_output_code_says_of_bytes_and_operations_is_taken(tmp_path: Path) -> None:
    """With TORCHINDUCTOR_BENCHMARK_KERNEL=1 alone, without shapes: 0.002 GB and 3 GFLOP in 10 µs."""
    name = "triton_tem_fused_mm_0"
    definition = Definition(name, "triton", 1, "", num_gb=0.002, flop=3e9)
    profile = profile_with(tmp_path, launch(name, 1, 2, 10))
    (rows,), (work,) = profile.of(kernel_launches), profile.of(launched_work)
    figures = achieved(profile.trace, rows, work, np.array([0]), Peak(), definition)
    assert figures["bandwidth_gb_s"] == pytest.approx(200) and figures["bandwidth_from"] == "inductor"
    assert figures["tflop_s"] == pytest.approx(300) and figures["tflop_from"] == "inductor"
    assert figures["flop_per_byte"] == pytest.approx(1500)
    uncounted = Definition(name, "triton", 1, "", num_gb=0.002, flop=0)
    nothing = achieved(profile.trace, rows, work, np.array([0]), Peak(), uncounted)
    assert (nothing["tflop_s"], nothing["flop_per_byte"]) == (None, None)


@pytest.mark.parametrize(("blocks", "recorded", "shown"), [(132, 0, None), (3, 0, 0), (132, 18, 18)])
def test_an_occupancy_that_cannot_be_zero_is_not_known(
    tmp_path: Path, blocks: int, recorded: int, shown: int | None
) -> None:
    """132 blocks on 132 multiprocessors: each has its warps. 3 blocks round to zero."""
    args: dict[str, Any] = {"grid": [blocks, 1, 1], "block": [384, 1, 1], OCCUPANCY: recorded}
    properties = [{"id": 0, "name": "NVIDIA H200", "numSms": 132, "warpSize": 32}]
    profile = profile_with(tmp_path, [kernel("k", 0, 5, **args)], deviceProperties=properties)
    (config,) = kernel_details(profile, "0", "k", "", "").configs
    assert config.occupancy_percent == shown


def test_launch_configurations_are_as_recorded(tmp_path: Path) -> None:
    shape: dict[str, Any] = {"grid": [2, 6, 1], "block": [128, 1, 1]}
    shape |= {"registers per thread": 28, "shared memory": 4096}
    occupancy: dict[str, Any] = {OCCUPANCY: 7}
    events = [kernel("k", at, dur, **shape, **occupancy) for at, dur in ((0, 5), (20, 4))]
    events.insert(1, kernel("k", 10, 2, **(shape | {"grid": [1, 1, 1]})))
    config, _ = kernel_details(profile_with(tmp_path, events), "0", "k", "", "").configs
    assert (config.grid, config.block, config.warps) == ([2, 6, 1], [128, 1, 1], 4)
    assert (config.registers, config.shared_memory_bytes, config.occupancy_percent) == (28, 4096, 7)
    assert (config.launches, config.time_us) == (2, 9)


def test_a_key_is_short_and_tells_templates_apart() -> None:
    names = [f"void f<{'x, ' * 200}{end}>" for end in "ab"]
    one, other = (KernelName(0, name, "0/1", "f" * 50).key for name in names)
    assert one != other and max(map(len, (one, other))) < 80
    assert KernelName(0, "triton_poi_fused_0", None, None).key == "0,triton_poi_fused_0,,"


def reached(folder: Path, name: str, **amounts: float) -> SimpleNamespace:
    """One launch of 10 µs on an H200, with what inductor says of it."""
    profile = profile_with(folder, launch(name, 1, 2, 10))
    (rows,), (work,) = profile.of(kernel_launches), profile.of(launched_work)
    definition = Definition(name, "triton", 1, "", **amounts)  # type: ignore[arg-type]
    return SimpleNamespace(**achieved(profile.trace, rows, work, np.array([0]), H200, definition))


H200 = Peak(4800.0, 67.0, 494.0, 989.0)


def test_a_pointwise_kernel_has_no_operations_of_the_convolution_beside_it(tmp_path: Path) -> None:
    """23 TFLOP/s and 500 FLOP a byte, as inductor counts."""
    row = reached(tmp_path, "triton_poi_fused_convolution_relu_0", num_gb=0.00046, flop=2.3e8)
    assert (row.tflop_s, row.flop_per_byte) == (None, None)
    assert row.bandwidth_gb_s == pytest.approx(46)


def test_more_operations_than_the_device_can_do_are_not_told(tmp_path: Path) -> None:
    row = reached(tmp_path, "triton_tem_fused_mm_0", num_gb=0.002, flop=2e10)
    assert row.tflop_s is None and row.bandwidth_gb_s == pytest.approx(200)


def test_the_floor_is_the_time_at_the_peak(tmp_path: Path) -> None:
    row = reached(tmp_path, "triton_poi_fused_add_0", num_gb=0.024)
    assert (row.above_floor_us, row.bytes_per_launch) == (5, 24e6)
    cached = reached(tmp_path, "triton_poi_fused_add_0", num_gb=0.1)
    assert cached.above_floor_us == 0
    product = reached(tmp_path, "triton_tem_fused_mm_0", num_gb=0.024)
    assert product.above_floor_us is None, "its bytes alone are no floor"


@pytest.mark.parametrize(
    "name",
    [
        "void cudnn::winograd_nonfused::winogradWgradData4x4<float, float>",
        "void cudnn::cnn::reduce_wgrad_nchw_helper<float, float>",
        "void cudnn::engines_precompiled::nchwToNhwcKernel<float>",
    ],
)
def test_what_prepares_a_product_multiplies_nothing(name: str) -> None:
    assert category_of(name) == "convolution" and not may_multiply(name, "convolution")
    assert may_multiply("sm90_xmma_fprop_implicit_gemm_f32f32", "convolution")
