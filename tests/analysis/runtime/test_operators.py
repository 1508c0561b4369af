"""Test operators.py against torch's own table, on recordings of an H200 and live on the CPU."""

import json
from typing import Any

import pytest

from key_averages import FIELDS, ours, torchs
from live import needs_torch, torch_before
from profiles import profile_of, profile_with
from tb_torchcompile_plugin.analysis.runtime.operators import SPLITS, operators
from traces import AUTOGRAD, MAIN, frame, kernel, launch, memory_event, region, slice_, step

OVERHEAD = "Activity Buffer Request"


def named(rows):
    return {row.name: row for row in rows}


@pytest.mark.parametrize(
    ("mode", "by"),
    [
        *((mode, "name") for mode in ("eager_plain", "compiled_plain")),  # they have no shapes
        *((mode, by) for mode in ("eager_shapes", "compiled_shapes") for by in ("name", "shape")),
    ],
)
def test_every_row_is_that_of_torch_on_a_gpu(recording, mode, by):
    """torch counts the kernel that was launched while CUPTI asked for memory twice: once too often around it."""
    folder = recording("key_averages")
    (file,) = folder.glob(f"key_averages_{mode}.*.trace.json")
    table = json.loads((folder / f"key_averages_{mode}.by_{by}.json").read_text())
    wanted = torchs(table, by == "shape")
    mine = ours(operators(profile_of(file), "shape" if by == "shape" else None).rows, by == "shape")
    twice = next(row["device_us"] for (name, *_), row in wanted.items() if name == OVERHEAD)
    differing = {}
    for key, row in wanted.items():
        if mine[key] != row:
            off = {field: row[field] - mine[key][field] for field in FIELDS if row[field] != mine[key][field]}
            assert set(off.values()) == {twice} and set(off) <= {"device_us", "self_device_us"}, key
            differing[key[0]] = off
    assert mine.keys() == wanted.keys()
    around = {"my forward", "aten::layer_norm", "aten::native_layer_norm", OVERHEAD}
    assert set(differing) == (around if mode.startswith("eager") else set())


def test_every_row_is_that_of_torch_on_the_cpu_with_compiled_kernels(recording):
    folder = recording("everything")
    (file,) = folder.glob("*.trace.json")
    mine = ours(operators(profile_of(file)).rows)
    wanted = torchs(json.loads((folder / "key_averages.json").read_text()))
    assert mine == {key: row for key, row in wanted.items() if key in mine}
    assert any(name.startswith("graph_0_cpp_fused") for name, *_ in mine)
    # what torch lists beyond operators are the Python functions around them
    assert all(
        "(" in name or name[0] == "<" or name.startswith("nn.Module") for name, *_ in wanted.keys() - mine
    )


@pytest.mark.parametrize("name", ["breaks", "resnet18_eager", "resnet18", "key_averages", "everything"])
def test_splits_sum_to_the_whole(recording, name):
    for file in recording(name).glob("*.trace.json"):
        made = profile_of(file)
        whole = ours(operators(made).rows)
        assert whole
        for split in SPLITS:
            assert ours(operators(made, split).rows) == whole


@pytest.mark.parametrize("name", ["resnet18_eager", "resnet18", "breaks"])
def test_all_gpu_time_belongs_to_somebody(recording, expected, name):
    for file, reference in expected(name)["traces"].items():
        time_us = sum(row.self_device_us or 0 for row in operators(profile_of(recording(name) / file)).rows)
        assert round(1000 * time_us) == round(1000 * reference["gpu_time_us"])


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    """`live("shape")`: torch's rows of one run on the CPU, ours of the trace that it exported."""
    import torch
    from torch import nn
    from torch.profiler import ProfilerActivity, record_function
    from torch.profiler import profile as torch_profile

    torch._dynamo.reset()
    model = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(256, 10))
    compiled = torch.compile(model, backend="eager")
    optimizer = torch.optim.SGD(model.parameters(), 0.1, foreach=True)
    image = torch.randn(2, 3, 8, 8)

    def step():
        for forward in (model, compiled):
            with record_function("my forward"):
                loss = forward(image).sum() + torch.stack([image, image]).sum()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()

    step()
    names = ("record_shapes", "profile_memory", "with_stack", "with_flops", "with_modules")
    options: dict[str, Any] = dict.fromkeys(names, True)
    with torch_profile(activities=[ProfilerActivity.CPU], **options) as prof:
        step()
        prof.step()
        step()
    path = tmp_path_factory.mktemp("live") / "w.1.pt.trace.json"
    prof.export_chrome_trace(str(path))
    torch._dynamo.reset()
    made = profile_of(path)

    def both(by):
        table = prof.key_averages(group_by_input_shape=by == "shape")
        rows = [
            {theirs: getattr(row, theirs) for theirs in FIELDS.values()}
            | {"key": row.key, "is_user_annotation": row.is_user_annotation}
            | {"input_shapes": str(row.input_shapes), "device_type": str(row.device_type)}
            for row in table
        ]
        return rows, operators(made, "shape" if by == "shape" else None)

    return both


