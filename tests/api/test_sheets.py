"""sheets.py: columns of rows by their types alone."""

import re
from collections import Counter
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from tb_torchcompile_plugin.analysis.formatting import column_head
from tb_torchcompile_plugin.api.routes import ROUTES
from tb_torchcompile_plugin.api.sheets import SheetColumn, key_of, tables_of


class Row(msgspec.Struct, frozen=True):
    """Of every kind."""

    depth: int
    name: str
    file: str | None
    line: int | None
    compile_id: str | None
    epoch: int
    self_device_us: float | None
    gap_ns: int
    duration_s: Annotated[float, column_head("Compile time", total=True)]
    gpu_percent: float
    size_bytes: int
    calls: int | None
    ratio: float
    cached: bool
    cache: Literal["hit", "miss"]
    ops: tuple[str, ...]
    inner: dict[str, int]
    reason: Annotated[str, column_head(hidden=True)]


class Answer(msgspec.Struct, frozen=True):
    """A sheet."""

    sentences: tuple[str, ...]
    slow_calls: tuple[Row, ...]
    others: Annotated[list[Row], column_head("What else there is")]
    code: str | None = None


def columns() -> dict[str, SheetColumn]:
    return {column.key: column for column in tables_of(Answer)[0].columns}


def test_each_field_of_rows_is_a_table() -> None:
    values = [(one.rows, one.title) for one in tables_of(Answer)]
    assert values == [("slow_calls", "Slow calls"), ("others", "What else there is")]


def test_the_name_and_the_type_of_a_field_tell_its_head_and_unit() -> None:
    assert {key: (one.label, one.kind) for key, one in columns().items()} == {
        "name": ("Name", "text"),
        "file": ("Where", "text"),
        "compile_id": ("Compile id", "text"),
        "self_device_us": ("Self GPU", "us"),
        "gap_ns": ("Gap", "ns"),
        "duration_s": ("Compile time", "s"),
        "gpu_percent": ("GPU, %", "percent"),
        "size_bytes": ("Size", "bytes"),
        "calls": ("Calls", "count"),
        "ratio": ("Ratio", "number"),
        "cached": ("Cached", "flag"),
        "cache": ("Cache", "word"),
        "ops": ("Ops", "text"),
        "reason": ("Reason", "text"),
    }


def test_where_nobody_says_otherwise_the_first_amount_has_a_bar_and_the_first_text_grows() -> None:
    made = columns().values()
    assert [one.key for one in made if one.bar] == ["self_device_us"]
    assert [one.key for one in made if one.grow] == ["name"]
    assert [one.key for one in made if one.total] == ["duration_s"]
    assert [one.key for one in made if one.hidden] == ["reason"]


def test_no_table_has_the_name_of_another_panels() -> None:
    """What a table remembers (columns, order, search) it remembers by its name."""
    sheets = {
        name: route.answer
        for name, route in ROUTES.items()
        if "sentences" in getattr(route.answer, "__struct_fields__", ())
    }
    names = [table.rows for answer in sheets.values() for table in tables_of(answer)]  # type: ignore[arg-type]
    panels = Path(__file__).parents[2] / "frontend" / "src" / "panels"
    names += [
        name for file in panels.rglob("*.svelte") for name in re.findall(r'\sid="(\w+)"', file.read_text())
    ]
    assert len(names) > len(sheets) and [name for name, n in Counter(names).items() if n > 1] == []


def test_rows_are_told_apart_by_the_same_fields_as_elsewhere() -> None:
    row = Row(1, "a", "x.py", 7, "0/0", 0, 1.0, 2, 3.0, 4.0, 512, 6, 0.5, True, "hit", ("b",), {}, "c")
    names = tables_of(Answer)[0].names
    assert key_of(row) == ",".join(dict.fromkeys(str(getattr(row, name)) for name in names))


class Part(msgspec.Struct, frozen=True):
    """A row within a row."""

    kernel: str
    time_us: float


class Whole(msgspec.Struct, frozen=True):
    """A row with rows."""

    name: str
    device: int | Literal["cpu"]
    artifact: Annotated[int | None, column_head(unseen=True)]
    grid: list[int]
    parts: Annotated[list[Part], column_head("Its parts", inner=True)]
    others: list[Part]


class Wholes(msgspec.Struct, frozen=True):
    """Rows with rows."""

    rows: list[Whole]


def test_rows_within_a_row_are_counted_and_have_columns_of_their_own() -> None:
    (table,) = tables_of(Wholes)
    values = [(column.key, column.kind) for column in table.columns]
    assert values == [("name", "text"), ("device", "word"), ("grid", "text"), ("parts", "rows")]
    (inner,) = table.inner
    assert (inner.rows, inner.title) == ("parts", "Its parts")
    assert [column.key for column in inner.columns] == ["kernel", "time_us"]
