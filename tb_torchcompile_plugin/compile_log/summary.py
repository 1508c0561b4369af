"""The compile summary on disk: one protobuf message, written whole or not at all.

Shared by the writer (inside training) and the reader (inside TensorBoard), so it imports protobuf alone.
"""

from __future__ import annotations

import os
import zlib

from google.protobuf.message import DecodeError

from tb_torchcompile_plugin.compile_log.payloads import pack_summary, unpack_rows
from tb_torchcompile_plugin.compile_log.summary_pb2 import CompileSummary
from tb_torchcompile_plugin.errors import UserError
from tb_torchcompile_plugin.logdir.filesystem import open_binary, write_atomically

# Raised when an older reader would misread the file. Added fields alone do not raise it: protobuf skips them.
FORMAT_VERSION = 2
_MAX_BYTES = 1 << 30  # half of protobuf's own limit of 2 GiB


def load(path: str) -> CompileSummary:
    """Read one `.pt.compile.pb`. Raises UserError if it cannot be read or is of a newer format."""
    try:
        with open_binary(path) as file:
            too_large = os.fstat(file.fileno()).st_size > _MAX_BYTES
            data = b"" if too_large else file.read(_MAX_BYTES)
    except OSError as error:
        problem = f"the compile summary cannot be read ({error.strerror or error})"
        raise UserError(problem, file=path, next_step="Check that it exists and its mode") from error
    if too_large:
        raise UserError("the file is larger than any compile summary", file=path, next_step="Record it again")
    if not data:
        next_step = "Its process was stopped while writing: record it again"
        raise UserError("the compile summary is empty", file=path, next_step=next_step)
    try:
        summary: CompileSummary = CompileSummary.FromString(data)
        unpack_rows(summary)
    except (DecodeError, zlib.error) as error:
        problem = "the file is no compile summary, or is cut off or too large"
        raise UserError(problem, file=path, next_step="Record it again") from error
    version = summary.format_version
    if version == 0:
        raise UserError("the file is no compile summary", file=path, next_step="Record it again")
    if version > FORMAT_VERSION:
        problem = f"the compile summary has format version {version}, this reads up to {FORMAT_VERSION}"
        next_step = "Upgrade with: pip install --upgrade tb-torchcompile-plugin"
        raise UserError(problem, file=path, next_step=next_step)
    return summary


def save(summary: CompileSummary, path: str) -> None:
    """Write `summary` to `path`, atomically: readers see the old file or the whole new one.

    Raises OSError (disk full, no permission) and EncodeError (over 2 GiB); nothing is left behind then, nor where it is
    interrupted.
    """
    summary.format_version = FORMAT_VERSION
    with write_atomically(path) as file:
        file.write(pack_summary(summary).SerializeToString())
