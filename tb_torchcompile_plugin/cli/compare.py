"""`tb-torchcompile compare A B`: two spans side by side. Each of A and B is a folder or one trace file."""

import msgspec

from tb_torchcompile_plugin.api.catalog import newest_span, only_run
from tb_torchcompile_plugin.api.session import Session
from tb_torchcompile_plugin.api.starts import WithJobs, comparison
from tb_torchcompile_plugin.cli.text_table import print_json, print_lines, print_table, stdout_console

_MAX_ROWS = 25  # chosen by eye: a table on one screen


def show_comparison(a: tuple[str, str], b: tuple[str, str], as_json: bool) -> None:
    """Print the newest spans of both compared. a, b: a logdir, and its run or "" for any.

    Raises UserError where one has no trace, and WrongArgument.
    """
    sessions = [Session([("", logdir)], ahead=False) for logdir, _ in (a, b)]
    newest = [
        newest_span(only_run(session.runs(), run), logdir) for session, (logdir, run) in zip(sessions, (a, b))
    ]
    compared = comparison(*zip(sessions, newest))
    if as_json:
        print_json(compared)
    else:
        _print_comparison(compared)


def _print_comparison(report: WithJobs) -> None:
    """Print the verdicts, then all tables."""
    console = stdout_console()
    for side, name in (("A", report.a), ("B", report.b)):
        file = name.trace_file or "no trace, only what was compiled"
        print_lines(console, f"{side}: run {name.run}  worker {name.worker}  {file}")
    jobs, compared = report.jobs, report.comparison
    print_lines(console, *([jobs.verdict] if jobs else []), report.verdict, *compared.notes)
    console.print()
    peaks = [words for row in report.tables.memory for words in row.words]
    print_table(console, "figures", [*(figure.words for figure in compared.figures), *peaks], None)
    of = "a step" if compared.step_time else "the span"
    print_table(console, f"where {of} goes: the parts sum to its time", compared.parts, None)
    asdict = msgspec.structs.asdict
    rows = asdict(compared) | asdict(report.tables) | (asdict(jobs) if jobs else {})
    for layout in (*(jobs.layout if jobs else ()), *report.tables.layout):
        title = layout.label if layout.rows == "compilations" else f"{layout.label} of {of}"
        names = (*layout.texts, *layout.numbers, "outcome")
        print_table(console, title.lower(), rows[layout.rows], _MAX_ROWS, names)
