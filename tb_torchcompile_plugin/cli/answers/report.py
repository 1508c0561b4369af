"""`tb-torchcompile report`: one screen of a logdir, all of its tables, or what of them fits into so many bytes."""

from __future__ import annotations

import argparse
import sys

import msgspec

from tb_torchcompile_plugin.api.answers.bounded import Ask, Commands, bounded
from tb_torchcompile_plugin.api.answers.search import first_answer
from tb_torchcompile_plugin.api.answers.sections import OF_LOGDIR, Address, address, encoded, tables
from tb_torchcompile_plugin.api.report import Report, Wanted, all_warnings, read_report, why_nothing
from tb_torchcompile_plugin.cli import text
from tb_torchcompile_plugin.cli.answers.screen import print_screen
from tb_torchcompile_plugin.cli.answers.show import print_tables
from tb_torchcompile_plugin.cli.text_span import ranks_of_jobs
from tb_torchcompile_plugin.errors import Notice, UserError, WrongArgument, visible


def show_report(arguments: argparse.Namespace) -> None:
    """Print what was asked for; warnings and progress go to stderr. Raises UserError where nothing could be read."""
    ask = Ask(_sections(arguments.section), arguments.top, arguments.max_bytes, arguments.after)
    run = arguments.only_run or _run_of(ask.after)
    with text.progress_bar() as advance:
        report = read_report(arguments.logdir, advance, Wanted(run, arguments.rank, arguments.all))
    why = _say_warnings(report, arguments.logdir)
    if ask.bounds and not why:
        _print_bounded(report, ask, arguments)
    elif arguments.json:
        sys.stdout.write(encoded(report).decode() + "\n")
    if why:
        raise why
    _check_rank(report, arguments.rank)
    if not arguments.json and not ask.bounds:
        _print_text(report, arguments)


def _print_text(report: Report, arguments: argparse.Namespace) -> None:
    if arguments.full or arguments.all or arguments.rank is not None:
        text.print_report(report, arguments.rank)
    else:
        print_screen(report, arguments.logdir)


def _print_bounded(report: Report, ask: Ask, arguments: argparse.Namespace) -> None:
    answer = bounded(
        tables(report),
        ask,
        first_answer(report).headline,
        Commands(arguments.logdir, arguments.only_run, ask.top, arguments.max_bytes),
    )
    if arguments.json:
        sys.stdout.write(msgspec.json.encode(answer).decode() + "\n")
    else:
        print_tables(answer)


def _sections(given: list[str]) -> list[str]:
    return [name for names in given for name in names.split(",") if name]


def _run_of(after: str) -> str:
    """Of a row, "" for one of a table of all runs. Raises NoSuchId."""
    place = address(after) if after else Address()
    return "" if place.section in OF_LOGDIR else place.run


def _say_warnings(report: Report, logdir: str) -> UserError | None:
    """Why nothing was read, where that is so."""
    warnings, why = list(all_warnings(report)), why_nothing(logdir, report)
    for notice in warnings if warnings != [why] else []:
        print(visible(f"warning: {notice}"), file=sys.stderr)
    if isinstance(why, Notice):
        return UserError(why.problem, file=why.file, next_step=why.next_step)
    return UserError(why) if why else None


def _check_rank(report: Report, rank: int | None) -> None:
    """Raises WrongArgument for one that is not there."""
    if rank is None or rank in (known := ranks_of_jobs(report)):
        return
    listed = f"those here: {', '.join(map(str, known))}" if known else "there is no job of several ranks here"
    raise WrongArgument(f"no rank {rank}; {listed}")
