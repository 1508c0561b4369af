"""Test compiled_regions.py: call overhead, frame times and backward, by hand and on a recording."""

import pytest

from kineto_helpers import named
from profiles import answered, graphs, profile_of, profile_with
from tb_torchcompile_plugin.analysis.runtime.compiled_regions import compiled_regions, headline
from tb_torchcompile_plugin.profile.compiled.ownership import Ownership
from tb_torchcompile_plugin.profile.compiled.regions import Resumes, resumes
from traces import AUTOGRAD, launch, slice_


def call(ts):
    return [
        *(slice_("TorchDynamo Cache Lookup", ts, 5), slice_("Torch-Compiled Region: 0/0", ts + 6, 50)),
        *(
            slice_("Pregraph bytecode", ts + 7, 3),
            slice_("CompiledFunction", ts + 20, 22, **{"Sequence number": ts}),
        ),
    ]


def backward(ts, of):
    return slice_("CompiledFunctionBackward", ts, 40, tid=AUTOGRAD, **{"Sequence number": of})


def test_only_calls_in_steps_count(tmp_path):
    step = slice_("ProfilerStep#1", 90, 200, "user_annotation")
    made = profile_with(tmp_path, [*call(0), step, *call(100), backward(200, 100), backward(300, 0)])
    (row,) = compiled_regions(made)
    assert (row.calls, row.guard_us, row.overhead_us, row.graph_us) == (2, 10, 6, 44)
    said = headline(made)
    assert said.startswith("Guards and wrappers of 1 call take 8.00 µs per step (5.00 µs in guards")
    assert "22.0 µs and their backward graphs for 40.0 µs. Calling them adds 11.4 % overhead." in said


def test_without_steps_the_span_is_the_window(tmp_path):
    sentence = headline(profile_with(tmp_path, [*call(0), *call(100)]))
    assert sentence.startswith("Guards and wrappers of 2 calls take 16.0 µs in this span")


def test_without_regions_there_is_no_overhead_to_speak_of(tmp_path):
    without = profile_with(tmp_path, [slice_("aten::add", 0, 5)])
    assert headline(without) == "No compiled region ran in this span."


def test_backward_is_reported_apart(tmp_path):
    made = profile_with(
        tmp_path,
        [
            *call(0),
            *launch("forward", 25, 60, 3),
            backward(100, 0),
            *launch("backward", 110, 150, 4, tid=AUTOGRAD),
        ],
    )
    (row,) = compiled_regions(made)
    assert (row.calls, row.graph_us, row.backward_calls, row.backward_cpu_us) == (1, 22, 1, 40)
    assert (row.gpu_us, row.backward_gpu_us) == (7, 4)


def test_a_graph_key_joins_a_backward_where_nothing_else_does(tmp_path):
    inside = slice_("## Call CompiledFxGraph fkey ##", 105, 30, tid=AUTOGRAD)
    apart = {**slice_("CompiledFunctionBackward", 100, 40, tid=AUTOGRAD)}
    events = [*call(0), apart, inside]
    assert Ownership(profile_with(tmp_path, events)).backwards == []
    known = Ownership(profile_with(tmp_path, events, graphs({"fkey": "0/0"})))
    assert [known.names[code] for _, code in known.backwards] == ["0/0"]


def test_what_a_trace_does_not_mark_is_not_zero(tmp_path):
    """As torch before 2.8 writes it, where no gradient is wanted."""
    lookup, region = slice_("TorchDynamo Cache Lookup", 0, 5), slice_("Torch-Compiled Region: 0/0", 6, 50)
    events = [lookup, region, slice_("aten::addmm", 20, 8)]
    made = answered(profile_with(tmp_path, events), resumes, Resumes(frozenset(), {}, {}))
    (row,) = compiled_regions(made)
    assert (row.guard_us, row.overhead_us, row.graph_us, row.gpu_us) == (5, None, None, None)
    assert headline(made) == (
        "Guards of 1 call take 5.00 µs in this span, 8.93 % of the span. How long the graphs ran is unknown because "
        "the trace does not mark all of them."
    )


def test_the_overhead_of_the_recording_is_the_sum_of_its_slices(recording):
    (path,) = recording("breaks").glob("*.pt.trace.json")
    made = profile_of(path)
    trace, rows = made.trace, compiled_regions(made)

    def total(*names):
        return sum(int(trace.dur[named(trace, name)].sum()) for name in names) / 1000

    assert sum(row.guard_us for row in rows) == pytest.approx(total("TorchDynamo Cache Lookup"))
    wrappers = total("Pregraph bytecode", "AOTDispatcher Runtime Wrapper Prologue")
    assert sum(row.overhead_us or 0 for row in rows) == pytest.approx(wrappers)
    assert sum(row.backward_cpu_us for row in rows) == pytest.approx(total("CompiledFunctionBackward"))
    assert sum(row.calls for row in rows) == 15
    assert [row.backward_calls for row in rows] == [3, 3, 0, 3, 3]  # 2/0 only computes a condition
