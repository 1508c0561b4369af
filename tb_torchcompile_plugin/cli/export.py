"""`tb-torchcompile export LOGDIR FILE`: a run as one file that opens from disk."""

from __future__ import annotations

import argparse
import math
import os
import re
import sys
from collections.abc import Callable
from typing import IO

from tb_torchcompile_plugin.analysis.formatting import size
from tb_torchcompile_plugin.api.export.export import TIMELINE_BYTES, Chosen, Export
from tb_torchcompile_plugin.api.read_queue import Progress
from tb_torchcompile_plugin.api.session import Session
from tb_torchcompile_plugin.cli import text
from tb_torchcompile_plugin.errors import visible
from tb_torchcompile_plugin.logdir.filesystem import replaced, written
from tb_torchcompile_plugin.torch_names.slices import step_name

_MS = 1_000_000  # ns


def add_export(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], check: Callable[[str], None]
) -> None:
    """The parser. check: raises UserError for a path that is neither a file nor a folder."""
    parser = commands.add_parser("export", help="write a run as one HTML file that opens from disk, offline")
    parser.add_argument("logdir", help="a folder or one trace; a path or a URL")
    parser.add_argument("file", help="the file to write")
    for name in ("run", "worker", "span"):
        parser.add_argument(
            f"--{name}", dest=f"only_{name}", default="", help=f"of this {name}; else what the tab opens with"
        )
    parser.add_argument(
        "--compare",
        metavar="RUN",
        default="",
        help="with what it is compared with: another run of the logdir",
    )
    parser.add_argument(
        "--no-code", action="store_true", help="without source code, graphs and generated code"
    )
    parser.add_argument(
        "--step", default="", help="the step of the timeline to hold at full detail: its number, or its name"
    )
    parser.add_argument(
        "--from", dest="begin", type=_number, metavar="MS", help="or a stretch of it, as the tab counts"
    )
    parser.add_argument("--to", dest="end", type=_number, metavar="MS")
    parser.add_argument(
        "--budget",
        type=_number,
        metavar="MB",
        default=TIMELINE_BYTES / 1e6,
        help="for the timeline (default: %(default)g)",
    )
    parser.set_defaults(run=lambda arguments: _export(arguments, parser, check))


def _number(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError
    return number


def _export(
    arguments: argparse.Namespace, parser: argparse.ArgumentParser, check: Callable[[str], None]
) -> int:
    if (arguments.begin is None) != (arguments.end is None):
        parser.error("--from and --to go together")
    if not arguments.budget >= 0:
        parser.error("--budget is 0 or more")
    check(arguments.logdir)
    chosen = Chosen(
        run=arguments.only_run,
        worker=arguments.only_worker,
        span=arguments.only_span,
        compare=arguments.compare,
        step=_whole_name(arguments.step),
        window=_window(arguments.begin, arguments.end),
        code=not arguments.no_code,
        timeline_bytes=round(arguments.budget * 1e6),
        logdir=arguments.logdir,
    )
    write_export(Session([("", arguments.logdir)]), chosen, arguments.file)
    return 0


def write_export(session: Session, chosen: Chosen, file: str) -> None:
    """The whole file, or none. Raises UserError."""
    with text.progress_bar() as advance:
        export = Export(session, chosen, lambda progress: advance(progress) if _moves(progress) else None)
        with written(file), replaced(file) as target:
            _write(export, target)
    print(visible(f"wrote {file}: {size(os.path.getsize(file))}"), file=sys.stderr)
    contents = export.contents()
    for one in (*contents.holds, *contents.left_out):
        print(visible(f"  {one.what}: {one.text}"), file=sys.stderr)


def _write(export: Export, target: IO[bytes]) -> None:
    for block in export.blocks():
        target.write(block)


def _moves(progress: Progress) -> bool:
    """Whether it is about reading a file."""
    return bool(progress.file and progress.bytes_total)


def _whole_name(step: str) -> str:
    return step_name(int(step)) if re.fullmatch(r"\d+", step) else step


def _window(begin: float | None, end: float | None) -> tuple[int, int] | None:
    """In ns; None without."""
    return None if begin is None or end is None else (round(begin * _MS), round(end * _MS))
