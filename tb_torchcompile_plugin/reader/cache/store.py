"""Store parsed traces: `open_trace` reads a file once and maps its columns from the user's cache ever after.

An entry is a directory of .npy columns plus `contents.json`, which contains all else and a checksum of each file.
It is named after the trace's path, size, modification time and the format version. An entry that does not check out
is thrown away, and the trace read again. Nothing is ever written next to the trace.
"""

import contextlib
import json
import logging
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec
from isal import isal_zlib

from tb_torchcompile_plugin.errors import Notice
from tb_torchcompile_plugin.reader.cache import cache
from tb_torchcompile_plugin.reader.cache.cache import cache_directory, max_cache_bytes
from tb_torchcompile_plugin.reader.trace.kineto import Advance, BytesRead, Cancel, Trace, ingest, read_trace
from tb_torchcompile_plugin.reader.trace.segment import CHUNK_BYTES
from tb_torchcompile_plugin.reader.trace.table import Contents, load_column

FORMAT_VERSION = 9
WORTH_STORING = 4 << 20  # bytes; smaller traces are read as fast as their entry
_BLOCK = 1 << 20

_log = logging.getLogger(__name__)


@dataclass
class _Stored:
    """The file contents.json."""

    contents: Contents
    metadata: str  # JSON text, for it may hold any number
    notices: list[Notice]
    sums: dict[str, int] = field(default_factory=dict)  # column → CRC-32 of its file


def open_trace(
    path: str, *, progress: Advance | None = None, cancelled: Cancel | None = None, workers: int | None = None
) -> Trace:
    """Return the trace in `path` from the cache if it is there; otherwise read it (see `read_trace`) and store it.

    Where the cache cannot be written the trace is read all the same. Raises what `read_trace` raises.
    """
    path = os.fspath(path)
    key = _key(path)
    if key is None or max_cache_bytes() <= 0:
        return read_trace(path, progress=progress, cancelled=cancelled, workers=workers)
    with cache.lock(key):
        entry = cache_directory() / key
        stored = _load(entry, path, progress)
        if stored is not None:
            return stored
        try:
            return _read_and_store(path, entry, progress, cancelled, workers)
        except OSError as error:
            _log.warning("the trace cache in %s cannot be written (%s)", entry.parent, error)
    return read_trace(path, progress=progress, cancelled=cancelled, workers=workers)


def is_stored(path: str) -> bool:
    """Whether `open_trace` would find an entry, without reading it."""
    key = _key(os.fspath(path))
    return key is not None and (cache_directory() / key / "contents.json").is_file()


def _key(path: str) -> str | None:
    """Return the entry's name; None where the file is not there or too small to be stored."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    if status.st_size < WORTH_STORING:
        return None
    identity = [os.path.realpath(path), status.st_size, status.st_mtime_ns, FORMAT_VERSION]
    return cache.name_of(identity)


def _load(entry: Path, path: str, progress: Advance | None = None) -> Trace | None:
    """Return the stored trace; None where there is none or it is damaged in any way."""
    try:
        stored = msgspec.json.decode((entry / "contents.json").read_bytes(), type=_Stored)
        columns = {}
        for name in _in_turn(entry, stored, path, progress):
            if _checksum(entry / f"{name}.npy") != stored.sums[name]:
                raise ValueError(f"column {name} is damaged")
            columns[name] = load_column(entry, name)
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


def _in_turn(entry: Path, stored: _Stored, path: str, progress: Advance | None) -> Iterator[str]:
    """Yield the names of the columns, and report which share of the trace is loaded."""
    sizes = {name: (entry / f"{name}.npy").stat().st_size for name in stored.sums}
    whole, size, done, begun = max(1, sum(sizes.values())), stored.contents.file[0], 0, time.monotonic()
    for name in stored.sums:
        yield name
        done += sizes[name]
        if progress is not None:
            left = (time.monotonic() - begun) * (whole - done) / max(1, done)
            events = stored.contents.events * done // whole
            progress(BytesRead(path, size * done // whole, size, events, left))


def _checksum(path: Path) -> int:
    total, block = 0, memoryview(bytearray(_BLOCK))  # one for all: memory that is new to the process is slow
    with path.open("rb", buffering=0) as file:
        while size := file.readinto(block):
            total = isal_zlib.crc32(block[:size], total)
    return total


def _read_and_store(
    path: str, entry: Path, progress: Advance | None, cancelled: Cancel | None, workers: int | None
) -> Trace:
    with cache.filling(entry.parent) as temporary:
        trace, contents = ingest(path, progress, cancelled, workers, CHUNK_BYTES, temporary)
        if _key(path) == entry.name:
            sums = {name: _checksum(temporary / f"{name}.npy") for name in trace.columns}
            metadata = json.dumps(trace.metadata)
            stored = _Stored(contents, metadata, trace.notices, sums)
            (temporary / "contents.json").write_bytes(msgspec.json.encode(stored))
            cache.move(temporary, entry, lambda: _load(entry, "") is not None)
    cache.evict(entry.parent, entry.name)
    with contextlib.suppress(OSError, ValueError):  # another process may have removed the entry
        # by the names that the files have now, so that it is noticed when they are cut off
        return replace(trace, columns={name: load_column(entry, name) for name in trace.columns})
    return trace
