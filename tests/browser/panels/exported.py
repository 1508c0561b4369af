"""An exported file, read back as its own script reads it."""

import base64
import gzip
import json
import re
from pathlib import Path
from typing import Any, NamedTuple

from tb_torchcompile_plugin.api.bodies import Body
from tb_torchcompile_plugin.api.export.ask import names_of
from tb_torchcompile_plugin.api.routes import ROUTES

BLOCK = re.compile(
    r'<script type="application/octet-stream\+base64" ([\w-]+)="([^"]*)">([A-Za-z0-9+/=]*)</script>\n'
)


class Exported(NamedTuple):
    """answers: by key. contents: what the file says of itself. chunks: how long each is in the file, by number."""

    page: str
    answers: dict[str, Body]
    contents: dict[str, Any]
    files: dict[str, str]
    chunks: dict[int, int]

    def of(self, route: str) -> dict[str, Body]:
        """What is there of one route."""
        return {key: body for key, body in self.answers.items() if key.split("\x1f")[0] == route}

    def chunks_of(self, *routes: str) -> set[int]:
        """In which chunks they are."""
        places = json.loads(_unpacked(dict(_blocks(self.page))["id", "index"]))
        return {place[0] for key, place in places.items() if key.split("\x1f")[0] in routes}


def exported(file: Path) -> Exported:
    page = file.read_text()
    blocks = dict(_blocks(page))
    chunks = {int(name): _unpacked(text) for (kind, name), text in blocks.items() if kind == "data-chunk"}
    places = json.loads(_unpacked(blocks["id", "index"]))
    answers = {
        key: Body(type_, chunks[chunk][start : start + length], status)
        for key, (chunk, start, length, type_, status) in places.items()
    }
    files = {name: _unpacked(text).decode() for (kind, name), text in blocks.items() if kind == "data-file"}
    lengths = {int(name): len(text) for (kind, name), text in blocks.items() if kind == "data-chunk"}
    return Exported(page, answers, json.loads(_unpacked(blocks["id", "contents"])), files, lengths)


def question_of(key: str) -> tuple[str, dict[str, str]]:
    """A route and what it was asked with."""
    name, *texts = key.split("\x1f")
    return name, {one: text for one, text in zip(names_of(ROUTES[name]), texts, strict=True) if text}


def _blocks(page: str) -> list[tuple[tuple[str, str], str]]:
    return [((kind, name), text) for kind, name, text in BLOCK.findall(page)]


def _unpacked(text: str) -> bytes:
    return gzip.decompress(base64.b64decode(text))
