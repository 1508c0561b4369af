"""The tables of `report --json` as pandas DataFrames, for notebooks: `tb_torchcompile_plugin.load`."""

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from html import escape
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal, get_origin, get_type_hints

import msgspec

from tb_torchcompile_plugin.analysis.compare.compare import compare
from tb_torchcompile_plugin.analysis.compare.pairs import Pair
from tb_torchcompile_plugin.analysis.compare.sides import Sides
from tb_torchcompile_plugin.analysis.ranks.job_rows import JobReport
from tb_torchcompile_plugin.analysis.runtime.span_report import Compile
from tb_torchcompile_plugin.api import report as reports
from tb_torchcompile_plugin.api.answers import sections
from tb_torchcompile_plugin.api.bodies import json_body
from tb_torchcompile_plugin.api.catalog import newest_span
from tb_torchcompile_plugin.api.session import Session
from tb_torchcompile_plugin.errors import Notice, UserError, visible
from tb_torchcompile_plugin.logdir.filesystem import is_remote, plain_path

if TYPE_CHECKING:
    from pandas import DataFrame

Row = dict[str, Any]
_Table = tuple[list[str], list[Row]]  # columns and rows
_PLACE = tuple(sections.LEVELS.values())  # run, worker and span, in front of each row
# How many of these, by what rows are of.
_DEPTHS = {"logdir": 0, "run": 1, "job": 1, "worker": 2, "compile": 2, "span": 3}
# Tables of the single values of objects, and the same number.
_OBJECTS: dict[str, tuple[type[msgspec.Struct], int]] = {
    "job": (JobReport, 1),
    "workers": (reports.Worker, 2),
    "compile": (Compile, 2),
    "spans": (reports.SpanReport, 3),
}
_VALUES = (str, int, float, bool, Literal)
_FINDING_COLUMNS = ["severity", "title", "next_step"]


class Tables(dict[str, "DataFrame"]):
    """One DataFrame for every list of rows in the report, by name or as an attribute: `tables.kernels`.

    Columns and values are those of `report --json`, the `id` for `tb-torchcompile show` among them, with the `run`,
    `worker` and `span` of the row in front. A list inside of an object is a table of both names:
    `tables.step_steps`; so are those of a job: `job_waits` and, by rank, `job_ranks`. The single values of
    `spans`, `workers`, `compile` and `job` are tables, too. A table without rows still has its columns. `verdict` is
    what the tab opens with; `findings`, what to do.
    """

    def __init__(self, frames: "Mapping[str, DataFrame]", verdict: str = "", logdir: str = "") -> None:
        """verdict: the sentences that the tab opens with, a line each. logdir: where the runs are.

        Its whole path is kept, because a program may change its folder.
        """
        super().__init__(frames)
        self._logdir = logdir if is_remote(logdir) else os.path.abspath(plain_path(logdir))
        self.verdict = visible(verdict)

    def compare(self, baseline: str, candidate: str) -> "Tables":
        """Compare the newest spans of two runs of the logdir: which one is faster (`verdict`), and what differs.

        A number is three columns: `time_us_baseline`, `time_us_candidate` and their difference `time_us_delta`. Raises
        UserError where one of them is no run or holds nothing to compare.
        """
        session = Session([("", self._logdir)])
        runs = session.runs()
        ids = [newest_span(runs, self._logdir, run) for run in (baseline, candidate)]
        report = compare(Sides(*(session.side(*span) for span in ids)))
        return Tables(_frames(compared_tables(report)), report.verdict, self._logdir)

    def _repr_html_(self) -> str:
        verdict = "<br>".join(map(escape, self.verdict.splitlines()))
        rows = self.get("findings")
        findings = "" if rows is None or rows.empty else rows[_FINDING_COLUMNS].to_html(index=False)
        names = ", ".join(f"<code>{name}</code> {len(frame)}" for name, frame in self.items())
        return (
            f"<p><strong>{verdict}</strong></p>{findings}<details><summary>Tables</summary>{names}</details>"
        )

    def __getattr__(self, name: str) -> "DataFrame":
        if name not in self:
            raise AttributeError(f"there is no table {name!r}. Available: {', '.join(self)}")
        return self[name]

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self})

    def __repr__(self) -> str:
        rows = ", ".join(f"{name}={len(frame)}" for name, frame in self.items())
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

    return {
        name: DataFrame(msgspec.json.decode(json_body(rows)), columns=columns)
        for name, (columns, rows) in tables.items()
    }


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


