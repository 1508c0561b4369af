"""Reads the segments of a file, in several processes if it is large, and puts their parts in order.

Segment i holds the events that start at the first separator at or behind its begin, found by whoever reads it,
up to the first separator at or behind the next one's. A segment counts only if it starts exactly where the one
before ended; what does not fit, was lost with a process, or given to none, is read here, in this process. So a wrong
guess about a start costs time and never events.
"""

import contextlib
import gc
import itertools
import json
import os
import pickle
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from tb_torchcompile_plugin.reader.trace.decode import DecodedPart, Decoder, Vocabulary, spool_part
from tb_torchcompile_plugin.reader.trace.segment import Meter, Outcome, SegmentReader, Stop, Task, without_gc
from tb_torchcompile_plugin.reader.trace.source import GzipSource, Source, open_source


@dataclass
class SegmentReport:
    """One segment. start is None where no event starts in it or behind."""

    index: int
    start: int | None
    stop: Stop
    part: DecodedPart


@dataclass(frozen=True)
class WorkerProgress:
    """Progress: bytes of the file that this worker got through, and its events, since it started."""

    consumed: int
    events: int


def send(stream: IO[bytes], message: Any) -> None:
    """Write one message."""
    pickle.dump(message, stream, pickle.HIGHEST_PROTOCOL)
    stream.flush()


def receive(stream: IO[bytes]) -> Any:
    """Return the next message; None where the other side is gone."""
    try:
        return pickle.load(stream)
    except (EOFError, pickle.UnpicklingError):
        return None


class SegmentWorker:
    """Reads the segments that it is asked for, in their order."""

    def __init__(self, task: Task, spool: str, out: IO[bytes]) -> None:
        """spool: the file for the columns of its parts."""
        self._task, self._spool, self._out = task, spool, out
        self._source = open_source(task.path, task.size)
        self._decoder = Decoder()
        self._reader = SegmentReader(self._source, self._decoder, task.chunk_bytes)
        self._consumed = self._events = 0
        self._last = time.monotonic()

    def read(self, index: int) -> None:
        """Read and report one segment."""
        begin = self._task.start + index * self._task.segment
        start = begin if index == 0 else self._reader.find_start(begin)
        stop = Stop("eof", begin)
        if start is not None:
            self._origin = self._source.consumed(start)
            stop = self._reader.run(start, begin + self._task.segment, self._tick)
            self._consumed += max(0, self._source.consumed(stop.offset) - self._origin)
            self._events += self._decoder.part.events
        send(self._out, SegmentReport(index, start, stop, spool_part(self._decoder.take(), self._spool)))

    def _tick(self, offset: int) -> None:
        now = time.monotonic()
        if now - self._last >= Meter.EVERY_S:
            self._last = now
            done = self._consumed + max(0, self._source.consumed(offset) - self._origin)
            send(self._out, WorkerProgress(done, self._events + self._decoder.part.events))


