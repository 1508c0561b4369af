"""The compile summary on disk: one protobuf message, written whole or not at all.

Shared by the writer (inside training) and the reader (inside TensorBoard), so it imports protobuf alone.
"""

import functools
import hashlib
import importlib
import json
import os
import zlib
from typing import Any

from google.protobuf.message import DecodeError

from tb_torchcompile_plugin.compile_log import summary_pb2 as pb
from tb_torchcompile_plugin.compile_log.record import Record
from tb_torchcompile_plugin.errors import UserError
from tb_torchcompile_plugin.logdir.filesystem import open_binary, write_atomically
from tb_torchcompile_plugin.torch_names import artifacts, records
from tb_torchcompile_plugin.torch_names import caches as cache_keys

try:
    lzma: Any = importlib.import_module("lzma")
except ImportError:  # a Python that was built without it keeps each payload on its own
    lzma = None

DAMAGED: tuple[type[Exception], ...] = (zlib.error, EOFError, *((lzma.LZMAError,) if lzma else ()))
# The fast match finder over a window that holds all passes of a graph: 12 MB of text in a fifth of a second.
_LZMA2, _FAST, _HC4 = 0x21, 1, 0x04  # lzma.FILTER_LZMA2, MODE_FAST, MF_HC4
_FILTERS = [{"id": _LZMA2, "dict_size": 1 << 24, "mode": _FAST, "mf": _HC4, "nice_len": 64, "depth": 32}]

# Limits in bytes against files that hold gigabytes in a few kB; they were not measured.
MOST_ROWS = 64 << 20  # rows take some tens of times as much in memory
MOST_TEXT = 512 << 20  # of one payload, or of a block of them
_LZMA_MEMORY = 128 << 20  # of the window that a stream asks for
_IN_FRONT = ("format_version", "environment", "warnings", "payload_block")  # not among the rows of a file


def has_text(kind: str, record: Record) -> bool:
    """Whether there is a text to store. Most records mark spans, or describe an input in their envelope."""
    if kind == records.CHROMIUM_EVENT:  # its content is in the spans
        return False
    return record.payload is not None or kind == records.METRICS or kind not in records.KINDS


class PayloadStore:
    """The payloads of a summary, each once, in compressed form only: memory is what the file will take."""

    def __init__(self, summary: pb.CompileSummary) -> None:
        self._summary = summary
        self._index = {payload.sha256: index for index, payload in enumerate(summary.payloads)}
        self._settings: set[int] = set()

    def keep(self, kind: str, record: Record, key: pb.CompileKey, direction: pb.Direction) -> None:
        """Store the payload of one record, and the settings inside compilation metrics (the same in each of them)."""
        if kind == records.METRICS:
            metrics = record.metadata[kind]
            for name in records.CONFIG_FIELDS:
                if isinstance(metrics.get(name), str):
                    self._keep(name, "json", metrics[name], record, key, direction)
        text = record.payload
        if not text and kind not in records.KINDS and not artifacts.artifact_name(kind):
            text = json.dumps(record.metadata[kind], default=repr)  # of an unknown kind all that it says
        if not text:
            return
        encoding = "" if record.payload else "json"
        name = artifacts.artifact_name(kind) or kind
        if kind in artifacts.NAMED_PARTS:
            encoding = str(record.metadata[kind].get(artifacts.TYPE) or encoding)
            part = record.metadata[kind].get("name")
            name = f"{kind}_{part}" if part else name
        if artifacts.artifact_name(kind):
            encoding = str(record.metadata[records.ARTIFACT].get("encoding") or "")
        if artifacts.is_cache_lookup(kind) and encoding == "json" and record.place is None:
            text = self._without_settings(text, record, key, direction)
        self._keep(name, encoding, text, record, key, direction)

    def _without_settings(
        self, text: str, record: Record, key: pb.CompileKey, direction: pb.Direction
    ) -> str:
        """Return a cache lookup without the graph's code, which is a text of its own; keep its settings apart.

        Settings are mostly the same in all lookups of a process, and most of a log's bytes.
        """
        details = json.loads(text)
        lines = details.get("components") or ()
        settings = [line for line in lines if cache_keys.is_setting(line)]
        if lines:
            rest = [line for line in lines if not cache_keys.is_setting(line)]
            details["components"] = [cache_keys.without_code(line) for line in rest]
        digest = hash((key.epoch, key.compile_id, *settings))
        if settings and digest not in self._settings:
            self._settings.add(digest)
            self._keep(artifacts.KEY_SETTINGS, "json", json.dumps(settings), record, key, direction)
        return json.dumps(details)

    def _keep(
        self, name: str, encoding: str, text: str, record: Record, key: pb.CompileKey, direction: pb.Direction
    ) -> None:
        artifact = self._summary.artifacts.add(
            key=key,
            attempt=record.attempt,
            name=name,
            encoding=encoding,
            direction=direction,
            subgraph=str(record.metadata.get(records.SUBGRAPH) or ""),
        )
        if record.place is None:
            data = text.encode("utf-8", "surrogatepass")
            artifact.payload, artifact.size = self.add(data), len(data)
        else:
            artifact.log_offset, artifact.log_bytes = record.place
            artifact.size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))

    def add(self, data: bytes) -> int:
        """Add a payload unless it is there; return its index."""
        digest = hashlib.sha256(data).digest()
        if (index := self._index.get(digest)) is None:
            index = self._index[digest] = len(self._summary.payloads)
            payload = self._summary.payloads.add(sha256=digest, codec=pb.Payload.ZLIB)
            payload.data = zlib.compress(data, 6)
            if len(payload.data) >= len(data):
                payload.codec, payload.data = pb.Payload.RAW, data
        return index