@pytest.mark.usefixtures("live")
class TestLive:
    pytestmark = needs_torch

    @pytest.mark.skipif(torch_before("2.13"), reason="older ones do not take off all that an operator called")
    @pytest.mark.parametrize("by", ["name", "shape"])
    def test_every_row_is_that_of_torch_on_the_cpu(self, live, by):
        table, answer = live(by)
        mine = ours(answer.rows, by == "shape")
        wanted = {key: row for key, row in torchs(table, by == "shape").items() if key in mine}
        assert mine == wanted and len(wanted) > 40
        # What torch lists beyond operators are the Python functions around them.
        rest = torchs(table, by == "shape").keys() - mine.keys()
        assert all("(" in name or name.startswith(("<built-in", "nn.Module: ")) for name, *_ in rest)

    def test_options_are_known_from_the_trace(self, live):
        _, answer = live("name")
        assert answer.missing == ""
        assert all(row.device_us is None for row in answer.rows) and any(row.flops for row in answer.rows)


def test_a_label_that_outlasts_the_call_that_opened_it_is_not_inside_it(tmp_path):
    """The label begins in `__enter__` and ends in `__exit__`; its time is neither call's, and its own is all of it."""
    events = [frame("train.py(1): step", 0, 100), frame("torch/autograd/profiler.py(9): __enter__", 5, 10)]
    events += [slice_("my label", 8, 60, "user_annotation"), slice_("aten::mm", 20, 30)]
    events.append(slice_("aten::mul", 60, 20))
    rows = named(operators(profile_with(tmp_path, events)).rows)
    assert (rows["my label"].host_us, rows["my label"].self_host_us) == (60, 30)
    assert rows["aten::mul"].self_host_us == 20  # ends after the label, so it is not inside it either


def test_a_call_that_only_calls_itself_is_one(tmp_path):
    events = [slice_("aten::sum", 0, 50), slice_("aten::sum", 5, 40), slice_("aten::fill_", 10, 8)]
    events += [slice_("aten::add", 100, 50), slice_("aten::add", 105, 5), slice_("aten::add", 120, 5)]
    rows = named(operators(profile_with(tmp_path, events)).rows)
    assert (rows["aten::sum"].calls, rows["aten::sum"].host_us, rows["aten::sum"].self_host_us) == (1, 50, 42)
    assert (rows["aten::add"].calls, rows["aten::add"].host_us, rows["aten::add"].self_host_us) == (3, 60, 50)


def test_device_time_comes_through_the_launch_or_the_external_id(tmp_path):
    graph = slice_("CompiledFxGraph", 0, 50) | {"args": {"External id": 7}}
    replayed = [kernel(f"replayed_{i}", 100 + i, 1, correlation=99) for i in range(3)]
    for event in replayed:
        event["args"]["External id"] = 7
    nested = [slice_("aten::linear", 60, 30), slice_("aten::addmm", 65, 20), *launch("gemm", 70, 200, 11)]
    rows = named(operators(profile_with(tmp_path, [graph, *replayed, *nested])).rows)
    assert (rows["CompiledFxGraph"].self_device_us, rows["CompiledFxGraph"].device_us) == (3, 3)
    assert (rows["aten::linear"].self_device_us, rows["aten::linear"].device_us) == (0, 11)
    assert (rows["aten::addmm"].self_device_us, rows["aten::addmm"].device_us) == (11, 11)
    assert rows["cuLaunchKernelEx"].kind == "runtime" and rows["cuLaunchKernelEx"].device_us == 0


def test_memory_is_what_any_thread_allocated_meanwhile(tmp_path):
    events = [slice_("aten::linear", 0, 100), slice_("aten::empty", 10, 20)]
    events += [memory_event(at, size, device_type=0) for at, size in ((10, 64), (30, 32))]
    events += [memory_event(40, 512), memory_event(50, -16, device_type=0, tid=AUTOGRAD)]
    rows = named(operators(profile_with(tmp_path, events)).rows)
    linear, empty = rows["aten::linear"], rows["aten::empty"]
    assert (linear.cpu_memory_bytes, linear.self_cpu_memory_bytes) == (80, -16)
    assert (empty.cpu_memory_bytes, empty.self_cpu_memory_bytes) == (96, 96)
    assert (linear.device_memory_bytes, linear.self_device_memory_bytes) == (512, 512)
    assert empty.device_memory_bytes == 0