def main() -> None:
    """Read the segments whose numbers come from stdin, until it ends.

    A worker is started with `-c`, not through multiprocessing: the caller's `__main__` is never imported again, no
    thread state is forked, and a process whose caller has died ends at its next message, because the pipe is closed.
    """
    commands, out = sys.stdin.buffer, sys.stdout.buffer
    gc.disable()
    task, spool = receive(commands)
    worker = SegmentWorker(task, spool, out)
    while (index := receive(commands)) is not None:
        worker.read(index)


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
    def __init__(
        self, number: int, task: Task, folder: str, inbox: queue.Queue[Any], indices: Iterator[int]
    ) -> None:
        self.number, self._inbox, self._indices = number, inbox, indices
        self.vocabulary = Vocabulary()
        self._popen = subprocess.Popen(
            [sys.executable, "-S", "-E", "-c", _BOOT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=_lean(),
            start_new_session=True,  # Ctrl-C is for this process, which ends the worker
        )
        self._thread = threading.Thread(
            target=self._talk, args=(task, os.path.join(folder, f"spool-{number}")), daemon=True
        )
        self._thread.start()

    def _talk(self, task: Task, spool: str) -> None:
        commands, reports = self._popen.stdin, self._popen.stdout
        assert commands is not None and reports is not None
        with contextlib.suppress(OSError, ValueError, EOFError):
            commands.write(json.dumps([*sys.path, _PACKAGES]).encode() + b"\n")
            send(commands, (task, spool))
            for index in self._indices:
                send(commands, index)
                while isinstance(message := receive(reports), WorkerProgress):
                    self._inbox.put((self, message))
                if message is None:
                    break
                self._inbox.put((self, message))
                if message.stop.state != "more":
                    break
        self._inbox.put((self, None))

    def close(self) -> None:
        self._popen.kill()
        self._thread.join()
        self._popen.wait()
        for pipe in filter(None, (self._popen.stdin, self._popen.stdout)):
            with contextlib.suppress(OSError):
                pipe.close()


Reports = dict[int, SegmentReport]  # by the number of the segment


def read_events(task: Task, source: Source, meter: Meter, workers: int, folder: str) -> Outcome:
    """Read the event array, in this process if `workers` is 1. The columns of its parts are in `folder`, if named.

    Raises Cancelled. Leaves no process behind.
    """
    reports: Reports = {}
    if workers > 1:
        reports = _reports(task, meter, workers, folder, packed=isinstance(source, GzipSource))
    with without_gc():
        return assembled(task, source, meter, reports, os.path.join(folder, "spool") if folder else "")


def _reports(task: Task, meter: Meter, workers: int, folder: str, *, packed: bool) -> Reports:
    """Return the parts that processes read. packed: each process decompresses the whole file."""
    inbox: queue.Queue[Any] = queue.Queue()
    indices = itertools.count()  # shared by the threads that talk to the processes
    processes: list[_Process] = []
    try:
        for number in range(workers):
            with contextlib.suppress(OSError):  # what no process reads is read by this one
                processes.append(_Process(number, task, folder, inbox, indices))
        return _collect(meter, inbox, len(processes), max if packed else sum)
    finally:
        for process in processes:
            process.close()


def _collect(
    meter: Meter, inbox: queue.Queue[Any], talking: int, together: Callable[[list[int]], int]
) -> Reports:
    """Return what the processes report, when none of them is talking any more.

    together: how far all are, by how far each is.
    """
    reports: Reports = {}
    moved: dict[int, WorkerProgress] = {}
    while talking:
        meter.check()
        try:
            process, message = inbox.get(timeout=_PATIENCE)
        except queue.Empty:
            continue
        if message is None:
            talking -= 1
        elif isinstance(message, WorkerProgress):
            moved[process.number] = message
            events = sum(worker.events for worker in moved.values())
            meter.at(together([worker.consumed for worker in moved.values()]), events)
        else:
            process.vocabulary.learn(message.part)
            reports[message.index] = message
    return reports


def assembled(task: Task, source: Source, meter: Meter, reports: Reports, spool: str) -> Outcome:
    """Put reports in order, and read what is missing or does not fit. spool: a file for the columns of that, or ""."""
    decoder, vocabulary = Decoder(), Vocabulary()
    reader = SegmentReader(source, decoder, task.chunk_bytes)
    parts: list[DecodedPart] = []

    def tick(offset: int) -> None:
        meter.at(source.consumed(offset), sum(part.events for part in parts) + decoder.part.events)

    limit, stop = task.start, Stop("more", task.start)
    for index in itertools.count():
        limit += task.segment
        if (report := reports.get(index)) is not None and report.start == stop.offset:
            parts.append(report.part)
            stop = report.stop
        elif stop.offset < limit:
            stop = reader.run(stop.offset, limit, tick)
            part = decoder.take()
            vocabulary.learn(part)
            parts.append(part)
            if spool:
                with contextlib.suppress(OSError):  # what cannot be moved stays in memory
                    spool_part(part, spool)
        if stop.state != "more":
            break
    return Outcome(parts, stop)


def _lean() -> dict[str, str]:
    """Return the environment of a worker. What the user has set is kept."""
    tunables = filter(None, (_LARGE_PAGES, os.environ.get("GLIBC_TUNABLES")))
    return {**_LEAN, **os.environ, "GLIBC_TUNABLES": ":".join(tunables)}


def can_start_processes() -> bool:
    """Whether there is an interpreter to start workers with."""
    return bool(sys.executable) and Path(sys.executable).exists()
