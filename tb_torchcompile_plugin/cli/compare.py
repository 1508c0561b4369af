"""`tb-torchcompile compare BASELINE CANDIDATE`: compare two spans, each of a folder or of one trace file."""

from tb_torchcompile_plugin.api.catalog import newest_span
from tb_torchcompile_plugin.api.session import Session
from tb_torchcompile_plugin.api.sheets import tables_of
from tb_torchcompile_plugin.api.starts import WithJobs, comparison
from tb_torchcompile_plugin.cli.text_table import print_json, print_lines, print_table, stdout_console

_MAX_ROWS = 25  # chosen by eye: a table on one screen


def show_comparison(a: tuple[str, str], b: tuple[str, str], as_json: bool) -> None:
    """Print the newest spans of both compared. a, b: a logdir, and its run or "" for any.

    Raises UserError where one has no trace, and WrongArgument.
    """
    sessions = [Session([("", logdir)], ahead=False) for logdir, _ in (a, b)]
    newest = [newest_span(session.runs(), *side) for session, side in zip(sessions, (a, b))]
    compared = comparison(*zip(sessions, newest))
    if as_json:
        print_json(compared)
    else:
        _print_comparison(compared)


def _print_comparison(report: WithJobs) -> None:
    console = stdout_console()
    for side, name in (("Baseline", report.baseline), ("Candidate", report.candidate)):
        file = name.trace_file or "no trace, only compile data"
        print_lines(console, f"{side}: run {name.run}  worker {name.worker}  {file}")
    print_lines(console, *([report.jobs.verdict] if report.jobs else []), report.verdict)
    print_lines(console, *filter(None, [report.break_even]), *report.notes)
    console.print()
    print_table(console, "figures", report.figures, None)
    of = "per step" if report.step_time else "of the span"
    print_table(console, f"time {of} by part", report.parts, None)
    for answer in filter(None, (report.jobs, report)):
        for table in tables_of(type(answer)):
            if any(column.key == "outcome" for column in table.columns):
                title = table.title if table.rows == "compilations" else f"{table.title} {of}"
                print_table(console, title.lower(), getattr(answer, table.rows), _MAX_ROWS)
