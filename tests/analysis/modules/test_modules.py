"""modules.py: what Python stacks tell of modules."""

from __future__ import annotations

import pytest

from profiles import profile_of, profile_with
from tb_torchcompile_plugin.analysis.modules.modules import modules
from tb_torchcompile_plugin.api.session import Session
from tb_torchcompile_plugin.profile.host.host_tree import host_tree
from traces import AUTOGRAD, launch, slice_


def python(name, ts, dur, tid=100):
    return slice_(name, ts, dur, "python_function", tid)


def test_modules_are_a_tree_with_forward_and_backward_work(tmp_path):
    forward = slice_("aten::linear", 20, 20) | {"args": {"Sequence number": 4, "Fwd thread id": 0}}
    backward = slice_("AddmmBackward0", 300, 50, tid=AUTOGRAD)
    backward["args"] = {"Sequence number": 4, "Fwd thread id": 1}
    events = [python("nn.Module: Net_0", 0, 100), python("nn.Module: Linear_0", 10, 40), forward]
    events += [*launch("gemm", 25, 200, 11), backward, *launch("gemm", 310, 400, 7, tid=AUTOGRAD)]
    events += [
        slice_("Torch-Compiled Region: 0/0", 60, 30),
        slice_("aten::mm", 65, 5),
        *launch("k", 66, 500, 3),
    ]
    net, linear = modules(profile_with(tmp_path, events)).modules
    assert (net.name, net.parent, net.calls, net.host_us, net.self_host_us) == ("Net_0", -1, 1, 100, 60)
    assert (net.device_us, net.self_device_us, net.backward_device_us) == (14, 3, 7)
    assert (linear.parent, linear.depth, linear.device_us, linear.backward_device_us) == (0, 1, 11, 7)
    assert (net.compile_ids, linear.compile_ids) == (["0/0"], [])


def test_inside_compiled_code_kernels_tell_the_lines(recording):
    """They sum to what the only module that ran the compilation launched itself."""
    session = Session([("", str(recording("handler_breaks")))])
    (run,) = session.runs().runs
    (worker,) = run.workers
    answer = modules(session.profile(run.run, worker.worker, worker.spans[0].span))
    assert answer.compiled_lines
    for row, module in enumerate(answer.modules):
        inside = [lines for lines in answer.compiled_lines if lines.module == row]
        assert {lines.compile_id for lines in inside} <= set(module.compile_ids)
        if inside:
            forward_us = sum(lines.forward_us for lines in inside)
            assert forward_us == pytest.approx(module.self_device_us or forward_us)
            assert any(line.source for lines in inside for line in lines.lines)


def test_without_stacks_nothing_is_known(tmp_path):
    assert modules(profile_with(tmp_path, [slice_("aten::mm", 0, 1)])).recorded is False


def test_self_times_sum_to_what_the_outermost_calls_took(recording):
    """Python's own time and that of the operators in it are all the time there is."""
    (file,) = recording("breaks").glob("*.trace.json")
    made = profile_of(file)
    tree = made.of(host_tree)
    roots = tree.parent < 0
    assert tree.self_ns.sum() == made.trace.dur[tree.index[roots]].sum()
    assert [row.name for row in modules(made).modules] == ["OptimizedModule_0", "Breaks_0"]
