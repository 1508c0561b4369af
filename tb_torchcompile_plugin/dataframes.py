"""The tables of `report --json` as pandas DataFrames, for notebooks: `tb_torchcompile_plugin.load`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from html import escape
from types import UnionType
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from tb_torchcompile_plugin.analysis.compare.pairs import Pair, Sides
from tb_torchcompile_plugin.analysis.compare.verdict import FullReport, full_report
from tb_torchcompile_plugin.analysis.ranks.job_rows import JobReport
from tb_torchcompile_plugin.analysis.runtime.span_report import Compile
from tb_torchcompile_plugin.api.catalog import newest_span, only_run
from tb_torchcompile_plugin.api.report import (
    Report,
    Run,
    SpanReport,
    UnreadSpan,
    Wanted,
    Worker,
    read_report,
    why_nothing,
)
from tb_torchcompile_plugin.api.session import Session
from tb_torchcompile_plugin.errors import UserError
from tb_torchcompile_plugin.logdir.filesystem import is_remote, plain_path

if TYPE_CHECKING:
    from pandas import DataFrame

Row = dict[str, Any]
_Path = tuple[str, ...]
_Fields = dict[str, tuple[Any, ...]]  # name → its types
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
_PAIR = {*Pair.__struct_fields__}
_IN_HTML = ["severity", "title", "next_step"]
_PREFIXES: dict[type, str] = {JobReport: "job_"}  # spans have tables of the same names
_SHORT = {"job_by_rank": "job_ranks"}
_APART = (*_NODES, Run)


class Tables(Mapping[str, "DataFrame"]):
    """One DataFrame for every list of rows in the report, by name or as an attribute: `tables.kernels`.

    Columns and values are those of `report --json`, with the `run`, `worker` and `span` of the row in front. A list
    inside of an object is a table of both names: `tables.step_breakdown_steps`; so are those of a job: `job_waits` and,
    by rank, `job_ranks`. What `spans`, `workers`, `compile` and `job` say in single values are tables, too.
    A table without rows has its columns all the same. `verdict` is what the tab opens with; `findings`, what to do.
    """

    def __init__(self, frames: Mapping[str, DataFrame], verdict: str = "", logdir: str = "") -> None:
        """verdict: the sentences that the tab opens with, a line each. logdir: where the runs are, of which
        the whole path is kept: a program may change its folder."""
        self._frames = dict(frames)
        self._logdir = logdir if is_remote(logdir) else os.path.abspath(plain_path(logdir))
        self.verdict = verdict

    def compare(self, a: str, b: str) -> Tables:
        """Two runs of the logdir side by side, the newest span of each: which one is faster (`verdict`), and tables of
        what differs. A number is three columns: `time_us_a`, `time_us_b` and their difference `time_us_delta`.

        Raises UserError where one of them is no run or holds nothing to compare.
        """
        session = Session([("", self._logdir)])
        runs = session.runs()
        ids = [newest_span(only_run(runs, run), self._logdir) for run in (a, b)]
        report = full_report(Sides(*(session.side(*one) for one in ids)))
        return Tables(_frames(compared_tables(report)), report.verdict, self._logdir)

    def _repr_html_(self) -> str:
        """For notebooks: the verdict, the findings and what tables there are."""
        said = "<br>".join(map(escape, self.verdict.splitlines()))
        shown = self._frames.get("findings")
        findings = "" if shown is None or shown.empty else shown[_IN_HTML].to_html(index=False)
        rows = ", ".join(f"<code>{name}</code> {len(frame)}" for name, frame in self._frames.items())
        return f"<p><strong>{said}</strong></p>{findings}<details><summary>Tables</summary>{rows}</details>"

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
        import pandas  # noqa: F401
    except ImportError:
        raise ImportError(
            "tb_torchcompile_plugin.load needs pandas: pip install 'tb-torchcompile-plugin[pandas]'"
        ) from None
    report = read_report(logdir, wanted=Wanted(whole=True))
    if why := why_nothing(logdir, report):
        raise UserError(str(why))
    return Tables(_frames(tables(report)), _verdict(report), logdir)


def _frames(rows_of: Mapping[str, tuple[list[str], list[Row]]]) -> dict[str, DataFrame]:
    from pandas import DataFrame

    return {name: DataFrame(rows, columns=columns) for name, (columns, rows) in rows_of.items()}


def _verdict(report: Report) -> str:
    """Of each job and span, behind its name where there are several."""
    said: list[tuple[str, str]] = []
    for run in report.runs:
        if run.job:
            said.append((run.run, run.job.headline))
        for worker in run.workers:
            spans = [span for span in worker.spans if isinstance(span, SpanReport)]
            said += [(f"{run.run} {worker.worker}", span.overview.headline) for span in spans]
            if worker.compile and not spans:
                said.append((f"{run.run} {worker.worker}", worker.compile.headlines["overview"]))
    return "\n".join(f"{name}: {text}" if len(said) > 1 else text for name, text in said)


def compared_tables(report: FullReport) -> dict[str, tuple[list[str], list[Row]]]:
    """Table → its columns and rows; `figures` first. Two sides of a number are columns of their own."""
    values = msgspec.to_builtins(report)
    by_name: dict[str, tuple[list[str], list[Row]]] = {}
    for name, path, columns in _lists(FullReport):
        if name != "tables_layout":
            by_name[path[-1]] = _flat_names(columns), [_flat(row) for row in _rows(values, path)]
    return by_name


def _flat_names(columns: _Fields) -> list[str]:
    """Those of `_flat`, by the types: the same without any row."""
    names: list[str] = []
    for name, types in columns.items():
        names += [f"{name}_{side}" for side in Pair.__struct_fields__] if Pair in types else [name]
    return names


def _flat(row: Row) -> Row:
    """With a Pair as three values: `time_us_a`, `time_us_b`, `time_us_delta`."""
    flat: Row = {}
    for key, value in row.items():
        is_pair = isinstance(value, dict) and value.keys() == _PAIR
        flat |= {f"{key}_{side}": part for side, part in value.items()} if is_pair else {key: value}
    return flat


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


def _lists(kind: type, path: _Path = ()) -> Iterator[tuple[str, _Path, _Fields]]:
    """(table, where its rows are in the node, their columns with their types): each list of rows in a node, and its
    single values."""
    fields = _fields(kind)
    if not path and (own := _NODES.get(kind, ("", ()))[0]):
        yield own, (), {name: types for name, types in fields.items() if _is_value(types[0])}
    for name, types in fields.items():
        here = (*path, name)
        origin: Any = get_origin(types[0])
        if origin in (list, tuple, Sequence):
            item = get_args(types[0])[0]
            if _has_fields(item) and item not in _APART:
                table = _PREFIXES.get(kind, "") + "_".join(here)
                yield _SHORT.get(table, table), here, _fields(item)
        elif _has_fields(types[0]) and types[0] not in _APART:
            yield from _lists(types[0], here)


def _fields(kind: type) -> _Fields:
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
        return [{key: value for key, value in node.items() if not isinstance(value, (dict, list, tuple))}]
    rows: Any = node
    for name in path:
        rows = rows[name] if rows is not None else None
    return rows or []
