"""A digest on disk: one protobuf message, written whole or not at all."""

from __future__ import annotations

import contextlib
import os

from google.protobuf.message import DecodeError

from tb_torchcompile_plugin.errors import UserError
from tb_torchcompile_plugin.job.digest.digest_pb2 import Digest
from tb_torchcompile_plugin.logdir import filesystem
from tb_torchcompile_plugin.logdir.filesystem import File

# Raised when an older reader would misread the file. Added fields alone do not raise it: protobuf skips them.
FORMAT_VERSION = 1
MOST_BYTES = 100_000
_AGAIN = "Write it again with: tb-torchcompile index"


def load(file: File) -> Digest:
    """Reads one `.pt.digest.pb`, local or remote. Raises UserError where it cannot be read or is of a newer format."""
    return parsed(_read(file), file.path)


def parsed(data: bytes, path: str) -> Digest:
    """Of the bytes of a file. Raises UserError, see `load`."""
    try:
        made: Digest = Digest.FromString(data)
    except DecodeError as error:
        raise UserError("the file is no digest, or is cut off", file=path, next_step=_AGAIN) from error
    if made.format_version == 0:
        raise UserError("the file is no digest", file=path, next_step=_AGAIN)
    if made.format_version > FORMAT_VERSION:
        raise UserError(
            f"the digest has format version {made.format_version}, this reads up to {FORMAT_VERSION}",
            file=path,
            next_step="Upgrade with: pip install --upgrade tb-torchcompile-plugin",
        )
    return made


def _read(file: File) -> bytes:
    """Whole: there are thousands of them, and each is small."""
    if file.size > 2 * MOST_BYTES:
        raise UserError("the file is larger than any digest", file=file.path, next_step=_AGAIN)
    try:
        return filesystem.read_range(file.path, 0, file.size) if file.size else b""
    except OSError as error:
        raise UserError(
            f"the digest cannot be read ({error.strerror or error})",
            file=file.path,
            next_step="Check that it exists and its mode",
        ) from error


def save(made: Digest, path: str) -> None:
    """Writes it to `path`, atomically. Raises OSError (disk full, no permission); nothing is left behind then."""
    made.format_version = FORMAT_VERSION
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        with open(temporary, "wb") as file:
            file.write(made.SerializeToString(deterministic=True))
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
