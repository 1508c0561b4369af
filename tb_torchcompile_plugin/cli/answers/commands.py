"""The commands `report`, `show`, `schema` and `skill`, which limit answers and address rows by id."""

import argparse
import contextlib
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterator
from importlib.resources import files

from rich.console import Console

from tb_torchcompile_plugin.analysis.formatting import duration
from tb_torchcompile_plugin.analysis.runtime.kernels import KernelDetails
from tb_torchcompile_plugin.api import report as reports
from tb_torchcompile_plugin.api.answers.bounded import NO_LIMITS, AnswerLimits, Commands, selected
from tb_torchcompile_plugin.api.answers.sections import encoded, schema, tables
from tb_torchcompile_plugin.api.answers.show import Logdir, Shown, bounded_report
from tb_torchcompile_plugin.api.session import open_logdir
from tb_torchcompile_plugin.cli import text, text_table
from tb_torchcompile_plugin.errors import UserError, WrongArgument, visible

_USUAL_LOGDIR = "runs"  # in the examples of TensorBoard and torch


def add_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add all of them."""
    _add_report(commands)
    show = commands.add_parser("show", help="print one row of a report, selected by its id")
    show.add_argument("id", metavar="ID", help="RUN/WORKER/SPAN/SECTION/KEY, as printed by report")
    show.add_argument("--logdir", metavar="DIR", help="see report (default: runs if it exists, otherwise .)")
    show.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    show.set_defaults(run=show_id)
    sections = commands.add_parser("schema", help="print the sections of a report")
    sections.add_argument("--json", action="store_true", help="include the JSON schema of their rows")
    sections.set_defaults(run=_show_schema)
    agent = commands.add_parser("skill", help="print instructions for agents (SKILL.md)")
    agent.set_defaults(run=lambda _: text_table.write_stdout(skill()))


@contextlib.contextmanager
def _input_of(logdir: str) -> Iterator[str]:
    """Give the path to read: of a copy of the standard input for "-"."""
    if logdir != "-":
        yield logdir
        return
    with tempfile.TemporaryDirectory(prefix="tb_torchcompile_") as folder:
        path = os.path.join(folder, "stdin.txt")
        with open(path, "wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        yield path


def _add_report(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    report = commands.add_parser(
        "report",
        help="print what to change and where the time of a step goes, for a logdir, a trace or a log",
    )
    report.add_argument(
        "logdir",
        help="a folder, one trace or log of any name, or a text of TORCH_LOGS; a path, a URL such as s3://bucket/runs, "
        "or - for the standard input",
    )
    report.add_argument("--full", action="store_true", help="all tables, not one screen")
    report.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    report.add_argument("--rank", type=int, metavar="N", help="also print all tables of this rank of a job")
    report.add_argument("--run", dest="only_run", metavar="NAME", default="", help="only this run")
    report.add_argument(
        "--all",
        action="store_true",
        help="all rows of a job of many ranks, not only outliers and the first ones",
    )
    report.set_defaults(run=show_report)
    doctor = commands.add_parser("doctor", help="print what was compiled, what was not, why, and what to do")
    doctor.add_argument("logdir", help="see report")
    doctor.add_argument("--run", dest="only_run", metavar="NAME", default="", help="only this run")
    doctor.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    doctor.set_defaults(run=show_report, section=["doctor"], top=None, max_bytes=None, rank=None, all=False)
    bounds = report.add_argument_group(
        "limits", "The output states how many rows are omitted, and the command that prints them."
    )
    bounds.add_argument(
        "--section",
        metavar="NAMES",
        action="append",
        default=[],
        help="only these tables, separated by commas; tb-torchcompile schema lists all",
    )
    bounds.add_argument("--top", type=_number, metavar="N", help="only the first N rows of each table")
    bounds.add_argument("--max-bytes", type=_number, metavar="N", help="maximum size of the JSON output")


def _number(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a non-negative integer")
    return int(text)


def show_report(arguments: argparse.Namespace) -> None:
    """Print the report; warnings and progress go to stderr. Raises UserError if nothing could be read."""
    sections = tuple(name for names in arguments.section for name in names.split(",") if name)
    ask = AnswerLimits(sections, arguments.top, arguments.max_bytes)
    with text.progress_bar() as advance, _input_of(arguments.logdir) as path:
        report = reports.read_report(
            path, advance, reports.ReportFilter(arguments.only_run, arguments.rank, arguments.all)
        )
    if failure := _print_warnings(report, arguments.logdir):
        if arguments.json:
            text_table.write_stdout(encoded(report).decode() + "\n")
        raise failure
    _check_rank(report, arguments.rank)
    if arguments.json and ask != NO_LIMITS:
        commands = Commands(arguments.logdir, arguments.only_run, ask.top, ask.most_bytes)
        text_table.print_json(bounded_report(report, ask, commands))
    elif arguments.json:
        text_table.write_stdout(encoded(report).decode() + "\n")
    elif ask != NO_LIMITS:
        text.print_tables(text_table.stdout_console(), selected(tables(report), ask), ask.top)
    elif arguments.full or arguments.all or arguments.rank is not None:
        text.print_report(report, arguments.rank)
    else:
        text.print_screen(text_table.stdout_console(), report, arguments.logdir)


def _print_warnings(report: reports.Report, logdir: str) -> UserError | None:
    """Print all warnings; return the error if nothing was read."""
    warnings, failure = list(reports.all_warnings(report)), reports.why_nothing(logdir, report)
    for notice in warnings if failure is None or len(warnings) > 1 else []:  # the only one is the error
        print(visible(f"warning: {notice}"), file=sys.stderr)
    return failure


def _check_rank(report: reports.Report, rank: int | None) -> None:
    ranks: set[int] = set()
    for run in report.runs:
        if run.job:
            ranks.update(run.job.map.ranks, (row.rank for row in run.workers if row.rank is not None))
    if rank is not None and rank not in ranks:
        names = ", ".join(map(str, sorted(ranks)))
        listed = f"available: {names}" if ranks else "there is no job of several ranks"
        raise WrongArgument(f"there is no rank {rank}: {listed}")


def default_logdir() -> str:
    """Return `runs` if it exists, otherwise the working directory."""
    return _USUAL_LOGDIR if os.path.isdir(_USUAL_LOGDIR) else "."


def show_id(arguments: argparse.Namespace) -> None:
    """Print the row. Raises WrongArgument if there is none of this id."""
    logdir = arguments.logdir or default_logdir()
    with text.progress_bar() as advance, _input_of(logdir) as path:
        row = Logdir(open_logdir(path), advance).show(arguments.id, Commands(logdir))
    (text_table.print_json if arguments.json else _print_shown)(row)


def _print_shown(shown: Shown) -> None:
    console = text_table.stdout_console()
    text_table.print_whole(console, shown.id)
    text_table.print_row(console, shown.row)
    if shown.kernel:
        _print_kernel(console, shown.kernel)
    if how := shown.verify:
        text_table.print_lines(console, "How to verify the fix:", indent="  ")
        text_table.print_lines(console, how.record, indent="    ")
        text_table.print_command(console, how.compare, indent="    ")
        if how.expect:
            text_table.print_lines(console, f"Expect: {how.expect}", indent="    ")
        if how.what_if:
            text_table.print_command(console, how.what_if, indent="    ")
    text_table.print_whole(console, f"  In the tab: {shown.tab}")
    for command in shown.next:
        text_table.print_lines(console, "See also:", indent="  ")
        text_table.print_command(console, command, indent="    ")


def _print_kernel(console: Console, details: KernelDetails) -> None:
    if details.launches.shown_every == 1 and (times := details.launches.duration_us):
        text_table.print_lines(console, f"Median: {duration(statistics.median(times))}", indent="  ")
    if details.compile_config:
        text_table.print_lines(console, f"Chosen configuration: {details.compile_config}", indent="  ")
    text_table.print_table(console, "launch configurations", details.configs)
    missing = "  no source: a library kernel, or its code was not recorded"
    console.print(text_table.Plain((details.source or missing).rstrip()), soft_wrap=True)
    console.print()


def _show_schema(arguments: argparse.Namespace) -> None:
    report = schema()
    if arguments.json:
        text_table.print_json(report)
        return
    for name, section in report.sections.items():
        time = f", share of {section.time}" if section.time else ""
        text_table.write_stdout(visible(f"{name}: per {' and '.join(section.rows)}{time}\n"))


def skill() -> str:
    """Return SKILL.md, the instructions for agents."""
    return files(__package__).joinpath("SKILL.md").read_text(encoding="utf-8")
