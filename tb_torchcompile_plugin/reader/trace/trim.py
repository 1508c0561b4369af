"""Cut a small trace out of a large one: the unchanged events of a window, with the same metadata."""

import math
import re
from collections.abc import Iterable, Iterator
from itertools import chain, compress
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
from isal import isal_zlib

from tb_torchcompile_plugin.errors import UserError
from tb_torchcompile_plugin.logdir.filesystem import Part
from tb_torchcompile_plugin.reader.trace.decode import file_identity, split_events
from tb_torchcompile_plugin.reader.trace.events import sound_object
from tb_torchcompile_plugin.reader.trace.kineto import Trace
from tb_torchcompile_plugin.reader.trace.source import Source, open_source
from tb_torchcompile_plugin.torch_names.slices import EXPORTED

Flags = npt.NDArray[np.bool_]
_ROUNDING_NS = 1  # a float of µs may be off by as much


class _Head(msgspec.Struct, gc=False):
    ph: str = ""
    ts: float | None = math.nan


_heads = msgspec.json.Decoder(list[_Head])


def trimmed(trace: Trace, start: int, end: int, path: str, added: Iterable[bytes] = ()) -> Iterator[bytes]:
    """Return as gzip a trace that holds every event of `trace` that touches [start, end], and all its metadata.

    start, end: ns as in `Trace.ts`. Events are kept as they were written, in the file's order; one that is no valid
    JSON is repaired. path: where the file is. added: events that follow these. Raises UserError at once if the file is
    not the one that was read.
    """
    source = open_source(path)
    if file_identity(path) != tuple(trace.file):
        source.close()
        raise UserError("the file has changed since it was read", file=trace.path, next_step="Reload")
    events = chain(_events(trace, source, start, end), added)
    return _gzipped(_document({EXPORTED: True, **trace.metadata}, source, events))


def of_process(trace: Trace, part: Part, path: str) -> Iterator[bytes]:
    """Return the trace of one process out of a file into which a tool merged several, as torch wrote it.

    path: where the file is. Only the first process has its `distributedInfo` there.
    """
    own = {"world_size": part.ranks, **trace.distributed, "rank": part.rank}
    source = open_source(path)
    return _document({**trace.metadata, "distributedInfo": own}, source, _part(trace, source, part.label))


def _part(trace: Trace, source: Source, label: str) -> Iterator[bytes]:
    of_part = re.compile(rb'("pid"\s*:\s*)"%s (?:(-?\d+)")?' % re.escape(label.encode()))
    for at, stop in zip(trace.columns["chunk.start"].tolist(), trace.columns["chunk.end"].tolist()):
        for event in split_events(source.read(at, stop - at)):
            event, count = of_part.subn(lambda pid: pid[1] + (pid[2] or b'"'), event, 1)
            if count:
                yield event


def _document(metadata: dict[str, Any], source: Source, events: Iterator[bytes]) -> Iterator[bytes]:
    try:
        metadata = {key: value for key, value in metadata.items() if key != "traceEvents"}
        text = msgspec.json.encode(metadata)
        yield text[:-1] + (b",\n" if metadata else b"") + b'"traceEvents": [\n'
        between = b""
        for event in events:
            yield between + event
            between = b",\n"
        yield b"\n]}\n"
    finally:
        source.close()


def _events(trace: Trace, source: Source, start: int, end: int) -> Iterator[bytes]:
    wanted = np.zeros(trace.events, bool)
    inside = (trace.ts <= end) & (trace.ts + trace.dur >= start)
    wanted[trace.event[inside]] = True
    starts, ends, firsts = (trace.columns[f"chunk.{name}"].tolist() for name in ("start", "end", "event"))
    for at, stop, first, following in zip(starts, ends, firsts, [*firsts[1:], trace.events]):
        text = source.read(at, stop - at)
        yield from _wanted_in(text, wanted[first:following], start, end)


def _wanted_in(text: bytes, wanted: Flags, start: int, end: int) -> Iterator[bytes]:
    try:
        heads = _heads.decode(b"[" + text + b"]")
    except (msgspec.DecodeError, ValueError, RecursionError):
        yield from _odd(text, wanted, start, end)
        return
    keep = [flag or _is_kept(head, start, end) for flag, head in zip(wanted.tolist(), heads)]
    if any(keep):
        yield from compress(split_events(text), keep)


def _is_kept(head: _Head, start: int, end: int) -> bool:
    """Whether an event that is no slice belongs to the window: names of threads always, others by their time."""
    if head.ph == "M":
        return True
    if head.ph == "X" or head.ts is None:
        return False
    return start - _ROUNDING_NS <= head.ts * 1000 <= end + _ROUNDING_NS


def _odd(text: bytes, wanted: Flags, start: int, end: int) -> Iterator[bytes]:
    """A chunk that does not decode as it is: events of odd types, or one event in whatever state."""
    for flag, raw in zip(wanted.tolist(), split_events(text)):
        sound = sound_object(raw)
        if sound is not None and (flag or _is_kept(_head_of(sound), start, end)):
            yield raw if _is_json(raw) else msgspec.json.encode(sound)


def _head_of(fields: dict[str, Any]) -> _Head:
    try:
        return _Head(str(fields.get("ph", "")), float(fields.get("ts", math.nan)))
    except (TypeError, ValueError, OverflowError):
        return _Head(str(fields.get("ph", "")))


def _is_json(text: bytes) -> bool:
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return False
    return True


def _gzipped(pieces: Iterator[bytes]) -> Iterator[bytes]:
    squeeze = isal_zlib.compressobj(2, isal_zlib.DEFLATED, 31)
    yield from filter(None, map(squeeze.compress, pieces))
    yield squeeze.flush()
