"""The whole reading of one file: head, segments, table, notices."""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tb_torchcompile_plugin.errors import Notice, TorchCompilePluginError
from tb_torchcompile_plugin.reader.kineto_decode import Array, Decoder
from tb_torchcompile_plugin.reader.kineto_head import Head, Surroundings, find_head, read_surroundings
from tb_torchcompile_plugin.reader.kineto_segment import MAX_TAIL, NO_LIMIT, SegmentReader, Stop
from tb_torchcompile_plugin.reader.kineto_source import Source, open_source
from tb_torchcompile_plugin.reader.kineto_table import (
    Contents,
    FileSink,
    MemorySink,
    Piece,
    Sink,
    Vocabulary,
    build,
)

SEGMENT_BYTES = 16 << 20


class Cancelled(TorchCompilePluginError):
    """Reading ended because the caller asked for it."""


@dataclass(frozen=True)
class Progress:
    """How far reading is. seconds_left: an estimate, None while there is none."""

    file: str
    bytes_read: int
    bytes_total: int
    events: int
    seconds_left: float | None


@dataclass
class Result:
    """What reading a file gave."""

    path: str
    columns: dict[str, Array]
    contents: Contents
    metadata: dict[str, Any]
    notices: list[Notice]


@dataclass
class Outcome:
    """What came of the event array: pieces in file order, where it stopped, what follows it, why it broke off."""

    pieces: list[Piece]
    stop: Stop
    tail: bytes | None
    problem: str


class Meter:
    """Tells the caller how far reading is, at most every `_EVERY` seconds, and asks whether to go on."""

    _EVERY = 0.1

    def __init__(
        self,
        path: str,
        total: int,
        progress: Callable[[Progress], None] | None,
        cancelled: Callable[[], bool] | None,
    ) -> None:
        self._path, self._total = path, total
        self._progress, self._cancelled = progress, cancelled
        self._start = time.monotonic()
        self._last = 0.0

    def check(self) -> None:
        """Raise Cancelled if the caller wants no more."""
        if self._cancelled is not None and self._cancelled():
            raise Cancelled(f"reading {self._path} was cancelled")

    def at(self, consumed: int, events: int) -> None:
        """So many bytes of the file and events are read."""
        self.check()
        now = time.monotonic()
        if self._progress is None or (now - self._last < self._EVERY and consumed < self._total):
            return
        self._last = now
        elapsed = now - self._start
        left = elapsed * (self._total - consumed) / consumed if consumed and elapsed > 0.2 else None
        self._progress(Progress(self._path, min(consumed, self._total), self._total, events, left))


def ingest(
    path: str,
    progress: Callable[[Progress], None] | None,
    cancelled: Callable[[], bool] | None,
    workers: int | None,
    chunk_bytes: int,
    directory: Path | None = None,
) -> Result:
    """Read `path`; columns go to files in `directory`, or where they fit best if it is None."""
    source = open_source(path)
    try:
        before = os.stat(path)
        meter = Meter(path, source.size, progress, cancelled)
        head = find_head(source)
        outcome = read_in_process(source, head, meter, chunk_bytes)
        contents, columns = _finish(outcome, source.size, directory, meter)
        contents.file = (before.st_size, before.st_mtime_ns)
        around = read_surroundings(head, outcome.tail)
        notices = _notices(path, outcome, contents, around)
        notices += _changed(path, before)
        meter.at(source.size, contents.events)
        return Result(path, columns, contents, around.metadata, notices)
    finally:
        source.close()


def read_in_process(source: Source, head: Head, meter: Meter, chunk_bytes: int) -> Outcome:
    """The event array, read by this process, one segment after the other."""
    decoder = Decoder()
    reader = SegmentReader(source, decoder, chunk_bytes)
    vocabulary, pieces, events = Vocabulary(), [], 0
    stop = Stop("more", head.start)
    limit = head.start
    with _without_gc():
        while stop.state == "more":
            limit = max(limit, stop.offset) + SEGMENT_BYTES
            stop = reader.run(
                stop.offset, limit, lambda at: meter.at(source.consumed(at), events + decoder.events)
            )
            part = decoder.take()
            events += part.events
            pieces.append(Piece(part, vocabulary))
    vocabulary.learn(decoder)
    return Outcome(pieces, stop, read_tail(source, stop), source.problem)


def read_tail(source: Source, stop: Stop) -> bytes | None:
    """What follows the `]` of the event array; None where it was not reached."""
    return source.read(stop.offset + 1, MAX_TAIL) if stop.state == "end" else None


@contextmanager
def _without_gc() -> Iterator[None]:
    # millions of short-lived objects and no cycles among them: collecting would cost as much as decoding
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _finish(
    outcome: Outcome, size: int, directory: Path | None, meter: Meter
) -> tuple[Contents, dict[str, Array]]:
    if directory is not None:
        sink: Sink = FileSink(directory)
        return build(outcome.pieces, sink, meter.check), sink.columns()
    if size < SEGMENT_BYTES:
        sink = MemorySink()
        return build(outcome.pieces, sink, meter.check), sink.columns()
    folder = tempfile.mkdtemp(prefix="tb_torchcompile_")
    try:
        sink = FileSink(Path(folder))
        contents = build(outcome.pieces, sink, meter.check)
        columns = sink.columns()
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    # the maps keep the data where the system allows to unlink a mapped file; elsewhere it goes with the table
    weakref.finalize(next(iter(columns.values())), shutil.rmtree, folder, True)
    return contents, columns


def _changed(path: str, before: os.stat_result) -> list[Notice]:
    try:
        now = os.stat(path)
    except OSError:
        return [Notice(path, "the file was removed while it was read", "what was read is shown")]
    if (now.st_size, now.st_mtime_ns) == (before.st_size, before.st_mtime_ns):
        return []
    return [
        Notice(
            path, "the file changed while it was read", "its state at the start of reading is shown", "Reload"
        )
    ]


def _notices(path: str, outcome: Outcome, contents: Contents, around: Surroundings) -> list[Notice]:
    kept = f"{contents.events} events were read and are shown"
    found = []
    if outcome.problem:
        found.append(Notice(path, outcome.problem, kept, "Copy or record the file again"))
    elif outcome.stop.state == "eof":
        step = "If the profiler is still writing it, reload later; else record it again"
        found.append(Notice(path, "the trace is cut off: the file ends before its events do", kept, step))
    for why, (count, offset) in sorted(contents.losses.items()):
        where = f", the first at byte {offset}" if offset >= 0 else ""
        found.append(Notice(path, f"{count} {why}{where}", kept))
    if around.problem:
        extra = f" ({around.second_document_events} events)" if around.second_document_events else ""
        found.append(Notice(path, around.problem + extra, kept))
    pairs = contents.phases.get("B", 0) + contents.phases.get("E", 0)
    if pairs:
        found.append(
            Notice(
                path, f"{pairs} events that only begin or end (ph B and E) are counted but not shown", kept
            )
        )
    if not contents.events and not found:
        found.append(Notice(path, "the trace holds no events", "", "Check that the profiler was active"))
    return found