def payload_text(summary: pb.CompileSummary, index: int) -> str:
    """Return the text of payload `index`. Raises DAMAGED errors, and IndexError where there is none."""
    payload = summary.payloads[index]
    if payload.codec != pb.Payload.BLOCK:
        return _raw(payload).decode("utf-8", "replace")
    start = sum(before.size for before in summary.payloads[:index])
    data = _inflated(summary.payload_block)[start : start + payload.size]
    if len(data) != payload.size:
        raise EOFError("the block is shorter than its payloads")
    return data.decode("utf-8", "replace")


def pack_summary(summary: pb.CompileSummary) -> pb.CompileSummary:
    """Return `summary` for the disk: payloads in one stream, other growing fields in another.

    Without payloads it is `summary` itself, plain.
    """
    if not summary.payloads:
        return summary
    head, rows = _with_block(summary), pb.CompileSummary()
    rows.CopyFrom(head)
    for name in _IN_FRONT:
        rows.ClearField(name)
    for field, _ in rows.ListFields():
        head.ClearField(field.name)
    head.rows = zlib.compress(rows.SerializeToString())
    return head


def _with_block(summary: pb.CompileSummary) -> pb.CompileSummary:
    """Return a copy with its payloads in one stream, which takes less than half of the space."""
    copy = pb.CompileSummary()
    copy.CopyFrom(summary)
    if lzma is None or summary.payload_block:
        return copy
    try:
        raw = [_raw(payload) for payload in summary.payloads]
    except zlib.error:  # then each keeps what it has
        return copy
    copy.payload_block = _block(tuple(payload.sha256 for payload in summary.payloads), raw)
    del copy.payloads[:]
    copy.payloads.extend(
        pb.Payload(sha256=payload.sha256, codec=pb.Payload.BLOCK, size=len(data))
        for payload, data in zip(summary.payloads, raw)
    )
    return copy


def unpack_rows(summary: pb.CompileSummary) -> None:
    """Put the rows of a file back into their fields. Raises zlib.error or DecodeError if they are damaged."""
    rows = summary.rows
    summary.ClearField("rows")
    if rows:
        summary.MergeFromString(_decompressed(rows, MOST_ROWS))


def _raw(payload: pb.Payload) -> bytes:
    data: bytes = payload.data
    return _decompressed(data, MOST_TEXT) if payload.codec == pb.Payload.ZLIB else data


def _decompressed(data: bytes, max_bytes: int) -> bytes:
    """Return the data. Raises zlib.error, also for more bytes than `max_bytes`."""
    stream = zlib.decompressobj()
    decompressed = stream.decompress(data, max_bytes)
    if not stream.eof:
        raise zlib.error("cut off, or too large")
    return decompressed


_last_block: tuple[tuple[bytes, ...], bytes] = ((), b"")


def _block(digests: tuple[bytes, ...], raw: list[bytes]) -> bytes:
    """Return one xz stream. A cycle in which nothing was compiled has the block of the one before."""
    global _last_block
    if _last_block[0] != digests:
        _last_block = (digests, lzma.compress(b"".join(raw), filters=_FILTERS))
    return _last_block[1]


@functools.lru_cache(maxsize=2)
def _inflated(block: bytes) -> bytes:
    if lzma is None:
        raise EOFError("this Python was built without lzma")
    stream = lzma.LZMADecompressor(memlimit=_LZMA_MEMORY)
    data: bytes = stream.decompress(block, MOST_TEXT)
    if not stream.eof:
        raise EOFError("cut off, or too large")
    return data


# Raised when an older reader would misread the file. Added fields alone do not raise it: protobuf skips them.
FORMAT_VERSION = 2
_MAX_BYTES = 1 << 30  # half of protobuf's own limit of 2 GiB


def load(path: str) -> pb.CompileSummary:
    """Read one `.pt.compile.pb`. Raises UserError if it cannot be read or is of a newer format."""
    try:
        with open_binary(path) as file:
            too_large = os.fstat(file.fileno()).st_size > _MAX_BYTES
            data = b"" if too_large else file.read(_MAX_BYTES)
    except OSError as error:
        problem = f"the compile summary cannot be read ({error.strerror or error})"
        raise UserError(problem, file=path, next_step="Check that it exists and is readable") from error
    if too_large:
        raise UserError("the file is larger than any compile summary", file=path, next_step="Record it again")
    if not data:
        next_step = "Its process stopped while writing: record it again"
        raise UserError("the compile summary is empty", file=path, next_step=next_step)
    try:
        summary: pb.CompileSummary = pb.CompileSummary.FromString(data)
        unpack_rows(summary)
    except (DecodeError, zlib.error) as error:
        problem = "the file is not a compile summary, or is cut off or too large"
        raise UserError(problem, file=path, next_step="Record it again") from error
    version = summary.format_version
    if version == 0:
        raise UserError("the file is not a compile summary", file=path, next_step="Record it again")
    if version > FORMAT_VERSION:
        problem = (
            f"the compile summary has format version {version}; this version reads up to {FORMAT_VERSION}"
        )
        next_step = "Upgrade with: pip install --upgrade tb-torchcompile-plugin"
        raise UserError(problem, file=path, next_step=next_step)
    return summary


def save(summary: pb.CompileSummary, path: str) -> None:
    """Write `summary` to `path`, atomically: readers see the old file or the whole new one.

    Raises OSError (disk full, no permission) and EncodeError (over 2 GiB). Failures leave no file behind.
    """
    summary.format_version = FORMAT_VERSION
    with write_atomically(path) as file:
        file.write(pack_summary(summary).SerializeToString())