def test_what_was_not_recorded_is_unknown(tmp_path):
    answer = operators(profile_with(tmp_path, [slice_("aten::mm", 0, 10)]))
    (row,) = answer.rows
    assert (row.device_us, row.cpu_memory_bytes, row.flops, row.matrix_us) == (None,) * 4
    assert answer.missing == "Memory was not recorded."
    assert operators(profile_with(tmp_path, [kernel("k", 0, 1)])).rows == []


def test_steps_are_one_row(tmp_path):
    events = [step(n, 100 * n, 90) for n in range(3)]
    (row,) = operators(profile_with(tmp_path, events)).rows
    assert (row.name, row.kind, row.calls, row.host_us) == ("ProfilerStep*", "label", 3, 270)


def test_the_sentence_counts_all_rows_and_is_that_of_every_split(tmp_path):
    calls = [slice_("aten::mm", 0, 6), slice_("aten::mm", 10, 4), slice_("aten::add", 20, 5)]
    profile = profile_with(tmp_path, [*calls, slice_("cudaMalloc", 40, 5, "cuda_runtime")])
    said = "2 operators and 1 label or runtime call took 20.0 µs of host time in 4 calls."
    assert operators(profile).headline == f"aten::mm takes 50.0 % of host time. {said}"
    assert {operators(profile, split).headline for split in SPLITS} == {operators(profile).headline}
    assert operators(profile_with(tmp_path, [])).headline == "No operators were recorded."


def test_tensor_cores_count_where_the_name_tells(tmp_path):
    events = [slice_("aten::mm", 0, 50)]
    events += launch("cutlass_80_tensorop_s1688gemm_64x64_16x6_nn_align4", 5, 100, 30)
    events += launch("cutlass_80_simt_sgemm_128x32_8x5_nn_align1", 10, 200, 10)
    events += launch("void cublasLt::splitKreduce_kernel<32, 16>", 15, 300, 5)
    row = named(operators(profile_with(tmp_path, events)).rows)["aten::mm"]
    assert (row.device_us, row.matrix_us, row.tensor_core_us) == (45, 40, 30)


def stack(*names, at=0.0, dur=100.0, tid=MAIN):
    """Calls inside one another, outermost first."""
    return [
        slice_(name, at + i, dur - 2 * i, "python_function" if "(" in name or "<" in name else "cpu_op", tid)
        for i, name in enumerate(names)
    ]


def test_a_call_site_is_the_innermost_line_that_is_not_torchs(tmp_path):
    events = stack("train.py(9): main", "torch/nn/modules/linear.py(125): forward", "aten::linear", at=0)
    events += stack("model.py(7): forward", "<built-in method relu of type object>", "aten::relu", at=200)
    events += [slice_("aten::zeros", 400, 5)]
    events[2]["args"] = {"Sequence number": 4, "Fwd thread id": 0}
    events += [slice_("LinearBackward0", 500, 50, tid=AUTOGRAD)]
    events[-1]["args"] = {"Sequence number": 4, "Fwd thread id": 1}
    events += [slice_("aten::mm", 510, 5, tid=AUTOGRAD), slice_("aten::sum", 600, 5, tid=AUTOGRAD)]
    sites = {row.name: row.part for row in operators(profile_with(tmp_path, events), "call_site").rows}
    assert {name for name, site in sites.items() if site is None} == {"aten::zeros", "aten::sum"}
    assert len(sites) == 6
    assert sites["aten::relu"] == "model.py(7): forward"
    assert {sites[name] for name in ("aten::linear", "LinearBackward0", "aten::mm")} == {"train.py(9): main"}


def test_a_label_is_the_innermost_that_somebody_chose(tmp_path):
    labels = ("forward", 10, 100), ("## Call CompiledFxGraph fk ##", 20, 50)
    events = [step(3, 0, 200), *(slice_(*label, "user_annotation") for label in labels)]
    events += [slice_("aten::mm", 30, 10), slice_("aten::add_", 150, 10)]
    parts = {row.name: row.part for row in operators(profile_with(tmp_path, events), "label").rows}
    assert parts["aten::mm"] == "forward" and parts["forward"] == "forward" and parts["aten::add_"] is None


def test_compiled_and_eager_calls_are_told_apart(tmp_path):
    events = [region("2/1", 0, 100), *(slice_("aten::mm", at, 10) for at in (10, 200))]
    rows = operators(profile_with(tmp_path, events), "compilation").rows
    assert {(row.part, row.calls) for row in rows if row.name == "aten::mm"} == {("2/1", 1), (None, 1)}
