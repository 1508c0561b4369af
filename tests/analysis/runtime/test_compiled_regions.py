"""Test compiled_regions.py: the overhead of calls, compilations with what ran them, and how much runs compiled."""

import pytest

from kineto_helpers import named
from profiles import answered, data_of, graphs, profile_of, profile_with
from tb_torchcompile_plugin.analysis.runtime.compiled_regions import (
    CompiledShare,
    compilation_table,
    compiled_regions,
    coverage,
    headline,
)
from tb_torchcompile_plugin.analysis.runtime.eager import eager_time
from tb_torchcompile_plugin.compile_log import summary_pb2 as pb
from tb_torchcompile_plugin.profile.compiled.ownership import Ownership
from tb_torchcompile_plugin.profile.compiled.regions import Resumes, resumes
from traces import AUTOGRAD, compiled_call, frame, launch, region, slice_, step


def call(ts, compile_id="0/0"):
    called = [slice_("TorchDynamo Cache Lookup", ts, 5), region(compile_id, ts + 6, 50)]
    called.append(slice_("Pregraph bytecode", ts + 7, 3))
    return [*called, slice_("CompiledFunction", ts + 20, 22, **{"Sequence number": ts})]


def backward(ts, of):
    return slice_("CompiledFunctionBackward", ts, 40, tid=AUTOGRAD, **{"Sequence number": of})


def test_only_calls_in_steps_count(tmp_path):
    events = [*call(0), step(1, 90, 200), *call(100), backward(200, 100), backward(300, 0)]
    made = profile_with(tmp_path, events)
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
    events = [*call(0), *launch("forward", 25, 60, 3), backward(100, 0)]
    made = profile_with(tmp_path, [*events, *launch("backward", 110, 150, 4, tid=AUTOGRAD)])
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
    events = [slice_("TorchDynamo Cache Lookup", 0, 5), region("0/0", 6, 50), slice_("aten::addmm", 20, 8)]
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


def compiled(compile_id, **fields):
    key = pb.CompileKey(compile_id=compile_id)
    return pb.Compilation(key=key, function="f", duration_ns=10**9, graph_ops=3, **fields)


def facts(table):
    return [
        (row.key, row.status, row.calls, row.guard_us_per_call, row.host_us_per_call)
        for row in table.compilations
    ]


def test_a_region_is_part_of_the_row_of_its_compilation(tmp_path):
    events = [*call(0), *call(100), backward(200, 0)]
    rows = [compiled("0/0"), compiled("1/0"), compiled("0/0", direction=pb.BACKWARD, start_ns=1)]
    data = data_of(pb.CompileSummary(compilations=rows))
    table = compilation_table(profile_with(tmp_path, events, data))
    assert sorted(facts(table)) == [
        ("0/0,0,backward", "compiled", 1, None, 40),
        ("0/0,0,forward", "compiled", 2, 5, 50),
        ("1/0,0,forward", "compiled", None, None, None),
    ]
    assert table.sentences[0] == "2 compilations without problems." and not table.uses_cuda_graphs
    assert table.sentences[1].startswith("Guards and wrappers of 2 calls take 16.0 µs in this span")
    alone = compilation_table(data)
    assert alone.sentences == table.sentences[:1] and {row.calls for row in alone.compilations} == {None}


@pytest.mark.parametrize("logged", [True, False])
def test_what_ran_without_a_compilation_has_a_row(tmp_path, logged):
    """All without a log; with one, a backward that was compiled with its forward."""
    data = data_of(pb.CompileSummary(compilations=[compiled("0/0")])) if logged else None
    table = compilation_table(profile_with(tmp_path, [*call(0), backward(200, 0)], data))
    assert facts(table) == [
        ("0/0,0,forward", "compiled" if logged else None, 1, 5, 50),
        ("0/0,0,backward", None, 1, None, 40),
    ]


def a_step(function="train.py(3): step"):
    """A step of 100 µs: a region of 60 that launches 30 µs of work, and an eager operator that launches 10."""
    events = [step(1, 0, 100), frame(function, 0, 99), *compiled_call("0/0", (10, 60), (12, 50))]
    events += [*launch("triton_poi_fused_add_0", 20, 25, 30), slice_("aten::mul", 80, 10)]
    return [*events, *launch("k", 82, 90, 10)]


def test_shares_are_of_what_a_step_launched_and_of_its_time(tmp_path):
    summary = pb.CompileSummary()
    for ops in (0, 3):
        summary.compilations.add(graph_ops=ops).key.compile_id = f"{ops}/0"
    share = coverage(profile_with(tmp_path, a_step(), data_of(summary)))
    assert share == CompiledShare(gpu_percent=75, host_percent=60, empty_compilations=1)


def test_unknown_is_none(tmp_path):
    assert coverage(profile_with(tmp_path, [slice_("aten::mm", 0, 5)])) == CompiledShare(None, 0, None)


def test_why_an_operator_ran_eager(tmp_path):
    def why(function):
        folder = tmp_path / function.partition(": ")[2]
        (row,) = [
            row for row in eager_time(profile_with(folder, a_step(function))).ops if row.name == "aten::mul"
        ]
        return row.why

    assert why("train.py(3): step") == "not_compiled"
    assert why("pytorch_lightning/profilers/pytorch.py(72): _start_recording_forward") == "profiler_hook"


def test_breaks_leave_a_part_eager(recording):
    (path,) = recording("breaks").rglob("*.pt.trace.json")
    profile = profile_of(path)
    share = coverage(profile)
    assert share.gpu_percent is not None and share.host_percent is not None
    assert 80 < share.gpu_percent < 90 and 70 < share.host_percent < 80
    assert {row.why for row in eager_time(profile).ops if row.kind == "graph_break"} == {"graph_break"}
