"""Read bytes of a trace file by offset, plain or gzip, and the text around its event array.

Plain files allow random access. Gzip streams are decompressed forwards and keep only the last result, so offsets must
not decrease. Both stop at the size of the file when it was opened: growing files are read up to there, shrinking ones
end early.
"""

import json
import os
import re
from dataclasses import dataclass
from typing import Any, cast

from isal import isal_zlib

from tb_torchcompile_plugin.errors import UserError
from tb_torchcompile_plugin.logdir.filesystem import open_regular
from tb_torchcompile_plugin.logdir.other_formats import other_format
from tb_torchcompile_plugin.reader.trace.events import load_object, repair_object

# Far more than any trace that was recorded: what inflates to more was made to fill memory (docs/trust.md).
MAX_INFLATED_BYTES = 64 << 30
_LIMIT_VARIABLE = "TB_TORCHCOMPILE_MAX_INFLATED_BYTES"
_IsalError = cast(type[Exception], isal_zlib.error)
# Bytes of gzip that are read, and of text that is inflated, at once; chosen by hand.
_INPUT_BYTES = 128 << 10
_OUTPUT_BYTES = 256 << 10
_OTHER_FORMATS = {
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\xfd7zXZ\x00": "xz",
    b"BZh": "bzip2",
    b"PK\x03\x04": "zip",
    b"\x04\x22\x4d\x18": "lz4",
}


def max_inflated_bytes() -> int:
    """Return the limit on what a gzip file may inflate to: 64 GiB, or TB_TORCHCOMPILE_MAX_INFLATED_BYTES."""
    try:
        return int(os.environ[_LIMIT_VARIABLE])
    except (KeyError, ValueError):
        return MAX_INFLATED_BYTES


def open_source(path: str, size: int | None = None) -> "Source":
    """Open a file; its first bytes, not its name, decide how.

    size: how much to read, if the file was opened before; None for its current size.

    Raises UserError if it is not a regular, readable, non-empty file, or compressed differently.
    """
    descriptor = open_readable(path)
    try:
        size = os.fstat(descriptor).st_size if size is None else size
        if not (magic := os.pread(descriptor, 6, 0)):
            step = "If the profiler is still writing it, try again later"
            raise UserError("the file is empty", file=path, next_step=step)
        if magic[:2] == b"\x1f\x8b":
            return GzipSource(path, descriptor, size, max_inflated_bytes())
        for prefix, name in _OTHER_FORMATS.items():
            if magic.startswith(prefix):
                step = "Decompress it, or use gzip"
                raise UserError(f"the file is compressed with {name}", file=path, next_step=step)
        return PlainSource(path, descriptor, size)
    except BaseException:
        os.close(descriptor)
        raise


def open_readable(path: str) -> int:
    """Open a regular file. Raises UserError for other kinds of files, and without permission."""
    try:
        return open_regular(path)
    except OSError as error:
        raise UserError(
            f"cannot be opened: {error.strerror}", file=path, next_step="Check the path and its permissions"
        ) from error


class PlainSource:
    """A file as it is, read at random. `problem` says why it ended early, "" if it did not."""

    def __init__(self, path: str, descriptor: int, size: int) -> None:
        self.path, self.size, self.problem = path, size, ""
        self._descriptor = descriptor

    def read(self, offset: int, count: int) -> bytes:
        """Return up to `count` bytes at `offset`; fewer only at the end."""
        count = min(count, self.size - offset)
        parts = []
        while count > 0:
            try:
                part = os.pread(self._descriptor, count, offset)
            except OSError as error:
                self.problem = f"the file could not be read beyond byte {offset} ({error.strerror})"
                break
            if not part:
                self.problem = "the file shrank while it was read"
                break
            parts.append(part)
            offset, count = offset + len(part), count - len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def consumed(self, offset: int) -> int:
        """Return how many bytes precede `offset`."""
        return min(offset, self.size)

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)


class GzipSource:
    """A gzip file (any number of members), inflated forwards.

    A damaged or cut stream ends where inflating stopped; everything before is delivered.
    """

    def __init__(self, path: str, descriptor: int, size: int, limit: int) -> None:
        self.path, self.size, self.problem = path, size, ""
        self._raw = PlainSource(path, descriptor, size)
        self._limit = limit
        self._restart()

    def _restart(self) -> None:
        self._inflater = isal_zlib.decompressobj(wbits=31)
        self._input, self._input_offset = b"", 0
        self._window, self._base, self._done = bytearray(), 0, False

    def read(self, offset: int, count: int) -> bytes:
        """Decompress up to the requested end and return the bytes; fewer only at the end of the file."""
        if offset < self._base:
            self._restart()
        while not self._done and self._base + len(self._window) < offset + count:
            surplus = min(offset - self._base, len(self._window))
            # rarely, so that the window is not moved for every chunk
            if surplus > (1 << 20) or surplus == len(self._window):
                del self._window[:surplus]
                self._base += surplus
            self._inflate_some()
        start = offset - self._base
        return bytes(self._window[start : start + count])

    def _inflate_some(self) -> None:
        if not self._input:
            self._input = self._raw.read(self._input_offset, _INPUT_BYTES)
            self._input_offset += len(self._input)
        fed = bool(self._input)
        try:
            output = self._inflater.decompress(self._input, _OUTPUT_BYTES)
        except (_IsalError, EOFError, ValueError) as error:
            self._finish(f"the gzip data is damaged ({error})")
            return
        self._window += output
        self._input = self._inflater.unconsumed_tail
        if self._inflater.eof:
            self._next_member()
        elif not fed and not output:
            self._finish("the gzip stream is cut off")
        if self._base + len(self._window) > self._limit:
            del self._window[max(0, self._limit - self._base) :]
            self._finish(
                f"it decompresses to more than {self._limit} bytes, the limit set by {_LIMIT_VARIABLE}"
            )

    def _next_member(self) -> None:
        rest = self._inflater.unused_data
        if len(rest) < 2:
            more = self._raw.read(self._input_offset, _INPUT_BYTES)
            self._input_offset += len(more)
            rest += more
        if rest[:2] == b"\x1f\x8b":
            self._inflater, self._input = isal_zlib.decompressobj(wbits=31), rest
        else:
            self._finish("bytes after the gzip stream were ignored" if rest.strip(b"\0") else "")

    def _finish(self, problem: str) -> None:
        self._done = True
        self.problem = problem or self._raw.problem

    def consumed(self, offset: int) -> int:
        """Return how many bytes of the gzip data were inflated."""
        return self._input_offset - len(self._input)

    def close(self) -> None:
        """Close the file."""
        self._raw.close()


