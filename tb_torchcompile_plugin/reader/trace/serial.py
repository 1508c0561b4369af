"""Reading the event array in this process, and what both ways of reading share: progress, outcome, cancelling."""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tb_torchcompile_plugin.errors import TorchCompilePluginError
from tb_torchcompile_plugin.reader.trace.codes import Array
from tb_torchcompile_plugin.reader.trace.decode import Decoder, Piece, Vocabulary, spool_part
from tb_torchcompile_plugin.reader.trace.head import Head
from tb_torchcompile_plugin.reader.trace.segment import MAX_TAIL, SegmentReader, Stop
from tb_torchcompile_plugin.reader.trace.source import Source


class Cancelled(TorchCompilePluginError):
    """Reading ended because the caller asked for it."""


@dataclass(frozen=True)
class BytesRead:
    """How far reading is. seconds_left: an estimate, None while there is none."""

    file: str
    bytes_read: int
    bytes_total: int
    events: int
    seconds_left: float | None


Advance = Callable[[BytesRead], None]
Cancel = Callable[[], bool]  # asked now and then; true ends the reading with `Cancelled`


@dataclass
class Outcome:
    """What came of the event array."""

    pieces: list[Piece]  # in file order
    stop: Stop  # where it stopped
    tail: bytes | None  # what follows it
    problem: str  # why it broke off


class Meter:
    """Reports how far reading is, at most every `_EVERY` seconds, and asks whether to go on."""

    _EVERY = 0.1  # seconds

    def __init__(self, path: str, total: int, progress: Advance | None, cancelled: Cancel | None) -> None:
        self._path, self._total = path, total
        self._progress, self._cancelled = progress, cancelled
        self._start = time.monotonic()
        self._last = 0.0

    def check(self) -> None:
        """Raise Cancelled if the caller wants no more."""
        if self._cancelled is not None and self._cancelled():
            raise Cancelled(f"reading {self._path} was cancelled")

    def at(self, consumed: int, events: int) -> None:
        """Report that so many bytes of the file and events are read."""
        self.check()
        now = time.monotonic()
        if self._progress is None or now - self._last < self._EVERY:
            return
        self._last = now
        elapsed = now - self._start
        # of a shorter time than 0.2 s nothing follows; chosen by hand
        left = elapsed * (self._total - consumed) / consumed if consumed and elapsed > 0.2 else None
        self._progress(BytesRead(self._path, min(consumed, self._total), self._total, events, left))

    def at_end(self, events: int, seconds_left: float | None) -> None:
        """Report that all is read. seconds_left: None while the tables are still to come, for an unknown time."""
        if self._progress is not None:
            self._progress(BytesRead(self._path, self._total, self._total, events, seconds_left))


class Task(NamedTuple):
    """What is read, and how: `segment` bytes after another, decoded `chunk_bytes` at a time."""

    source: Source
    head: Head
    meter: Meter
    chunk_bytes: int
    segment: int


def read_in_process(task: Task, spool: str = "") -> Outcome:
    """Read the event array in this process, one segment after the other, its parts into the file `spool`, if named."""
    source, head, meter, chunk_bytes, segment = task
    decoder = Decoder()
    reader = SegmentReader(source, decoder, chunk_bytes)
    vocabulary = Vocabulary()
    pieces: list[Piece] = []
    stop = Stop("more", head.start)
    limit = head.start
    with without_gc():
        while stop.state == "more":
            limit = max(limit, stop.offset) + segment
            stop = reader.run(
                stop.offset,
                limit,
                lambda offset: meter.at(
                    source.consumed(offset), decoder.part.events + sum(piece.part.events for piece in pieces)
                ),
            )
            pieces.append(Piece(decoder.take(), vocabulary))
            if spool:
                with contextlib.suppress(OSError):  # what cannot be moved stays in memory
                    spool_part(pieces[-1].part, spool)
    vocabulary.learn(decoder)
    return Outcome(pieces, stop, read_tail(source, stop), source.problem)


def read_tail(source: Source, stop: Stop) -> bytes | None:
    """Return what follows the `]` of the event array; None where it was not reached."""
    return source.read(stop.offset + 1, MAX_TAIL) if stop.state == "end" else None


@contextlib.contextmanager
def without_gc() -> Iterator[None]:
    """Collect no garbage inside the context."""
    # millions of short-lived objects and no cycles among them: collecting would cost as much as decoding
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


_NARROW = np.iinfo(np.int32)


def narrow(values: Array) -> Array:
    """Return codes, ids or rows (-1: none) as int32, in half of the room, where all fit, otherwise as they are.

    Not for what is counted with: numbers of 32 bits overflow in silence.
    """
    fit = not len(values) or (values.min() >= _NARROW.min and values.max() <= _NARROW.max)
    return values.astype(np.int32, copy=False) if fit else values


class Sink:
    """Where finished columns go: into memory, or into one .npy file each, read back as memory maps."""

    def __init__(self, directory: Path | None = None) -> None:
        self._directory = directory
        self.columns: dict[str, Array] = {}

    def put(self, name: str, dtype: Any, count: int, blocks: Iterable[Array]) -> None:
        """Take over a column of `count` values, block by block."""
        if self._directory is None:
            self.columns[name] = np.concatenate([np.zeros(0, dtype), *blocks])
            return
        with open(self._directory / f"{name}.npy", "wb") as file:
            descr = np.lib.format.dtype_to_descr(np.dtype(dtype))
            np.lib.format.write_array_header_1_0(
                file, {"descr": descr, "fortran_order": False, "shape": (count,)}
            )
            for block in blocks:
                file.write(np.ascontiguousarray(block).data)
        self.columns[name] = load_column(self._directory, name)


def load_column(directory: Path, name: str) -> Array:
    """Return a column that a `Sink` wrote, as a read-only memory map (an empty one as an array)."""
    path = directory / f"{name}.npy"
    try:
        # as a plain array: those of the class memmap take six times as long to give a single element
        return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
    except ValueError:
        # an empty array cannot be mapped; any other damage fails here once more
        return np.load(path, allow_pickle=False)  # type: ignore[no-any-return]  # numpy types it Any
