"""`tb-torchcompile report`: one screen of a logdir, all of its tables, or those that fit into so many bytes."""

from __future__ import annotations

import argparse
import sys

from tb_torchcompile_plugin.api.answers.bounded import Ask, Commands, bounded
from tb_torchcompile_plugin.api.answers.search import first_answer
from tb_torchcompile_plugin.api.answers.sections import OF_LOGDIR, Address, address, encoded, tables
from tb_torchcompile_plugin.api.report import Report, Wanted, all_warnings, read_report, why_nothing
from tb_torchcompile_plugin.cli import text
from tb_torchcompile_plugin.cli.answers.screen import print_screen
from tb_torchcompile_plugin.cli.answers.show import print_tables
from tb_torchcompile_plugin.cli.text_span import ranks_of_jobs
from tb_torchcompile_plugin.cli.text_table import print_json
from tb_torchcompile_plugin.errors import Notice, UserError, WrongArgument, visible


def show_report(arguments: argparse.Namespace) -> None:
    """Print the report; warnings and progress go to stderr. Raises UserError where nothing could be read."""
    sections = [name for names in arguments.section for name in names.split(",") if name]
    ask = Ask(sections, arguments.top, arguments.max_bytes, arguments.after)
    run = arguments.only_run or _run_of(ask.after)
    with text.progress_bar() as advance:
        report = read_report(arguments.logdir, advance, Wanted(run, arguments.rank, arguments.all))
    failure = _print_warnings(report, arguments.logdir)
    if ask.bounds and not failure:
        _print_bounded(report, ask, arguments)
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


def _run_of(after: str) -> str:
    """Return the run of a row; "" for a row of a table of all runs. Raises NoSuchId."""
    row = address(after) if after else Address()
    return "" if row.section in OF_LOGDIR else row.run


def _print_warnings(report: Report, logdir: str) -> UserError | None:
    """Print all warnings; return the error where nothing was read."""
    warnings, reason = list(all_warnings(report)), why_nothing(logdir, report)
    for notice in warnings if warnings != [reason] else []:
        print(visible(f"warning: {notice}"), file=sys.stderr)
    if isinstance(reason, Notice):
        return UserError(reason.problem, file=reason.file, next_step=reason.next_step)
    return UserError(reason) if reason else None


def _print_bounded(report: Report, ask: Ask, arguments: argparse.Namespace) -> None:
    commands = Commands(arguments.logdir, arguments.only_run, ask.top, arguments.max_bytes)
    answer = bounded(tables(report), ask, first_answer(report).headline, commands)
    if arguments.json:
        print_json(answer)
    else:
        print_tables(answer)


def _check_rank(report: Report, rank: int | None) -> None:
    """Raise WrongArgument if there is no such rank."""
    if rank is None or rank in (ranks := ranks_of_jobs(report)):
        return
    listed = f"those here: {', '.join(map(str, ranks))}" if ranks else "there is no job of several ranks here"
    raise WrongArgument(f"no rank {rank}; {listed}")
