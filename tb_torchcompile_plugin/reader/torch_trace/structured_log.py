"""TORCH_TRACE logs: bytes → records → CompileSummary.

A record is a line `V1121 03:04:07.471000 1027 torch/…py:2126] {envelope}`, then its payload with a TAB in front of each
line. The log is read as a stream, so size does not matter: payloads stay in it, and their places are kept
(`summary.artifacts`, `payload_at`). Nothing that is wrong with a log raises: it is counted in `records.unreadable` by
cause, or named in `warnings` where it was read all the same.
"""

import contextlib
import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count, takewhile
from typing import Any

import msgspec

from tb_torchcompile_plugin.compile_log import summary_pb2 as pb
from tb_torchcompile_plugin.compile_log.log import CompileLog
from tb_torchcompile_plugin.compile_log.record import Record, loads, nanoseconds, readable
from tb_torchcompile_plugin.errors import UserError
from tb_torchcompile_plugin.logdir.discovery import log_rank
from tb_torchcompile_plugin.reader.trace.source import GzipSource, Source, open_source
from tb_torchcompile_plugin.torch_names.artifacts import artifact_name
from tb_torchcompile_plugin.torch_names.caches import is_ahead_of_time
from tb_torchcompile_plugin.torch_names.python_frames import resumed_from
from tb_torchcompile_plugin.torch_names.records import CHROMIUM_EVENT, CONFIG_FIELDS, METRICS, PAYLOAD_MD5

HEAD = re.compile(rb"[VDIWEC]\d{4} \d\d:\d\d:\d\d(?:\.\d+)? +(?P<pid>\d+) [^\]\n]*?\] ?(?P<json>\{[^\n]*)")


def untab(body: bytes) -> tuple[bytes, bool]:
    """Return the payload lines without their TAB, and whether foreign lines are between them."""
    body = body.removeprefix(b"\r")
    if body.count(b"\n") == body.count(b"\n\t"):
        return body[2:].replace(b"\n\t", b"\n"), False
    lines = body[1:].split(b"\n")
    kept = [line[1:] for line in lines if line[:1] == b"\t"]
    return b"\n".join(kept), any(line.strip() for line in lines if line[:1] != b"\t")


def with_unix_lines(payload: bytes) -> bytes:
    """Return the payload as it was before something copied the log with CR LF at the end of lines."""
    return payload.replace(b"\r\n", b"\n").removesuffix(b"\r")


def has_md5(payload: bytes, md5: object) -> bool:
    """Whether this is the md5 of the payload, in hexadecimal digits."""
    return hashlib.md5(payload, usedforsecurity=False).hexdigest() == md5


def payload_at(path: str, offset: int, size: int, name: str) -> str:
    """Return the payload of the record at this place of a log; for settings, that field of its metrics.

    Raises UserError if the file cannot be opened or has changed since the place was noted.
    """
    with contextlib.closing(open_source(path)) as source:
        raw = source.read(offset, size)
    head = HEAD.match(raw)
    envelope = None
    if head and len(raw) == size:
        with contextlib.suppress(ValueError):
            envelope = json.loads(head["json"].decode("utf-8", "replace"))
    if head is None or not isinstance(envelope, dict):
        raise UserError("has changed since it was read", file=path, next_step="Reload")
    if name in CONFIG_FIELDS:
        metrics = envelope.get(METRICS)
        return str(readable(str(metrics.get(name, "")))) if isinstance(metrics, dict) else ""
    if not envelope.get(PAYLOAD_MD5):  # of an unknown kind: it is all in the envelope
        return json.dumps(envelope.get(name))
    payload, _ = untab(raw[head.end() :].removesuffix(b"\n"))
    unix = with_unix_lines(payload)
    return (unix if has_md5(unix, envelope.get(PAYLOAD_MD5)) else payload).decode("utf-8", "replace")


_NO_REASON = "torch 2.4 does not log the reason"


def add_unlogged(summary: pb.CompileSummary) -> None:
    """Complete the summary of a log of torch 2.4, which has no artifacts and no spans; others stay as they are.

    A function that resumes after a graph break shows where the graph broke, the frame before it that was started over
    shows the reason, and each compilation of a frame but the first is a recompile.
    """
    if any(kind == CHROMIUM_EVENT or artifact_name(kind) for kind in summary.records.by_kind):
        return
    forwards = (row for row in summary.compilations if row.direction == pb.FORWARD and row.key.compile_id)
    rows = [row for row in forwards if not is_ahead_of_time(row.key.compile_id)]
    for index, row in enumerate(rows):
        if row.key.compile_id.rpartition("/")[2] != "0":
            summary.recompiles.add(key=row.key, file=row.file, line=row.line)
        elif (resumed := resumed_from(row.function)) and (broken := _broken(rows[:index], row)):
            reason = next(iter(broken.restart_reasons), _NO_REASON)
            summary.graph_breaks.add(key=broken.key, reason=reason, file=row.file, line=resumed[1], count=1)


