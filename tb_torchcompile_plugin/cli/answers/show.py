"""`tb-torchcompile show ID`: one row of a report with all that is known of it; and tables cut to size, as text."""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Iterator
from typing import Any

import msgspec

from tb_torchcompile_plugin.analysis.runtime.kernels import KernelDetails
from tb_torchcompile_plugin.api.answers.bounded import Bounded, Commands, is_nothing
from tb_torchcompile_plugin.api.answers.search import Logdir
from tb_torchcompile_plugin.api.answers.show import Shown
from tb_torchcompile_plugin.api.report import check
from tb_torchcompile_plugin.api.session import Session
from tb_torchcompile_plugin.cli import text
from tb_torchcompile_plugin.cli.text_table import Plain, print_json, print_lines, stdout_console
from tb_torchcompile_plugin.errors import visible

_IN_THE_ID = ("id", "more", "key", "run", "worker", "span")
_USUAL_LOGDIR = "runs"  # of TensorBoard's and torch's examples


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
    check(logdir)
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
