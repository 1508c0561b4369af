"""One odd value, in any field of a protobuf message."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

from compile_records import NUMBERS, TEXTS

Field = tuple[Any, Any]  # a message and what describes one of its fields
LARGEST = (2**62, 2**63 - 1, -(2**63), 2**64 - 1)
ODD = (*NUMBERS, *LARGEST, *TEXTS, "{}", "[]", "null", "1e999", "NaN", "1/", "triton_poi")


def put_anywhere(message: Any, place: int, one: int, value: Any) -> None:
    """place: of the kinds of fields, whatever a message has most of; one: of those that are alike."""
    by_name: dict[str, list[Field]] = {}
    for inner, field in fields(message):
        by_name.setdefault(field.full_name, []).append((inner, field))
    alike = by_name[sorted(by_name)[place % len(by_name)]]
    put(*alike[one % len(alike)], value, one)


def fields(message: Any) -> Iterator[Field]:
    """All of a message and of those in it."""
    for field in message.DESCRIPTOR.fields:
        yield message, field
        if field.message_type and not field.message_type.GetOptions().map_entry:
            value = getattr(message, field.name)
            inner = value if field.is_repeated else [value] if message.HasField(field.name) else []
            for one in inner:
                yield from fields(one)


def put(message: Any, field: Any, value: Any, place: int) -> None:
    """Where it cannot stand there, nothing changes: protobuf would not have written it."""
    kept = getattr(message, field.name)
    try:
        if field.message_type and field.message_type.GetOptions().map_entry:
            kept[sorted(kept)[place % len(kept)] if kept else "co_name"] = value
        elif field.is_repeated and field.message_type:
            kept.append(kept[place % len(kept)]) if kept and value else kept.add()
        elif field.is_repeated:
            kept.append(value)
        elif field.message_type:
            kept.SetInParent() if value else message.ClearField(field.name)
        elif field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
            setattr(message, field.name, bool(value))
        else:
            setattr(message, field.name, value)
    except (TypeError, ValueError):
        pass
