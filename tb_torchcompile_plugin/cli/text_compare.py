"""A comparison of two spans as text."""

from __future__ import annotations

import sys

from rich.console import Console

from tb_torchcompile_plugin.analysis.compare.compare import Comparison
from tb_torchcompile_plugin.analysis.compare.kernel_matching import KernelDifference
from tb_torchcompile_plugin.analysis.compare.pairs import Pair
from tb_torchcompile_plugin.analysis.compare.report import FullReport
from tb_torchcompile_plugin.analysis.compare.tables import ComparedTables
from tb_torchcompile_plugin.cli.text_table import Cell, Plain, table

_SHOWN = 25
_NAME_WIDTH = 60


def print_comparison(report: FullReport) -> None:
    """Print all tables to stdout."""
    console = Console(file=sys.stdout, highlight=False, width=None if sys.stdout.isatty() else 180)
    for side, name in (("A", report.a), ("B", report.b)):
        read = name.trace_file or "no trace, only what was compiled"
        console.print(Plain(f"{side}: run {name.run}  worker {name.worker}  {read}"))
    for sentence in (report.verdict, *report.comparison.notes):
        console.print(Plain(sentence), soft_wrap=True)
    console.print()
    of = "a step" if report.comparison.step_time else "the span"
    _print_parts(console, report.comparison, of)
    _print_rows(console, report.tables, of)
    table(
        console,
        "compilations",
        report.comparison.compilations,
        "function direction id_A id_B duration_s",
        _SHOWN,
        id_A=lambda row: row.a.compile_id if row.a else None,
        id_B=lambda row: row.b.compile_id if row.b else None,
    )


def _print_parts(console: Console, comparison: Comparison, of: str) -> None:
    """An average step, or the span, in figures, by what takes its time, and its GPU time by category."""
    table(console, "figures", comparison.figures, "name value")
    table(console, f"where {of} goes: the parts sum to its time", comparison.parts, "kind part time_us")
    table(console, f"GPU time of {of} by category", comparison.kernel_categories, "category time_us launches")


def _print_rows(console: Console, tables: ComparedTables, of: str) -> None:
    """The largest differences of kernels and operators, the first modules, and each device's memory."""
    table(
        console,
        f"kernels of {of}",
        tables.kernels,
        "change what category time_us launches places",
        _SHOWN,
        what=_what,
        time_us=lambda row: Pair(row.a.time_us, row.b.time_us, row.delta_us),
        launches=lambda row: Pair(row.a.launches, row.b.launches, row.b.launches - row.a.launches),
    )
    table(
        console,
        f"operators of {of}",
        tables.operators,
        "name kind self_host_us self_device_us calls",
        _SHOWN,
    )
    table(
        console,
        f"modules of {of}",
        tables.modules,
        "path host_us device_us calls",
        _SHOWN,
        path=lambda row: row.path[-_NAME_WIDTH:],
    )
    table(console, "peak memory", tables.memory, "device peak_bytes reserved_bytes")


def _what(row: KernelDifference) -> Cell:
    text = ", ".join(dict.fromkeys((*row.a.operators, *row.b.operators))) or ", ".join(
        row.a.kernels or row.b.kernels
    )
    return text if len(text) <= _NAME_WIDTH else text[: _NAME_WIDTH - 1] + "…"
