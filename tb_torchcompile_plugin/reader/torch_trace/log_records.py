"""One record of a TORCH_TRACE log: its bytes → head, envelope, payload. And a record fetched again by its place.

A record is a line `V1121 03:04:07.471000 1027 torch/…py:2126] {envelope}`, then its payload with a TAB in front of each
line.
"""

import contextlib
import hashlib
import json
import re

from tb_torchcompile_plugin.compile_log.record import readable
from tb_torchcompile_plugin.errors import UserError
from tb_torchcompile_plugin.reader.trace.source import open_source
from tb_torchcompile_plugin.torch_names.records import CONFIG_FIELDS, METRICS, PAYLOAD_MD5

HEAD = re.compile(rb"[VDIWEC]\d{4} \d\d:\d\d:\d\d(?:\.\d+)? +(?P<pid>\d+) [^\]\n]*?\] ?(?P<json>\{[^\n]*)")


def untab(body: bytes) -> tuple[bytes, bool]:
    """Return the payload lines without their TAB, and whether foreign lines are between them."""
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
