"""Small answers on disk: what is to be said of a file again without opening it.

A row lies in the user's cache directory under a name that tells what it was made of: files by path, size and time, and
the version of its kind. It is written under a temporary name and then renamed. One that is damaged or of another kind
is as good as none; nothing depends on there being one.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from tb_torchcompile_plugin.logdir import filesystem
from tb_torchcompile_plugin.logdir.filesystem import File
from tb_torchcompile_plugin.reader.cache.cache import ROWS, cache_directory, max_cache_bytes, name_of

Row = TypeVar("Row", bound=msgspec.Struct)

_MOST = 20_000  # those used longest ago go first
_ENDING = ".json"


def key_of(kind: str, files: Sequence[File]) -> str:
    """By what a row is kept. kind: what it is, with its version."""
    identity = [kind, *([_place(file.path), file.size, file.tag or file.mtime_ns] for file in files)]
    return name_of(identity)


def keep(key: str, row: msgspec.Struct) -> bool:
    """Write it down; False where that cannot be done."""
    folder = cache_directory() / ROWS
    if max_cache_bytes() <= 0:
        return False
    try:
        text = msgspec.json.encode(row)
        folder.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=folder)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(text)
            os.replace(temporary, folder / (key + _ENDING))
        except BaseException:
            os.unlink(temporary)
            raise
    except (OSError, ValueError):  # a name may be no UTF-8
        return False
    _forget_surplus(folder)
    return True


def kept(key: str, kind: type[Row]) -> Row | None:
    """The row; None where there is none that can be read."""
    try:
        return msgspec.json.decode((cache_directory() / ROWS / (key + _ENDING)).read_bytes(), type=kind)
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
