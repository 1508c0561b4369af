"""The tables of `report --json` as pandas DataFrames: `tb_torchcompile_plugin.load`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from types import UnionType
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from tb_torchcompile_plugin.analysis.overview.halves import Compile
from tb_torchcompile_plugin.analysis.ranks.job_rows import JobReport
from tb_torchcompile_plugin.api.report import (
    Report,
    Run,
    SpanReport,
    UnreadSpan,
    Worker,
    read_report,
    why_nothing,
)
from tb_torchcompile_plugin.errors import UserError

if TYPE_CHECKING:
    from pandas import DataFrame

Row = dict[str, Any]
_Path = tuple[str, ...]
_VALUES = (str, int, float, bool, Literal)
# What tables hang on: the table of its own values, and the ids in front of each row.
_NODES: dict[type, tuple[str, _Path]] = {
    Report: ("", ()),
    JobReport: ("job", ("run",)),
    Worker: ("workers", ("run", "worker")),
    Compile: ("compile", ("run", "worker")),
    SpanReport: ("spans", ("run", "worker", "span")),
    UnreadSpan: ("spans", ("run", "worker", "span")),
}
_PREFIXES: dict[type, str] = {JobReport: "job_"}  # spans have tables of the same names
_SHORT = {"job_by_rank": "job_ranks"}
_APART = (*_NODES, Run)


class Tables(Mapping[str, "DataFrame"]):
    """One DataFrame for every list of rows in the report, by name or as an attribute: `tables.kernels`.

    Columns and values are those of `report --json`, with the `run`, `worker` and `span` of the row in front. A list
    inside of an object is a table of both names: `tables.step_breakdown_steps`; so are those of a job: `job_waits` and,
    by rank, `job_ranks`. What `spans`, `workers`, `compile` and `job` say in single values are tables, too.
    A table without rows has its columns all the same.
    """

    def __init__(self, frames: Mapping[str, DataFrame]) -> None:
        self._frames = dict(frames)

    def __getitem__(self, name: str) -> DataFrame:
        return self._frames[name]

    def __getattr__(self, name: str) -> DataFrame:
        if name.startswith("_") or name not in self._frames:
            raise AttributeError(f"there is no table {name!r}, but {', '.join(self.__dict__['_frames'])}")
        return self._frames[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._frames)

    def __len__(self) -> int:
        return len(self._frames)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._frames})

    def __repr__(self) -> str:
        rows = ", ".join(f"{name}={len(frame)}" for name, frame in self._frames.items())
        return f"<Tables with rows: {rows}>"


def load(logdir: str) -> Tables:
    """Read a logdir, or one trace or log, to its end.

    Raises ImportError without pandas, and UserError where nothing could be read. What could be read only in part has a
    row in `warnings`.
    """
    try:
        from pandas import DataFrame
    except ImportError:
        raise ImportError(
            "tb_torchcompile_plugin.load needs pandas: pip install 'tb-torchcompile-plugin[pandas]'"
        ) from None
    report = read_report(logdir)
    if why := why_nothing(logdir, report):
        raise UserError(str(why))
    return Tables(
        {name: DataFrame(rows, columns=columns) for name, (columns, rows) in tables(report).items()}
    )


def tables(report: Report) -> dict[str, tuple[list[str], list[Row]]]:
    """Table → its columns and rows, in the order of the report."""
    by_name: dict[str, tuple[list[str], list[Row]]] = {}
    for kind, (_, ids_of) in _NODES.items():
        for name, _, columns in _lists(kind):
            known = by_name.setdefault(name, ([], []))[0]
            known[:] = dict.fromkeys((*known, *ids_of, *columns))
    for node, ids in _nodes(report):
        values = msgspec.to_builtins(node)
        for name, path, _ in _lists(type(node)):
            by_name[name][1].extend({**ids, **row} for row in _rows(values, path))
    return by_name


def _nodes(report: Report) -> Iterator[tuple[msgspec.Struct, Row]]:
    yield report, {}
    for run in report.runs:
        if run.job:
            yield run.job, {"run": run.run}
        for worker in run.workers:
            ids = {"run": run.run, "worker": worker.worker}
            yield worker, ids
            if worker.compile:
                yield worker.compile, ids
            for span in worker.spans:
                yield span, {**ids, "span": span.span}


def _lists(kind: type, path: _Path = ()) -> Iterator[tuple[str, _Path, list[str]]]:
    """(table, where its rows are in the node, their columns): each list of rows in a node, and its single values."""
    fields = _fields(kind)
    if not path and (own := _NODES[kind][0]):
        yield own, (), [name for name, types in fields.items() if _is_value(types[0])]
    for name, types in fields.items():
        here = (*path, name)
        if get_origin(types[0]) in (list, Sequence):
            item = get_args(types[0])[0]
            if _has_fields(item) and item not in _APART:
                table = _PREFIXES.get(kind, "") + "_".join(here)
                yield _SHORT.get(table, table), here, list(_fields(item))
        elif _has_fields(types[0]) and types[0] not in _APART:
            yield from _lists(types[0], here)


def _fields(kind: type) -> dict[str, tuple[Any, ...]]:
    """Field → its type, or its types."""
    return {
        name: get_args(type_) if get_origin(type_) in (Union, UnionType) else (type_,)
        for name, type_ in get_type_hints(kind).items()
    }


def _is_value(kind: Any) -> bool:
    return (get_origin(kind) or kind) in _VALUES


def _has_fields(kind: Any) -> bool:
    return isinstance(kind, type) and (issubclass(kind, msgspec.Struct) or is_dataclass(kind))


def _rows(node: Row, path: _Path) -> list[Row]:
    """The rows at a place; the single values of the node itself at no place."""
    if not path:
        return [{key: value for key, value in node.items() if not isinstance(value, (dict, list))}]
    rows: Any = node
    for name in path:
        rows = rows[name] if rows is not None else None
    return rows or []
