"""The process that reads segments for `pool`: commands on stdin, reports on stdout, columns in a file.

Started with `-c`, not through multiprocessing: the caller's `__main__` is never imported again, no thread state is
forked, and a process whose caller has died ends at its next message, because the pipe is closed.
"""

from __future__ import annotations

import gc
import pickle
import struct
import sys
import time
from dataclasses import dataclass, field
from typing import IO, Any

from tb_torchcompile_plugin.reader.trace.codes import Combo
from tb_torchcompile_plugin.reader.trace.decode import DecodedPart, Decoder
from tb_torchcompile_plugin.reader.trace.pieces import spool_part
from tb_torchcompile_plugin.reader.trace.segment import MAX_TAIL, SegmentReader, Stop
from tb_torchcompile_plugin.reader.trace.source import open_source

_LENGTH = struct.Struct("<Q")
_EVERY = 0.1  # seconds between progress messages


@dataclass(frozen=True)
class Assignment:
    """What a worker needs to know once. start: offset of the first event's array; segment: bytes of one segment."""

    path: str
    size: int
    start: int
    segment: int
    chunk_bytes: int
    spool: str


@dataclass
class SegmentReport:
    """One segment. start is None where no event starts in it or behind. New words follow those of earlier reports."""

    index: int
    start: int | None
    stop: Stop
    part: DecodedPart
    combos: list[Combo] = field(default_factory=list)
    texts: dict[str, list[bytes]] = field(default_factory=dict)
    tail: bytes | None = None
    problem: str = ""


@dataclass(frozen=True)
class WorkerProgress:
    """Progress: bytes of the file that this worker got through, and its events, since it started."""

    consumed: int
    events: int


def send(stream: IO[bytes], message: Any) -> None:
    """Write one message."""
    data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    stream.write(_LENGTH.pack(len(data)) + data)
    stream.flush()


def receive(stream: IO[bytes]) -> Any:
    """The next message; None where the other side is gone."""
    header = stream.read(_LENGTH.size)
    if len(header) < _LENGTH.size:
        return None
    length = _LENGTH.unpack(header)[0]
    data = stream.read(length)
    return pickle.loads(data) if len(data) == length else None


class SegmentWorker:
    """Reads the segments it is told to."""

    def __init__(self, job: Assignment, out: IO[bytes]) -> None:
        self._job, self._out = job, out
        self._source = open_source(job.path, job.size)
        self._decoder = Decoder()
        self._reader = SegmentReader(self._source, self._decoder, job.chunk_bytes)
        self._known_combos, self._known_texts = 0, dict.fromkeys(self._decoder.interners, 1)
        self._consumed = self._events = 0
        self._last = time.monotonic()

    def read(self, index: int) -> bool:
        """Read and report one segment. False where the file ends before it."""
        begin = self._job.start + index * self._job.segment
        start = begin if index == 0 else self._reader.find_start(begin)
        if start is None:
            self._report(SegmentReport(index, None, Stop("eof", begin), self._decoder.take()))
            return False
        self._origin = self._source.consumed(start)
        stop = self._reader.run(start, begin + self._job.segment, self._tick)
        self._consumed += max(0, self._source.consumed(stop.offset) - self._origin)
        self._events += self._decoder.events
        report = SegmentReport(
            index,
            start,
            stop,
            spool_part(self._decoder.take(), self._job.spool),
            problem=self._source.problem,
        )
        if stop.state == "end":
            report.tail = self._source.read(stop.offset + 1, MAX_TAIL)
        self._report(report)
        return stop.state == "more"

    def read_stripes(self, first: int, step: int) -> None:
        """Read every `step`-th segment from `first` on."""
        index = first
        while self.read(index):
            index += step

    def close(self) -> None:
        """Close the file."""
        self._source.close()

    def _tick(self, offset: int) -> None:
        now = time.monotonic()
        if now - self._last >= _EVERY:
            self._last = now
            done = self._consumed + max(0, self._source.consumed(offset) - self._origin)
            send(self._out, WorkerProgress(done, self._events + self._decoder.events))

    def _report(self, report: SegmentReport) -> None:
        combos = list(self._decoder.combos)
        report.combos, self._known_combos = combos[self._known_combos :], len(combos)
        for name, interner in self._decoder.interners.items():
            words = list(interner)
            report.texts[name], self._known_texts[name] = words[self._known_texts[name] :], len(words)
        send(self._out, report)


def main() -> None:
    """Serve commands until stdin ends: an index, or (first, step) for stripes."""
    commands, out = sys.stdin.buffer, sys.stdout.buffer
    gc.disable()
    worker = SegmentWorker(receive(commands), out)
    while (command := receive(commands)) is not None:
        if isinstance(command, int):
            worker.read(command)
        else:
            worker.read_stripes(*command)
            send(out, None)
