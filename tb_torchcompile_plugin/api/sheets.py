"""Lay out the rows of answers as tables: the browser and the terminal show them without code for each table.

Each field that holds rows is a table, each field of a row a column: the name determines its head, its unit and its
link; `analysis.formatting.column_head` adds what a name does not say. A *sheet* is an answer whose first field is
`sentences`, of which the first one is the result; a `code` of it is to be pasted. The browser shows it as a whole.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

import msgspec
from msgspec import inspect

from tb_torchcompile_plugin.analysis.compare.pairs import Pair
from tb_torchcompile_plugin.analysis.runtime.kernel_rows import short_name

NONE = "all"  # of a table with one row, which has no name
# Fields that name something, whatever table they are in.
NAMES = frozenset(
    (
        *("rule", "row", "fix", "kind", "cause", "name", "function", "parent", "op", "group", "dtype"),
        *("file", "line", "compile_id", "resume_compile_id", "epoch", "direction", "graph_key", "graph"),
        *("device", "stream", "thread", "rank", "for_rank", "host", "step", "category", "part", "cache"),
        *("kernel", "message_bytes", "size_bytes", "group_size", "operator", "id", "config"),
        *("frame", "limit", "path"),
    )
)


def key_of(row: msgspec.Struct) -> str:
    """Return its key, or all that names it; other rows may have the same."""
    if own := getattr(row, "key", ""):
        return str(own)
    values = (getattr(row, field) for field in row.__struct_fields__ if field in NAMES)
    parts = (short_name(str(value)) for value in values if isinstance(value, str | int) and value != "")
    return ",".join(dict.fromkeys(parts)) or NONE


# Fields of a row that no column shows: what orders it, and where it leads (`frontend/src/panels/sheet`).
UNSEEN = frozenset(
    (
        *("key", "depth", "parent", "epoch", "slices", "kernels_of", "kernel_row", "panel", "row"),
        *("stack", "code", "longest_row", "longest_start_us"),
    )
)
_UNIT = re.compile(r"(?:(?<!gb)(?<!flop)_|^(?=percent$))(us|ns|s|percent|bytes)(?=$|_per_)")
_WORDS = {"gpu": "GPU", "cpu": "CPU", "device": "GPU", "cuda": "CUDA", "id": "id", "ids": "ids"}
_HEADS = {"file": "Where", "device": "Device"}
_KINDS: Mapping[type[inspect.Type], str] = {
    inspect.BoolType: "flag",
    inspect.IntType: "count",
    inspect.FloatType: "number",
    inspect.LiteralType: "word",
}
_TEXTS = (inspect.StrType, inspect.LiteralType, inspect.IntType)
_LISTS = (inspect.ListType, inspect.VarTupleType)


class SheetColumn(msgspec.Struct, frozen=True):
    """A column as the server lays it out.

    kind: its unit, or `count`, `number`, `text`, `word` (of a set), `flag`, `unix` (a date), `rows` (how many).
    sides: whether it is a number of both sides of a comparison.
    """

    key: str
    label: str
    kind: str
    bar: bool
    total: bool
    hidden: bool
    grow: bool
    wrap: bool = False
    sides: bool = False


class SheetTable(msgspec.Struct, frozen=True):
    """rows: the field that holds them. names: their fields that identify a row. inner: the tables within a row."""

    rows: str
    title: str
    names: list[str]
    columns: list[SheetColumn]
    inner: list["SheetTable"]


class Sheets(msgspec.Struct, frozen=True):
    """The tables of each route's answer."""

    sheets: dict[str, list[SheetTable]]


class RowColumn(NamedTuple):
    """A column of rows anywhere, with the fields that lead to it. Its kind is "" for what no sheet shows."""

    path: tuple[str, ...]
    column: SheetColumn


@cache
def columns_of(row: type[msgspec.Struct]) -> list[RowColumn]:
    """Return the columns of rows in the order of the fields, those of a struct within a row in its place."""
    kind = inspect.type_info(row)
    assert isinstance(kind, inspect.StructType)
    return list(_flat(kind, ()))


def _flat(row: inspect.StructType, path: tuple[str, ...]) -> Iterator[RowColumn]:
    for field in row.fields:
        inner, within = _unwrapped(field.type)[0], (*path, field.name)
        if isinstance(inner, inspect.StructType) and inner.cls is not Pair:
            yield from _flat(inner, within)
        else:
            unnamed = SheetColumn(field.name, _title(field.name), "", False, False, False, False)
            yield RowColumn(within, _column(field) or unnamed)


