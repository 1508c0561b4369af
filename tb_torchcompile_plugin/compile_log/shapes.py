"""What torch decides about symbolic shapes, record by record. Standard library and protobuf only."""

from __future__ import annotations

from typing import Any

from tb_torchcompile_plugin.compile_log.summary_pb2 import CompileKey, Frame, ShapeEvent
from tb_torchcompile_plugin.torch_names.records import CHANGED_SHAPE


def shape_event(
    kind: str, details: dict[str, Any], key: CompileKey, attempt: int, stack: list[Frame], *, source: bool
) -> ShapeEvent:
    """A record of one of SHAPE_KINDS. stack: of the user's code. source: keep what names the user's variables."""
    row = ShapeEvent(key=key, attempt=attempt, kind=kind, stack=stack)
    row.symbol = _text(details.get("symbol") or details.get("expr"))
    row.value = _text(details.get("val") or details.get("value"))
    row.range = _text(details.get("vr"))
    if source:
        sources = details.get("source") or details.get("sources")
        row.source = ", ".join(map(str, sources)) if isinstance(sources, list) else _text(sources)
        row.reason = _text(details.get("reason"))
    return row


def change_event(details: dict[str, Any], key: CompileKey, attempt: int, *, source: bool) -> ShapeEvent:
    """An `automatic_dynamic` instant: an input that changed between two calls, so torch made it dynamic.

    `value` is what it is now, `range` what it was before.
    """
    row = ShapeEvent(key=key, attempt=attempt, kind=CHANGED_SHAPE, reason=_text(details.get("reason")))
    row.value, row.range = _text(details.get("new")), _text(details.get("cached"))
    if source:
        row.source = _text(details.get("name"))
    return row


def _text(value: object) -> str:
    return "" if value is None else str(value)
