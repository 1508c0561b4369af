"""`tb-torchcompile show ID`: one row of a report with all that is known of it, and what to ask next."""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Iterator
from typing import Any

import msgspec
from rich.console import Console

from tb_torchcompile_plugin.analysis.runtime.kernels import KernelDetails
from tb_torchcompile_plugin.api.answers.bounded import Bounded, Commands, Cut, is_nothing
from tb_torchcompile_plugin.api.answers.search import Logdir
from tb_torchcompile_plugin.api.answers.show import Shown, Verify
from tb_torchcompile_plugin.api.report import check
from tb_torchcompile_plugin.api.session import Session
from tb_torchcompile_plugin.cli import text
from tb_torchcompile_plugin.cli.text_table import Plain
from tb_torchcompile_plugin.errors import visible

# Tables that were cut to what was asked for, as text: each row under its id, and how to get the others.


_TOLD = ("id", "more", "key", "run", "worker", "span")  # in the id


def print_tables(answer: Bounded) -> None:
    """To stdout: the sentence, then table by table."""
    console = Console(file=sys.stdout, highlight=False)
    console.print(Plain(answer.headline, "bold"), soft_wrap=True)
    for one in answer.tables:
        _print_cut(console, one)
    if answer.omitted:
        left = answer.omitted
        console.print(Plain(f"{left.tables} more tables of {left.rows} rows: {left.next}"), soft_wrap=True)


def _print_cut(console: Console, one: Cut) -> None:
    console.print()
    console.print(
        Plain(f"{one.section} of {one.place}: {len(one.rows)} of {one.total} rows", "bold"), soft_wrap=True
    )
    for raw in one.rows:
        row: dict[str, Any] = msgspec.json.decode(raw)
        console.print(Plain(row.get("address", row["id"])), soft_wrap=True)
        console.print(Plain(f"    {in_a_line(row)}"), soft_wrap=True)
    if out := one.omitted:
        share = "" if out.share is None else f", {100 * out.share:.1f} % of {out.share_of}"
        console.print(Plain(f"  {out.rows} left out{share}: {out.next}"), soft_wrap=True)


def in_a_line(row: dict[str, Any]) -> str:
    """ "name=aten::mm calls=15 …": what is not in the id, numbers as they are."""
    return "  ".join(f"{name}={as_text(value)}" for name, value in row.items() if name not in _TOLD)


def as_text(value: Any) -> str:
    """A text as it is, all else as JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


USUAL = "runs"  # the logdir that everybody's example writes


def default_logdir() -> str:
    """`runs` where there is such a folder, else the one we are in."""
    return USUAL if os.path.isdir(USUAL) else "."


def show_id(arguments: argparse.Namespace) -> None:
    """Print the row. Raises WrongArgument where there is none of this id."""
    logdir = arguments.logdir or default_logdir()
    check(logdir)
    with text.progress_bar() as advance:
        one = Logdir(Session([("", logdir)]), advance).show(arguments.id, Commands(logdir))
    if arguments.json:
        sys.stdout.write(msgspec.json.encode(one).decode() + "\n")
    else:
        sys.stdout.write(visible("\n".join(_lines(one))) + "\n")


def _lines(one: Shown) -> Iterator[str]:
    yield one.id
    for name, value in one.row.items():
        yield from _field(name, value, "  ")
    if one.kernel:
        yield from _kernel(one.kernel)
    if one.verify:
        yield from _verify(one.verify)
    yield f"  in the tab: {one.tab}"
    for command in one.next:
        yield f"  see also: {command}"


def _field(name: str, value: Any, indent: str) -> Iterator[str]:
    """What is null or empty is not told; rows within a row are told a line each."""
    if is_nothing(value):
        return
    if isinstance(value, list) and isinstance(value[0], dict):
        yield f"{indent}{name}:"
        for row in value:
            yield f"{indent}  - {'  '.join(_words(row))}"
    elif isinstance(value, dict):
        yield f"{indent}{name}: {'  '.join(_words(value))}"
    else:
        yield f"{indent}{name}: {as_text(value)}"


def _words(row: dict[str, Any]) -> Iterator[str]:
    for name, value in row.items():
        if not is_nothing(value):
            yield f"{name}={as_text(value)}"


def _kernel(details: KernelDetails) -> Iterator[str]:
    times = details.launches.duration_us
    every = details.launches.shown_every
    median = f", median {statistics.median(times):.3f} µs" if every == 1 and times else ""
    yield f"  launches: {len(times) if every == 1 else f'every {every}th is listed'}{median}"
    for config in details.configs:
        yield from _field("configuration", msgspec.to_builtins(config), "  ")
    if details.source:
        yield "  source:"
        yield from (f"    {line}" for line in details.source.rstrip().splitlines())
    else:
        yield "  source: none: a library's kernel, or its code was not recorded"


def _verify(how: Verify) -> Iterator[str]:
    yield "  how to verify:"
    yield f"    {how.record}, then: {how.compare}"
    if how.expect:
        yield f"    Expect: {how.expect}"
    if how.what_if:
        yield f"    Where a step goes then: {how.what_if}"
