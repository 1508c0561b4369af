"""The tables of a report: every list of rows in it, under the name of its field, with the place that it is about.

Nothing is listed here: a new field of rows in `SpanReport`, `Compile` or `JobReport` is a new section.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

import msgspec

from tb_torchcompile_plugin.api.answers.address import Address
from tb_torchcompile_plugin.api.keys import key_of
from tb_torchcompile_plugin.api.report import Report

LEVELS = {
    "runs": "run",
    "workers": "worker",
    "spans": "span",
}  # lists of places, and the field that names each
OF_LOGDIR = ("findings", "all_runs")  # tables of all runs together
HALVES = ("compile", "job")  # of which a place is made: their tables are its own


class Table:
    """rows: structs of one kind. place: what they are about; a row that tells a place of its own is there."""

    def __init__(self, place: Address, section: str, rows: list[msgspec.Struct]) -> None:
        self.place, self.section, self.rows = place, section, rows

    @cached_property
    def ids(self) -> list[str]:
        """Of each row, as it is asked for. Of rows that say the same the second one is `…~2`."""
        seen: Counter[str] = Counter()
        made = []
        for row in self.rows:
            id = str(_place_of(row, self.place).row(self.section, key_of(row)))
            seen[id] += 1
            made.append(id if seen[id] == 1 else f"{id}~{seen[id]}")
        return made

    @property
    def id_field(self) -> str:
        """What its id is called in a row: one that has another `id`, as a fix has, keeps it."""
        return "address" if "id" in self.rows[0].__struct_fields__ else "id"

    def identified(self) -> list[msgspec.Raw]:
        """Each row as JSON, its id first."""
        head = b'{"' + self.id_field.encode() + b'":'
        rows = zip(self.ids, self.rows)
        return [
            msgspec.Raw(head + msgspec.json.encode(id) + b"," + msgspec.json.encode(row)[1:])
            for id, row in rows
        ]


def outline(report: Report) -> dict[str, Any]:
    """The fields of a report, with a `Table` where rows are."""
    return _outline(report, Address(), "")


def tables(report: Report) -> Iterator[Table]:
    """What to change first, then run by run. Findings of a job are in the list of all."""
    fields = outline(report)
    yield from _tables({name: fields[name] for name in OF_LOGDIR})
    yield from (one for one in _tables({"runs": fields["runs"]}) if one.section != "findings")


def encoded(report: Report) -> bytes:
    """`report --json`: all of it, each row of each table with its id."""
    return msgspec.json.encode(outline(report), enc_hook=_rows)


def _rows(value: Any) -> list[msgspec.Raw]:
    assert isinstance(value, Table)
    return value.identified()


def _outline(struct: msgspec.Struct, place: Address, path: str) -> dict[str, Any]:
    return {
        encoded: _field(field, getattr(struct, field), place, path)
        for field, encoded in zip(struct.__struct_fields__, struct.__struct_encode_fields__)
    }


def _field(field: str, value: Any, place: Address, path: str) -> Any:
    if isinstance(value, msgspec.Struct):
        return _outline(value, place, path if field in HALVES else f"{path}{field}.")
    if not isinstance(value, list | tuple) or not value or not isinstance(value[0], msgspec.Struct):
        return value
    if (level := LEVELS.get(field)) and hasattr(value[0], level):
        return [_outline(one, place._replace(**{level: getattr(one, level)}), "") for one in value]
    return Table(place, path + field, [*value])


def _place_of(row: msgspec.Struct, place: Address) -> Address:
    if place.run:
        return place
    return Address(*(getattr(row, level, None) or "" for level in LEVELS.values()))


def _tables(fields: Mapping[str, Any]) -> Iterator[Table]:
    for name, value in fields.items():
        if isinstance(value, Table):
            yield value
        elif isinstance(value, Mapping):
            yield from _tables(value)
        elif name in LEVELS and isinstance(value, list):
            for one in value:
                yield from _tables(one) if isinstance(one, Mapping) else ()