def _broken(before: Sequence[pb.Compilation], resumed: pb.Compilation) -> pb.Compilation | None:
    """Return the frame that called the resumed one when its graph broke: the innermost of its file on the stack."""
    callers = [frame.function for frame in resumed.stack if frame.file == resumed.file]
    same = (row for row in reversed(before) if row.key.epoch == resumed.key.epoch)
    return next((row for row in same if row.function in callers[-1:]), None)


_RANK = re.compile(rb'^V[^\n]*"rank": (\d+)', re.MULTILINE)
_TIME = re.compile(rb'"ts": ?(\d+(?:\.\d+)?)')
# Chosen by hand.
CHUNK_BYTES = 4 << 20
# Of the beginning and of the end of a log, in which its rank and its times are looked for.
EDGE_BYTES = 512 << 10
_MOST_DAMAGES = 200_000  # by then seconds have gone by for nothing
_MOST_RECORD = 128 << 20  # bytes; what is larger is a damaged file, not a record
_LARGEST_PID = 1 << 22  # of Linux; torch 2.4 writes the thread instead, a number far above


@dataclass(frozen=True)
class LogIdentity:
    """Whose log it is. Times in Unix ns, of the first and last compile event; None where the log does not tell."""

    rank: int | None
    pid: int | None
    start_ns: int | None
    end_ns: int | None


def read_log(path: str) -> pb.CompileSummary:
    """Read one log, plain or gz. Raises UserError if the file cannot be opened or holds no record at all."""
    return _LogReader(path).read()


def log_identity(path: str) -> LogIdentity:
    """Return rank (by file name, otherwise by the records), process id and time range, from the ends of the file.

    Of a gz only the beginning is read: its end_ns is None. Raises UserError if it cannot be opened.
    """
    with contextlib.closing(open_source(path)) as source:
        head, tail = source.read(0, EDGE_BYTES), b""
        if not isinstance(source, GzipSource):
            tail = source.read(max(0, source.size - EDGE_BYTES), EDGE_BYTES)
    starts, ends = _TIME.search(head), _TIME.findall(tail)
    return LogIdentity(
        rank=rank_of(path, head),
        pid=next((_pid(match["pid"]) for match in HEAD.finditer(head)), None),
        start_ns=_to_ns(starts[1]) if starts else None,
        end_ns=_to_ns(ends[-1]) if ends else None,
    )


def rank_of(path: str, head: bytes = b"") -> int | None:
    """Return the rank in the file name, otherwise the first in a record. The name is right where they differ."""
    named = log_rank(os.path.basename(path))
    match = _RANK.search(head) if named is None else None
    return int(match[1]) if match else named


def _pid(number: bytes) -> int | None:
    return int(number) if int(number) <= _LARGEST_PID else None


def _to_ns(microseconds: bytes) -> int | None:
    """Return ns; None for digits that are no time."""
    try:
        return nanoseconds(float(microseconds))
    except ValueError:
        return None


