"""Texts of records, each stored once by content hash and compressed, and where they belong (artifacts)."""

from __future__ import annotations

import hashlib
import json
import zlib

from tb_torchcompile_plugin.compile_records import Record
from tb_torchcompile_plugin.compile_rows import CONFIG_FIELDS
from tb_torchcompile_plugin.summary_pb2 import Artifact, CompileKey, CompileSummary, Direction, Payload

# Marks of spans: their content is in the spans.
_NOT_KEPT = frozenset({"chromium_event"})


class PayloadStore:
    """Keeps payloads in compressed form only. Memory is what the file will take."""

    def __init__(self) -> None:
        self._index: dict[bytes, int] = {}
        self._payloads: list[Payload] = []
        self._artifacts: list[Artifact] = []

    def keep(self, kind: str, record: Record, key: CompileKey, direction: Direction) -> None:
        """Stores the payload of one record, and the settings inside compilation metrics (the same in each of them)."""
        if kind == "compilation_metrics":
            metrics = record.metadata[kind]
            for name in CONFIG_FIELDS:
                if isinstance(metrics.get(name), str):
                    self._add(name, "json", metrics[name], record, key, direction)
        if not record.payload or kind in _NOT_KEPT:
            return
        encoding, text = "", record.payload
        if kind.startswith("artifact:"):
            encoding = str(record.metadata["artifact"].get("encoding") or "")
        if "_cache_" in kind and encoding == "json":
            text = _without_components(text)
        self._add(kind.removeprefix("artifact:"), encoding, text, record, key, direction)

    def _add(
        self, name: str, encoding: str, text: str, record: Record, key: CompileKey, direction: Direction
    ) -> None:
        self._artifacts.append(
            Artifact(
                key=key,
                attempt=int(record.metadata.get("attempt") or 0),
                name=name,
                encoding=encoding,
                payload=self._payload(text),
                direction=direction,
            )
        )

    def _payload(self, text: str) -> int:
        data = text.encode("utf-8", "surrogatepass")
        digest = hashlib.sha256(data).digest()
        index = self._index.get(digest)
        if index is None:
            index = self._index[digest] = len(self._payloads)
            self._payloads.append(_pack(data, digest))
        return index

    def put(self, summary: CompileSummary) -> None:
        """Appends all payloads and artifacts to `summary`."""
        summary.payloads.extend(self._payloads)
        summary.artifacts.extend(self._artifacts)


def _pack(data: bytes, digest: bytes) -> Payload:
    packed = zlib.compress(data, 6)
    if len(packed) < len(data):
        return Payload(sha256=digest, codec=Payload.ZLIB, data=packed)
    return Payload(sha256=digest, codec=Payload.RAW, data=data)


def unpack(payload: Payload) -> str:
    """The text of a stored payload. Raises zlib.error if it is damaged."""
    data = zlib.decompress(payload.data) if payload.codec == Payload.ZLIB else payload.data
    return data.decode("utf-8", "replace")


def _without_components(payload: str) -> str:
    """A cache record without its `components`: a dump of graph and settings, 70 % of a log's bytes."""
    details = json.loads(payload)
    details.pop("components", None)
    return json.dumps(details)
