"""Where finished columns go: memory, or one .npy file each that is read back as a memory map."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from tb_torchcompile_plugin.reader.trace.codes import Array

_NARROW = np.iinfo(np.int32)


def narrow(values: Array) -> Array:
    """Codes, ids or rows (-1: none) as int32, in half of the room, where all fit, else as they are. Not for what is
    counted with: numbers of 32 bits overflow in silence."""
    fit = not len(values) or (values.min() >= _NARROW.min and values.max() <= _NARROW.max)
    return values.astype(np.int32, copy=False) if fit else values


class Sink(Protocol):
    """Where finished columns go."""

    def put(self, name: str, dtype: Any, count: int, blocks: Iterable[Array]) -> None: ...

    def columns(self) -> dict[str, Array]: ...


class MemorySink:
    """Columns in memory, for small files."""

    def __init__(self) -> None:
        self._columns: dict[str, Array] = {}

    def put(self, name: str, dtype: Any, count: int, blocks: Iterable[Array]) -> None:
        pieces = [np.asarray(block, dtype) for block in blocks]
        self._columns[name] = np.concatenate(pieces) if pieces else np.zeros(0, dtype)

    def columns(self) -> dict[str, Array]:
        return self._columns


class FileSink:
    """One .npy file per column in a directory; read back as memory maps."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._names: list[str] = []

    def put(self, name: str, dtype: Any, count: int, blocks: Iterable[Array]) -> None:
        with open(self._directory / f"{name}.npy", "wb") as file:
            descr = np.lib.format.dtype_to_descr(np.dtype(dtype))
            np.lib.format.write_array_header_1_0(
                file, {"descr": descr, "fortran_order": False, "shape": (count,)}
            )
            for block in blocks:
                file.write(np.ascontiguousarray(block, dtype).data)
        self._names.append(name)

    def columns(self) -> dict[str, Array]:
        return {name: load_column(self._directory, name) for name in self._names}


def load_column(directory: Path, name: str) -> Array:
    """A column that a `FileSink` wrote, as a read-only memory map (an empty one as an array)."""
    path = directory / f"{name}.npy"
    try:
        # as a plain array: those of the class memmap take six times as long to give a single element
        return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
    except ValueError:
        # an empty array cannot be mapped; any other damage fails here once more
        return np.load(path, allow_pickle=False)  # type: ignore[no-any-return]  # numpy types it Any


def are_whole(columns: Iterable[Array]) -> bool:
    """Whether no mapped file is shorter than its column: to touch what is missing would end the process (SIGBUS). What
    has no name any more nobody cuts."""
    return not any(map(_is_cut_off, columns))


def _is_cut_off(column: Array) -> bool:
    mapped = column.base
    if not isinstance(mapped, np.memmap) or mapped.filename is None:
        return False
    try:
        return os.stat(mapped.filename).st_size < mapped.offset + mapped.nbytes
    except OSError:
        return False
