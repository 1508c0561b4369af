"""The commands that answer in bounds and by ids: `report`, `show`, `schema` and `skill`."""

import argparse
import os
import statistics
import sys
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

import msgspec

from tb_torchcompile_plugin.analysis.runtime.kernels import KernelDetails
from tb_torchcompile_plugin.api import report as reports
from tb_torchcompile_plugin.api.answers.bounded import AnswerLimits, Bounded, Commands, bounded, is_nothing
from tb_torchcompile_plugin.api.answers.search import Logdir, first_answer
from tb_torchcompile_plugin.api.answers.sections import OF_LOGDIR, address, encoded, schema, tables
from tb_torchcompile_plugin.api.answers.show import Shown
from tb_torchcompile_plugin.api.session import Session
from tb_torchcompile_plugin.cli import text
from tb_torchcompile_plugin.cli.answers.screen import print_screen
from tb_torchcompile_plugin.cli.text_table import Plain, print_json, print_lines, stdout_console, write_text
from tb_torchcompile_plugin.errors import Notice, UserError, WrongArgument, visible
from tb_torchcompile_plugin.logdir.filesystem import explain_write_errors

_SKILL = "tb-torchcompile"  # the folder of a skill has its name
_IN_THE_ID = ("id", "more", "key", "run", "worker", "span")
_USUAL_LOGDIR = "runs"  # of TensorBoard's and torch's examples


def add_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add all of them."""
    _add_report(commands)
    show = commands.add_parser("show", help="print one row of a report, by the id that stands with it")
    show.add_argument("id", metavar="ID", help="RUN/WORKER/SPAN/SECTION/KEY, as report prints it")
    show.add_argument(
        "--logdir", metavar="DIR", help="as for report (default: runs, where that is here, else .)"
    )
    show.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    show.set_defaults(run=show_id)
    sections = commands.add_parser("schema", help="print the sections that a report has")
    sections.add_argument("--json", action="store_true", help="with the JSON schema of the rows of each")
    sections.set_defaults(run=_show_schema)
    agent = commands.add_parser("skill", help="print how an agent uses this, as SKILL.md")
    agent.add_argument("--install", metavar="DIR", help="write it below this folder of skills instead")
    agent.set_defaults(run=_show_skill)


def _add_report(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    report = commands.add_parser(
        "report", help="print what a logdir, a trace or a log holds: what to change, and where a step goes"
    )
    report.add_argument(
        "logdir",
        help="a folder, or one trace or TORCH_TRACE log of any name; a path or a URL such as s3://bucket/runs",
    )
    report.add_argument("--full", action="store_true", help="all tables, not one screen")
    report.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    report.add_argument(
        "--rank", type=int, metavar="N", help="of a job of several ranks, print the tables of this one, too"
    )
    report.add_argument("--run", dest="only_run", metavar="NAME", default="", help="of this run only")
    report.add_argument(
        "--all",
        action="store_true",
        help="of a job of many ranks all rows, not outliers and the first ones alone",
    )
    report.set_defaults(run=show_report)
    bounds = report.add_argument_group(
        "bounds", "What is left out is counted, with how to get it. With --json one object."
    )
    bounds.add_argument(
        "--section",
        metavar="NAMES",
        action="append",
        default=[],
        help="these tables only, with commas between them; tb-torchcompile schema lists all",
    )
    bounds.add_argument("--top", type=_number, metavar="N", help="the first rows of each table")
    bounds.add_argument("--max-bytes", type=_number, metavar="N", help="of the printed JSON, at most")
    bounds.add_argument("--after", metavar="ID", default="", help="the rows of its table behind this one")


def _number(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 0 on")
    return int(text)


def show_report(arguments: argparse.Namespace) -> None:
    """Print the report; warnings and progress go to stderr. Raises UserError where nothing could be read."""
    sections = [name for names in arguments.section for name in names.split(",") if name]
    ask = AnswerLimits(sections, arguments.top, arguments.max_bytes, arguments.after)
    run = arguments.only_run
    if ask.after and not run:
        row = address(ask.after)
        run = "" if row.section in OF_LOGDIR else row.run
    with text.progress_bar() as advance:
        report = reports.read_report(
            arguments.logdir, advance, reports.ReportFilter(run, arguments.rank, arguments.all)
        )
    failure = _print_warnings(report, arguments.logdir)
    if ask.bounds and not failure:
        commands = Commands(arguments.logdir, arguments.only_run, ask.top, arguments.max_bytes)
        answer = bounded(tables(report), ask, first_answer(report).headline, commands)
        (print_json if arguments.json else print_tables)(answer)
    elif arguments.json:
        sys.stdout.write(encoded(report).decode() + "\n")
    if failure:
        raise failure
    _check_rank(report, arguments.rank)
    if arguments.json or ask.bounds:
        return
    if arguments.full or arguments.all or arguments.rank is not None:
        text.print_report(report, arguments.rank)
    else:
        print_screen(report, arguments.logdir)


def _print_warnings(report: reports.Report, logdir: str) -> UserError | None:
    """Print all warnings; return the error where nothing was read."""
    warnings, reason = list(reports.all_warnings(report)), reports.why_nothing(logdir, report)
    for notice in warnings if warnings != [reason] else []:
        print(visible(f"warning: {notice}"), file=sys.stderr)
    if isinstance(reason, Notice):
        return UserError(reason.problem, file=reason.file, next_step=reason.next_step)
    return UserError(reason) if reason else None


def _check_rank(report: reports.Report, rank: int | None) -> None:
    """Raise WrongArgument if no job has such a rank."""
    ranks: set[int] = set()
    for run in report.runs:
        if run.job:
            ranks.update(run.job.map.ranks, (row.rank for row in run.workers if row.rank is not None))
    if rank is not None and rank not in ranks:
        names = ", ".join(map(str, sorted(ranks)))
        listed = f"those here: {names}" if ranks else "there is no job of several ranks here"
        raise WrongArgument(f"no rank {rank}; {listed}")


def print_tables(answer: Bounded) -> None:
    """Print the headline, then each row under its id, and how to get those that were left out."""
    console = stdout_console()
    console.print(Plain(answer.headline, "bold"), soft_wrap=True)
    for cut in answer.tables:
        title = f"{cut.section} of {cut.place}: {len(cut.rows)} of {cut.total} rows"
        console.print()
        console.print(Plain(title, "bold"), soft_wrap=True)
        for raw in cut.rows:
            row: dict[str, Any] = msgspec.json.decode(raw)
            fields = (f"{name}={_as_text(row[name])}" for name in row if name not in _IN_THE_ID)
            print_lines(console, row.get("address", row["id"]), f"    {'  '.join(fields)}")
        if omitted := cut.omitted:
            share = "" if omitted.share is None else f", {100 * omitted.share:.1f} % of {omitted.share_of}"
            print_lines(console, f"  {omitted.rows} left out{share}: {omitted.next}")
    if answer.omitted:
        left = answer.omitted
        print_lines(console, f"{left.tables} more tables of {left.rows} rows: {left.next}")


def _as_text(value: Any) -> str:
    """Return a text as it is, anything else as JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def default_logdir() -> str:
    """Return `runs` if there is such a folder, otherwise the working directory."""
    return _USUAL_LOGDIR if os.path.isdir(_USUAL_LOGDIR) else "."


