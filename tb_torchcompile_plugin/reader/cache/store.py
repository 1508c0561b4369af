"""Store parsed traces: `open_trace` reads a file once and maps its columns from the user's cache ever after.

An entry is a directory of the file `columns` and of `contents`, which contains all else, where each column is, and the
checksums of both.
It is named after the trace's path, size, modification time and the format version. An entry that does not check out
is thrown away, and the trace read again. Nothing is ever written next to the trace.
"""

import contextlib
import json
import logging
import os
import time
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
from isal import isal_zlib

from tb_torchcompile_plugin.errors import Notice
from tb_torchcompile_plugin.reader.cache import cache
from tb_torchcompile_plugin.reader.trace.kineto import Advance, BytesRead, Cancel, Trace, ingest, read_trace
from tb_torchcompile_plugin.reader.trace.segment import CHUNK_BYTES
from tb_torchcompile_plugin.reader.trace.table import Contents, Place, Sink, load_columns

FORMAT_VERSION = 10
WORTH_STORING = 4 << 20  # bytes; smaller traces are read as fast as their entry
_BLOCK = 1 << 18
_COLUMNS, _CONTENTS = "columns", "contents"

_log = logging.getLogger(__name__)


@dataclass
class _Stored:
    """The file `contents`: JSON after the checksum of its text."""

    contents: Contents
    metadata: str  # JSON text, for it may hold any number
    notices: list[Notice]
    places: dict[str, Place]
    checksum: int  # of the columns


def open_trace(
    path: str, *, progress: Advance | None = None, cancelled: Cancel | None = None, workers: int | None = None
) -> Trace:
    """Return the trace in `path` from the cache if it is there; otherwise read it (see `read_trace`) and store it.

    Where the cache cannot be written the trace is read all the same. Raises what `read_trace` raises.
    """
    if (key := _key(path)) is None or cache.max_cache_bytes() <= 0:
        return read_trace(path, progress=progress, cancelled=cancelled, workers=workers)
    with cache.lock(key):
        entry = cache.cache_directory() / key
        if (stored := _load(entry, path, progress)) is not None:
            return stored
        try:
            return _read_and_store(path, entry, progress, cancelled, workers)
        except OSError as error:
            _log.warning("the trace cache in %s cannot be written (%s)", entry.parent, error)
    return read_trace(path, progress=progress, cancelled=cancelled, workers=workers)


def is_stored(path: str) -> bool:
    """Whether `open_trace` would find an entry, without reading it."""
    key = _key(path)
    return key is not None and (cache.cache_directory() / key / _CONTENTS).is_file()


def _key(path: str) -> str | None:
    """Return the entry's name; None where the file is not there or too small to be stored."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    if status.st_size < WORTH_STORING:
        return None
    return cache.name_of([os.path.realpath(path), status.st_size, status.st_mtime_ns, FORMAT_VERSION])


def _load(entry: Path, path: str, progress: Advance | None = None) -> Trace | None:
    """Return the stored trace; None where there is none or it is damaged in any way."""
    try:
        checksum, _, text = (entry / _CONTENTS).read_bytes().partition(b"\n")
        if int(checksum) != isal_zlib.crc32(text):
            raise ValueError("its contents are damaged")
        stored = msgspec.json.decode(text, type=_Stored)
        _check(entry / _COLUMNS, stored, path, progress)
        columns = load_columns(entry / _COLUMNS, stored.places)
        metadata = json.loads(stored.metadata)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, msgspec.MsgspecError) as error:
        _log.warning("a damaged cache entry is replaced: %s (%s)", entry, error)
        return None
    cache.mark_used(entry)
    return Trace(
        path=path, columns=columns, metadata=metadata, notices=stored.notices, **vars(stored.contents)
    )


def _check(columns: Path, stored: _Stored, path: str, progress: Advance | None) -> None:
    """Compare the file with its checksum, and report which share of it is read. Raises OSError, ValueError."""
    whole, size, begun = columns.stat().st_size, stored.contents.file[0], time.monotonic()
    block, checksum, done = memoryview(bytearray(_BLOCK)), 0, 0
    with columns.open("rb", buffering=0) as file:
        while length := file.readinto(block):
            checksum = isal_zlib.crc32(block[:length], checksum)
            done += length
            if progress is not None:
                left = (time.monotonic() - begun) * (whole - done) / done
                progress(
                    BytesRead(path, size * done // whole, size, stored.contents.events * done // whole, left)
                )
    if checksum != stored.checksum:
        raise ValueError("its columns are damaged")


def _read_and_store(
    path: str, entry: Path, progress: Advance | None, cancelled: Cancel | None, workers: int | None
) -> Trace:
    with cache.filling(entry.parent) as temporary:
        sink = Sink(temporary / _COLUMNS)
        trace, contents = ingest(path, progress, cancelled, workers, CHUNK_BYTES, sink)
        if _key(path) == entry.name:
            metadata = json.dumps(trace.metadata)
            stored = _Stored(contents, metadata, trace.notices, sink.places, sink.checksum)
            text = msgspec.json.encode(stored)
            (temporary / _CONTENTS).write_bytes(b"%d\n%s" % (isal_zlib.crc32(text), text))
            cache.move(temporary, entry, lambda: _load(entry, "") is not None)
    cache.evict(entry.parent, entry.name)
    with contextlib.suppress(OSError, ValueError):  # another process may have removed the entry
        # by the name that the file has now, so that it is noticed when it is cut off
        return replace(trace, columns=load_columns(entry / _COLUMNS, sink.places))
    return trace
