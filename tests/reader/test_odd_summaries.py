"""One odd value, in any field of a summary: every question has an answer all the same."""

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compile_records import ODD, picks, put_anywhere
from profiles import SPAN, SPAN_QUESTIONS, WORKER_QUESTIONS, ask, data_of, profile_with
from recordings import Recording
from tb_torchcompile_plugin.analysis.compile.cache_keys import Start, Starts
from tb_torchcompile_plugin.analysis.compile.compilation_details import compilation, guard_checks
from tb_torchcompile_plugin.analysis.compile.startup import startup
from tb_torchcompile_plugin.analysis.runtime.kernels import code_kernels
from tb_torchcompile_plugin.compile_log.summary import load
from tb_torchcompile_plugin.compile_log.summary_pb2 import CompileKey, CompileSummary, PythonSamples
from tb_torchcompile_plugin.errors import UserError
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.compile_data import CompileData, read_payload, without_impossible
from tb_torchcompile_plugin.reader.trace.kineto import Trace
from traces import AUTOGRAD, BASE_NS, MAIN, PID, launch, slice_, step

RECORDED = ("handler_breaks", "max_autotune")
odd = st.sampled_from(ODD)


@pytest.fixture(scope="module")
def recorded(recording: Recording) -> list[CompileSummary]:
    known = [load(str(next(recording(name).rglob("*.pb")))) for name in RECORDED]
    return [*known, with_all(known[0])]


def with_all(summary: CompileSummary) -> CompileSummary:
    """With a row of each kind that these recordings have none of."""
    whole, key = CompileSummary(), CompileKey(compile_id="0/0")
    whole.CopyFrom(summary)
    for name in ("aot/0", "export/0"):
        whole.compilations.add(key=CompileKey(compile_id=name), start_ns=1, duration_ns=5, function="export")
    whole.cache_transfers.add(load=True, start_ns=1, duration_ns=5, size=7).entries["inductor"] = 2
    functions = whole.cuda_graph_trees.add(pool_bytes=5, warm_ups=1).functions
    functions.add(key=key, warmed_up=True).recordings.add(graph_id=1, reason="first", sizes=[8])
    whole.shape_events.add(key=key, kind="create_symbol", symbol="s1", value="8", source="L['x'].size()[0]")
    whole.recompiles.add(
        key=CompileKey(compile_id="0/1"),
        reasons=["0/0: tensor 'x' size mismatch at index 0. expected 4, actual 8"],
    )
    whole.steps.first.add(end_ns=9, compiled=True)
    whole.steps.first.add(start_ns=9, end_ns=11)
    whole.environment.pid = PID
    samples = PythonSamples(threads=[MAIN, AUTOGRAD], start_ns=[BASE_NS, 2_000], duration_ns=[2_000, 9_000])
    samples.MergeFrom(PythonSamples(samples=[1, 4], thread=[0, 1], line=[0, 1]))
    whole.python_samples.CopyFrom(samples)
    for number in (3, 4):
        whole.python_samples.lines.add(file="train.py", line=number, function="step", called="json(1): loads")
    return whole


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    """Three steps that call one compiled region each."""
    events = []
    for begin in (0, 100, 200):
        events += [step(begin, begin, 100), slice_("TorchDynamo Cache Lookup", begin + 1, 2)]
        events += [slice_("Torch-Compiled Region: 0/0", begin + 4, 60)]
        events += [slice_("CompiledFunction", begin + 10, 50)]
        events += launch("triton_poi_fused_add_0", begin + 15, begin + 20, 30)
    return profile_with(tmp_path_factory.mktemp("odd"), events).trace


@given(st.sampled_from(range(len(RECORDED) + 1)), picks, picks, odd)
def test_every_question_has_an_answer(
    recorded: list[CompileSummary], trace: Trace, which: int, place: int, one: int, value: Any
) -> None:
    summary = CompileSummary()
    summary.CopyFrom(recorded[which])
    put_anywhere(summary, place, one, value)
    data = data_of(without_impossible(CompileSummary.FromString(summary.SerializeToString())))
    for question in WORKER_QUESTIONS.values():
        msgspec.json.encode(data.of(question))
    others = [Start("b", "w", rank, data_of(one)) for rank, one in enumerate((summary, *recorded))]
    msgspec.json.encode(startup(Starts(Start("a", "w", None, data), tuple(others))))
    for answer in about_one(data):
        with contextlib.suppress(UserError):
            msgspec.json.encode(answer())
    profile = Profile(trace, data, SPAN)
    for name in SPAN_QUESTIONS:
        msgspec.json.encode(ask(profile, name))


def about_one(data: CompileData) -> Iterator[Callable[[], Any]]:
    for row in data.summary.compilations:
        yield partial(compilation, data, row.key.epoch, row.key.compile_id)
        yield partial(guard_checks, data, row.key.epoch, row.key.compile_id)
    for number in range(len(data.summary.artifacts)):
        yield partial(read_payload, data, number)
        yield partial(code_kernels, data, number)


def test_times_that_cannot_be_are_taken_out_and_counted() -> None:
    summary = CompileSummary()
    summary.compilations.add(start_ns=2**63 - 1, duration_ns=5)
    summary.compilations.add(start_ns=1, duration_ns=7).phases.add(name="dynamo", exclusive_ns=8)
    summary.spans.add(name="dynamo", start_ns=1, duration_ns=-1)
    summary.spans.add(name="dynamo", start_ns=1, duration_ns=1)
    summary.steps.recorded_ns.append(2**62)
    repaired = without_impossible(summary)
    assert [row.HasField("start_ns") for row in repaired.compilations] == [False, True]
    assert not repaired.compilations[1].phases and len(repaired.spans) == 1 and not repaired.HasField("steps")
    assert sum(repaired.records.unreadable.values()) == 4


def test_metrics_that_are_no_json_are_taken_out_and_counted() -> None:
    summary = CompileSummary()
    for row in (summary.compilations.add(), summary.runtime_metrics.add()):
        row.metrics.update({"a": "\0", "b": "", "c": "NaN", "d": '"x"', "e": "1e999", "f": "[" * 3000})
    repaired = without_impossible(summary)
    for row in (repaired.compilations[0], repaired.runtime_metrics[0]):
        assert sorted(row.metrics) == ["c", "d", "e"]
    assert repaired.records.unreadable["metrics that are not JSON"] == 6
