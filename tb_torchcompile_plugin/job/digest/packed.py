"""Tables of 64-bit integers as bytes: differences of neighbours, byte by byte, in a zlib stream.

Times and numbers of calls grow evenly: of their differences most bytes are zero.
"""

from __future__ import annotations

import zlib

import numpy as np

from tb_torchcompile_plugin.errors import UserError
from tb_torchcompile_plugin.profile.intervals import Int64s

_MOST_BYTES = 16 << 20  # that one section may hold


def packed(*columns: Int64s) -> bytes:
    """Of columns of one length."""
    table = np.stack(columns).astype("<i8")
    steps = np.diff(table, axis=1, prepend=0)
    return squeezed(steps.tobytes(), width=8)


def unpacked(data: bytes, count: int) -> list[Int64s]:
    """Of so many columns. Raises UserError where they are no such table."""
    raw = np.frombuffer(spread(data, width=8), "<i8")
    if len(raw) % count:
        raise UserError("a table of the digest is cut off")
    return list(np.cumsum(raw.reshape(count, -1), axis=1))


def squeezed(data: bytes, width: int = 1) -> bytes:
    """width: of the numbers in it, whose first bytes come first, then their second ones."""
    return zlib.compress(np.frombuffer(data, np.uint8).reshape(-1, width).T.tobytes(), 9)


def spread(data: bytes, width: int = 1) -> bytes:
    """What was squeezed. Raises UserError where it cannot be read, and where it holds more than any digest."""
    stream = zlib.decompressobj()
    try:
        raw = stream.decompress(data, _MOST_BYTES)
    except zlib.error as error:
        raise UserError("a section of the digest is damaged") from error
    if not stream.eof or len(raw) % width:
        raise UserError("a section of the digest is cut off, or is too large")
    numbers: bytes = np.frombuffer(raw, np.uint8).reshape(width, -1).T.tobytes()
    return numbers
