"""Add the commands that answer in bounds and by ids: `report`, `show`, `schema` and `skill`."""

from __future__ import annotations

import argparse
import os
import sys
from importlib.resources import files

from tb_torchcompile_plugin.api.answers.sections import schema
from tb_torchcompile_plugin.cli.answers.report import show_report
from tb_torchcompile_plugin.cli.answers.show import show_id
from tb_torchcompile_plugin.cli.text_table import print_json, write_text
from tb_torchcompile_plugin.errors import visible
from tb_torchcompile_plugin.logdir.filesystem import written

_SKILL = "tb-torchcompile"  # the folder of a skill has its name


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
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


def _add_report(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
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
    with written(file):
        os.makedirs(os.path.dirname(file), exist_ok=True)
    write_text(file, skill())
    print(f"wrote {file}", file=sys.stderr)
