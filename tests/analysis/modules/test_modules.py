"""modules.py and hot_spots.py: what Python stacks tell."""

from __future__ import annotations

import pytest

from profiles import profile_of, profile_with
from tb_torchcompile_plugin.analysis.modules.modules import modules
from tb_torchcompile_plugin.analysis.operators.hot_spots import hot_spots
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


def test_a_recursive_function_counts_once_in_its_total(tmp_path):
    events = [python("a.py(1): f", 0, 100), python("a.py(1): f", 10, 50), python("b.py(2): g", 70, 20)]
    events += [slice_("aten::mm", 72, 10), python("a.py(1): f", 200, 5)]
    f, g = hot_spots(profile_with(tmp_path, events)).functions
    assert (f.name, f.file, f.line, f.calls, f.self_us, f.total_us) == ("f", "a.py", 1, 3, 85, 105)
    assert (g.name, g.self_us, g.total_us, g.whose) == ("g", 10, 20, "yours")


def test_calls_with_one_stack_are_one_frame(tmp_path):
    events = [slice_("aten::mm", 0, 1)]
    for at in (10, 200):
        events += [
            python("a.py(1): f", at, 100),
            python("b.py(2): g", at + 5, 60),
            python("b.py(2): g", at + 70, 9),
        ]
    events += [python("threading.py(9): wait", 0, 5000, tid=7)]
    answer = hot_spots(profile_with(tmp_path, events))
    frames = answer.frames
    drawn = [
        (answer.functions[name].name, parent, calls, total)
        for name, parent, calls, total in zip(frames.name, frames.parent, frames.calls, frames.total_us)
    ]
    assert drawn == [("f", -1, 2, 200), ("g", 0, 4, 138)]
    assert answer.idle_threads == 1 and answer.left_out == 0


@pytest.mark.parametrize("answer", [modules, hot_spots])
def test_without_stacks_nothing_is_known(tmp_path, answer):
    assert answer(profile_with(tmp_path, [slice_("aten::mm", 0, 1)])).recorded is False


def test_self_times_sum_to_what_the_outermost_calls_took(recording):
    """Python's own time and that of the operators in it are all the time there is."""
    (file,) = recording("breaks").glob("*.trace.json")
    made = profile_of(file)
    tree = made.of(host_tree)
    roots = tree.parent < 0
    assert tree.self_ns.sum() == made.trace.dur[tree.index[roots]].sum()
    assert len(hot_spots(made).functions) > 100
    assert [row.name for row in modules(made).modules] == ["OptimizedModule_0", "Breaks_0"]
