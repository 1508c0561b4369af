"""The verdict of a gate as text."""

from __future__ import annotations

import sys

from rich.console import Console

from tb_torchcompile_plugin.analysis.compare.gate import GateReport
from tb_torchcompile_plugin.analysis.compare.gate_judge import GateCause
from tb_torchcompile_plugin.cli.text_table import Plain, Whole, table


def print_gate(report: GateReport) -> None:
    """Print the verdict, each condition with its causes, and the numbers of both sides."""
    console = Console(file=sys.stdout, highlight=False, width=None if sys.stdout.isatty() else 160)
    lines = [report.verdict, f"BASE: {', '.join(report.base)}", f"HEAD: {report.head}"]
    for line in [*lines, *report.notes, *([f"On {report.on}."] if report.on else [])]:
        console.print(Plain(line), soft_wrap=True)
    if report.outcome != "not_comparable":
        for difference in report.differences:
            console.print(Plain(f"Allowed: {difference}"), soft_wrap=True)
    console.print()
    for one in report.conditions:
        console.print(Plain(f"{one.outcome:8}{one.condition}"), soft_wrap=True)
        for line in (one.sentence, *map(in_a_line, one.causes)):
            console.print(Plain(f"        {line}"), soft_wrap=True)
    console.print(*[""][: len(report.conditions)])
    table(
        console,
        "numbers",
        report.figures,
        "label base head change",
        label=lambda row: Whole(row.label),
    )
    for why in dict.fromkeys(row.why_unknown for row in report.figures if row.why_unknown):
        names = ", ".join(row.metric for row in report.figures if row.why_unknown == why)
        console.print(Plain(f"Not known of {names}: {why}."), soft_wrap=True)


def in_a_line(cause: GateCause) -> str:
    """ "train/model.py:12: graph break: Call to print"."""
    return ": ".join(filter(None, (cause.where, cause.text)))
