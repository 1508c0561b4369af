"""Tables that were cut to what was asked for, as text: each row under its id, and how to get the others."""

from __future__ import annotations

import sys
from typing import Any

import msgspec
from rich.console import Console

from tb_torchcompile_plugin.api.answers.bounded import Bounded, Cut
from tb_torchcompile_plugin.cli.text_table import Plain

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
