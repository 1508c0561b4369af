"""The tables of `report --json` as pandas DataFrames, for notebooks: `tb_torchcompile_plugin.load`."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from html import escape
from itertools import repeat
from types import UnionType
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from tb_torchcompile_plugin.analysis.compare.compare import FullReport, full_report
from tb_torchcompile_plugin.analysis.compare.pairs import Pair
from tb_torchcompile_plugin.analysis.compare.sides import Sides
from tb_torchcompile_plugin.analysis.ranks.job_rows import JobReport
from tb_torchcompile_plugin.analysis.runtime.span_report import Compile
from tb_torchcompile_plugin.api import report as reports
from tb_torchcompile_plugin.api.answers.sections import Address, Table, id_field
from tb_torchcompile_plugin.api.catalog import newest_span, only_run
from tb_torchcompile_plugin.api.session import Session
from tb_torchcompile_plugin.errors import UserError
from tb_torchcompile_plugin.logdir.filesystem import is_remote, plain_path

if TYPE_CHECKING:
    from pandas import DataFrame

Row = dict[str, Any]
_Path = tuple[str, ...]
_Table = tuple[list[str], list[Row]]  # columns and rows
_Fields = dict[str, tuple[Any, ...]]  # name → its types
_VALUES = (str, int, float, bool, Literal)
# Objects that have tables: the name of the table of their own values, and the ids in front of each row.
_NODES: dict[type, tuple[str, _Path]] = {
    reports.Report: ("", ()),
    JobReport: ("job", ("run",)),
    reports.Worker: ("workers", ("run", "worker")),
    Compile: ("compile", ("run", "worker")),
    reports.SpanReport: ("spans", ("run", "worker", "span")),
    reports.UnreadSpan: ("spans", ("run", "worker", "span")),
}
_PAIR = {*Pair.__struct_fields__}
_FINDING_COLUMNS = ["severity", "title", "next_step"]
_PREFIXES: dict[type, str] = {JobReport: "job_"}  # spans have tables of the same names
_SHORT = {"job_by_rank": "job_ranks"}
_OBJECTS = (*_NODES, reports.Run)  # no rows of the object that holds them


class Tables(Mapping[str, "DataFrame"]):
    """One DataFrame for every list of rows in the report, by name or as an attribute: `tables.kernels`.

    Columns and values are those of `report --json`, the `id` for `tb-torchcompile show` among them, with the `run`,
    `worker` and `span` of the row in front. A list inside of an object is a table of both names:
    `tables.step_breakdown_steps`; so are those of a job: `job_waits` and, by rank, `job_ranks`. The single values of
    `spans`, `workers`, `compile` and `job` are tables, too. A table without rows still has its columns. `verdict` is
    what the tab opens with; `findings`, what to do.
    """

    def __init__(self, frames: "Mapping[str, DataFrame]", verdict: str = "", logdir: str = "") -> None:
        """verdict: the sentences that the tab opens with, a line each. logdir: where the runs are.

        Its whole path is kept, because a program may change its folder.
        """
        self._frames = dict(frames)
        self._logdir = logdir if is_remote(logdir) else os.path.abspath(plain_path(logdir))
        self.verdict = verdict

    def compare(self, a: str, b: str) -> "Tables":
        """Compare the newest spans of two runs of the logdir: which one is faster (`verdict`), and what differs.

        A number is three columns: `time_us_a`, `time_us_b` and their difference `time_us_delta`. Raises UserError where
        one of them is no run or holds nothing to compare.
        """
        session = Session([("", self._logdir)])
        runs = session.runs()
        ids = [newest_span(only_run(runs, run), self._logdir) for run in (a, b)]
        report = full_report(Sides(*(session.side(*span) for span in ids)))
        return Tables(_frames(compared_tables(report)), report.verdict, self._logdir)

    def _repr_html_(self) -> str:
        """Return the verdict, the findings and a list of the tables, for notebooks."""
        verdict = "<br>".join(map(escape, self.verdict.splitlines()))
        rows = self._frames.get("findings")
        findings = "" if rows is None or rows.empty else rows[_FINDING_COLUMNS].to_html(index=False)
        names = ", ".join(f"<code>{name}</code> {len(frame)}" for name, frame in self._frames.items())
        return (
            f"<p><strong>{verdict}</strong></p>{findings}<details><summary>Tables</summary>{names}</details>"
        )

    def __getitem__(self, name: str) -> "DataFrame":
        return self._frames[name]

    def __getattr__(self, name: str) -> "DataFrame":
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

    Raises ImportError without pandas, and UserError where nothing could be read. A file that could be read only in part
    has a row in `warnings`.
    """
    try:
        import pandas  # noqa: F401
    except ImportError:
        raise ImportError(
            "tb_torchcompile_plugin.load needs pandas: pip install 'tb-torchcompile-plugin[pandas]'"
        ) from None
    report = reports.read_report(logdir, wanted=reports.ReportFilter(whole=True))
    if why := reports.why_nothing(logdir, report):
        raise UserError(str(why))
    return Tables(_frames(tables(report)), _verdict(report), logdir)


