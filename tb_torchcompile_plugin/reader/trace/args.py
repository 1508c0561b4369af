"""One event's JSON object, fetched from the file when somebody asks for it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

from tb_torchcompile_plugin.errors import UserError
from tb_torchcompile_plugin.reader.memo import Memo
from tb_torchcompile_plugin.reader.trace.codes import Array
from tb_torchcompile_plugin.reader.trace.repair import load_object, mend
from tb_torchcompile_plugin.reader.trace.source import open_source

_CHUNKS = 2  # of about 2 MB: slices that are asked for one after the other lie in as many
_raw_list = msgspec.json.Decoder(list[msgspec.Raw])


class ArgsReader:
    """Finds events by the chunk table. A gzip file is inflated up to the event's chunk, unless that is one of the last
    few that were asked for."""

    def __init__(self, path: str, columns: Mapping[str, Array], identity: tuple[int, int] | None) -> None:
        self._path, self._identity = path, identity
        self._start, self._end, self._event = (columns[f"chunk.{name}"] for name in ("start", "end", "event"))
        self._chunks = Memo(_CHUNKS)

    def read(self, event: int) -> tuple[int, dict[str, Any]]:
        """(byte offset, object) of an event. Raises UserError where the file is not the one that was read."""
        chunk = int(np.searchsorted(self._event, event, "right")) - 1
        start, end = int(self._start[chunk]), int(self._end[chunk])
        events = self._chunks.get(chunk, lambda: _split(self._read_text(start, end - start)), keep=bool)
        place = event - int(self._event[chunk])
        if self._has_changed() or place >= len(events):
            raise self._changed()
        at, raw = events[place]
        args = load_object(raw, float) or (mend(raw, float) or (None,))[0]
        if args is None:
            raise self._changed()
        return start + at, args

    def _read_text(self, start: int, count: int) -> bytes:
        source = open_source(self._path)
        try:
            if self._has_changed():
                raise self._changed()
            text = source.read(start, count)
        finally:
            source.close()
        if len(text) < count:
            raise self._changed()
        return text

    def _has_changed(self) -> bool:
        try:
            return self._identity is not None and file_identity(self._path) != tuple(self._identity)
        except OSError:
            return True  # it is gone

    def _changed(self) -> UserError:
        return UserError("the file has changed since it was read", file=self._path, next_step="Reload")


def file_identity(path: str) -> tuple[int, int]:
    """(size, mtime_ns): what tells one state of a file from another."""
    status = os.stat(path)
    return status.st_size, status.st_mtime_ns


def _split(text: bytes) -> list[tuple[int, bytes]]:
    """Each event of a chunk, and where in it that begins."""
    try:
        raws = _raw_list.decode(b"[" + text + b"]")
    except (msgspec.DecodeError, RecursionError):
        return [(0, text)]  # a run of its own: the text is one event, in whatever state
    events, end = [], 0
    for raw in map(bytes, raws):
        at = text.index(raw, end)
        end = at + len(raw)
        events.append((at, raw))
    return events
