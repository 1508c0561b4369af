"""Whole answers about a trace on disk, so that the second opening of a large one makes nothing anew.

They lie in the trace's own entry (see `store`), are counted and evicted with it, and are gone with whatever they were
made of: the trace, its compile data, or a line of this package. Small traces have no entry and are asked again.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from functools import cache as once
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

from tb_torchcompile_plugin.logdir.filesystem import File, is_remote
from tb_torchcompile_plugin.reader.cache.cache import name_of, write_whole
from tb_torchcompile_plugin.reader.cache.store import entry_of
from tb_torchcompile_plugin.torch_names.devices import VARIABLE as PEAKS

Answer = TypeVar("Answer", bound=msgspec.Struct)

_PACKAGE = Path(__file__).parents[2]
_ENDING = ".answer"


class MadeOf(NamedTuple):
    """files: all that an answer was made of, the trace first. settings: what else it depends on, as JSON holds it."""

    files: Sequence[File]
    settings: tuple[object, ...]


def kept(question: str, kind: type[Answer], made_of: MadeOf) -> Answer | None:
    """What was answered before; None where nothing is known."""
    place = _place(question, *made_of)
    if place is None:
        return None
    try:
        return msgspec.msgpack.decode(place.read_bytes(), type=kind)
    except (OSError, msgspec.MsgspecError, UnicodeError):
        return None


def keep(question: str, answer: msgspec.Struct, made_of: MadeOf) -> None:
    """Write it down in place of an older one; where that cannot be done it is made again the next time."""
    place = _place(question, *made_of)
    if place is None or not place.parent.is_dir():
        return
    with contextlib.suppress(OSError, ValueError, OverflowError):  # a full disk, a name that is no UTF-8
        write_whole(place, msgspec.msgpack.encode(answer))
        for other in place.parent.glob(f"{question}-*{_ENDING}"):
            if other != place:
                other.unlink(missing_ok=True)


def _place(question: str, files: Sequence[File], settings: tuple[object, ...]) -> Path | None:
    """The file of an answer; None where the trace has no entry of its own, or nobody knows what answers are made by."""
    if not files or is_remote(files[0].path) or not (code := _code()):
        return None
    entry = entry_of(files[0].path)
    identity = [
        code,
        os.environ.get(PEAKS, ""),
        *settings,
        *([file.path, file.size, file.tag or file.mtime_ns] for file in files),
    ]
    return entry and entry / f"{question}-{name_of(identity)}{_ENDING}"


@once
def _code() -> str:
    """What the package's files are told apart by from those of another version, or of before an edit."""
    try:
        known = [(path, path.stat()) for path in sorted(_PACKAGE.rglob("*.py"))]
    except OSError:
        return ""
    rows = [[str(path), status.st_size, status.st_mtime_ns] for path, status in known]
    return name_of(rows) if rows else ""