@cache
def tables_of(answer: type[Any]) -> list[SheetTable]:
    """Return a table for each field that holds rows, in their order."""
    kind = inspect.type_info(answer)
    assert isinstance(kind, inspect.StructType)
    return _tables(kind.fields)


def _tables(fields: Iterable[inspect.Field]) -> list[SheetTable]:
    return [_table(field, row) for field in fields if (row := row_type(field))]


def _table(field: inspect.Field, row: inspect.StructType) -> SheetTable:
    fields = [column.name for column in row.fields]
    unseen = UNSEEN | ({"line"} if "file" in fields else set())
    columns = [_column(column) for column in row.fields if column.name not in unseen]
    names = ["key"] if "key" in fields else [name for name in fields if name in NAMES]
    title = _unwrapped(field.type)[1].get("title") or _title(field.name)
    inner = _tables(column for column in row.fields if _unwrapped(column.type)[1].get("inner"))
    return SheetTable(field.name, title, names, _with_defaults([*filter(None, columns)]), inner)


def row_type(field: inspect.Field) -> inspect.StructType | None:
    """Return the type of the rows that a field holds, or of its one row if it has a title; None where it holds none."""
    plain, head = _unwrapped(field.type)
    alone = plain if head.get("title") else None
    row = _unwrapped(plain.item_type)[0] if isinstance(plain, _LISTS) else alone
    return row if isinstance(row, inspect.StructType) else None


def _with_defaults(columns: list[SheetColumn]) -> list[SheetColumn]:
    """Give the first amount a bar and the first text the remaining width, where no column asks for them."""
    replace = msgspec.structs.replace
    if not any(column.bar for column in columns):
        sized = next((column for column in columns if _UNIT.search(column.key) and not column.hidden), None)
        columns = [replace(column, bar=column is sized) for column in columns]
    if not any(column.grow for column in columns):
        texts = (column for column in columns if column.kind == "text" and column.key != "compile_id")
        first = next(texts, None)
        columns = [replace(column, grow=column is first) for column in columns]
    return columns


def _column(field: inspect.Field) -> SheetColumn | None:
    """Return None for what is neither a text nor a number."""
    plain, style = _unwrapped(field.type)
    sides = isinstance(plain, inspect.StructType) and plain.cls is Pair
    if style.get("unseen"):
        return None
    item = _unwrapped(plain.item_type)[0] if isinstance(plain, _LISTS) else None
    if style.get("inner"):
        kind = "rows"
    elif isinstance(item, _TEXTS):
        kind = "word" if isinstance(item, inspect.LiteralType) else "text"
    elif not sides and not isinstance(plain, (*_KINDS, inspect.StrType)):
        return None
    else:
        is_number = sides or isinstance(plain, (inspect.IntType, inspect.FloatType))
        unit = _UNIT.search(field.name) if is_number else None
        kind = unit[1] if unit else _KINDS.get(type(plain), "number" if sides else "text")
        kind = "unix" if style.get("unix") else kind
    label = style.get("title") or _title(field.name)
    return SheetColumn(
        field.name,
        f"{label or 'Share'}, %" if kind == "percent" else label,
        kind,
        **{name: bool(style.get(name)) for name in ("bar", "total", "hidden", "grow", "wrap")},
        sides=sides,
    )


def _unwrapped(kind: inspect.Type) -> tuple[inspect.Type, dict[str, Any]]:
    """Return a type without its annotations and without None, and the annotations: `title` and the rest."""
    style: dict[str, Any] = {}
    while isinstance(kind, (inspect.Metadata, inspect.UnionType)):
        if isinstance(kind, inspect.Metadata):
            style |= {**(kind.extra_json_schema or {}), **(kind.extra or {})}
            kind = kind.type
        else:
            some = [type for type in kind.types if not isinstance(type, inspect.NoneType)]
            # A device is a number or a word.
            is_plain = len(some) == 1 or all(isinstance(type, tuple(_KINDS)) for type in some)
            kind = some[-1] if is_plain else inspect.AnyType()
    return kind, style


def _title(name: str) -> str:
    """Return the words of a field's name, as "Self GPU" for "self_device_us"."""
    plain = _UNIT.sub("", name).replace("gb_s", "GB/s").replace("flop_s", "FLOP/s")
    words = [_WORDS.get(word, word) for word in plain.split("_")]
    return _HEADS.get(name) or words[0][:1].upper() + " ".join(words)[1:]