def _frames(tables: Mapping[str, _Table]) -> "dict[str, DataFrame]":
    from pandas import DataFrame

    return {name: DataFrame(rows, columns=columns) for name, (columns, rows) in tables.items()}


def _verdict(report: reports.Report) -> str:
    """Return the headline of each job and span, after its name where there are several."""
    headlines: list[tuple[str, str]] = []
    for run in report.runs:
        if run.job:
            headlines.append((run.run, run.job.headline))
        for worker in run.workers:
            spans = [span for span in worker.spans if isinstance(span, reports.SpanReport)]
            headlines += [(f"{run.run} {worker.worker}", span.overview.headline) for span in spans]
            if worker.compile and not spans:
                headlines.append((f"{run.run} {worker.worker}", worker.compile.headlines["overview"]))
    return "\n".join(f"{name}: {text}" if len(headlines) > 1 else text for name, text in headlines)


def compared_tables(report: FullReport) -> dict[str, _Table]:
    """Return the tables by name, `figures` first. Two sides of a number are columns of their own."""
    values = msgspec.to_builtins(report)
    by_name: dict[str, _Table] = {}
    for name, path, _, columns in _lists(FullReport):
        if name != "tables_layout":
            by_name[path[-1]] = _flat_names(columns), [_flat(row) for row in _rows(values, path)]
    return by_name


def _flat_names(columns: _Fields) -> list[str]:
    """Return the columns of `_flat` by the types: the same without any row."""
    names: list[str] = []
    for name, types in columns.items():
        names += [f"{name}_{side}" for side in Pair.__struct_fields__] if Pair in types else [name]
    return names


def _flat(row: Row) -> Row:
    """Return the row with a Pair as three values: `time_us_a`, `time_us_b`, `time_us_delta`."""
    flat: Row = {}
    for key, value in row.items():
        is_pair = isinstance(value, dict) and value.keys() == _PAIR
        flat |= {f"{key}_{side}": part for side, part in value.items()} if is_pair else {key: value}
    return flat


def tables(report: reports.Report) -> dict[str, _Table]:
    """Return the tables by name, in the order of the report; rows have the ids that `report --json` prints."""
    by_name: dict[str, _Table] = {}
    for kind, (_, place_names) in _NODES.items():
        for name, _, row, columns in _lists(kind):
            all_columns = by_name.setdefault(name, ([], []))[0]
            all_columns[:] = dict.fromkeys((*all_columns, *place_names, *_id_column(row), *columns))
    for node, place in _nodes(report):
        values = msgspec.to_builtins(node)
        for name, path, row, _ in _lists(type(node)):
            ids = _ids(node, Address(**place), path) if _id_column(row) else repeat({})
            by_name[name][1].extend({**place, **id, **row} for id, row in zip(ids, _rows(values, path)))
    return by_name


def _id_column(row: Any) -> list[str]:
    return [id_field(row)] if row and issubclass(row, msgspec.Struct) else []


def _ids(node: Any, place: Address, path: _Path) -> list[Row]:
    """Return the id of each row at a path."""
    for name in path:
        node = getattr(node, name, None)
    table = Table(place, ".".join(path), list(node or ()))
    return [{id_field(type(row)): id} for id, row in zip(table.ids, table.rows)]


def _nodes(report: reports.Report) -> Iterator[tuple[msgspec.Struct, Row]]:
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


def _lists(kind: type, path: _Path = ()) -> Iterator[tuple[str, _Path, type | None, _Fields]]:
    """Yield each list of rows in a node, and its single values: table, path and type of its rows, and their columns."""
    fields = _fields(kind)
    if not path and (own := _NODES.get(kind, ("", ()))[0]):
        yield own, (), None, {name: types for name, types in fields.items() if _is_value(types[0])}
    for name, types in fields.items():
        inner = (*path, name)
        origin: Any = get_origin(types[0])
        if origin in (list, tuple, Sequence):
            item = get_args(types[0])[0]
            if _has_fields(item) and item not in _OBJECTS:
                table = _PREFIXES.get(kind, "") + "_".join(inner)
                yield _SHORT.get(table, table), inner, item, _fields(item)
        elif _has_fields(types[0]) and types[0] not in _OBJECTS:
            yield from _lists(types[0], inner)


def _fields(kind: type) -> _Fields:
    """Return the type or the types of each field."""
    return {
        name: get_args(type_) if get_origin(type_) in (Union, UnionType) else (type_,)
        for name, type_ in get_type_hints(kind).items()
    }


def _is_value(kind: Any) -> bool:
    return (get_origin(kind) or kind) in _VALUES


def _has_fields(kind: Any) -> bool:
    return isinstance(kind, type) and (issubclass(kind, msgspec.Struct) or is_dataclass(kind))


def _rows(node: Row, path: _Path) -> list[Row]:
    """Return the rows at a path; without a path the single values of the node itself."""
    if not path:
        return [{key: value for key, value in node.items() if not isinstance(value, (dict, list, tuple))}]
    rows: Any = node
    for name in path:
        rows = rows[name] if rows is not None else None
    return rows or []
