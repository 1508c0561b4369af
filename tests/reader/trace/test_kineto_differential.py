"""The reader against a plain json.loads reader, on generated files; and against itself, however it cuts them up."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kineto_documents import documents
from kineto_helpers import assert_equals_reference, assert_same, read_in_stretches
from kineto_reference import read
from recordings import Recording
from tb_torchcompile_plugin.reader.trace.decode import Decoder
from tb_torchcompile_plugin.reader.trace.kineto import read_trace
from tb_torchcompile_plugin.reader.trace.segment import SegmentReader, Stop
from tb_torchcompile_plugin.reader.trace.source import find_head, open_source


@given(text=documents(), chunk=st.sampled_from([1, 64, 300, 4096, 131072]), packed=st.booleans())
def test_equals_a_plain_reader(
    tmp_path_factory: pytest.TempPathFactory, text: str, chunk: int, packed: bool
) -> None:
    path = tmp_path_factory.mktemp("t") / "t.json"
    path.write_bytes(gzip.compress(text.encode(), 1) if packed else text.encode())
    trace = read_trace(str(path), chunk_bytes=chunk)
    document = json.loads(text)
    events = document if isinstance(document, list) else document["traceEvents"]
    assert trace.events == len(events)
    assert not trace.notices or not events
    assert_equals_reference(trace, read(path))
    if isinstance(document, dict):
        assert trace.metadata == {key: value for key, value in document.items() if key != "traceEvents"}
    for row in range(0, len(trace), 5):
        assert trace.args(row) == events[int(trace.event[row])].get("args", {})


@pytest.mark.slow
@given(
    text=documents(max_events=40),
    segment=st.sampled_from([50, 333, 2000, 10**6]),
    chunk=st.sampled_from([64, 1024]),
    workers=st.integers(1, 3),
    packed=st.booleans(),
)
def test_does_not_depend_on_stretches(
    tmp_path_factory: pytest.TempPathFactory, text: str, segment: int, chunk: int, workers: int, packed: bool
) -> None:
    path = tmp_path_factory.mktemp("t") / "t.json"
    path.write_bytes(gzip.compress(text.encode(), 1) if packed else text.encode())
    assert_same(read_in_stretches(path, segment, chunk, workers), read_trace(str(path)))


@pytest.mark.parametrize("name", ["breaks", "resnet18", "resnet18_eager"])
def test_equals_a_plain_reader_on_recordings(recording: Recording, name: str) -> None:
    for path in recording(name).glob("*.pt.trace.json"):
        assert_equals_reference(read_trace(str(path)), read(path))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["breaks", "resnet18"])
def test_chunks_and_stretches_of_recordings(recording: Recording, tmp_path: Path, name: str) -> None:
    path = next(recording(name).glob("*.pt.trace.json"))
    whole = read_trace(str(path))
    for chunk in (1 << 10, 5000, 1 << 17, 8 << 20):
        assert_same(read_trace(str(path), chunk_bytes=chunk), whole)
    for segment in (30_000, 400_000):
        assert_same(read_in_stretches(path, segment, 16 << 10), whole)


def test_stretches_meet_without_reading_again(recording: Recording, monkeypatch: pytest.MonkeyPatch) -> None:
    starts, run = [], SegmentReader.run

    def noted(reader: SegmentReader, start: int, *limits: Any) -> Stop:
        starts.append(start)
        return run(reader, start, *limits)

    monkeypatch.setattr(SegmentReader, "run", noted)
    path = next(recording("breaks").glob("*.pt.trace.json"))
    read_in_stretches(path, 100_000, 16 << 10)
    assert len(starts) == len(set(starts)) > 1
    source = open_source(str(path))
    stop = SegmentReader(source, Decoder(), 16 << 10).run(find_head(source).start, 100_000, lambda _: None)
    source.close()
    assert stop.state == "more"
    assert 100_000 < stop.offset < 102_000
