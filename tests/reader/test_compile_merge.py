"""A summary and a log of one process as one: nothing is lost, nothing counts twice."""

import os
import random
from collections import Counter
from collections.abc import Iterable
from itertools import chain

import pytest

import compile_records
from compile_records import START_US, a_compilation, artifact, mark, records_of
from recordings import Recording
from tb_torchcompile_plugin.compile_log import summary_pb2 as pb
from tb_torchcompile_plugin.compile_log.record import Record
from tb_torchcompile_plugin.reader.merge import merge
from tb_torchcompile_plugin.reader.torch_trace.structured_log import read_log


def summary_of(records: Iterable[Record], recovered: pb.CompileSummary | None = None) -> pb.CompileSummary:
    return compile_records.summary_of(records, recovered=recovered, payloads=True)


def backward(begin_us: float, compile_id: str = "0/0") -> list[Record]:
    return [
        mark("B", "entire_backward_compile", begin_us, compile_id),
        artifact("a_backward_text", "x", compile_id),
        mark("E", "entire_backward_compile", begin_us + 500, compile_id),
    ]


def earlier(records: Iterable[Record]) -> pb.CompileSummary:
    """What is left of these once they are over and a recorder begins."""
    rows = [row for row in summary_of(records).compilations if row.HasField("duration_ns")]
    for row in rows:
        row.recovered = True
        del row.phases[:]
    return pb.CompileSummary(compilations=rows)


def ids(summary: pb.CompileSummary) -> list[tuple[str, int, int]]:
    return sorted((row.key.compile_id, row.key.epoch, row.direction) for row in summary.compilations)


def times(summary: pb.CompileSummary) -> Counter[tuple[int, str, int]]:
    return Counter((span.start_ns, span.name, span.thread) for span in summary.spans)


def test_the_forward_of_a_backward_that_was_recorded_is_that_of_the_log() -> None:
    before, after = a_compilation(), backward(20_000)
    merged = merge(summary_of(after, earlier(before)), summary_of([*before, *after]))
    values = [(row.direction, row.recovered, bool(row.phases)) for row in merged.compilations]
    assert values == [(pb.FORWARD, False, True), (pb.BACKWARD, False, True)]
    assert [text.name for text in merged.artifacts] == ["a_backward_text"]


def test_two_backwards_of_one_id_are_both_there() -> None:
    forward, first, second = a_compilation(), backward(20_000), backward(90_000)
    whole = summary_of([*forward, *first, *second])
    for recovered in (earlier([*forward, *first]), None):
        merged = merge(summary_of(second, recovered), whole)
        assert ids(merged) == ids(whole) and not any(row.recovered for row in merged.compilations)
        assert len(merged.artifacts) == 2 or recovered is None


def test_spans_of_no_compilation_are_told_apart_by_time() -> None:
    records = [
        [mark("B", "compile_file", at, ""), mark("E", "compile_file", at + 10, "")] for at in (0, 50, 90)
    ]
    merged = merge(summary_of(records[2]), summary_of(chain(*records)))
    assert [span.start_ns // 1000 - START_US for span in merged.spans] == [0, 50, 90]


def test_a_recorder_that_knows_of_no_reset_counts_epochs_as_the_log_does() -> None:
    before, after = a_compilation(), a_compilation(begin_us=3_000_000)
    third = [*a_compilation("1/0", 5_000_000), artifact("a_text", "x", "1/0")]
    live = summary_of([*after, *third])
    merged = merge(live, summary_of([*before, *after, *third]))
    assert ids(merged) == [("0/0", 0, pb.FORWARD), ("0/0", 1, pb.FORWARD), ("1/0", 1, pb.FORWARD)]
    assert len(merged.artifacts) == 1 and sum(times(merged).values()) == 3 * 3


def test_a_reset_in_the_middle_of_a_recording_that_began_late() -> None:
    """The recorder sees 1/0 of the first epoch and then 0/0 of the second, which it cannot tell from the first."""
    before, seen = a_compilation(), [*a_compilation("1/0", 2_000_000), *a_compilation("0/0", 4_000_000)]
    merged = merge(summary_of(seen), summary_of([*before, *seen]))
    assert ids(merged) == [("0/0", 0, pb.FORWARD), ("0/0", 1, pb.FORWARD), ("1/0", 0, pb.FORWARD)]


def test_a_log_that_lost_its_beginning_counts_epochs_as_the_summary_does() -> None:
    before, after = a_compilation(), a_compilation(begin_us=3_000_000)
    late = a_compilation("1/0", 5_000_000)
    merged = merge(summary_of(after, earlier(before)), summary_of([*after, *late]))
    assert ids(merged) == [("0/0", 0, pb.FORWARD), ("0/0", 1, pb.FORWARD), ("1/0", 1, pb.FORWARD)]


def test_without_times_the_epochs_stand() -> None:
    row = pb.Compilation(key=pb.CompileKey(compile_id="0/0", epoch=0), direction=pb.FORWARD)
    merged = merge(pb.CompileSummary(compilations=[row]), pb.CompileSummary(compilations=[row]))
    assert ids(merged) == [("0/0", 0, pb.FORWARD)]


@pytest.mark.parametrize("name", ["breaks", "resnet18", "recompiles", "ddp"])
@pytest.mark.parametrize("forgotten", [False, True], ids=["recovered", "forgotten"])
def test_wherever_a_recorder_begins_the_whole_is_that_of_the_log(
    recording: Recording, name: str, forgotten: bool
) -> None:
    choose = random.Random(f"{name} {forgotten}")
    for path in recording(name).glob("*.log"):
        records, whole = records_of(path.read_bytes()), read_log(os.fspath(path))
        assert ids(summary_of(records)) == ids(whole)
        for _ in range(8):
            at = choose.randrange(len(records))
            recovered = None if forgotten else earlier(records[:at])
            merged = merge(summary_of(records[at:], recovered), whole)
            assert ids(merged) == ids(whole), at
            assert times(merged) == times(whole), at
            assert not any(row.recovered for row in merged.compilations)
            assert graphs(merged) == graphs(whole), at


def graphs(summary: pb.CompileSummary) -> list[tuple[str, int, int]]:
    return sorted((row.key.compile_id, row.key.epoch, row.direction) for row in summary.graphs)


def test_packages_are_the_same_where_they_began_at_the_same_time() -> None:
    """The log heard one more, before the recorder was there."""

    def package(number: int, start_ns: int) -> pb.Compilation:
        return pb.Compilation(key=pb.CompileKey(compile_id=f"aot/{number}"), start_ns=start_ns, duration_ns=5)

    log = pb.CompileSummary(compilations=[package(0, 10**9), package(1, 9 * 10**9)])
    summary = pb.CompileSummary(compilations=[package(0, 9 * 10**9 + 1000)])
    summary.artifacts.add(key=summary.compilations[0].key, name="fx_graph_runnable")
    merged = merge(summary, log)
    values = [(row.key.compile_id, row.start_ns) for row in merged.compilations]
    assert values == [("aot/0", 10**9), ("aot/1", 9 * 10**9 + 1000)]
    assert [row.key.compile_id for row in merged.artifacts] == ["aot/1"]
