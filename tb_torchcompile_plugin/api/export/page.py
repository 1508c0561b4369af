"""The page around the answers: the tab's own bundle, and the small script that answers it from the file.

The script is the one piece of JavaScript that stands in the page as it is; a hash in the content security policy lets
it run. It makes modules of the bundle, which no server is asked for. What it does is in `frontend/src/file.ts`.
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import msgspec

from tb_torchcompile_plugin.api.export.pack import packed

STATIC = Path(__file__).parents[2] / "static"
SCRIPT = "file.js"
_STATIC_IMPORT = re.compile(r'(?:from|import)\s*"\./([\w.]+)"')
_WITHOUT_SCRIPTS = (
    "This file needs JavaScript. If a server shows it without, save it and open it from disk: "
    "it asks for nothing else."
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
    """Until where blocks begin."""
    page = _HEAD.format(policy=policy(script()), title=html.escape(title), without=_WITHOUT_SCRIPTS)
    return page.encode("utf-8", "replace")


def policy(text: str) -> str:
    """What the page may do: run the one script and what that makes, ask nobody for anything."""
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{digest}' blob:; worker-src blob:; "
        "style-src 'unsafe-inline' blob:; img-src data: blob:; base-uri 'none'; form-action 'none'"
    )


def script() -> str:
    """As it is built. Raises OSError."""
    return (STATIC / SCRIPT).read_text(encoding="utf-8")


def bundle() -> Iterator[bytes]:
    """Blocks of the tab's files, each behind those that it imports before it runs."""
    files = {path.name: path for path in STATIC.iterdir() if path.name != SCRIPT}
    imports = {name: _STATIC_IMPORT.findall(path.read_text("utf-8")) for name, path in files.items()}
    for name in TopologicalSorter(imports).static_order():
        yield block(f'data-file="{name}"', files[name].read_bytes())


def tail(contents: msgspec.Struct, index: bytes) -> Iterator[bytes]:
    """Where everything lies, what it is, and the script that begins."""
    yield block('id="index"', index)
    yield block('id="contents"', msgspec.json.encode(contents))
    yield f'<script type="module">{script()}</script>\n</body>\n</html>\n'.encode()


def block(attributes: str, data: bytes) -> bytes:
    """Data that the script reads."""
    return b'<script type="application/octet-stream+base64" %s>%s</script>\n' % (
        attributes.encode(),
        packed([data]),
    )