def compared_tables(answer: msgspec.Struct) -> dict[str, _Table]:
    """Return the tables by name, `figures` first. Two sides of a number are columns of their own."""
    by_name: dict[str, _Table] = {}
    for section, _, kind in sections.rows_in(type(answer), "", ""):
        columns = _flat_columns(kind)
        rows = [
            {column: msgspec.to_builtins(attrgetter(path)(row)) for column, path in columns.items()}
            for row in attrgetter(section)(answer)
        ]
        by_name[section.rpartition(".")[2]] = [*columns], rows
    return by_name


def _flat_columns(row: type[msgspec.Struct]) -> dict[str, str]:
    """Return the field of each column; a Pair is `time_us_baseline`, `time_us_candidate`, `time_us_delta`."""
    columns: dict[str, str] = {}
    for name, kind in get_type_hints(row).items():
        sides = Pair.__struct_fields__ if Pair in sections.options_of(kind) else ()
        columns |= {f"{name}_{side}": f"{name}.{side}" for side in sides} or {name: name}
    return columns


def tables(report: reports.Report) -> dict[str, _Table]:
    """Return the tables by name; rows have the ids that `report --json` prints."""
    of_notice = [*get_type_hints(Notice)]
    columns = {"warnings": [*_PLACE, *of_notice], "job_warnings": [*_PLACE[:1], *of_notice]}
    rows: dict[str, list[Row]] = defaultdict(list)
    names: dict[tuple[str, int], str] = {}
    for section, about, kind in sections.rows_in(reports.Report, "logdir", ""):
        if (section, about) == ("findings", "job"):
            continue  # `findings` has them
        depth = _DEPTHS[about]
        name = names[section, depth] = _name(section, about)
        columns[name] = [*dict.fromkeys((*_PLACE[:depth], sections.id_field(kind), *kind.__struct_fields__))]
    for table in sections.tables(report):
        place = {level: name for level, name in zip(_PLACE, table.place) if name}
        for id, row in zip(table.ids, table.rows):
            identified = {**place, sections.id_field(type(row)): id, **msgspec.to_builtins(row)}
            rows[names[table.section, len(place)]].append(identified)
    columns |= {
        name: [*dict.fromkeys((*_PLACE[:depth], *_values_in(kind)))]
        for name, (kind, depth) in _OBJECTS.items()
    }
    for name, node, place in _objects(report):
        values = {field: getattr(node, field, None) for field in columns[name]}
        rows[name].append({**values, **place})
        notices = ({**place, **vars(notice)} for notice in getattr(node, "warnings", ()))
        rows["job_warnings" if name == "job" else "warnings"] += notices
    rows["warnings"] += map(vars, report.warnings)
    return {name: (columns[name], rows[name]) for name in columns}


def _name(section: str, about: str) -> str:
    """Return the name of a table: spans have some of the same names as jobs."""
    name = section.replace(".", "_")
    return {"by_rank": "job_ranks"}.get(name, f"job_{name}") if about == "job" else name


def _objects(report: reports.Report) -> Iterator[tuple[str, msgspec.Struct, Row]]:
    """Yield each job, worker, compile data and span, with its table and where it is."""
    for run in report.runs:
        if run.job:
            yield "job", run.job, {"run": run.run}
        for worker in run.workers:
            place = {"run": run.run, "worker": worker.worker}
            yield "workers", worker, place
            if worker.compile:
                yield "compile", worker.compile, place
            for span in worker.spans:
                yield "spans", span, {**place, "span": span.span}


def _values_in(kind: type[msgspec.Struct]) -> list[str]:
    """Return the fields that hold a single value."""
    first_options = {name: sections.options_of(hint)[0] for name, hint in get_type_hints(kind).items()}
    return [name for name, option in first_options.items() if (get_origin(option) or option) in _VALUES]
