"""Reads the segments of a file in several processes and puts their parts in order.

Segment i holds the events that start at the first separator at or behind its begin, found by whoever reads it,
up to the first separator at or behind the next one's. A segment counts only if it starts exactly where the one
before ended; what does not fit, or was lost with a process, is read again here, in this process. So a wrong guess
about a start costs time and never events.
"""

import contextlib
import gc
import itertools
import json
import os
import pickle
import queue
import struct
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from tb_torchcompile_plugin.reader.trace.decode import DecodedPart, Decoder, Piece, Vocabulary, spool_part
from tb_torchcompile_plugin.reader.trace.events import Combo
from tb_torchcompile_plugin.reader.trace.segment import (
    NO_LIMIT,
    Outcome,
    SegmentReader,
    Stop,
    Task,
    without_gc,
)
from tb_torchcompile_plugin.reader.trace.source import GzipSource, Source, open_source

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
    """Return the next message; None where the other side is gone."""
    header = stream.read(_LENGTH.size)
    if len(header) < _LENGTH.size:
        return None
    length = _LENGTH.unpack(header)[0]
    data = stream.read(length)
    return pickle.loads(data) if len(data) == length else None


class SegmentWorker:
    """Reads the segments that it is asked for."""

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
        self._events += self._decoder.part.events
        part = spool_part(self._decoder.take(), self._job.spool)
        self._report(SegmentReport(index, start, stop, part))
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
            send(self._out, WorkerProgress(done, self._events + self._decoder.part.events))

    def _report(self, report: SegmentReport) -> None:
        combos = list(self._decoder.combos)
        report.combos, self._known_combos = combos[self._known_combos :], len(combos)
        for name, interner in self._decoder.interners.items():
            words = list(interner)
            report.texts[name], self._known_texts[name] = words[self._known_texts[name] :], len(words)
        send(self._out, report)


def main() -> None:
    """Serve commands until stdin ends: an index, or (first, step) for stripes.

    A worker is started with `-c`, not through multiprocessing: the caller's `__main__` is never imported again, no
    thread state is forked, and a process whose caller has died ends at its next message, because the pipe is closed.
    """
    commands, out = sys.stdin.buffer, sys.stdout.buffer
    gc.disable()
    worker = SegmentWorker(receive(commands), out)
    while (command := receive(commands)) is not None:
        if isinstance(command, int):
            worker.read(command)
        else:
            worker.read_stripes(*command)
            send(out, None)


_BOOT = """
import json, sys
sys.path[:] = json.loads(sys.stdin.buffer.readline())
from tb_torchcompile_plugin.reader.trace.pool import main
main()
"""
_PACKAGES = str(Path(__file__).parents[3])  # no path leads to an editable install, but a hook of `site`
# Of a lean process. numpy starts no threads to multiply matrices, which spin while none are multiplied; memory of a
# chunk serves the next one, in large pages, and is not given back to the system in between (glibc alone reads these).
_LEAN = {
    "OPENBLAS_NUM_THREADS": "1",
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(256 << 20),
}
_LARGE_PAGES = "glibc.malloc.hugetlb=1"
_PATIENCE = 0.05  # seconds between looks at whether the caller has had enough


