"""The page around the answers: the bundle of the tab, and a small script that answers its requests from the file.

The script is the only JavaScript that is directly in the page; a hash in the content security policy allows it. It
creates modules from the bundle, without requests to a server. `frontend/src/file.ts` contains its code.
"""

import base64
import hashlib
import html
import re
import sys
import zlib
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path
from typing import TypeVar

import msgspec

from tb_torchcompile_plugin.api.bodies import Body, json_body
from tb_torchcompile_plugin.errors import displayable

_CHUNK_BYTES = 1 << 19  # before they are compressed: what is decompressed for one answer
_GZIP = 31  # zlib's word for its own window with gzip's header
Key = TypeVar("Key")


class Location(msgspec.Struct, frozen=True, array_like=True):
    """The location of a body: `length` bytes from `start` of a decompressed chunk."""

    chunk: int
    start: int
    length: int
    type: str
    status: int


class Pack:
    """The answers of a file by their questions, each body once, packed into chunks.

    A chunk is gzip in base64 inside of a `<script>` that is no script; the index shows where in which chunk an answer
    lies. Blocks are taken as they get ready, so that none is held longer than that.
    """

    def __init__(self) -> None:
        self.locations: dict[str, Location] = {}
        self.bytes = 0  # of all blocks so far
        self.open_bytes = 0  # of the chunk that bodies are added to
        self._open: list[bytes] = []
        self._by_body: dict[bytes, Location] = {}
        self._chunks = 0
        self._ready: list[bytes] = []

    def add(self, key: str, body: Body) -> None:
        """Add a body. One that is there already is not written again."""
        hashed = hashlib.blake2b(body.data, digest_size=16)  # without a copy of what may be megabytes
        hashed.update(f"{body.type} {body.status}".encode())
        if (digest := hashed.digest()) not in self._by_body:
            length = len(body.data)
            self._by_body[digest] = Location(self._chunks, self.open_bytes, length, body.type, body.status)
            self._open.append(body.data)
            self.open_bytes += length
        self.locations[key] = self._by_body[digest]

    def close(self, most_bytes: int = sys.maxsize) -> bool:
        """Write what is open as a chunk, so that what is added next is not decompressed with it.

        Returns False, and forgets what is open, where the chunk takes more than `most_bytes` of the file.
        """
        if not self._open:
            return True
        chunk = block(f'data-chunk="{self._chunks}"', *self._open)
        self._open, self.open_bytes = [], 0
        if len(chunk) > most_bytes:
            self.locations = _not_in(self._chunks, self.locations)
            self._by_body = _not_in(self._chunks, self._by_body)
            return False
        self._ready.append(chunk)
        self.bytes += len(chunk)
        self._chunks += 1
        return True

    def take(self) -> Iterator[bytes]:
        """Yield the blocks that got ready since the last call, the open one if it is large enough."""
        if self.open_bytes >= _CHUNK_BYTES:
            self.close()
        ready, self._ready = self._ready, []
        yield from ready


def _not_in(chunk: int, locations: dict[Key, Location]) -> dict[Key, Location]:
    return {key: location for key, location in locations.items() if location.chunk != chunk}


STATIC = Path(__file__).parents[2] / "static"
SCRIPT = "file.js"
_STATIC_IMPORT = re.compile(r'(?:from|import)\s*"\./([\w.]+)"')
_WITHOUT_SCRIPTS = (
    "This file needs JavaScript. If a server blocks it, save the file and open it from disk: "
    "it needs nothing else."
)
_HEAD = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width">
<meta name="referrer" content="no-referrer">
<title>{title}</title>
<link rel="icon" href="data:,">
<style>:root {{ color-scheme: light dark; }} body {{ margin: 0; font: 13px/1.45 system-ui, sans-serif; }}</style>
</head>
<body>
<noscript><p>{without}</p></noscript>
"""


def head(title: str) -> bytes:
    """Return the page up to where blocks begin."""
    title = html.escape(displayable(title))
    return _HEAD.format(policy=policy(script()), title=title, without=_WITHOUT_SCRIPTS).encode()


def policy(text: str) -> str:
    """Return the policy of the page: only its script and the modules that it builds, and no connections."""
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{digest}' blob:; worker-src blob:; "
        "style-src 'unsafe-inline' blob:; img-src data: blob:; base-uri 'none'; form-action 'none'"
    )


def script() -> str:
    """Return the script as it is built. Raises OSError."""
    return (STATIC / SCRIPT).read_text(encoding="utf-8")


def bundle() -> Iterator[bytes]:
    """Yield the tab's files, each behind those that it imports before it runs."""
    files = {path.name: path for path in STATIC.iterdir() if path.name != SCRIPT}
    imports = {name: _STATIC_IMPORT.findall(path.read_text("utf-8")) for name, path in files.items()}
    for name in TopologicalSorter(imports).static_order():
        yield block(f'data-file="{name}"', files[name].read_bytes())


def tail(contents: msgspec.Struct, locations: dict[str, Location]) -> Iterator[bytes]:
    """Yield the index of all answers, the list of contents, and the script."""
    yield block('id="index"', msgspec.json.encode(locations))
    yield block('id="contents"', json_body(contents))
    yield f'<script type="module">{script()}</script>\n</body>\n</html>\n'.encode()


def block(attributes: str, *parts: bytes) -> bytes:
    """Return data that the script reads: gzip as base64, none of whose characters means anything in HTML."""
    squeeze = zlib.compressobj(wbits=_GZIP)
    packed = base64.b64encode(b"".join([*map(squeeze.compress, parts), squeeze.flush()]))
    return b'<script type="application/octet-stream+base64" %s>%s</script>\n' % (attributes.encode(), packed)
