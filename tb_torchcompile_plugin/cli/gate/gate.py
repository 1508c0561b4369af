"""`compare --fail-on` as a gate for CI, and `baseline save`: read the runs, print the verdict, write files."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from tb_torchcompile_plugin.analysis.compare.gate import GateReport, Verdict, gate
from tb_torchcompile_plugin.analysis.compare.gate_baseline import SUFFIX, save
from tb_torchcompile_plugin.analysis.compare.gate_judge import ALLOWED, WrongGate, settings_of
from tb_torchcompile_plugin.analysis.formatting import plural, size
from tb_torchcompile_plugin.api.catalog import plugin_version
from tb_torchcompile_plugin.api.recorded_runs import recorded_runs
from tb_torchcompile_plugin.cli.gate.reports import bmf, junit, markdown, print_gate
from tb_torchcompile_plugin.cli.text_table import discard_stdout, print_json, write_text

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

STATUS: dict[Verdict, int] = {"passed": 0, "failed": 3, "unknown": 4, "not_comparable": 4}


def show_gate(arguments: argparse.Namespace, paths: Sequence[str], runs: Sequence[str]) -> int:
    """Print the verdict and write the files; return the exit status.

    paths: those of BASE, and HEAD. runs: the name of one of BASE's and one of HEAD's, "" for the newest. Raises
    WrongGate, and UserError where a run cannot be read or a file cannot be written.
    """
    config = arguments.config
    document = _document(config) if config else None
    settings = settings_of(arguments.fail_on, arguments.allow, arguments.name, document, config)
    base = [run for path in paths[:-1] for run in recorded_runs(path, runs[0])]
    (head, *more) = recorded_runs(paths[-1], runs[-1])
    if more:
        raise WrongGate(
            f"HEAD is one run, and this baseline holds {1 + len(more)}",
            file=paths[-1],
            next_step="Name one run",
        )
    report = gate(base, head, settings)
    for file, mode, text in (
        (arguments.markdown, "a", markdown(report, paths)),
        (arguments.junit, "w", junit(report)),
        (arguments.bmf, "w", bmf(report, head)),
    ):
        if file:
            write_text(file, text, mode)
    _print(report, arguments.json)
    return STATUS[report.outcome]


def _print(report: GateReport, as_json: bool) -> None:
    """Print the verdict. A closed pipe, which rich turns into SystemExit, does not change the exit status."""
    try:
        if as_json:
            print_json(report)
            sys.stdout.flush()
        else:
            with suppress(SystemExit):
                print_gate(report)
    except BrokenPipeError:
        discard_stdout()


def add_gate(compare: argparse.ArgumentParser) -> None:
    """Add the options that make a gate of `compare`."""
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
    for name, content in (
        ("markdown", "the verdict for people, such as a GitHub job summary (appended to what is there)"),
        ("junit", "one test case a condition, as JUnit's XML"),
        ("bmf", "HEAD's numbers in Bencher's metric format"),
    ):
        compare.add_argument(f"--{name}", metavar="FILE", default="", help=f"write {content}")


def is_gate(arguments: argparse.Namespace) -> bool:
    """Return whether the options ask for a verdict, and not only for tables."""
    options = "fail_on", "config", "allow", "name", "markdown", "junit", "bmf"
    return any(getattr(arguments, name) for name in options)


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


def add_baseline(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
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


def _save_baseline(arguments: argparse.Namespace) -> None:
    file: str = arguments.file
    if not file.endswith(SUFFIX):
        raise WrongGate(f"a baseline is called NAME{SUFFIX}", file=file, next_step="Name the file last")
    runs = [run for path in arguments.runs for run in recorded_runs(path, arguments.only_run)]
    size_bytes = save(runs, file, plugin_version() or "")
    print(f"{file}: {plural(len(runs), 'run')}, {size(size_bytes)}")
