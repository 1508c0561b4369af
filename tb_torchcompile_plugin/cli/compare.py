"""`tb-torchcompile compare A B`: two spans side by side. Each of A and B is a folder or one trace file."""

import msgspec
from rich.console import Console

from tb_torchcompile_plugin.analysis.compare.compare import FullReport
from tb_torchcompile_plugin.analysis.compare.jobs import JobsCompared
from tb_torchcompile_plugin.api.catalog import newest_span, only_run
from tb_torchcompile_plugin.api.session import Session
from tb_torchcompile_plugin.api.starts import comparison
from tb_torchcompile_plugin.cli.text_table import Plain, print_json, print_lines, stdout_console, table

_MAX_ROWS = 25  # chosen by eye: a table on one screen
_PATH_WIDTH = 60  # the end of a path says more than its start


def show_comparison(a: tuple[str, str], b: tuple[str, str], as_json: bool) -> None:
    """Print the newest spans of both compared. a, b: a logdir, and its run or "" for any.

    Raises UserError where one has no trace, and NoSuchRun.
    """
    sessions = [Session([("", logdir)], ahead=False) for logdir, _ in (a, b)]
    newest = [
        newest_span(only_run(session.runs(), run), logdir) for session, (logdir, run) in zip(sessions, (a, b))
    ]
    compared = comparison(*zip(sessions, newest))
    if as_json:
        print_json(compared)
    else:
        _print_comparison(compared, compared.jobs)


def _print_comparison(report: FullReport, jobs: JobsCompared | None) -> None:
    """Print all tables to stdout, those of the jobs first."""
    console = stdout_console(180)  # columns, chosen by eye for these tables
    for side, name in (("A", report.a), ("B", report.b)):
        file = name.trace_file or "no trace, only what was compiled"
        console.print(Plain(f"{side}: run {name.run}  worker {name.worker}  {file}"))
    if jobs:
        _print_jobs(console, jobs)
    print_lines(console, report.verdict, *report.comparison.notes)
    console.print()
    of = "a step" if report.comparison.step_time else "the span"
    figures = [figure.words for figure in report.comparison.figures]
    peaks = [words for row in report.tables.memory for words in row.words]
    table(console, "figures", [*figures, *peaks], "label a b change")
    parts = report.comparison.parts
    table(console, f"where {of} goes: the parts sum to its time", parts, "kind part time_us")
    rows = msgspec.structs.asdict(report.comparison) | msgspec.structs.asdict(report.tables)
    for sheet in report.tables.layout:
        table(
            console,
            f"{sheet.label.lower()} of {of}" if sheet.rows != "compilations" else "compilations",
            rows[sheet.rows],
            " ".join(("outcome", *sheet.texts, *sheet.numbers)),
            _MAX_ROWS,
            path=lambda row: row.path[-_PATH_WIDTH:],
        )


def _print_jobs(console: Console, jobs: JobsCompared) -> None:
    print_lines(console, jobs.verdict)
    console.print()
    table(console, "ranks: a step", jobs.ranks, "rank step_us wait_us late_us", _MAX_ROWS)
    for parts in (
        "compute_us overlapped_us idle_us",
        "exposed_transfer_us exposed_wait_us exposed_unknown_us exposed_memory_us",
    ):
        table(console, "ranks: parts that sum to a step", jobs.ranks, f"rank {parts}", _MAX_ROWS)
    table(
        console,
        "why ranks come last: what takes longer than on their peers, a step",
        jobs.late,
        "rank cause name where excess_us",
        _MAX_ROWS,
        where=lambda row: row.where,
        cause=lambda row: row.cause.replace("_", " "),
        name=lambda row: row.name or None,
    )
    columns = "group op dtype message_bytes instances transfer_us wait_us busbw_gb_s"
    table(console, "collectives of all ranks, a step", jobs.collectives, columns, _MAX_ROWS)