def show_id(arguments: argparse.Namespace) -> None:
    """Print the row. Raises WrongArgument if there is none of this id."""
    logdir = arguments.logdir or default_logdir()
    reports.check(logdir)
    with text.progress_bar() as advance:
        row = Logdir(Session([("", logdir)]), advance).show(arguments.id, Commands(logdir))
    if arguments.json:
        print_json(row)
    else:
        sys.stdout.write(visible("\n".join(_lines(row))) + "\n")


def _lines(shown: Shown) -> Iterator[str]:
    yield shown.id
    for name, value in shown.row.items():
        yield from _field(name, value)
    if shown.kernel:
        yield from _kernel(shown.kernel)
    if how := shown.verify:
        yield "  how to verify:"
        yield f"    {how.record}, then: {how.compare}"
        if how.expect:
            yield f"    Expect: {how.expect}"
        if how.what_if:
            yield f"    Where a step goes then: {how.what_if}"
    yield f"  in the tab: {shown.tab}"
    for command in shown.next:
        yield f"  see also: {command}"


def _field(name: str, value: Any) -> Iterator[str]:
    """Yield no line for what is null or empty; one line for each row within a row."""
    if is_nothing(value):
        return
    if isinstance(value, list) and isinstance(value[0], dict):
        yield f"  {name}:"
        for row in value:
            yield f"    - {_words(row)}"
    elif isinstance(value, dict):
        yield f"  {name}: {_words(value)}"
    else:
        yield f"  {name}: {_as_text(value)}"


def _words(row: dict[str, Any]) -> str:
    return "  ".join(f"{name}={_as_text(value)}" for name, value in row.items() if not is_nothing(value))


def _kernel(details: KernelDetails) -> Iterator[str]:
    times = details.launches.duration_us
    every = details.launches.shown_every
    median = f", median {statistics.median(times):.3f} µs" if every == 1 and times else ""
    yield f"  launches: {len(times) if every == 1 else f'every {every}th is listed'}{median}"
    for config in details.configs:
        yield from _field("configuration", msgspec.to_builtins(config))
    if details.source:
        yield "  source:"
        yield from (f"    {line}" for line in details.source.rstrip().splitlines())
    else:
        yield "  source: none: a library's kernel, or its code was not recorded"


def _show_schema(arguments: argparse.Namespace) -> None:
    """Print all sections of a report; with `--json` the JSON schema of each one's rows."""
    report = schema()
    if arguments.json:
        print_json(report)
        return
    for name, section in report.sections.items():
        time = f", share of {section.time}" if section.time else ""
        sys.stdout.write(visible(f"{name}: of each {' and '.join(section.rows)}{time}\n"))


def skill() -> str:
    """Return the text of SKILL.md: what an agent needs to know to use this."""
    return files(__package__).joinpath("SKILL.md").read_text(encoding="utf-8")


def _show_skill(arguments: argparse.Namespace) -> None:
    """Print it, or write it below a folder of skills. Raises UserError where that cannot be written."""
    if arguments.install is None:
        sys.stdout.write(skill())
        return
    file = os.path.join(arguments.install, _SKILL, "SKILL.md")
    with explain_write_errors(file):
        os.makedirs(os.path.dirname(file), exist_ok=True)
    write_text(file, skill())
    print(f"wrote {file}", file=sys.stderr)
