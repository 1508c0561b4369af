"""Answers as bytes, the same from a server and in a file."""

from __future__ import annotations

import re

import msgspec

# Marks that turn the letters around them to the other direction, our own sentences' too: U+061C, 200E … 2069.
_TURNING = re.compile(rb"\xd8\x9c|\xe2\x80[\x8e\x8f\xa8-\xae]|\xe2\x81[\xa6-\xa9]")


def json_body(value: object) -> bytes:
    """`value` (a Struct, a dataclass or plain data) as JSON. NaN and infinities become null."""
    return _inert(msgspec.json.encode(value), b"\\\\")


def text_body(value: str) -> bytes:
    return _inert(value.encode("utf-8", "replace"), b"\\")


def _inert(body: bytes, backslash: bytes) -> bytes:
    """What of a program or a log stands in it, with such marks written out."""
    return _TURNING.sub(lambda mark: backslash + b"u%04x" % ord(mark[0].decode()), body)
