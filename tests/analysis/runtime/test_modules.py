"""Test modules.py: modules in Python stacks and in compiled graphs."""

from typing import Any

import pytest

from profiles import profile_of, profile_with, spans_in
from tb_torchcompile_plugin.analysis.runtime.kernels import kernel_table
from tb_torchcompile_plugin.analysis.runtime.modules import modules
from tb_torchcompile_plugin.profile.host.host_tree import host_tree
from traces import AUTOGRAD, frame, launch, region, slice_


def test_modules_are_a_tree_with_forward_and_backward_work(tmp_path):
    forward = slice_("aten::linear", 20, 20) | {"args": {"Sequence number": 4, "Fwd thread id": 0}}
    backward = slice_("AddmmBackward0", 300, 50, tid=AUTOGRAD)
    backward["args"] = {"Sequence number": 4, "Fwd thread id": 1}
    events = [frame("nn.Module: Net_0", 0, 100), frame("nn.Module: Linear_0", 10, 40), forward]
    events += [*launch("gemm", 25, 200, 11), backward, *launch("gemm", 310, 400, 7, tid=AUTOGRAD)]
    events += [region("0/0", 60, 30), slice_("aten::mm", 65, 5), *launch("k", 66, 500, 3)]
    net, linear = modules(profile_with(tmp_path, events)).modules
    assert (net.name, net.parent, net.calls, net.host_us, net.self_host_us) == ("Net_0", -1, 1, 100, 60)
    assert (net.device_us, net.self_device_us, net.backward_device_us) == (14, 3, 7)
    assert (linear.parent, linear.depth, linear.device_us, linear.backward_device_us) == (0, 1, 11, 7)
    assert (net.compile_ids, linear.compile_ids) == (["0/0"], [])


def test_inside_compiled_code_the_graph_tells_modules(recording):
    """Below the module that ran the compilations: a part of what it launched itself."""
    rows: Any = modules(spans_in(recording("breaks"))[0]).modules
    inside = {row.name: row for row in rows if row.in_graph}
    assert set(inside) == {f"m{block}{part}" for block in "1234" for part in ("", ".0", ".2")}
    (around,) = {row.parent for row in inside.values() if "." not in row.name}
    assert rows[around].name == "Breaks_0"
    assert sum(row.device_us for name, row in inside.items() if "." not in name) <= rows[around].device_us
    assert inside["m2.0"].compile_ids == ["1/0"] and inside["m2.0"].calls is None
    assert inside["m2"].backward_device_us == pytest.approx(inside["m4"].backward_device_us, rel=0.05)


def test_without_stacks_the_compiled_frame_holds_them(recording):
    """All that it launched is told, to the nanosecond; a convolution's backward is that of its own layer."""
    profile = spans_in(recording("resnet18"))[0]
    answer: Any = modules(profile)
    first, *others = answer.modules
    assert (first.name, first.parent, answer.code) == ("forward (resnet.py)", -1, "with_stack=True")
    compiled = [row for row in profile.of(kernel_table).rows if row.compile_id]
    ran_us = sum(row.time_us for row in compiled)
    assert first.device_us + first.backward_device_us == pytest.approx(ran_us)
    assert first.device_us == pytest.approx(sum(row.self_device_us for row in answer.modules))
    by_name = {row.name: row for row in others}
    assert by_name["layer3.0.conv2"].backward_device_us > by_name["layer3.0.conv2"].device_us > 0
    assert all(row.parent >= 0 for row in others)
    assert any(row.modules == ["layer4.1.conv2"] for row in compiled)


def test_without_stacks_nothing_is_known(tmp_path):
    answer = modules(profile_with(tmp_path, [slice_("aten::mm", 0, 1)]))
    assert answer.sentences[0] == "No modules in this span." and "not recorded" in answer.sentences[1]


def test_self_times_sum_to_what_the_outermost_calls_took(recording):
    """Python's own time and that of the operators in it are all the time there is."""
    (file,) = recording("breaks").glob("*.trace.json")
    made = profile_of(file)
    tree = made.of(host_tree)
    roots = tree.parent < 0
    assert tree.self_ns.sum() == made.trace.dur[tree.index[roots]].sum()
    values = [row.name for row in modules(made).modules if not row.in_graph]
    assert values == ["OptimizedModule_0", "Breaks_0"]
