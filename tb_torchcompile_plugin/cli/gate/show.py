"""The gate as a command: reads the runs, prints the verdict, writes files, and tells the exit status."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress

import msgspec

from tb_torchcompile_plugin.analysis.compare.gate import GateReport, Verdict, gate
from tb_torchcompile_plugin.analysis.compare.gate_judge import GateSettings, WrongGate
from tb_torchcompile_plugin.analysis.compare.gate_metrics import MeasuredRun
from tb_torchcompile_plugin.api.recorded_runs import recorded_runs
from tb_torchcompile_plugin.cli.gate.bmf import bmf
from tb_torchcompile_plugin.cli.gate.junit import junit
from tb_torchcompile_plugin.cli.gate.markdown import markdown
from tb_torchcompile_plugin.cli.gate.text import print_gate
from tb_torchcompile_plugin.cli.text_table import nobody_reads
from tb_torchcompile_plugin.logdir.filesystem import written

STATUS: dict[Verdict, int] = {"passed": 0, "failed": 3, "unknown": 4, "not_comparable": 4}


class GateFiles(msgspec.Struct, frozen=True):
    """Where what is written; "" for nowhere."""

    markdown: str
    junit: str
    bmf: str


def show_gate(
    paths: Sequence[str], runs: Sequence[str], settings: GateSettings, files: GateFiles, as_json: bool
) -> int:
    """paths: those of BASE, and HEAD. runs: the name of one of BASE's and one of HEAD's, "" for the newest. Raises
    UserError where one cannot be read, and where a file cannot be written."""
    base = [one for path in paths[:-1] for one in recorded_runs(path, runs[0])]
    head = _one(recorded_runs(paths[-1], runs[-1]), paths[-1])
    report = gate(base, head, settings)
    _write(files, report, head, paths)
    _print(report, as_json)
    return STATUS[report.outcome]


def _print(report: GateReport, as_json: bool) -> None:
    """Who reads it may have seen enough, of which rich makes SystemExit: the status is the verdict's all the same."""
    try:
        if as_json:
            sys.stdout.write(msgspec.json.encode(report).decode() + "\n")
            sys.stdout.flush()
        else:
            with suppress(SystemExit):
                print_gate(report)
    except BrokenPipeError:
        nobody_reads()


def _one(runs: list[MeasuredRun], path: str) -> MeasuredRun:
    if len(runs) > 1:
        raise WrongGate(
            f"HEAD is one run, and this baseline holds {len(runs)}", file=path, next_step="Name one run"
        )
    return runs[0]


def _write(files: GateFiles, report: GateReport, head: MeasuredRun, paths: Sequence[str]) -> None:
    for file, mode, text in (
        (files.markdown, "a", markdown(report, paths)),
        (files.junit, "w", junit(report)),
        (files.bmf, "w", bmf(report, head)),
    ):
        if file:
            _save(file, mode, text)


def _save(file: str, mode: str, text: str) -> None:
    with written(file), open(file, mode, encoding="utf-8", errors="backslashreplace") as target:
        target.write(text)
