"""One odd value, in any field of a summary: every question has an answer all the same."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compile_records import ODD, picks, put_anywhere
from profiles import SPAN, SPAN_QUESTIONS, WORKER_QUESTIONS, ask, data_of, profile_with
from tb_torchcompile_plugin.analysis.compilations.details import compilation, guard_checks
from tb_torchcompile_plugin.analysis.kernels.in_code import code_kernels
from tb_torchcompile_plugin.compile_log.summary import load
from tb_torchcompile_plugin.compile_log.summary_pb2 import CompileSummary
from tb_torchcompile_plugin.errors import UserError
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.artifact_text import read_payload
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.reader.summary_check import without_impossible
from tb_torchcompile_plugin.reader.trace.kineto import Trace
from traces import launch, slice_, step

RECORDED = ("handler_breaks", "max_autotune")
odd = st.sampled_from(ODD)


@pytest.fixture(scope="module")
def recorded(recording: Callable[[str], Path]) -> list[CompileSummary]:
    return [load(str(next(recording(name).rglob("*.pb")))) for name in RECORDED]


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


@given(st.sampled_from(range(len(RECORDED))), picks, picks, odd)
def test_every_question_has_an_answer(
    recorded: list[CompileSummary], trace: Trace, which: int, place: int, one: int, value: Any
) -> None:
    summary = CompileSummary()
    summary.CopyFrom(recorded[which])
    put_anywhere(summary, place, one, value)
    data = data_of(without_impossible(CompileSummary.FromString(summary.SerializeToString())))
    for question in WORKER_QUESTIONS.values():
        msgspec.json.encode(data.of(question))
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
    mended = without_impossible(summary)
    assert [row.HasField("start_ns") for row in mended.compilations] == [False, True]
    assert not mended.compilations[1].phases and len(mended.spans) == 1 and not mended.HasField("steps")
    assert sum(mended.records.unreadable.values()) == 4


def test_metrics_that_are_no_json_are_taken_out_and_counted() -> None:
    summary = CompileSummary()
    for row in (summary.compilations.add(), summary.runtime_metrics.add()):
        row.metrics.update({"a": "\0", "b": "", "c": "NaN", "d": '"x"', "e": "1e999"})
    mended = without_impossible(summary)
    assert (
        sorted(mended.compilations[0].metrics) == sorted(mended.runtime_metrics[0].metrics) == ["c", "d", "e"]
    )
    assert mended.records.unreadable["metrics that are no JSON"] == 4
