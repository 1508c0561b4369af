"""`tb-torchcompile baseline save RUN… FILE`: what a gate asks of runs, in a file that can be committed."""

from __future__ import annotations

import argparse

from tb_torchcompile_plugin.analysis.compare.gate_baseline import SUFFIX, save
from tb_torchcompile_plugin.analysis.compare.gate_judge import WrongGate
from tb_torchcompile_plugin.analysis.formatting import plural, size
from tb_torchcompile_plugin.api.catalog import plugin_version
from tb_torchcompile_plugin.api.recorded_runs import recorded_runs


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
    saving.set_defaults(run=_save)


def _save(arguments: argparse.Namespace) -> int:
    file: str = arguments.file
    if not file.endswith(SUFFIX):
        raise WrongGate(f"a baseline is called NAME{SUFFIX}", file=file, next_step="Name the file last")
    runs = [one for path in arguments.runs for one in recorded_runs(path, arguments.only_run)]
    written = save(runs, file, plugin_version() or "")
    print(f"{file}: {plural(len(runs), 'run')}, {size(written)}")
    return 0
