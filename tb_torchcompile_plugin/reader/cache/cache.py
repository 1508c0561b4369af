"""Manage the user's cache directory: entries are complete or absent, and the least recently used go first.

An entry is a directory whose name depends on what it was computed from. It is filled under a temporary name and then
renamed, so a killed process leaves no wrong entry, and of two servers one wins. Its modification time is its last use.
"""

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import chain
from pathlib import Path

import platformdirs

from tb_torchcompile_plugin.logdir.filesystem import is_running

MAX_CACHE_BYTES = 20 << 30  # chosen by hand
_CACHE_VARIABLE = "TB_TORCHCOMPILE_CACHE"
_LIMIT_VARIABLE = "TB_TORCHCOMPILE_CACHE_MAX_BYTES"
_ABANDONED_S = 24 * 3600.0  # longer than any trace takes to read
_TEMPORARY = ".tmp-"
ANSWERS = "answers"  # the folder whose files are evicted one by one

_guard = threading.Lock()
_locks: dict[str, threading.Lock] = {}
_in_use: Counter[str] = Counter()


def cache_directory() -> Path:
    """Return where entries live: TB_TORCHCOMPILE_CACHE, or the user's cache directory of this platform."""
    return Path(os.environ.get(_CACHE_VARIABLE) or platformdirs.user_cache_dir("tb_torchcompile_plugin"))


def max_cache_bytes() -> int:
    """Return how much all entries may take: 20 GiB, or TB_TORCHCOMPILE_CACHE_MAX_BYTES; 0 stores nothing."""
    try:
        return int(os.environ[_LIMIT_VARIABLE])
    except (KeyError, ValueError):
        return MAX_CACHE_BYTES


def lock(key: str) -> threading.Lock:
    """Return what lets one thread of this process at a time create an entry; others find it complete."""
    with _guard:
        return _locks.setdefault(key, threading.Lock())


@contextlib.contextmanager
def in_use(name: str) -> Iterator[None]:
    """Keep this process from evicting the entry inside the context."""
    with _guard:
        _in_use[name] += 1
    try:
        yield
    finally:
        with _guard:
            _in_use[name] -= 1
            if not _in_use[name]:
                del _in_use[name]


@contextlib.contextmanager
def filling(root: Path) -> Iterator[Path]:
    """Give a temporary directory next to the entries, removed afterwards unless it was moved. Raises OSError."""
    root.mkdir(parents=True, exist_ok=True)
    _remove_abandoned(root)
    temporary = Path(tempfile.mkdtemp(prefix=f"{_TEMPORARY}{os.getpid()}-", dir=root))
    try:
        yield temporary
    finally:
        # after a move there is nothing left to remove; otherwise the maps outlive their files
        shutil.rmtree(temporary, ignore_errors=True)


def move(temporary: Path, entry: Path, valid: Callable[[], bool]) -> None:
    """Rename the temporary directory to the entry. A valid entry of a faster process stays, a damaged one goes."""
    # other processes may put an entry there meanwhile; chosen by hand
    for _ in range(3):
        try:
            temporary.rename(entry)
            return
        except OSError:
            if not entry.exists() or valid():
                return
            remove(entry)


def mark_used(entry: Path) -> None:
    """Set the time of the last use. Where nothing can be written nothing is evicted either."""
    with contextlib.suppress(OSError):
        os.utime(entry)


def remove(entry: Path) -> None:
    """Remove an entry at once for all who look, then its files."""
    trash = Path(tempfile.mkdtemp(prefix=f"{_TEMPORARY}{os.getpid()}-", dir=entry.parent))
    with contextlib.suppress(OSError):
        entry.rename(trash / entry.name)
    shutil.rmtree(trash, ignore_errors=True)


def name_of(identity: Sequence[object]) -> str:
    """Return a name for what distinguishes a file from all others, as JSON can hold it."""
    return hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:40]


def evict(root: Path, keep: str) -> None:
    """Remove the least recently used entries and answers until all together fit; `keep` and those in use stay."""
    limit, entries = max_cache_bytes(), list(_entries(root))
    total = sum(size for _, size, _ in entries)
    with _guard:
        stay = {keep, *_in_use}
    for _, size, path in sorted(entries, key=lambda item: item[0]):
        if total <= limit:
            return
        if path.name in stay:
            continue
        if path.is_dir():
            remove(path)
        else:
            path.unlink(missing_ok=True)
        total -= size


def _entries(root: Path) -> Iterator[tuple[float, int, Path]]:
    """Yield the last use, the bytes and the path of each entry and answer. What vanishes meanwhile is left out."""
    for path in chain(root.iterdir(), root.glob(f"{ANSWERS}/*")):
        if path.name.startswith(_TEMPORARY) or path.name == ANSWERS:
            continue
        with contextlib.suppress(OSError):
            status = path.stat()
            size = _size(path, status.st_mtime_ns) if path.is_dir() else status.st_size
            yield status.st_mtime, size, path


@lru_cache(1 << 16)
def _size(entry: Path, changed_ns: int) -> int:
    """Return the bytes of an entry. What is put into it changes its time: the other entries are not read again."""
    return sum(file.stat().st_size for file in entry.iterdir())


def _remove_abandoned(root: Path) -> None:
    """Remove what killed processes left behind: of processes that are gone, or a day old."""
    for path in root.glob(f"{_TEMPORARY}*"):
        with contextlib.suppress(OSError, ValueError):
            owner = int(path.name.removeprefix(_TEMPORARY).split("-")[0])
            if time.time() - path.stat().st_mtime > _ABANDONED_S or not is_running(owner):
                shutil.rmtree(path, ignore_errors=True)
