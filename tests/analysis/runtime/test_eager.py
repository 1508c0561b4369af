"""Test eager.py and eager_roots.py: what ran outside compiled code, by hand, on recordings and generated cases."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiles import profile_of, profile_with
from tb_torchcompile_plugin.analysis.runtime.eager import eager_time
from tb_torchcompile_plugin.profile.columns import Intervals, subtract, union, within
from tb_torchcompile_plugin.profile.compiled.regions import all_calls, region_calls
from tb_torchcompile_plugin.profile.gpu.launches import kernel_launches
from tb_torchcompile_plugin.profile.gpu_work import gpu_work
from tb_torchcompile_plugin.profile.host.eager_roots import EagerRoots
from traces import AUTOGRAD, frame, kernel, launch, region, slice_, step

NODE = "autograd::engine::evaluate_function: "


def eager_of(folder, events):
    return eager_time(profile_with(folder, events))


def rows(eager):
    return {(op.name, op.kind): (op.calls, op.host_us, op.device_us) for op in eager.ops}


def test_the_outermost_operator_counts_with_all_that_it_launched(tmp_path):
    operators = slice_("aten::linear", 0, 50), slice_("aten::addmm", 10, 30)
    eager = eager_of(tmp_path, [*operators, *launch("k", 20, 100, 7)])
    assert rows(eager) == {("aten::linear", "operator"): (1, 50, 7)}
    assert (eager.host_us, eager.device_us) == (50, 7)
    assert eager.share_percent == pytest.approx(100 * 50 / 107) and eager.device_share_percent == 100


def test_one_after_the_other_are_two(tmp_path):
    eager = eager_of(tmp_path, [slice_("aten::add", 0, 5), slice_("aten::add", 5, 5)])
    assert rows(eager) == {("aten::add", "operator"): (2, 10, None)}


def test_what_torch_compile_made_is_not_eager(tmp_path):
    compiled = [slice_("TorchDynamo Cache Lookup", 0, 5), region("0/0", 5, 50)]
    compiled += [slice_("CompiledFunction", 10, 20), slice_("aten::mm", 12, 5)]
    compiled += [slice_(NODE + "CompiledFunctionBackward", 60, 30, tid=AUTOGRAD)]
    compiled += [slice_("aten::mm", 70, 5, tid=AUTOGRAD), slice_("dynamo", 100, 30)]
    compiled += [slice_("_compile.compile_inner (dynamo_timed)", 101, 20), slice_("aten::mul", 110, 5)]
    eager = eager_of(tmp_path, compiled)
    assert eager.ops == [] and eager.host_us == 0 and eager.device_us is None and eager.share_percent == 0


def test_operators_are_named_for_what_they_are(tmp_path):
    loader = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    labels = ("Optimizer.step#SGD.step", 0, 20), (loader, 30, 20)
    events = [slice_(*label, "user_annotation") for label in labels]
    events += [slice_("aten::_foreach_add_", 5, 10), slice_("aten::stack", 31, 10)]
    events += [slice_(NODE + "MmBackward0", 60, 10, tid=AUTOGRAD), slice_("aten::mm", 61, 2, tid=AUTOGRAD)]
    eager = eager_of(tmp_path, events)
    assert rows(eager) == {
        ("aten::_foreach_add_", "optimizer"): (1, 10, None),
        ("aten::stack", "data_loading"): (1, 10, None),
        ("MmBackward0", "backward"): (1, 10, None),
    }
    assert eager.host_us == 30  # the annotations themselves are no operators


def test_compiled_code_inside_an_eager_operator_is_no_part_of_its_time(tmp_path):
    events = [slice_("MyFunction", 0, 100), region("0/0", 20, 50)]
    events += [slice_("aten::add", 80, 10), *launch("in_region", 30, 200, 7)]
    eager = eager_of(tmp_path, [*events, *launch("in_operator", 85, 210, 3)])
    assert rows(eager) == {("MyFunction", "operator"): (1, 50, 3)}
    assert eager.device_share_percent == 30


def test_only_what_began_in_a_step_counts(tmp_path):
    operators = ("aten::a", 0, 5), ("aten::a", 20, 5), ("aten::b", 90, 5)
    events = [step(1, 10, 50), step(2, 60, 20), *(slice_(*operator) for operator in operators)]
    eager = eager_of(tmp_path, events)
    assert rows(eager) == {("aten::a", "operator"): (1, 5, None)}
    assert "of the steps" in eager.headline and eager.share_percent == pytest.approx(100 * 5 / 70)


def test_between_the_graphs_of_a_region_is_told_apart(tmp_path):
    graph = [slice_("CompiledFunction", 10, 10), slice_("## Call CompiledFxGraph fk ##", 12, 5)]
    eager = eager_of(tmp_path, [region("0/0", 0, 50), *graph, slice_("aten::item", 30, 8)])
    assert rows(eager) == {("aten::item", "graph_break"): (1, 8, None)}
    assert eager.host_us == 0


def test_without_marks_of_graphs_all_of_a_region_is_compiled(tmp_path):
    """torch before 2.8 marks no graph where no gradient is wanted."""
    events = [region("0/0", 0, 50), slice_("aten::addmm", 30, 8)]
    assert eager_of(tmp_path, events).ops == []


def test_a_launch_that_no_operator_made_counts(tmp_path):
    eager = eager_of(tmp_path, [step(1, 0, 50), *launch("mine", 5, 100, 9), kernel("unknown", 120, 1)])
    assert rows(eager) == {("cuLaunchKernelEx", "operator"): (1, 1, 9)}


def test_the_caller_is_the_innermost_function_of_the_users(tmp_path):
    stack = [frame("/home/me/train.py(3): main", 0, 100), frame("threading.py(10): run", 1, 90)]
    stack.append(frame("torch/nn/functional.py(9): linear", 2, 80))
    (op,) = eager_of(tmp_path, [*stack, slice_("aten::linear", 3, 5)]).ops
    assert (op.file, op.line, op.function) == ("/home/me/train.py", 3, "main")
    (op,) = eager_of(tmp_path, [*stack[1:], slice_("aten::linear", 3, 5)]).ops
    assert op.file is None


@pytest.mark.parametrize("name", ["breaks", "resnet18", "resnet18_eager"])
def test_the_recordings_say_what_a_loop_over_their_events_says(recording, name):
    (path,) = recording(name).glob("*.pt.trace.json")
    eager = eager_time(profile_of(path))
    calls = sum(op.calls for op in eager.ops if op.kind != "graph_break")
    assert (calls, eager.host_us) == outermost(json.loads(path.read_bytes())["traceEvents"])
    assert sum(op.host_us for op in eager.ops if op.kind != "graph_break") == pytest.approx(eager.host_us)


def outermost(events):
    """(count, summed µs) of the operators in steps that are in no other. None of them has compiled code in it."""
    ops = [e for e in events if e["ph"] == "X" and e.get("cat") in ("cpu_op", "user_annotation")]
    steps = [e for e in ops if e["name"].startswith("ProfilerStep")]
    made = ("Torch-Compiled", "TorchDynamo", "CompiledFunction", "## Call", NODE + "CompiledFunction")
    ops = sorted(
        (e for e in ops if e["name"].startswith(made) or e["cat"] == "cpu_op"),
        key=lambda e: (e["ts"], -e["dur"]),
    )
    until: dict[int, float] = {}
    count = total = 0
    for event in ops:
        if event["ts"] < until.get(event["tid"], -1):
            continue
        until[event["tid"]] = event["ts"] + event["dur"]
        if not event["name"].startswith(made) and any(
            s["ts"] <= event["ts"] < s["ts"] + s["dur"] for s in steps
        ):
            count, total = count + 1, total + round(1000 * event["dur"])
    return count, total / 1000


def test_launched_time_is_either_compiled_or_eager(recording):
    """Of resnet18: what the compilation launched, and what eager operators did, is all there is."""
    (path,) = recording("resnet18").glob("*.pt.trace.json")
    profile = profile_of(path)
    eager = eager_time(profile)
    compiled = sum(int(row.dur[row.compile_id >= 0].sum()) for row in profile.of(kernel_launches))
    whole = int(profile.trace.dur[profile.of(gpu_work).index].sum())
    assert round(1000 * (eager.device_us or 0)) + compiled == whole


def test_graphs_are_disjoint_from_eager_time(recording):
    (path,) = recording("breaks").glob("*.pt.trace.json")
    profile = profile_of(path)
    ran = [graph for call in all_calls(profile.of(region_calls)) for graph in call.graphs]
    graphs, eager = union(*np.array(ran, np.int64).T), profile.of(EagerRoots).running
    assert (graphs.total_ns, eager.total_ns) == (4_331_567, 1_458_905)
    assert subtract(eager, graphs).total_ns == eager.total_ns


names = st.sampled_from(
    ["aten::a", "aten::b", "Torch-Compiled Region: 0/0", "CompiledFunction", "TorchDynamo Cache Lookup"]
)
moments = st.tuples(st.integers(0, 90), st.integers(0, 60), st.sampled_from([100, 101]))


@given(st.lists(st.tuples(names, moments), min_size=1, max_size=12))
def test_no_time_counts_twice_whatever_crosses(tmp_path_factory, slices):
    eager = eager_of(
        tmp_path_factory.mktemp("eager"), [slice_(name, ts, dur, tid=tid) for name, (ts, dur, tid) in slices]
    )
    covered = set()
    for name, (ts, dur, tid) in slices:
        covered |= {(tid, at) for at in range(ts, ts + dur)} if name.startswith("aten") else set()
    assert 0 <= eager.host_us <= len(covered)
    assert (eager.share_percent or 0) <= 100


spans = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20)), max_size=6)


@given(spans, spans)
def test_subtracting_intervals_is_subtracting_sets(first, second):
    sets = [{at for start, length in each for at in range(start, start + length)} for each in (first, second)]
    made = [union(*(np.array(column, np.int64) for column in columns(each))) for each in (first, second)]
    left = subtract(*made)
    assert {at for start, end in zip(*left) for at in range(start, end)} == sets[0] - sets[1]
    times = np.arange(-1, 80, dtype=np.int64)
    assert set(times[within(left, times) >= 0].tolist()) == sets[0] - sets[1]
    assert isinstance(left, Intervals)


def columns(pairs):
    return [start for start, _ in pairs], [start + length for start, length in pairs]
