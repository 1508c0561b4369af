"""Findings as text: what to change, and how."""

from __future__ import annotations

from rich.console import Console

from tb_torchcompile_plugin.findings_report import RunFinding
from tb_torchcompile_plugin.text_table import Plain


def print_findings(console: Console, findings: list[RunFinding]) -> None:
    """Nothing without findings."""
    if not findings:
        return
    console.rule(Plain("findings, most time to save first"), align="left")
    for row in findings:
        where = row.run if row.span is None else f"{row.run} {row.span}"
        console.print(Plain(f"[{row.severity}] {row.title}"), soft_wrap=True)
        console.print(Plain(f"  {row.next_step}"), soft_wrap=True)
        console.print(Plain(f"  {row.rule}, run {where}, worker {row.worker}"), soft_wrap=True)
