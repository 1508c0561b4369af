"""A digest on disk: one protobuf message, written whole or not at all."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from google.protobuf.message import DecodeError

from tb_torchcompile_plugin.errors import UserError
from tb_torchcompile_plugin.job.digest.digest_pb2 import Digest, DigestNotice
from tb_torchcompile_plugin.logdir.filesystem import File, read_all, write_whole
from tb_torchcompile_plugin.profile.intervals import Int64s

# How much of a long recording its digest holds: whole steps from the first one on, as many as fit. Steps
# are halved until they do, so that the ranks of a job, which recorded about the same, mostly hold the same
# ones.


MOST_BYTES = 100_000
LARGEST = MOST_BYTES - 8  # a file tells its format, too
_WHOLE = "The trace holds all of it"


class Room(NamedTuple):
    """In bytes, for collectives and steps, for what was compiled, and for the host with its kernels."""

    calls: int
    compiled: int
    host: int


UNLIMITED = Room(1 << 40, 1 << 40, 1 << 40)
ROOM = Room(45_000, 15_000, 35_000)


def fitting(make: Callable[[int], list[bytes]], most: int, room: int) -> tuple[list[bytes], int]:
    """What is made of the first `count` of something, and that count: all, or halved until it fits; 0 fits always."""
    count = most
    while sum(map(len, made := make(count))) > room and count:
        count //= 2
    return made, count


def left_out(what: str, kept: int, of: int) -> list[DigestNotice]:
    """That of so many only the first ones are there; [] where all are."""
    if kept >= of:
        return []
    problem = f"too long for a digest: of {of} {what} it holds {f'the first {kept}' if kept else 'none'}"
    return [DigestNotice(problem=problem, kept=_WHOLE, next_step="Record fewer steps")]


# Tables of 64-bit integers as bytes: differences of neighbours, byte by byte, in a zlib stream. Times and
# numbers of calls grow evenly: of their differences most bytes are zero.


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


# Raised when an older reader would misread the file. Added fields alone do not raise it: protobuf skips them.
FORMAT_VERSION = 1
_AT_ONCE = 128  # requests to a store
_AGAIN = "Write it again with: tb-torchcompile index"


def load(file: File) -> Digest:
    """Reads one `.pt.digest.pb`, local or remote. Raises UserError where it cannot be read or is of a newer format."""
    return _parsed(_read(file), file.path)


def load_all(files: Sequence[File]) -> Iterator[Digest | UserError]:
    """Each in its turn, or why it cannot be read."""
    for file, data in zip(files, _read_all(files)):
        try:
            yield data if isinstance(data, UserError) else _parsed(data, file.path)
        except UserError as error:
            yield error


def _parsed(data: bytes, path: str) -> Digest:
    made = _of_any_version(data, path)
    if made.format_version > FORMAT_VERSION:
        raise UserError(
            f"the digest has format version {made.format_version}, this reads up to {FORMAT_VERSION}",
            file=path,
            next_step="Upgrade with: pip install --upgrade tb-torchcompile-plugin",
        )
    return made


def is_current(file: File | None, trace: File) -> bool:
    """Whether it is a digest of this very trace. What a newer version of this wrote counts, too: it stays."""
    try:
        made = _of_any_version(_read(file), file.path) if file else Digest()
    except UserError:
        return False
    of_it = (made.trace_name, made.trace_bytes) == (trace.name, trace.size)
    whole = bool(made.kernels)  # the last section: between two fields a file may be cut off unseen
    return of_it and whole and made.format_version >= FORMAT_VERSION


def _of_any_version(data: bytes, path: str) -> Digest:
    try:
        made: Digest = Digest.FromString(data)
    except DecodeError as error:
        raise UserError("the file is no digest, or is cut off", file=path, next_step=_AGAIN) from error
    if made.format_version == 0:
        raise UserError("the file is no digest", file=path, next_step=_AGAIN)
    return made


def _read(file: File) -> bytes:
    (data,) = _read_all([file])
    if isinstance(data, UserError):
        raise data
    return data


def _read_all(files: Sequence[File]) -> Iterator[bytes | UserError]:
    """Whole: there are thousands of them, and each is small."""
    fitting = read_all([file for file in files if file.size <= 2 * MOST_BYTES], _AT_ONCE)
    for file in files:
        if file.size <= 2 * MOST_BYTES:
            yield next(fitting)
        else:
            yield UserError("the file is larger than any digest", file=file.path, next_step=_AGAIN)


def save(made: Digest, path: str) -> None:
    """Writes it to a path or URL, atomically. Raises OSError (disk full, no permission), of a store UserError; nothing
    is left behind then."""
    made.format_version = FORMAT_VERSION
    write_whole(path, made.SerializeToString(deterministic=True))
