"""Panels that need no code in the browser: how a *sheet* is shown, from the types of what a route answers.

A sheet is a struct whose first field is `says`, sentences of which the first one is the answer, followed by fields that
hold rows. A `code` of it is to be pasted. Each field of rows is a table, each field of a row a column: the name tells
its head, its unit and where it leads; `analysis.sheet.head` says what a name does not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import inspect

from tb_torchcompile_plugin.analysis.runtime.kernel_rows import brief

NONE = "all"  # of a table with one row, which has no name
# Fields that name something, whatever table they are in.
NAMES = frozenset(
    (
        *(
            "rule",
            "row",
            "fix",
            "kind",
            "cause",
            "name",
            "function",
            "parent",
            "op",
            "group",
            "dtype",
            "frame",
        ),
        *(
            "file",
            "line",
            "compile_id",
            "resume_compile_id",
            "epoch",
            "direction",
            "graph_key",
            "graph",
            "limit",
        ),
        *(
            "device",
            "stream",
            "thread",
            "rank",
            "for_rank",
            "host",
            "step",
            "category",
            "part",
            "cache",
            "kernel",
        ),
        *("message_bytes", "size_bytes", "group_size", "beside", "operator", "id", "config", "subject"),
    )
)


def key_of(row: msgspec.Struct) -> str:
    """Without regard to other rows."""
    if own := getattr(row, "key", ""):
        return str(own)
    named = (getattr(row, field) for field in row.__struct_fields__ if field in NAMES)
    return ",".join(dict.fromkeys(_parts(named))) or NONE


def _parts(values: Iterable[object]) -> Iterator[str]:
    for value in values:
        if isinstance(value, str | int) and value != "":
            yield brief(str(value))


SAYS = "says"
# Fields of a row that no column shows: what orders it, and where it leads (`frontend/src/panels/sheet`).
UNSEEN = frozenset(
    ("key", "depth", "parent", "epoch", "slices", "kernels_of", "kernel_row", "panel", "row", "stack", "code")
)
_UNIT = re.compile(r"(?:_|^(?=percent$))(us|ns|s|percent|bytes)$")
_WORDS = {"gpu": "GPU", "cpu": "CPU", "device": "GPU", "cuda": "CUDA", "id": "id", "ids": "ids"}
_HEADS = {"file": "Where", "device": "Device"}
_KINDS: Mapping[type[inspect.Type], str] = {
    inspect.BoolType: "flag",
    inspect.IntType: "count",
    inspect.FloatType: "number",
    inspect.LiteralType: "word",
}
_TEXTS = (inspect.StrType, inspect.LiteralType)
_LISTS = (inspect.ListType, inspect.VarTupleType)


class SheetColumn(msgspec.Struct, frozen=True):
    """kind: its unit, or `count`, `number`, `text`, `word` (of a set of words) and `flag`. See `head` for the rest."""

    key: str
    label: str
    kind: str
    bar: bool
    total: bool
    hidden: bool
    grow: bool


class SheetTable(msgspec.Struct, frozen=True):
    """rows: the field that holds them. names: their fields that tell one from the others."""

    rows: str
    title: str
    names: list[str]
    columns: list[SheetColumn]


class Sheets(msgspec.Struct, frozen=True):
    """By route, which is by panel."""

    sheets: dict[str, list[SheetTable]]


def is_sheet(answer: type) -> bool:
    """Whether an answer begins with what it says."""
    return issubclass(answer, msgspec.Struct) and answer.__struct_fields__[:1] == (SAYS,)


def tables_of(answer: type) -> list[SheetTable]:
    """Of each field of rows a table, in their order."""
    kind = inspect.type_info(answer)
    assert isinstance(kind, inspect.StructType)
    return [_table(field, row) for field in kind.fields if (row := _row_of(field.type))]


def _row_of(kind: inspect.Type) -> inspect.StructType | None:
    plain, _ = _looked(kind)
    item = _looked(plain.item_type)[0] if isinstance(plain, _LISTS) else None
    return item if isinstance(item, inspect.StructType) else None


def _table(field: inspect.Field, row: inspect.StructType) -> SheetTable:
    fields = [one.name for one in row.fields]
    unseen = UNSEEN | ({"line"} if "file" in fields else set())
    shown = [column for one in row.fields if one.name not in unseen and (column := _column(one))]
    names = ["key"] if "key" in fields else [name for name in fields if name in NAMES]
    return SheetTable(
        field.name, _looked(field.type)[1].get("title") or _title(field.name), names, _drawn(shown)
    )


def _drawn(columns: list[SheetColumn]) -> list[SheetColumn]:
    """Where nobody said otherwise the first amount has a bar, and the first text the width that is left."""
    sized = next((column.key for column in columns if _UNIT.search(column.key) and not column.hidden), None)
    text = next(
        (column.key for column in columns if column.kind == "text" and column.key != "compile_id"), None
    )
    bar, grow = any(column.bar for column in columns), any(column.grow for column in columns)
    return [
        msgspec.structs.replace(
            column,
            bar=column.bar or (not bar and column.key == sized),
            grow=column.grow or (not grow and column.key == text),
        )
        for column in columns
    ]


def _column(field: inspect.Field) -> SheetColumn | None:
    """None of what is no text and no number."""
    plain, look = _looked(field.type)
    if isinstance(plain, _LISTS) and isinstance(_looked(plain.item_type)[0], _TEXTS):
        kind = "text"
    elif not isinstance(plain, (*_KINDS, inspect.StrType)):
        return None
    else:
        unit = _UNIT.search(field.name) if isinstance(plain, (inspect.IntType, inspect.FloatType)) else None
        kind = unit[1] if unit else _KINDS.get(type(plain), "text")
    label = look.get("title") or _title(field.name)
    return SheetColumn(
        field.name,
        f"{label}, %" if kind == "percent" else label,
        kind,
        **{name: bool(look.get(name)) for name in ("bar", "total", "hidden", "grow")},
    )


def _looked(kind: inspect.Type) -> tuple[inspect.Type, dict[str, Any]]:
    """A type without what is said of it and without None, and that: `title` and the rest."""
    look: dict[str, Any] = {}
    while isinstance(kind, (inspect.Metadata, inspect.UnionType)):
        if isinstance(kind, inspect.Metadata):
            look |= {**(kind.extra_json_schema or {}), **(kind.extra or {})}
            kind = kind.type
        else:
            some = [type for type in kind.types if not isinstance(type, inspect.NoneType)]
            kind = some[0] if len(some) == 1 else inspect.AnyType()
    return kind, look


def _title(name: str) -> str:
    """ "self_device_us" is "Self GPU"."""
    words = [_WORDS.get(word, word) for word in _UNIT.sub("", name).split("_")]
    return _HEADS.get(name) or words[0][:1].upper() + " ".join(words)[1:]