Source = PlainSource | GzipSource
_SNIFFED = 64 << 10  # bytes that show whether another tool wrote the file
_MAX_HEAD = 32 << 20  # bytes before the first event, at most; chosen by hand
# a text of any length takes no memory: nothing in it is tried in two ways
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]]', re.DOTALL)
_BOM = re.compile(rb"\A\0*(?:\xef\xbb\xbf)?")
_ARRAY = re.compile(rb"\s*:\s*(\[)")
_ANYWHERE = re.compile(rb'"traceEvents"\s*:\s*\[')
_BASE_NS = re.compile(rb'"baseTimeNanoseconds"\s*:\s*"?(\d+)')
_EVENT_KEY = re.compile(rb'"ph"\s*:')


@dataclass(frozen=True)
class Head:
    """`start`: the offset after the `[` of the event array. `text`: the text before it, "" for a bare array."""

    start: int
    text: bytes


def find_head(source: Source) -> Head:
    """Find where the events start. Raises UserError if the file contains no trace."""
    count = _SNIFFED
    while True:
        text = source.read(0, count)
        complete = len(text) < count
        if (start := _array_start(text)) is None and complete:
            match = _ANYWHERE.search(text)
            start = match.end() if match else None
        if start is not None and not other_format("", text[:_SNIFFED]):
            return Head(start, _BOM.sub(b"", text[: start - 1]))
        if start is not None or complete or count >= _MAX_HEAD:
            raise _no_trace(source, text)
        count *= 8


def _no_trace(source: Source, text: bytes) -> UserError:
    if known := other_format("", text[:_SNIFFED]):
        problem, step = known
    elif not text:
        problem, step = source.problem or "the file is empty", "Record the trace again"
    elif text.lstrip()[:1] in (b"{", b"["):
        problem = "this JSON file contains no traceEvents: it is not a profiler trace, or is cut off before its events"
        step = "If the profiler is still writing it, try again later"
    else:
        problem, step = (
            "this is not a profiler trace: it is not JSON",
            "Pass a *.pt.trace.json or *.pt.trace.json.gz file",
        )
    return UserError(problem, file=source.path, next_step=step)


def _array_start(text: bytes) -> int | None:
    """Return the offset behind the `[`, of the document itself or of its traceEvents; None where there is none."""
    body = _BOM.sub(b"", text).lstrip()
    if body[:1] == b"[":
        start = text.index(b"[") + 1
        return start if text[start:].lstrip()[:1] in (b"{", b"]") else None
    if body[:1] != b"{":
        return None
    depth = 0
    for token in _TOKEN.finditer(text):
        first = token.group(0)[:1]
        if first != b'"':
            depth += 1 if first in (b"{", b"[") else -1
        elif depth == 1 and token.group(0) == b'"traceEvents"' and (array := _ARRAY.match(text, token.end())):
            return array.end(1)
    return None


def read_surroundings(head: Head, tail: bytes | None) -> tuple[dict[str, Any], str]:
    """Return the metadata (all top-level keys except traceEvents) and its problem, "" for none.

    Metadata is before the array and after its `]`. tail: the text after that, None if the file ends before it.
    """
    if not head.text.strip():
        return {}, "unexpected data follows the event array" if tail and tail.strip() else ""
    text = head.text + (b"[]}" if tail is None else b"[]" + tail)
    start = len(text) - len(text.lstrip())
    try:
        end = start + json.JSONDecoder(strict=False).raw_decode(text[start:].decode("latin-1"))[1]
    except (ValueError, RecursionError):
        repaired = repair_object(text, float)
        metadata = dict((repaired and repaired[0]) or load_object(head.text + b"[]}", float) or {})
        if base := _BASE_NS.search(text):
            metadata.setdefault("baseTimeNanoseconds", int(base.group(1)))
        problem = "the metadata around the events is damaged or cut off"
    else:
        rest = text[end:].strip(b" \t\r\n\0")
        problem = "unexpected data after the end of the trace was ignored" if rest else ""
        if count := len(_EVENT_KEY.findall(rest)):
            problem += f" ({count} events)"
        metadata = load_object(text[:end], float) or {}
    metadata.pop("traceEvents", None)
    return metadata, problem
