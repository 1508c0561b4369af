"""Parsed traces on disk: `open_trace` reads a file once and maps its columns from the user's cache ever after.

An entry is a directory of .npy columns plus `contents.json`, which holds all else and a checksum of every file.
It is named after the trace's path, size, modification time and the format version, filled under a temporary name
and then renamed. So a killed process leaves no wrong entry, and of two servers one wins. An entry that does not
check out is thrown away and read anew. Nothing is ever written beside the trace.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import platformdirs
from isal import isal_zlib

from tb_torchcompile_plugin.errors import Notice
from tb_torchcompile_plugin.reader.kineto import Progress, Trace, make_trace, read_trace
from tb_torchcompile_plugin.reader.kineto_columns import load_column
from tb_torchcompile_plugin.reader.kineto_ingest import Result, ingest
from tb_torchcompile_plugin.reader.kineto_segment import CHUNK_BYTES
from tb_torchcompile_plugin.reader.kineto_table import Contents

FORMAT_VERSION = 1
MAX_CACHE_BYTES = 20 << 30
_CACHE_VARIABLE = "TB_TORCHCOMPILE_CACHE"
_LIMIT_VARIABLE = "TB_TORCHCOMPILE_CACHE_MAX_BYTES"
_WORTH_STORING = 4 << 20  # smaller traces are read as fast as their entry
_ABANDONED_S = 24 * 3600.0
_TEMPORARY = ".tmp-"
_BLOCK = 1 << 20

_log = logging.getLogger(__name__)
_locks_guard = threading.Lock()
_locks: dict[str, threading.Lock] = {}


@dataclass
class _Stored:
    """contents.json. sums: column → CRC-32 of its file. metadata: JSON text, for it may hold any number."""

    format_version: int
    path: str
    contents: Contents
    metadata: str
    notices: list[Notice]
    sums: dict[str, int] = field(default_factory=dict)


def cache_directory() -> Path:
    """Where entries live: TB_TORCHCOMPILE_CACHE, else the user's cache directory of this platform."""
    return Path(os.environ.get(_CACHE_VARIABLE) or platformdirs.user_cache_dir("tb_torchcompile_plugin"))


def max_cache_bytes() -> int:
    """How much all entries may take: 20 GiB, or TB_TORCHCOMPILE_CACHE_MAX_BYTES; 0 stores nothing."""
    try:
        return int(os.environ[_LIMIT_VARIABLE])
    except (KeyError, ValueError):
        return MAX_CACHE_BYTES


def open_trace(
    path: str,
    *,
    progress: Callable[[Progress], None] | None = None,
    cancelled: Callable[[], bool] | None = None,
    workers: int | None = None,
) -> Trace:
    """The trace in `path`, from the cache if it is there; else it is read (see `read_trace`) and stored.

    Where the cache cannot be written the trace is read all the same. Raises what `read_trace` raises.
    """
    path = os.fspath(path)
    key = _key(path)
    if key is None or max_cache_bytes() <= 0:
        return read_trace(path, progress=progress, cancelled=cancelled, workers=workers)
    with _lock(key):
        entry = cache_directory() / key
        found = _load(entry, path)
        if found is not None:
            return found
        try:
            return _read_and_store(path, entry, progress, cancelled, workers)
        except OSError as error:
            _log.warning("the trace cache in %s cannot be written (%s)", entry.parent, error)
    return read_trace(path, progress=progress, cancelled=cancelled, workers=workers)


def is_stored(path: str) -> bool:
    """Whether `open_trace` would find an entry, not looking into it."""
    key = _key(os.fspath(path))
    return key is not None and (cache_directory() / key / "contents.json").is_file()