def _loads(text: str) -> Any:
    """Decode JSON as the standard library reads it, which takes NaN and lone surrogates, too. Raises ValueError."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return loads(text)


def chunks(source: Source) -> Iterator[bytes]:
    """Yield the content of a file from its beginning."""
    return takewhile(bool, (source.read(offset, CHUNK_BYTES) for offset in count(0, CHUNK_BYTES)))


class _LogReader:
    def __init__(self, path: str) -> None:
        self._path = path
        self._log = CompileLog(payloads=True, loads=_loads)
        self._tolerated: Counter[str] = Counter()
        self._decode = msgspec.json.Decoder(dict[str, Any]).decode
        self._pid: int | None = None
        self._records = 0
        self._damages = 0

    def read(self) -> pb.CompileSummary:
        for raw, offset, is_last in self._raw_records():
            self._take(raw, offset, is_last)
            if self._damages > _MOST_DAMAGES:
                self._log.records.unreadable["the rest was skipped after too much damage"] += 1
                break
        if not self._records:
            raise UserError(
                "the log contains no records of torch.compile",
                file=self._path,
                next_step="Set TORCH_TRACE to a folder before the run, and record it again",
            )
        summary = self._log.summary()
        add_unlogged(summary)
        if self._pid is not None:
            summary.environment.pid = self._pid
        if (rank := rank_of(self._path)) is not None:
            summary.environment.rank = rank
        summary.warnings.extend(f"{count} {what}" for what, count in self._tolerated.items())
        return summary

    def _raw_records(self) -> Iterator[tuple[bytes, int, bool]]:
        """Yield (record, its offset, whether it is the last); a record begins with a "V" at the start of a line."""
        pieces: list[bytes] = []  # of the record that is being read, joined when it ends
        offset, length, ends_line = 0, 0, False  # length: of all pieces
        for chunk in self._chunks():
            start = 0
            if length > _MOST_RECORD:
                self._damage("records that are too large, of which only the beginning was read")
                yield pieces[0], offset, False
                pieces, offset, length = [], offset + length, 0
            if ends_line and chunk[:1] == b"V":
                record = b"".join(pieces)
                yield record[:-1], offset, False
                pieces, offset, length = [], offset + len(record), 0
            while (end := chunk.find(b"\nV", start)) >= 0:
                record = chunk[start:end]
                if pieces:
                    record = b"".join([*pieces, record])
                yield record, offset, False
                pieces, offset, length = [], offset + len(record) + 1, 0
                start = end + 1
            pieces.append(chunk[start:])
            length += len(chunk) - start
            ends_line = chunk[-1:] == b"\n"
        if pieces:
            yield b"".join(pieces).removesuffix(b"\n"), offset, True

    def _chunks(self) -> Iterator[bytes]:
        with contextlib.closing(open_source(self._path)) as source:
            yield from chunks(source)
        if source.problem:
            self._log.records.unreadable[source.problem] += 1

    def _take(self, raw: bytes, offset: int, is_last: bool) -> None:
        if (head := HEAD.match(raw)) is None:
            is_cut_off = is_last and raw[:1] == b"V"
            if raw.strip():
                self._damage(
                    "the last line is cut off" if is_cut_off else "not a record (garbage between records)"
                )
            return
        if (metadata := self._envelope(head["json"], is_last)) is None:
            return
        if self._pid is None:
            self._pid = _pid(head["pid"])
        self._records += 1
        damages_before = self._damages
        payload = self._payload(raw, head.end(), metadata.get(PAYLOAD_MD5), is_last)
        damaged = self._damages > damages_before
        self._log.add(Record(metadata, payload, damaged=damaged, place=(offset, len(raw))))

    def _damage(self, cause: str) -> None:
        self._log.records.unreadable[cause] += 1
        self._damages += 1

    def _envelope(self, text: bytes, is_last: bool) -> dict[str, Any] | None:
        """Return the metadata, or None if it is no JSON. With invalid UTF-8 in a name it is still worth reading."""
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return self._decode(text)
        readable = text.decode("utf-8", "replace")
        try:
            metadata = _loads(readable)
        except (ValueError, RecursionError):
            metadata = None
        if not isinstance(metadata, dict):
            self._damage("the last line is cut off" if is_last else "an envelope is not JSON")
            return None
        if readable.encode("utf-8", "surrogatepass") != text:
            self._damage("invalid UTF-8")
        return metadata

    def _payload(self, raw: bytes, start: int, md5: object, is_last: bool) -> str | None:
        """Return the payload text, checked against its md5. A wrong sum is counted, and the text is used."""
        if not md5:
            if raw[start:].strip():
                self._damage("lines that belong to no record")
            return None
        # Where no TABs are in it but those in front of its lines, as with all that torch writes itself, its md5 proves
        # this. It takes half as long as `untab`.
        payload = raw[start + 1 :].translate(None, b"\t")
        if not has_md5(payload, md5):
            payload = self._repaired(raw[start:], md5, is_last)
        try:
            return payload.decode()
        except UnicodeDecodeError:
            self._damage("invalid UTF-8")
            return payload.decode("utf-8", "replace")

    def _repaired(self, body: bytes, md5: object, is_last: bool) -> bytes:
        payload, foreign = untab(body)
        if foreign:
            self._damage("lines that belong to no record")
        if has_md5(payload, md5):
            return payload
        if has_md5(unix := with_unix_lines(payload), md5):
            self._tolerated["payloads had lines ending in CR LF; they were read as LF"] += 1
            return unix
        self._damage("the last payload is cut off" if is_last else "a payload does not match its md5")
        return payload
