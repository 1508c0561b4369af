"""Small answers on disk: what is to be said of a file again without opening it.

A row lies in the user's cache directory under a name that tells what it was made of: files by path, size and time, and
the version of its kind. It is written under a temporary name and then renamed. One that is damaged or of another kind
is as good as none; nothing depends on there being one. What cannot be written is known to this process alone.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from tb_torchcompile_plugin.logdir import filesystem
from tb_torchcompile_plugin.logdir.filesystem import File
from tb_torchcompile_plugin.reader.cache.cache import (
    ROWS,
    cache_directory,
    max_cache_bytes,
    name_of,
    write_whole,
)

Row = TypeVar("Row", bound=msgspec.Struct)

_MOST = 20_000  # those used longest ago go first
_MOST_UNWRITTEN = 1_000
_unwritten: dict[str, bytes] = {}
_ENDING = ".json"


def key_of(kind: str, files: Sequence[File]) -> str:
    """By what a row is kept. kind: what it is, with its version."""
    identity = [kind, *([_place(file.path), file.size, file.tag or file.mtime_ns] for file in files)]
    return name_of(identity)


def keep(key: str, row: msgspec.Struct) -> bool:
    """Write it down; False where that cannot be done."""
    try:
        text = msgspec.json.encode(row)
    except ValueError:  # a name may be no UTF-8
        return False
    written = max_cache_bytes() > 0 and _write(cache_directory() / ROWS, key, text)
    if not written:
        _unwritten.pop(key, None)
        _unwritten[key] = text
        for oldest in list(_unwritten)[:-_MOST_UNWRITTEN]:
            _unwritten.pop(oldest, None)
    return written


def _write(folder: Path, key: str, text: bytes) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / (key + _ENDING), text)
    except OSError:
        return False
    _unwritten.pop(key, None)
    _forget_surplus(folder)
    return True


def kept(key: str, kind: type[Row]) -> Row | None:
    """The row; None where there is none that can be read."""
    try:
        text = _unwritten.get(key) or (cache_directory() / ROWS / (key + _ENDING)).read_bytes()
        return msgspec.json.decode(text, type=kind)
    except (OSError, msgspec.MsgspecError):
        return None


def _place(path: str) -> str:
    return path if filesystem.is_remote(path) else os.path.realpath(path)


def _forget_surplus(folder: Path) -> None:
    """What killed processes left behind under a temporary name is old one day, too."""
    with contextlib.suppress(OSError):
        names = os.listdir(folder)
        if len(names) <= _MOST:
            return
        paths = sorted((folder / name for name in names), key=lambda path: path.stat().st_mtime)
        for path in paths[: len(paths) - _MOST * 9 // 10]:
            path.unlink(missing_ok=True)
