"""One odd value, at any field of any kind of record: it costs no more than its record, live and in a log."""

import json
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from compile_records import (
    LONE_SURROGATE,
    a_compilation,
    line,
    odd_values,
    picks,
    places,
    records_of,
    summary_of,
    with_value,
)
from profiles import WORKER_QUESTIONS
from recordings import Recording
from tb_torchcompile_plugin.compile_log.record import Record
from tb_torchcompile_plugin.compile_log.summary_pb2 import CompileSummary
from tb_torchcompile_plugin.logdir.discovery import File
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.reader.torch_trace.structured_log import read_log

LOGS = ("breaks", "max_autotune")
WITNESS = a_compilation("77/0", 10**9)  # what must not be harmed
LARGEST = 20_000  # characters of a payload: a graph is text, and long


def kind(record: Record) -> str:
    """Of marks also whose they are."""
    value: Any = next(iter(record.metadata))
    named = json.loads(record.payload) if value == "chromium_event" and record.payload else record.metadata
    named = named.get("artifact", named)
    return f"{value} {named.get('name')} {named.get('ph')}"


@pytest.fixture(scope="module")
def records(recording: Recording) -> list[Record]:
    """The first of each kind."""
    logs = [path for name in LOGS for path in recording(name).rglob("*torch_trace*.log")]
    many = [one for path in logs for one in records_of(path.read_bytes())]
    few = {kind(one): one for one in reversed(many) if len(one.payload or "") < LARGEST}
    return list(reversed(few.values()))


def changed(record: Record, place: int, value: Any) -> Record:
    """With a value in place of one of those in its metadata, or in its payload where that is JSON."""
    parts: dict[str, Any] = {"metadata": record.metadata}
    if record.payload is not None and record.payload[:1] in "{[":
        parts["payload"] = json.loads(record.payload)
    everywhere = [(name, one) for name, part in parts.items() for one in places(part)]
    name, where = everywhere[place % len(everywhere)]
    odd = with_value(parts[name], where, value)
    if name == "payload":
        return replace(record, payload=json.dumps(odd))
    return replace(record, metadata=odd if isinstance(odd, dict) else {"artifact": odd})


def check(summary: CompileSummary, records: int) -> None:
    counts = summary.records
    assert sum(counts.by_kind.values()) + sum(counts.unreadable.values()) >= records
    (witness,) = (row for row in summary.compilations if row.key.compile_id == "77/0")
    assert witness.duration_ns == 1_000_000 and witness.function == "forward"
    assert CompileSummary.FromString(summary.SerializeToString()) == summary


@given(picks, picks, odd_values)
def test_it_costs_its_record(
    tmp_path_factory: pytest.TempPathFactory, records: list[Record], which: int, place: int, value: Any
) -> None:
    at = which % len(records)
    odd = [*records[:at], changed(records[at], place, value), *records[at + 1 :], *WITNESS]
    check(summary_of(odd, payloads=True), len(odd))
    path = tmp_path_factory.mktemp("odd") / "torch_trace_1.log"
    path.write_bytes(b"".join(map(line, odd)))
    summary = read_log(str(path))
    check(summary, len(odd))
    data = CompileData(summary, "torch_trace", str(path), [], File(str(path), 0, 0, ""))
    for ask in WORKER_QUESTIONS.values():
        msgspec.json.encode(data.of(ask))


@given(st.sampled_from(["rank", "attempt", "frame_id"]), odd_values)
@example("rank", "x")
@example("attempt", 2**64)
def test_so_does_an_odd_envelope(name: str, value: Any) -> None:
    odd = Record({"describe_source": {}, "frame_id": 0, "frame_compile_id": 0, name: value})
    check(summary_of([odd, *WITNESS]), 1 + len(WITNESS))


def test_a_lone_surrogate_in_a_name_costs_nothing() -> None:
    """Names of files that are no UTF-8 hold them."""
    records = a_compilation()
    for record in records:
        if record.payload is None and "compilation_metrics" in record.metadata:
            record.metadata["compilation_metrics"]["co_filename"] = LONE_SURROGATE
    summary = summary_of(records, payloads=True)
    assert [row.file for row in summary.compilations] == ["file ?"] and not summary.records.unreadable
    assert summary.SerializeToString()