def _key(path: str) -> str | None:
    """The entry's name; None where the file is not there or too small to be stored."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    if status.st_size < _WORTH_STORING:
        return None
    identity = [os.path.realpath(path), status.st_size, status.st_mtime_ns, FORMAT_VERSION]
    return hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:40]


@contextlib.contextmanager
def _lock(key: str) -> Iterator[None]:
    with _locks_guard:
        lock = _locks.setdefault(key, threading.Lock())
    with lock:
        yield


def _load(entry: Path, path: str) -> Trace | None:
    """The stored trace; None where there is none or it is damaged in any way."""
    try:
        stored = msgspec.json.decode((entry / "contents.json").read_bytes(), type=_Stored)
        if stored.format_version != FORMAT_VERSION:
            return None
        columns = {}
        for name, total in stored.sums.items():
            if _checksum(entry / f"{name}.npy") != total:
                raise ValueError(f"column {name} is damaged")
            columns[name] = load_column(entry, name)
        metadata = json.loads(stored.metadata)
        os.utime(entry)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, msgspec.MsgspecError) as error:
        _log.warning("a damaged cache entry is read anew: %s (%s)", entry, error)
        return None
    return make_trace(path, columns, stored.contents, metadata, stored.notices)


def _checksum(path: Path) -> int:
    total = 0
    with path.open("rb", buffering=0) as file:
        while block := file.read(_BLOCK):
            total = isal_zlib.crc32(block, total)
    return total


def _read_and_store(
    path: str,
    entry: Path,
    progress: Callable[[Progress], None] | None,
    cancelled: Callable[[], bool] | None,
    workers: int | None,
) -> Trace:
    root = entry.parent
    root.mkdir(parents=True, exist_ok=True)
    _remove_abandoned(root)
    temporary = Path(tempfile.mkdtemp(prefix=f"{_TEMPORARY}{os.getpid()}-", dir=root))
    try:
        result = ingest(path, progress, cancelled, workers, CHUNK_BYTES, temporary)
        if _key(path) == entry.name:
            _seal(result, temporary)
            _move(temporary, entry)
    finally:
        # after a move there is nothing left to remove; else the maps outlive their files
        shutil.rmtree(temporary, ignore_errors=True)
    _evict(root, max_cache_bytes(), entry.name)
    return make_trace(path, result.columns, result.contents, result.metadata, result.notices)


def _seal(result: Result, directory: Path) -> None:
    sums = {name: _checksum(directory / f"{name}.npy") for name in result.columns}
    stored = _Stored(
        FORMAT_VERSION, result.path, result.contents, json.dumps(result.metadata), result.notices, sums
    )
    (directory / "contents.json").write_bytes(msgspec.json.encode(stored))


def _move(temporary: Path, entry: Path) -> None:
    """Make the temporary directory the entry. A valid entry of somebody faster stays, a damaged one goes."""
    for _ in range(3):
        try:
            temporary.rename(entry)
            return
        except OSError:
            if not entry.exists() or _load(entry, "") is not None:
                return
            _remove(entry)


def _remove(entry: Path) -> None:
    """Remove an entry at once for all who look, then its files."""
    trash = Path(tempfile.mkdtemp(prefix=f"{_TEMPORARY}{os.getpid()}-", dir=entry.parent))
    with contextlib.suppress(OSError):
        entry.rename(trash / entry.name)
    shutil.rmtree(trash, ignore_errors=True)


def _evict(root: Path, limit: int, keep: str) -> None:
    """Remove the entries used longest ago until all together fit; the one in use stays."""
    entries = [(used, size, path) for used, size, path in _entries(root) if path.name != keep]
    total = sum(size for _, size, path in _entries(root))
    for _, size, path in sorted(entries, key=lambda item: item[0]):
        if total <= limit:
            return
        _remove(path)
        total -= size


def _entries(root: Path) -> Iterator[tuple[float, int, Path]]:
    """(last use, bytes, directory) of each entry; what vanishes meanwhile is left out."""
    for path in root.iterdir():
        if path.name.startswith(_TEMPORARY):
            continue
        with contextlib.suppress(OSError):
            size = sum(file.stat().st_size for file in path.iterdir())
            yield path.stat().st_mtime, size, path


def _remove_abandoned(root: Path) -> None:
    """Remove what killed processes left behind."""
    for path in root.glob(f"{_TEMPORARY}*"):
        with contextlib.suppress(OSError, ValueError):
            owner = int(path.name.removeprefix(_TEMPORARY).split("-")[0])
            if time.time() - path.stat().st_mtime > _ABANDONED_S or not _alive(owner):
                shutil.rmtree(path, ignore_errors=True)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
