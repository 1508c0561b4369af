"""A digest on disk: one protobuf message, written whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from google.protobuf.message import DecodeError

from tb_torchcompile_plugin.errors import UserError
from tb_torchcompile_plugin.job.digest.digest_pb2 import Digest
from tb_torchcompile_plugin.job.digest.room import MOST_BYTES
from tb_torchcompile_plugin.logdir.filesystem import File, read_all, write_whole

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
