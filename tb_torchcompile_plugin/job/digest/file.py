"""Store a digest as one protobuf message of compressed sections, written completely or not at all."""

import zlib
from collections.abc import Iterator, Sequence

import numpy as np
from google.protobuf.message import DecodeError

from tb_torchcompile_plugin.errors import UserError
from tb_torchcompile_plugin.job.digest.digest_pb2 import Digest, DigestNotice
from tb_torchcompile_plugin.logdir.filesystem import File, read_all, write_whole
from tb_torchcompile_plugin.profile.columns import Int64s

# Raised when an older reader would misread the file. Added fields alone do not raise it: protobuf skips them.
FORMAT_VERSION = 1
MOST_BYTES = 100_000  # of a file: thousands of ranks must fit into memory and come over a network in seconds
LARGEST = MOST_BYTES - 8  # a file has its format version in addition
_SECTION_BYTES = 16 << 20  # of one section, unpacked: a larger one is damaged
_REQUESTS = 128  # to a store at once
_WRITE_AGAIN = "Write it again with: tb-torchcompile index"


def left_out(what: str, kept: int, total: int) -> list[DigestNotice]:
    """Return the notice that only the first rows are there; [] where all are."""
    if kept >= total:
        return []
    problem = f"too long for a digest, which has {f'the first {kept}' if kept else 'none'} of {total} {what}"
    return [
        DigestNotice(problem=problem, kept="The trace contains all of them", next_step="Record fewer steps")
    ]


def packed(*columns: Int64s) -> bytes:
    """Return columns of one length as bytes: differences of neighbours, byte by byte, compressed.

    Times and numbers of calls grow evenly, so most bytes of their differences are zero.
    """
    table = np.stack(columns).astype("<i8")
    return compressed(np.diff(table, axis=1, prepend=0).tobytes(), width=8)


def unpacked(data: bytes, count: int) -> list[Int64s]:
    """Return that many columns. Raises UserError where the bytes hold no such table."""
    raw = np.frombuffer(decompressed(data, width=8), "<i8")
    if len(raw) % count:
        raise UserError("a table of the digest is cut off")
    return list(np.cumsum(raw.reshape(count, -1), axis=1))


def compressed(data: bytes, width: int = 1) -> bytes:
    """Compress numbers of `width` bytes: their first bytes are stored first, then their second ones, and so on."""
    return zlib.compress(np.frombuffer(data, np.uint8).reshape(-1, width).T.tobytes(), 9)


def decompressed(data: bytes, width: int = 1) -> bytes:
    """Decompress. Raises UserError where the bytes are damaged, or hold more than any digest."""
    stream = zlib.decompressobj()
    try:
        raw = stream.decompress(data, _SECTION_BYTES)
    except zlib.error as error:
        raise UserError("a section of the digest is damaged") from error
    if not stream.eof or len(raw) % width:
        raise UserError("a section of the digest is cut off, or is too large")
    numbers: bytes = np.frombuffer(raw, np.uint8).reshape(width, -1).T.tobytes()
    return numbers


def load(file: File) -> Digest:
    """Read one `.pt.digest.pb`, local or remote. Raises UserError where it is unreadable or of a newer format."""
    (message,) = load_all([file])
    if isinstance(message, UserError):
        raise message
    return message


def load_all(files: Sequence[File]) -> Iterator[Digest | UserError]:
    """Read them one by one; yield why a file cannot be read."""
    for file, message in zip(files, _of_any_version(files)):
        if isinstance(message, Digest) and message.format_version > FORMAT_VERSION:
            message = UserError(
                f"the digest has format version {message.format_version}; this version reads up to {FORMAT_VERSION}",
                file=file.path,
                next_step="Upgrade with: pip install --upgrade tb-torchcompile-plugin",
            )
        yield message


def _of_any_version(files: Sequence[File]) -> Iterator[Digest | UserError]:
    """Read complete files, of which there are thousands of small ones."""
    contents = read_all([file for file in files if file.size <= 2 * MOST_BYTES], _REQUESTS)
    for file in files:
        if file.size > 2 * MOST_BYTES:
            yield UserError("the file is larger than any digest", file=file.path, next_step=_WRITE_AGAIN)
        else:
            data = next(contents)
            yield data if isinstance(data, UserError) else _parsed(data, file.path)


def _parsed(data: bytes, path: str) -> Digest | UserError:
    try:
        message: Digest = Digest.FromString(data)
    except DecodeError:
        return UserError("the file is not a digest, or is cut off", file=path, next_step=_WRITE_AGAIN)
    if message.format_version == 0:
        return UserError("the file is not a digest", file=path, next_step=_WRITE_AGAIN)
    return message


def is_current(file: File | None, trace: File) -> bool:
    """Whether it is a digest of this trace, also if a newer version of the package wrote it."""
    if file is None:
        return False
    (message,) = _of_any_version([file])
    if isinstance(message, UserError):
        return False
    is_of_trace = (message.trace_name, message.trace_bytes) == (trace.name, trace.size)
    # The last section is there: a file that is cut off between two fields can be parsed.
    return is_of_trace and bool(message.kernels) and message.format_version >= FORMAT_VERSION


def save(message: Digest, path: str) -> None:
    """Write it to a path or URL, whole or not at all. Raises OSError, of a store UserError."""
    message.format_version = FORMAT_VERSION
    write_whole(path, message.SerializeToString(deterministic=True))
