"""What the trace reader's tests share: comparing traces, and reading in stretches as worker processes do."""

import io
import itertools
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import numpy as np

from kineto_reference import FIELDS, Row
from tb_torchcompile_plugin.errors import visible
from tb_torchcompile_plugin.reader.trace import kineto as kineto_ingest
from tb_torchcompile_plugin.reader.trace.decode import Vocabulary
from tb_torchcompile_plugin.reader.trace.kineto import Trace
from tb_torchcompile_plugin.reader.trace.layout import Layout
from tb_torchcompile_plugin.reader.trace.pool import Reports, SegmentReport, SegmentWorker, assembled, receive
from tb_torchcompile_plugin.reader.trace.segment import Meter, Task
from tb_torchcompile_plugin.reader.trace.source import find_head, open_source, read_surroundings
from tb_torchcompile_plugin.reader.trace.table import Sink, build


@contextmanager
def as_json_alone() -> Iterator[None]:
    """Reading in this process without making use of torch's layout."""
    with mock.patch.object(Layout, "read", return_value=None):
        yield


def named(trace: Trace, name: str) -> list[int]:
    """Return the rows of the slices of this name."""
    return [row for row, code in enumerate(trace.name.tolist()) if trace.names[code] == name]


def assert_same(one: Trace, other: Trace) -> None:
    """Two readings of one file agree in everything but how the text was cut into chunks."""
    assert (one.events, one.phases, one.crossing) == (other.events, other.phases, other.crossing)
    assert (one.names, one.cats) == (other.names, other.cats)
    assert (one.tracks, one.texts) == (other.tracks, other.texts)
    assert one.metadata == other.metadata
    assert one.notices == other.notices
    assert one.columns.keys() == other.columns.keys()
    for name, values in one.columns.items():
        if not name.startswith("chunk."):
            assert values.dtype == other.columns[name].dtype
            np.testing.assert_array_equal(values, other.columns[name], err_msg=name)


def assert_equals_reference(trace: Trace, rows: list[Row]) -> None:
    """The trace holds exactly the reference reader's rows."""
    assert len(trace) == len(rows)
    assert trace.event.tolist() == [row.event for row in rows]
    assert [trace.names[code] for code in trace.name] == [visible(row.name) for row in rows]
    assert [trace.cats[code] for code in trace.cat] == [visible(row.cat) for row in rows]
    assert [(trace.tracks[t].pid, trace.tracks[t].tid) for t in trace.track] == [row.track for row in rows]
    assert trace.ts.tolist() == [row.ts for row in rows]
    assert trace.dur.tolist() == [row.dur for row in rows]
    assert trace.parent.tolist() == [row.parent for row in rows]
    assert trace.depth.tolist() == [row.depth for row in rows]
    assert trace.self_ns.tolist() == [row.own for row in rows]
    for column in FIELDS:
        assert trace.columns[column].tolist() == [row.ids[column] for row in rows], column


def read_in_stretches(path: Path, segment: int, chunk: int, workers: int = 2) -> Trace:
    """Read as the pool does, with its workers called one after the other in this process."""
    source = open_source(str(path))
    head = find_head(source)
    task = Task(str(path), source.size, head.start, chunk, segment)
    reports: Reports = {}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(workers):
            _collect(task, f"{folder}/{number}", itertools.count(number, workers), reports)
        meter = Meter(str(path), source.size, None, None)
        outcome = assembled(task, source, meter, reports, "")
        sink = Sink()
        contents = build(outcome.parts, sink, meter.check)
    source.close()
    status = os.stat(path)
    contents.file = (status.st_size, status.st_mtime_ns)
    metadata, problem = read_surroundings(head, outcome.stop.tail)
    notices = kineto_ingest._notices(str(path), outcome, contents, problem)
    return Trace(path=str(path), columns=sink.columns(), metadata=metadata, notices=notices, **vars(contents))


def _collect(task: Task, spool: str, indices: Iterator[int], reports: Reports) -> None:
    out, vocabulary = io.BytesIO(), Vocabulary()
    worker = SegmentWorker(task, spool, out)
    for index in indices:
        worker.read(index)
        out.seek(0)
        while not isinstance(report := receive(out), SegmentReport):
            pass
        out.seek(0)
        vocabulary.learn(report.part)
        reports[index] = report
        if report.stop.state != "more":
            break
    worker._source.close()