class _Process:
    """One worker process, and the thread that talks to it."""

    def __init__(self, number: int, job: Assignment, inbox: queue.Queue[Any], orders: Iterator[Any]) -> None:
        self.number, self._inbox, self._orders = number, inbox, orders
        self.vocabulary = Vocabulary()
        self._popen = subprocess.Popen(
            [sys.executable, "-S", "-E", "-c", _BOOT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=_lean(),
            start_new_session=True,  # Ctrl-C is for this process, which ends the worker
        )
        self._thread = threading.Thread(target=self._talk, args=(job,), daemon=True)
        self._thread.start()

    def _talk(self, job: Assignment) -> None:
        commands, reports = self._popen.stdin, self._popen.stdout
        assert commands is not None and reports is not None
        with contextlib.suppress(OSError, ValueError, EOFError):
            commands.write(json.dumps([*sys.path, _PACKAGES]).encode() + b"\n")
            send(commands, job)
            for order in self._orders:
                send(commands, order)
                while (message := receive(reports)) is not None:
                    self._inbox.put((self, message))
                    if isinstance(order, int) and isinstance(message, SegmentReport):
                        break
                else:
                    break
        self._inbox.put((self, None))

    def close(self) -> None:
        self._popen.kill()
        self._thread.join()
        self._popen.wait()
        for pipe in (self._popen.stdin, self._popen.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


def read_in_processes(task: Task, workers: int, folder: str) -> Outcome:
    """Read the event array with several processes. The columns of its parts are in `folder`. Raises Cancelled.

    Leaves no process behind.
    """
    reports: dict[int, tuple[SegmentReport, Vocabulary]] = {}
    inbox: queue.Queue[Any] = queue.Queue()
    source, head, _, chunk_bytes, segment = task
    packed = isinstance(source, GzipSource)
    count = max(1, -(-(source.size - head.start) // segment))
    # Shared by the threads that talk to the processes; each of them stops at a None.
    indices = deque[int | None]([*range(count), *[None] * workers])
    processes: list[_Process] = []
    try:
        for number in range(workers):
            spool = os.path.join(folder, f"spool-{number}")
            job = Assignment(source.path, source.size, head.start, segment, chunk_bytes, spool)
            orders: Iterator[Any] = iter([(number, workers)]) if packed else iter(indices.popleft, None)
            with contextlib.suppress(OSError):  # what no process reads is read by this one
                processes.append(_Process(number, job, inbox, orders))
        _collect(task, inbox, len(processes), reports)
    finally:
        for process in processes:
            process.close()
    return _Assembly(task, reports).run()


def _collect(
    task: Task, inbox: queue.Queue[Any], talking: int, reports: dict[int, tuple[SegmentReport, Vocabulary]]
) -> None:
    """Add what the processes report to `reports`, until none of them is talking any more."""
    moved: dict[int, WorkerProgress] = {}
    while talking:
        task.meter.check()
        try:
            process, message = inbox.get(timeout=_PATIENCE)
        except queue.Empty:
            continue
        if message is None:
            talking -= 1
        elif isinstance(message, WorkerProgress):
            moved[process.number] = message
            consumed = [worker.consumed for worker in moved.values()]
            events = sum(worker.events for worker in moved.values())
            packed = isinstance(task.source, GzipSource)  # each process inflates all of it
            task.meter.at(max(consumed) if packed else sum(consumed), events)
        else:
            process.vocabulary.learn_words(message.combos, message.texts)
            reports[message.index] = message, process.vocabulary


class _Assembly:
    """Puts reports in order and reads again what does not fit."""

    def __init__(self, task: Task, reports: dict[int, tuple[SegmentReport, Vocabulary]]) -> None:
        self._task, self._reports = task, reports
        self._again: tuple[SegmentReader, Decoder, Vocabulary, Source] | None = None
        self._pieces: list[Piece] = []

    def run(self) -> Outcome:
        begin, segment = self._task.head.start, self._task.segment
        stop = Stop("more", begin)
        last = max(self._reports, default=-1)
        try:
            for index in itertools.count():
                limit = begin + (index + 1) * segment
                report, vocabulary = self._reports.get(index, (None, None))
                if report is not None and vocabulary is not None and report.start == stop.offset:
                    self._pieces.append(Piece(report.part, vocabulary))
                    stop = report.stop
                elif stop.offset < limit:
                    stop = self._read_again(stop.offset, limit if index < last else NO_LIMIT)
                if stop.state != "more":
                    break
            return Outcome(self._pieces, stop)
        finally:
            if self._again:
                self._again[3].close()

    def _read_again(self, offset: int, limit: int) -> Stop:
        if self._again is None:
            source, decoder = open_source(self._task.source.path, self._task.source.size), Decoder()
            reader = SegmentReader(source, decoder, self._task.chunk_bytes)
            self._again = reader, decoder, Vocabulary(), source
        reader, decoder, vocabulary, _ = self._again
        with without_gc():
            stop = reader.run(offset, limit, lambda _: self._task.meter.check())
        self._pieces.append(Piece(decoder.take(), vocabulary))
        vocabulary.learn(decoder)
        return stop


def _lean() -> dict[str, str]:
    """Return the environment of a worker. What the user has set is kept."""
    tunables = filter(None, (_LARGE_PAGES, os.environ.get("GLIBC_TUNABLES")))
    return {**_LEAN, **os.environ, "GLIBC_TUNABLES": ":".join(tunables)}


def can_start_processes() -> bool:
    """Whether there is an interpreter to start workers with."""
    return bool(sys.executable) and Path(sys.executable).exists()
