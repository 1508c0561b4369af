"""A comparison of two spans as text."""

from __future__ import annotations

import sys
from collections.abc import Sequence, Sized

from rich.console import Console

from tb_torchcompile_plugin.compare_report import (
    ComparedTables,
    Comparison,
    CompilationDifference,
    FullReport,
    KernelDifference,
    Pair,
)
from tb_torchcompile_plugin.text_table import Cell, Plain, table

_SHOWN = 25
_NAME_WIDTH = 60


def print_comparison(found: FullReport) -> None:
    """Print all tables to stdout."""
    console = Console(file=sys.stdout, highlight=False, width=None if sys.stdout.isatty() else 180)
    for side, name in (("A", found.a), ("B", found.b)):
        told = name.trace_file or "no trace, only what was compiled"
        console.print(Plain(f"{side}: run {name.run}  worker {name.worker}  {told}"))
    for sentence in (found.verdict, *found.comparison.notes):
        console.print(Plain(sentence), soft_wrap=True)
    console.print()
    of = "a step" if found.comparison.step_time else "the span"
    _print_parts(console, found.comparison, of)
    _print_rows(console, found.tables, of)
    _print_compilations(console, found.comparison.compilations)


def _print_parts(console: Console, found: Comparison, of: str) -> None:
    """An average step, or the span, in figures, by what takes its time, and its GPU time by category."""
    _table(console, "figures", ["figure"], [(row.name, *_cells(row.value)) for row in found.figures])
    _table(
        console,
        f"where {of} goes, µs: the parts sum to its time",
        ["part"],
        [(f"{row.kind}: {row.part}", *_cells(row.time_us)) for row in found.parts],
    )
    _table(
        console,
        f"GPU time of {of} by category, µs",
        ["category"],
        [
            (row.category, *_cells(row.time_us), row.launches.a, row.launches.b)
            for row in found.kernel_categories
        ],
        ["launches A", "B"],
    )


def _print_rows(console: Console, found: ComparedTables, of: str) -> None:
    """The largest differences of kernels and operators, the first modules, and each device's memory."""
    _table(
        console,
        f"kernels{_of(found.kernels)}, µs of {of}",
        ["change", "what", "category"],
        [_kernel(row) for row in found.kernels[:_SHOWN]],
        ["launches A", "B", "places"],
    )
    _table(
        console,
        f"operators{_of(found.operators)}, own time, µs of {of}",
        ["operator"],
        [
            (row.name, *_cells(row.self_host_us), *_cells(row.self_device_us), row.calls.a, row.calls.b)
            for row in found.operators[:_SHOWN]
        ],
        ["GPU A", "B", "change", "calls A", "B"],
    )
    _table(
        console,
        f"modules{_of(found.modules)}, µs of {of}",
        ["module"],
        [
            (row.path[-_NAME_WIDTH:], *_cells(row.host_us), *_cells(row.device_us))
            for row in found.modules[:_SHOWN]
        ],
        ["GPU A", "B", "change"],
    )
    _table(
        console,
        "peak memory, bytes",
        ["device"],
        [(str(row.device), *_cells(row.peak_bytes), *_cells(row.reserved_bytes)) for row in found.memory],
        ["reserved A", "B", "change"],
    )


def _print_compilations(console: Console, rows: list[CompilationDifference]) -> None:
    _table(
        console,
        f"compilations{_of(rows)}, s",
        ["function", "direction", "id A", "id B"],
        [
            (
                *(row.function, row.direction),
                *(side.compile_id if side else None for side in (row.a, row.b)),
                *_cells(row.duration_s),
            )
            for row in rows[:_SHOWN]
        ],
    )


def _of(rows: Sized) -> str:
    return f", {_SHOWN} of {len(rows)}" if len(rows) > _SHOWN else ""


def _cells(pair: Pair) -> tuple[Cell, Cell, Cell]:
    return _number(pair.a), _number(pair.b), _number(pair.delta)


def _kernel(row: KernelDifference) -> tuple[Cell, ...]:
    what = _what(row.a.operators, row.b.operators, row.a.kernels or row.b.kernels)
    times = (_number(value) for value in (row.a.time_us, row.b.time_us, row.delta_us))
    launches = _number(row.a.launches), _number(row.b.launches)
    return row.change, what, row.category, *times, *launches, row.places


def _what(a: list[str], b: list[str], kernels: list[str]) -> str:
    text = ", ".join(dict.fromkeys((*a, *b))) or ", ".join(kernels)
    return text if len(text) <= _NAME_WIDTH else text[: _NAME_WIDTH - 1] + "…"


def _table(
    console: Console, title: str, names: list[str], rows: list[tuple[Cell, ...]], more: Sequence[str] = ()
) -> None:
    """names: the columns of words; A, B and change come after them, and then `more`."""
    table(console, title, [*names, *(f">{head}" for head in ("A", "B", "change", *more))], rows)


def _number(value: float | None) -> Cell:
    return None if value is None else f"{value:,.3f}".rstrip("0").rstrip(".")
