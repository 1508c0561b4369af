"""The sections of a report by their types: what can be asked for, what rows hold, which time they are about."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterator
from functools import cache
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec

from tb_torchcompile_plugin.api.answers.tables import HALVES, LEVELS
from tb_torchcompile_plugin.api.catalog import SCHEMA_VERSION
from tb_torchcompile_plugin.api.report import Report
from tb_torchcompile_plugin.api.routes import ROUTES
from tb_torchcompile_plugin.errors import WrongArgument

_TIME = re.compile(r"_(us|s)$")
_NO_SUM = re.compile(
    r"^(start|first|last|recorded|at|mean|median|min|max|longest|best)_|_(median|p95|min|max|mean|per)_"
)


class NoSuchSection(WrongArgument):
    """A section that no report has."""


class Section(msgspec.Struct, frozen=True):
    """rows: the JSON schema of a row, by what there is one such table of. time: the field of which a share is told,
    None where rows have no time. route: the answer over HTTP that it is, or is a part of, None where it is none by
    name."""

    rows: dict[str, dict[str, Any]]
    time: str | None
    route: str | None


class Schema(msgspec.Struct, frozen=True):
    """`tb-torchcompile schema --json`. definitions: what the rows refer to as `#/definitions/NAME`."""

    sections: dict[str, Section]
    definitions: dict[str, Any]
    schema_version: int = SCHEMA_VERSION


@cache
def schema() -> Schema:
    """All sections, in the order of a report."""
    kinds = _kinds()
    every = [kind for tables in kinds.values() for kind in tables.values()]
    made, definitions = msgspec.json.schema_components(every, ref_template="#/definitions/{name}")
    of = dict(zip(every, made))
    return Schema(
        {
            name: Section(
                {about: of[kind] for about, kind in tables.items()},
                time_of(next(iter(tables.values()))),
                _route(name),
            )
            for name, tables in kinds.items()
        },
        definitions,
    )


def chosen(sections: Collection[str]) -> list[str]:
    """Those that are meant, in the order in which they are asked for; `gpu_utilization` is all that begin so. Raises
    NoSuchSection."""
    known = list(_kinds())
    names: dict[str, None] = {}
    for section in sections:
        mine = [name for name in known if name == section or name.startswith(f"{section}.")]
        if not mine:
            near = difflib.get_close_matches(section, known, 4, 0.4) or known[:8]
            raise NoSuchSection(
                f"there is no section {section!r}",
                next_step=f"There are {', '.join(near)}, …: tb-torchcompile schema lists all",
            )
        names.update(dict.fromkeys(mine))
    return list(names)


@cache
def time_of(kind: type[msgspec.Struct]) -> str | None:
    """The field that says how long a row took: what is left out of a table is told as a share of its sum."""
    fields = kind.__struct_fields__
    known = [field for field in ("time_us", "kernel_us", "duration_s") if field in fields]
    times = (field for field in fields if _TIME.search(field) and not _NO_SUM.search(field))
    return next(iter((*known, *times)), None)


def _route(section: str) -> str | None:
    name = section.partition(".")[0]
    return name if name in ROUTES else None


@cache
def _kinds() -> dict[str, dict[str, type[msgspec.Struct]]]:
    """By the name of a section the types of its rows, by what they are about."""
    kinds: dict[str, dict[str, type[msgspec.Struct]]] = {}
    for name, about, kind in _walk(Report, "logdir", ""):
        kinds.setdefault(name, {})[about] = kind
    del kinds["findings"]["job"]  # among those of the logdir
    return kinds


def _walk(
    struct: type[msgspec.Struct], about: str, path: str
) -> Iterator[tuple[str, str, type[msgspec.Struct]]]:
    for field, kind in get_type_hints(struct).items():
        level = "" if path else LEVELS.get(field, "")
        for row in _structs_in(kind, of_list=True):
            if level:
                yield from _walk(row, level, "")
            else:
                yield path + field, about, row
        for inner in _structs_in(kind, of_list=False):
            half = field in HALVES
            yield from _walk(inner, field if half else about, path if half else f"{path}{field}.")


def _structs_in(kind: Any, of_list: bool) -> Iterator[type[msgspec.Struct]]:
    """Those that a field may hold, or the rows of its list."""
    for option in get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,):
        if of_list and get_origin(option) in (list, tuple):
            yield from _structs_in(get_args(option)[0], of_list=False)
        elif not of_list and isinstance(option, type) and issubclass(option, msgspec.Struct):
            yield option
