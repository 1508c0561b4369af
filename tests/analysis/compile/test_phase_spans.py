"""The columns of the icicle: every span once, in a row of its own."""

from collections import defaultdict
from itertools import pairwise
from typing import Any

import pytest

from profiles import data_of
from recordings import Recording
from tb_torchcompile_plugin.analysis.compile.compile_time import WORKERS, PhaseSpans, phase_spans
from tb_torchcompile_plugin.compile_log.summary_pb2 import CompileKey, CompileSummary, PhaseSpan
from tb_torchcompile_plugin.reader.torch_trace.structured_log import read_log

KEY = CompileKey(compile_id="0/0")


def span(name: str, start_us: int, duration_us: int, **fields: Any) -> PhaseSpan:
    return PhaseSpan(
        **{"key": KEY, "thread": 7, **fields},
        name=name,
        start_ns=10**18 + start_us * 1000,
        duration_ns=duration_us * 1000,
    )


def drawn(answer: PhaseSpans) -> list[tuple[str, str, int]]:
    columns = answer.spans
    return [
        (answer.names[name], answer.threads[thread], depth)
        for name, thread, depth in zip(columns.name, columns.thread, columns.depth, strict=True)
    ]


def test_a_span_inside_another_is_one_row_lower() -> None:
    rows = [span("inner", 10, 20), span("outer", 0, 100), span("last", 40, 60), span("next", 100, 5)]
    answer = phase_spans(data_of(CompileSummary(spans=rows)))
    assert drawn(answer) == [
        ("outer", "thread 1", 0),
        ("inner", "thread 1", 1),
        ("last", "thread 1", 1),
        ("next", "thread 1", 0),
    ]
    assert answer.spans.start_us == [0.0, 10.0, 40.0, 100.0]
    assert answer.spans.duration_us == [100.0, 20.0, 60.0, 5.0]
    assert answer.origin_s == 1e9


def test_spans_that_cross_do_not_cover_one_another() -> None:
    rows = [span("a", 0, 100), span("b", 50, 100), span("c", 120, 10)]
    assert drawn(phase_spans(data_of(CompileSummary(spans=rows)))) == [
        ("a", "thread 1", 0),
        ("b", "thread 1", 1),
        ("c", "thread 1", 2),
    ]


def test_compile_workers_have_a_lane_of_their_own_and_lie_side_by_side() -> None:
    rows = [
        span("entire_frame_compile", 0, 100),
        span("compile_file", 10, 50, key=CompileKey(), worker_process=True),
        span("compile_file", 20, 50, key=CompileKey(), worker_process=True),
        span("compile_file", 65, 5, key=CompileKey(), worker_process=True),
    ]
    answer = phase_spans(data_of(CompileSummary(spans=rows)))
    assert [depth for _, thread, depth in drawn(answer) if thread == WORKERS] == [0, 1, 0]
    assert answer.threads == ["thread 1", WORKERS]
    assert answer.spans.compile_id == [0, -1, -1, -1]


def test_threads_are_numbered_and_a_log_has_none() -> None:
    assert phase_spans(
        data_of(CompileSummary(spans=[span("a", 0, 1), span("b", 2, 1, thread=99)]))
    ).threads == ["thread 1", "thread 2"]
    assert phase_spans(data_of(CompileSummary(spans=[span("a", 0, 1, thread=0)]))).threads == ["all threads"]


def test_nothing_compiled() -> None:
    answer = phase_spans(data_of(CompileSummary()))
    assert (answer.threads, answer.names, answer.origin_s, answer.spans.start_us) == ([], [], None, [])


@pytest.mark.parametrize("program", ["breaks", "resnet18", "recompiles", "ddp"])
def test_every_span_of_a_recording_is_drawn_once_and_none_covers_another(
    recording: Recording, program: str
) -> None:
    for log in recording(program).glob("*.log"):
        summary = read_log(str(log))
        answer = phase_spans(data_of(summary))
        columns = answer.spans
        assert len(columns.start_us) == len(summary.spans)
        rows = defaultdict(list)
        for start, duration, thread, depth in zip(
            columns.start_us, columns.duration_us, columns.thread, columns.depth, strict=True
        ):
            rows[thread, depth].append((start, start + duration))
        for spans in rows.values():
            spans.sort()
            # a hair of 1 ns: microseconds as doubles
            assert all(end <= start + 0.001 for (_, end), (start, _) in pairwise(spans))
