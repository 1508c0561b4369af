"""One record of a TORCH_TRACE log: its bytes → head, envelope, payload. And a record fetched again by its place.

A record is a line `V1121 03:04:07.471000 1027 torch/…py:2126] {envelope}`, then its payload with a TAB in front of each
line.
"""

import contextlib
import hashlib
import json
import re
from collections.abc import Iterator
from typing import IO

from isal import isal_zlib

from tb_torchcompile_plugin.compile_log.record import readable
from tb_torchcompile_plugin.errors import UserError
from tb_torchcompile_plugin.logdir.filesystem import open_binary
from tb_torchcompile_plugin.reader.trace.source import max_inflated_bytes
from tb_torchcompile_plugin.torch_names.records import CONFIG_FIELDS, METRICS, PAYLOAD_MD5

CHUNK = 4 << 20
_GZIP = b"\x1f\x8b"  # the first bytes
HEAD = re.compile(rb"[VDIWEC]\d{4} \d\d:\d\d:\d\d(?:\.\d+)? +(?P<pid>\d+) [^\]\n]*?\] ?(?P<json>\{[^\n]*)")


class CutOffError(Exception):
    """A gz that ends too early, or is damaged, or too large."""


def content(file: IO[bytes]) -> Iterator[bytes]:
    """Yield the content piece by piece, decompressed if it is a gz.

    Raises CutOffError after the last good byte: gzip.open would throw away what it has read before the damage.
    """
    chunk = file.read(CHUNK)
    if chunk[:2] == _GZIP:
        yield from _inflated(chunk, file)
        return
    while chunk:
        yield chunk
        chunk = file.read(CHUNK)


def _inflated(chunk: bytes, file: IO[bytes]) -> Iterator[bytes]:
    """Yield the members of a gz, one after another."""
    inflate, begun, left = isal_zlib.decompressobj(wbits=31), False, max_inflated_bytes()
    while chunk or begun:
        try:
            data = inflate.decompress(chunk, CHUNK)
        except isal_zlib.IsalError as error:  # type: ignore[misc]  # its stub says instance
            raise CutOffError from error
        if data:
            yield data
        elif not chunk:
            break
        begun, chunk, left = True, inflate.unconsumed_tail, left - len(data)
        if left <= 0:
            raise CutOffError("the gz inflates to more than TB_TORCHCOMPILE_MAX_INFLATED_BYTES")
        if inflate.eof:
            chunk = inflate.unused_data
            inflate, begun = isal_zlib.decompressobj(wbits=31), False
        chunk = chunk or file.read(CHUNK)
    if begun:
        raise CutOffError


def is_gzip(path: str) -> bool:
    """Whether a file begins as a gzip does."""
    with open_binary(path) as file:
        return file.read(2) == _GZIP


def cannot_open(path: str, error: OSError) -> UserError:
    """Return why a log cannot be read."""
    return UserError(
        f"cannot be read ({error.strerror or error})",
        file=path,
        next_step="Check that it exists and its mode",
    )


def untab(body: bytes) -> tuple[bytes, bool]:
    """Return the payload lines without their TAB, and whether something else wrote lines between them."""
    body = body.removeprefix(b"\r")
    if body.count(b"\n") == body.count(b"\n\t"):
        return body[2:].replace(b"\n\t", b"\n"), False
    lines = body[1:].split(b"\n")
    kept = [line[1:] for line in lines if line[:1] == b"\t"]
    return b"\n".join(kept), any(line.strip() for line in lines if line[:1] != b"\t")


def without_tabs(record: bytes, start: int) -> bytes:
    """Return the payload after `start` if no TABs are in it but those in front of its lines, which its md5 then proves.

    So it is with all that torch writes itself, and takes half as long as `untab`.
    """
    return record[start + 1 :].translate(None, b"\t")


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
    try:
        raw = _bytes_at(path, offset, size)
    except OSError as error:
        raise cannot_open(path, error) from error
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


def _bytes_at(path: str, offset: int, size: int) -> bytes:
    """Return a part of a log. Of a gz everything before has to be decompressed."""
    with open_binary(path) as file:
        is_gzip = file.read(2) == _GZIP
        file.seek(0 if is_gzip else offset)
        if not is_gzip:
            return file.read(size)
        data = b""
        with contextlib.suppress(CutOffError):
            for piece in content(file):
                if offset < len(piece):
                    data += piece[offset : offset + size - len(data)]
                offset = max(0, offset - len(piece))
                if len(data) == size:
                    break
        return data
