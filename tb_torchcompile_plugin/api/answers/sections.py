"""The sections of a report by their types: what can be asked for, what rows hold, which time they are about."""

import difflib
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from functools import cache, cached_property
from types import UnionType
from typing import Any, NamedTuple, Union, get_args, get_origin, get_type_hints
from urllib.parse import quote, unquote

import msgspec

from tb_torchcompile_plugin.api.bodies import json_body
from tb_torchcompile_plugin.api.catalog import SCHEMA_VERSION
from tb_torchcompile_plugin.api.report import Report
from tb_torchcompile_plugin.api.routes import ROUTES
from tb_torchcompile_plugin.api.sheets import key_of
from tb_torchcompile_plugin.errors import WrongArgument, quoted

_NONE = "-"
_PLAIN = ":,.@+=_-~"  # and letters and digits: no shell, no address reads more into them
_SHAPE = "Use an id of the form RUN/WORKER/SPAN/SECTION/KEY, which `report --json` prints with each row"


class Address(NamedTuple):
    """The id of a row, `RUN/WORKER/SPAN/SECTION/KEY`, or of a place.

    ./vm_1027/1795230252555613000/kernels/0,triton_poi_fused_add_0,0/0,fvgxsj3plinp
    train/vm_1027/-/compilations/0/0,0,forward    # what a worker compiled has no span
    """

    run: str = ""  # "" where there is none, as for worker and span
    worker: str = ""
    span: str = ""
    section: str = ""  # of a report, "" for all of that place
    key: str = ""  # of a row, "" for all of them

    def __str__(self) -> str:
        # `%2D` is the name that would be taken for nothing
        parts = ["%2D" if part == _NONE else _quoted(part, _PLAIN) or _NONE for part in self[:3]]
        if self.section:
            parts.append(self.section)
        if self.key:
            parts.append(_quoted(self.key, f"/{_PLAIN}"))
        return "/".join(parts)


LOGDIR = Address()  # the place of the tables of all runs


def address(text: str) -> Address:
    """Read the id that `str` of an address wrote. Raises WrongArgument."""
    parts = text.split("/", 4)
    names: list[str] = []
    with suppress(UnicodeDecodeError):
        names = [unquote(part, errors="surrogatepass") for part in parts]
    if len(names) < 3 or not all(parts[:3]):
        raise WrongArgument(f"{quoted(text)} is not an id", next_step=_SHAPE)
    names[:3] = ["" if part == _NONE else name for part, name in zip(parts[:3], names)]
    return Address(*names)


def _quoted(part: str, safe: str) -> str:
    return quote(part, safe, errors="surrogatepass")


# lists of places, and the field that names each
LEVELS = {"runs": "run", "workers": "worker", "spans": "span"}
OF_LOGDIR = ("findings", "all_runs")  # tables of all runs together
HALVES = ("compile", "job")  # of which a place is made: their tables are its own


class Table:
    """Rows of one kind, and what they are about. A row that names a place of its own is there."""

    def __init__(self, place: Address, section: str, rows: list[msgspec.Struct]) -> None:
        self.place, self.section, self.rows = place, section, rows

    @cached_property
    def ids(self) -> list[str]:
        """The id of each row. Of rows with the same id the second one is `…~2`."""
        seen: Counter[str] = Counter()
        ids = []
        for row in self.rows:
            own = Address(*(getattr(row, level, None) or "" for level in LEVELS.values()))
            place = self.place if self.place.run else own
            id = str(place._replace(section=self.section, key=key_of(row)))
            seen[id] += 1
            ids.append(id if seen[id] == 1 else f"{id}~{seen[id]}")
        return ids

    def identified(self) -> list[msgspec.Raw]:
        """Return each row as JSON, its id first."""
        head = b'{"' + id_field(type(self.rows[0])).encode() + b'":'
        rows = zip(self.ids, self.rows)
        return [
            msgspec.Raw(head + msgspec.json.encode(id) + b"," + msgspec.json.encode(row)[1:])
            for id, row in rows
        ]


def id_field(row: type[msgspec.Struct]) -> str:
    """Return the name of the id in a row: one that has another `id`, as a fix has, keeps it."""
    return "address" if "id" in row.__struct_fields__ else "id"


def tables(report: Report) -> Iterator[Table]:
    """Yield what to change first, then the tables run by run. Findings of a job are in the list of all."""
    fields = _outline(report)
    yield from _tables({name: fields[name] for name in OF_LOGDIR})
    yield from (table for table in _tables({"runs": fields["runs"]}) if table.section != "findings")


def encoded(report: Report) -> bytes:
    """Return `report --json`: all of it, each row of each table with its id."""
    return json_body(_outline(report), Table.identified)


def _outline(struct: msgspec.Struct, place: Address = LOGDIR, path: str = "") -> dict[str, Any]:
    """Return the fields of a report, with a `Table` where rows are."""
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
        return [_outline(item, place._replace(**{level: getattr(item, level)})) for item in value]
    return Table(place, path + field, [*value])


