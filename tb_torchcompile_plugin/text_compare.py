"""A comparison of two spans as text."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tb_torchcompile_plugin.compare_report import CompareReport, KernelDifference

_KERNELS_SHOWN = 25
_NAME_WIDTH = 60
Cell = str | float | None


def print_comparison(found: CompareReport) -> None:
    """Print all tables to stdout."""
    console = Console(file=sys.stdout, highlight=False, width=None if sys.stdout.isatty() else 180)
    for side, name in (("a", found.a), ("b", found.b)):
        console.print(Text(f"{side}: run {name.run}  worker {name.worker}  {name.trace_file}"))
    console.print(Text(found.verdict))
    rows = found.comparison
    _table(
        console,
        "figures",
        ["figure", "a", "b", "change"],
        [(f.name, f.a, f.b, f.delta) for f in rows.figures],
    )
    if rows.parts:
        _table(
            console,
            "where a step goes, µs: the parts sum to its time",
            ["part", "a", "b", "change"],
            [(f"{part.kind}: {part.part}", part.a_us, part.b_us, part.delta_us) for part in rows.parts],
        )
    _table(
        console,
        "GPU time of a step by category, µs",
        ["category", "a", "b", "change", "launches a", "launches b"],
        [
            (r.category, r.a_us, r.b_us, r.delta_us, r.a_launches, r.b_launches)
            for r in rows.kernel_categories
        ],
    )
    shown = rows.kernels[:_KERNELS_SHOWN]
    _table(
        console,
        f"kernels, {len(shown)} of {len(rows.kernels)}, µs a step",
        ["change", "what", "category", "places", "a launches", "a", "b launches", "b", "change"],
        [_kernel(row) for row in shown],
    )


def _kernel(row: KernelDifference) -> tuple[Cell, ...]:
    what = _what(row.a.operators, row.b.operators, row.a.kernels or row.b.kernels)
    return (
        *(row.change, what, row.category, str(row.places)),
        *(row.a.launches, row.a.time_us, row.b.launches, row.b.time_us, row.delta_us),
    )


def _what(a: list[str], b: list[str], kernels: list[str]) -> str:
    text = ", ".join(dict.fromkeys((*a, *b))) or ", ".join(kernels)
    return text if len(text) <= _NAME_WIDTH else text[: _NAME_WIDTH - 1] + "…"


def _table(console: Console, title: str, heads: list[str], rows: list[tuple[Cell, ...]]) -> None:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for number, head in enumerate(heads):
        table.add_column(
            head, justify="left" if number == 0 or isinstance(rows and rows[0][number], str) else "right"
        )
    for row in rows:
        table.add_row(*(Text(_cell(value)) for value in row))
    console.print(table)
    console.print()


def _cell(value: Cell) -> str:
    if value is None:
        return "–"
    return value if isinstance(value, str) else f"{value:,.3f}".rstrip("0").rstrip(".")
