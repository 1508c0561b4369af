"""The gate as a command: reads the runs, prints the verdict, writes files, and tells the exit status."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgspec

from tb_torchcompile_plugin.analysis.compare.gate import GateReport, Verdict, gate
from tb_torchcompile_plugin.analysis.compare.gate_baseline import SUFFIX, save
from tb_torchcompile_plugin.analysis.compare.gate_judge import ALLOWED, GateSettings, WrongGate, settings_of
from tb_torchcompile_plugin.analysis.compare.gate_metrics import MeasuredRun
from tb_torchcompile_plugin.analysis.formatting import plural, size
from tb_torchcompile_plugin.api.catalog import plugin_version
from tb_torchcompile_plugin.api.recorded_runs import recorded_runs
from tb_torchcompile_plugin.cli.gate.reports import bmf, junit, markdown, print_gate
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


# The arguments of the gate and of `baseline`, and what they are made into.


if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def add_gate(compare: argparse.ArgumentParser) -> None:
    """The options that make a gate of `compare`."""
    compare.add_argument(
        "--fail-on",
        metavar="CONDITION",
        action="append",
        default=[],
        help="end with status 3 where this holds: 'step>3%%', 'breaks>0', 'kernel:triton_*>10%%'; as often as needed",
    )
    compare.add_argument(
        "--config", metavar="FILE", default="", help="conditions from the table [gate] of this TOML file"
    )
    compare.add_argument(
        "--allow",
        metavar="WHAT",
        action="append",
        default=[],
        help=f"end with status 0 nevertheless where this differs or is unknown: {', '.join(ALLOWED)}",
    )
    compare.add_argument("--name", default="", help="of what is measured, in the files that are written")
    for name, what in (
        ("markdown", "the verdict for people, such as a GitHub job summary (appended to what is there)"),
        ("junit", "one test case a condition, as JUnit's XML"),
        ("bmf", "HEAD's numbers in Bencher's metric format"),
    ):
        compare.add_argument(f"--{name}", metavar="FILE", default="", help=f"write {what}")


def is_gate(arguments: argparse.Namespace) -> bool:
    """Whether a verdict is asked for, and not only tables."""
    asked = "fail_on", "config", "allow", "name", "markdown", "junit", "bmf"
    return any(getattr(arguments, name) for name in asked)


def gate_settings(arguments: argparse.Namespace) -> GateSettings:
    """Of the command line and its file. Raises WrongGate."""
    document = _document(arguments.config) if arguments.config else None
    return settings_of(arguments.fail_on, arguments.allow, arguments.name, document, arguments.config)


def _document(file: str) -> dict[str, Any]:
    try:
        with open(file, "rb") as stream:
            document: dict[str, Any] = tomllib.load(stream)
        return document
    except OSError as error:
        raise WrongGate(
            f"cannot be read ({error.strerror})", file=file, next_step="Check --config"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise WrongGate(f"is no TOML ({error})", file=file, next_step="Mend it") from error


# `tb-torchcompile baseline save RUN… FILE`: what a gate asks of runs, in a file that can be committed.


def add_baseline(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The command and its arguments."""
    baseline = commands.add_parser(
        "baseline", help="save what `compare` asks of a run, to compare later runs with it"
    )
    actions = baseline.add_subparsers(required=True, metavar="ACTION")
    saving = actions.add_parser("save", help="write one file of at most 200 kB")
    saving.add_argument(
        "runs", metavar="RUN", nargs="+", help="a folder or one trace; several tell the noise between runs"
    )
    saving.add_argument("file", metavar="FILE", help=f"that is written: NAME{SUFFIX}")
    saving.add_argument(
        "--run", dest="only_run", metavar="NAME", default="", help="of this run of each folder only"
    )
    saving.set_defaults(run=_save_baseline)


def _save_baseline(arguments: argparse.Namespace) -> int:
    file: str = arguments.file
    if not file.endswith(SUFFIX):
        raise WrongGate(f"a baseline is called NAME{SUFFIX}", file=file, next_step="Name the file last")
    runs = [one for path in arguments.runs for one in recorded_runs(path, arguments.only_run)]
    written = save(runs, file, plugin_version() or "")
    print(f"{file}: {plural(len(runs), 'run')}, {size(written)}")
    return 0