def _tables(fields: Mapping[str, Any]) -> Iterator[Table]:
    for name, value in fields.items():
        if isinstance(value, Table):
            yield value
        elif isinstance(value, Mapping):
            yield from _tables(value)
        elif name in LEVELS and isinstance(value, list):
            for item in value:
                yield from _tables(item) if isinstance(item, Mapping) else ()


_TIME = re.compile(r"_(us|s)$")
_NO_SUM = re.compile(
    r"^(start|first|last|recorded|at|mean|median|min|max|longest|best)_|_(median|p95|min|max|mean|per)_"
)


class Section(msgspec.Struct, frozen=True):
    """A section of a report."""

    rows: dict[str, dict[str, Any]]  # the JSON schema of a row, by what there is one such table of
    time: str | None  # the field of which a share is shown, null where rows have no time
    # the answer over HTTP that it is, or is a part of; null where there is none of that name
    route: str | None


class Schema(msgspec.Struct, frozen=True):
    """The answer of `tb-torchcompile schema --json`."""

    sections: dict[str, Section]
    definitions: dict[str, Any]  # what the rows refer to as `#/definitions/NAME`
    schema_version: int = SCHEMA_VERSION


@cache
def schema() -> Schema:
    """Return all sections, in the order of a report."""
    kinds = _kinds()
    rows = [kind for tables in kinds.values() for kind in tables.values()]
    schemas, definitions = msgspec.json.schema_components(rows, ref_template="#/definitions/{name}")
    schema_of = dict(zip(rows, schemas))
    sections = {
        name: Section(
            {about: schema_of[kind] for about, kind in tables.items()},
            time_of(next(iter(tables.values()))),
            route if (route := name.partition(".")[0]) in ROUTES else None,
        )
        for name, tables in kinds.items()
    }
    return Schema(sections, definitions)


def chosen(sections: Collection[str]) -> list[str]:
    """Return the sections that are meant, in the order in which they are asked for. Raises WrongArgument.

    `gpu_utilization` means all that begin so.
    """
    every = list(_kinds())
    names: dict[str, None] = {}
    for section in sections:
        selected = [name for name in every if name == section or name.startswith(f"{section}.")]
        if not selected:
            # names and a likeness, chosen by hand: a misspelt section is found, unlike ones are not offered
            near = difflib.get_close_matches(section, every, 4, 0.4) or every[:8]
            raise WrongArgument(
                f"there is no section {quoted(section)}",
                next_step=f"Similar names: {', '.join(near)}. tb-torchcompile schema lists all",
            )
        names.update(dict.fromkeys(selected))
    return list(names)


@cache
def time_of(kind: type[msgspec.Struct], among: tuple[str, ...] = ()) -> str | None:
    """Return the field that shows how long a row took; rows that are left out are counted as a share of its sum.

    among: fields that count; () for all.
    """
    fields = among or kind.__struct_fields__
    usual = [field for field in ("time_us", "kernel_us", "duration_s") if field in fields]
    times = (field for field in fields if _TIME.search(field) and not _NO_SUM.search(field))
    return next(iter((*usual, *times)), None)


@cache
def _kinds() -> dict[str, dict[str, type[msgspec.Struct]]]:
    """Return by the name of a section the types of its rows, by what they are about."""
    kinds: dict[str, dict[str, type[msgspec.Struct]]] = {}
    for name, about, kind in rows_in(Report, "logdir", ""):
        kinds.setdefault(name, {})[about] = kind
    del kinds["findings"]["job"]  # among those of the logdir
    return kinds


def rows_in(
    struct: type[msgspec.Struct], about: str, path: str
) -> Iterator[tuple[str, str, type[msgspec.Struct]]]:
    """Yield the section of each list of rows, what there is one such list of, and the type of the rows."""
    for field, kind in get_type_hints(struct).items():
        level = "" if path else LEVELS.get(field, "")
        for row in _structs_in(kind, of_list=True):
            if level:
                yield from rows_in(row, level, "")
            else:
                yield path + field, about, row
        for inner in _structs_in(kind, of_list=False):
            half = field in HALVES
            yield from rows_in(inner, field if half else about, path if half else f"{path}{field}.")


def _structs_in(kind: Any, of_list: bool) -> Iterator[type[msgspec.Struct]]:
    """Yield the structs that a field may hold, or the rows of its list."""
    for option in options_of(kind):
        if of_list and get_origin(option) in (list, tuple):
            yield from _structs_in(get_args(option)[0], of_list=False)
        elif not of_list and isinstance(option, type) and issubclass(option, msgspec.Struct):
            yield option


def options_of(kind: Any) -> tuple[Any, ...]:
    """Return the types of a union; a type that is none by itself."""
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
