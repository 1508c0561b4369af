"""Fetch remote files, and parts of merged ones, once into the cache directory, and again when they change.

A copy is an entry of the cache like a parsed trace: complete or absent, and evicted when it is the least recently used.
Readers get a path and know nothing of all this; local files cost nothing here. Nothing is written to a logdir.
"""

import contextlib
import logging
import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from tb_torchcompile_plugin.errors import Notice, UserError
from tb_torchcompile_plugin.logdir import filesystem
from tb_torchcompile_plugin.logdir.discovery import copy_name
from tb_torchcompile_plugin.logdir.filesystem import File
from tb_torchcompile_plugin.reader.cache import cache
from tb_torchcompile_plugin.reader.cache.store import open_trace
from tb_torchcompile_plugin.reader.torch_trace.structured_log import EDGE_BYTES
from tb_torchcompile_plugin.reader.trace.kineto import Advance, BytesRead, Cancel, Cancelled, Trace
from tb_torchcompile_plugin.reader.trace.trim import of_process

# Chosen by hand.
_BLOCK = 1 << 20  # bytes of one request
_AT_ONCE = 8  # requests; what is held in memory is as many blocks
_TRIES = 3  # a file that changes while it is fetched is fetched again
_log = logging.getLogger(__name__)


@contextlib.contextmanager
def local(
    file: File, progress: Advance | None = None, cancelled: Cancel | None = None, *, keep: bool = True
) -> Iterator[str]:
    """Give a path to read `file` from, good inside the context. Errors raised there name the file, not the copy.

    progress, cancelled: as for `read_trace`, while a remote file is fetched. keep: for the next time; a copy that is
    there is used either way. Raises UserError, Cancelled.
    """
    if not filesystem.is_remote(file.path) and not file.part:
        yield file.path
        return
    with _copy(file, progress, cancelled, keep) as path:
        try:
            yield str(path)
        except UserError as error:
            (notice,) = named([error.notice], str(path), file)
            raise type(error).of(notice) from error


def named(notices: list[Notice], path: str, file: File) -> list[Notice]:
    """Return the notices about a copy as notices about its file."""
    return [replace(notice, file=file.path) if notice.file == path else notice for notice in notices]


@contextlib.contextmanager
def ends(file: File) -> Iterator[str]:
    """Give a path to a file that begins and ends with the same 512 KiB, for readers of no more. Raises UserError."""
    if not filesystem.is_remote(file.path):
        yield file.path
        return
    with tempfile.TemporaryDirectory(prefix="tb_torchcompile_") as folder:
        path = Path(folder, file.name)  # names tell ranks
        path.write_bytes(_ends(file))
        yield str(path)


def _ends(file: File) -> bytes:
    if not file.size:
        return b""
    if file.size <= 2 * EDGE_BYTES:
        return filesystem.read_range(file.path, 0, file.size)
    head = filesystem.read_range(file.path, 0, EDGE_BYTES)
    return head + b"\n" + filesystem.read_range(file.path, file.size - EDGE_BYTES, file.size)


@contextlib.contextmanager
def _copy(file: File, progress: Advance | None, cancelled: Cancel | None, keep: bool) -> Iterator[Path]:
    """Give the copy in the cache; where nothing is to be kept, one that is removed afterwards."""
    if cache.max_cache_bytes() > 0 and (keep or _whole(cache.cache_directory(), file)):
        try:
            entry = _entry(file, progress, cancelled)
        except OSError as error:
            _log.warning("the cache in %s cannot be written (%s)", cache.cache_directory(), error)
        else:
            with cache.in_use(entry.name):
                yield entry / file.name
            return
    with tempfile.TemporaryDirectory(prefix="tb_torchcompile_") as folder:
        try:
            _fetch(_now(file), Path(folder), progress, cancelled)
        except OSError as error:
            raise UserError(
                f"its local copy cannot be written ({error.strerror or error})",
                file=file.path,
                next_step="Free disk space, or set TB_TORCHCOMPILE_CACHE to a folder with more space",
            ) from error
        yield Path(folder, file.name)


def _entry(file: File, progress: Advance | None, cancelled: Cancel | None) -> Path:
    root = cache.cache_directory()
    with cache.lock(file.path):
        if entry := _whole(root, file):
            return entry
        now = _now(file)  # some stores tell less when they list
        if entry := _whole(root, now):
            return entry
        with cache.filling(root) as temporary:
            now = _fetch(now, temporary, progress, cancelled)
            entry = root / _key(now)
            cache.move(temporary, entry, lambda: _whole(root, now) is not None)
    cache.evict(root, entry.name)
    return entry


def _key(file: File) -> str:
    return copy_name(cache.name_of([file.path, file.size, file.tag or file.mtime_ns]))


def _whole(root: Path, file: File) -> Path | None:
    """Return the entry of this very file, marked as used now; None where there is none of its size."""
    entry = root / _key(file)
    try:
        if (entry / file.name).stat().st_size != file.size and not file.part:
            return None
    except OSError:
        return None
    cache.mark_used(entry)
    return entry


def _now(file: File) -> File:
    if file.part:
        return file
    if (now := filesystem.remote_file(file.path)) is None:
        raise UserError("is now a folder", file=file.path, next_step="Reload")
    return now


def _fetch(file: File, folder: Path, progress: Advance | None, cancelled: Cancel | None) -> File:
    """Fetch the whole file into the folder; return it as it was then. Raises UserError, Cancelled, OSError."""
    if file.part:
        merged = open_trace(file.path, progress=progress, cancelled=cancelled)
        with open(folder / file.name, "wb") as copy:
            copy.writelines(of_process(merged, file.part, file.path))
        return file
    for _ in range(_TRIES):
        path = folder / file.name
        fetched = _write(file, path, progress, cancelled)
        now = _now(file)
        if fetched == file.size and _key(now) == _key(file):
            os.utime(path, ns=(file.mtime_ns, file.mtime_ns))
            return file
        file = now
    raise UserError(
        "keeps changing while it is fetched", file=file.path, next_step="Reload when writing has finished"
    )


def _write(file: File, path: Path, progress: Advance | None, cancelled: Cancel | None) -> int:
    begun, done = time.monotonic(), 0
    with path.open("wb") as copy:
        for block in filesystem.read_blocks(file.path, file.size, _BLOCK, _AT_ONCE):
            if cancelled is not None and cancelled():
                raise Cancelled(f"fetching {file.path} was cancelled")
            copy.write(block)
            done += len(block)
            if progress is not None:
                left = (time.monotonic() - begun) * (file.size - done) / done if done else None
                progress(BytesRead(f"fetching {file.path}", done, file.size, 0, left))
    return done


def read(
    file: File, progress: Advance | None, fetching: Advance | None, cancelled: Cancel | None = None
) -> Trace:
    """Return the trace in a file, which its progress and notices name, however far away it is."""

    def advance(moved: BytesRead) -> None:
        if progress is not None:
            progress(replace(moved, file=file.path))

    with local(file, fetching, cancelled) as path:
        trace = open_trace(path, progress=advance, cancelled=cancelled)
    return replace(trace, notices=named(trace.notices, path, file))
