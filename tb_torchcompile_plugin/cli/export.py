"""`tb-torchcompile export LOGDIR FILE`: a run as one HTML file that opens from disk, or one step as a trace."""

import argparse
import glob
import math
import os
import re
import sys
from contextlib import suppress

from tb_torchcompile_plugin.analysis.formatting import size
from tb_torchcompile_plugin.api.export.export import TIMELINE_BYTES, Export
from tb_torchcompile_plugin.api.session import open_logdir
from tb_torchcompile_plugin.cli import text
from tb_torchcompile_plugin.errors import visible
from tb_torchcompile_plugin.logdir.filesystem import explain_write_errors, is_running, write_atomically
from tb_torchcompile_plugin.torch_names.slices import step_name


def add_export(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command."""
    parser = commands.add_parser("export", help="write a run as one HTML file, or a step as a trace")
    parser.add_argument("logdir", help="a folder or one trace; a path or a URL")
    parser.add_argument("file", help="the file to write")
    gzipped = "write one step as a trace for Perfetto instead, gzipped if the file ends in .gz"
    parser.add_argument("--trace", action="store_true", help=gzipped)
    for name in ("run", "worker", "span"):
        only, which = f"only_{name}", f"this {name} (default: the one that the tab opens)"
        parser.add_argument(f"--{name}", metavar="NAME", dest=only, default="", help=which)
    parser.add_argument(
        "--compare", metavar="RUN", default="", help="include the comparison with another run of the logdir"
    )
    parser.add_argument("--no-code", action="store_true", help="omit source code, graphs and generated code")
    detailed = "step to write, or to keep in full detail: number or name (default: closest to the mean)"
    parser.add_argument("--step", default="", help=detailed)
    parser.add_argument(
        "--budget",
        type=megabytes,
        metavar="MB",
        default=TIMELINE_BYTES / 1e6,
        help="size of the timeline (default: %(default)g)",
    )
    parser.set_defaults(run=_export)


def megabytes(text: str) -> float:
    """Return a size in MB. argparse prints the name of this function with a text that is no number."""
    if not 0 <= (number := float(text)) < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a non-negative number")
    return number


def _export(arguments: argparse.Namespace) -> None:
    session, step, file = open_logdir(arguments.logdir), arguments.step, arguments.file
    with text.progress_bar() as advance:
        export = Export(
            session,
            run=arguments.only_run,
            worker=arguments.only_worker,
            span=arguments.only_span,
            compare=arguments.compare,
            step=step_name(int(step)) if re.fullmatch(r"\d+", step) else step,
            code=not arguments.no_code,
            timeline_bytes=round(arguments.budget * 1e6),
            logdir=arguments.logdir,
            advance=advance,
        )
        _remove_leftovers(file)
        blocks = export.step_trace(gzipped=file.endswith(".gz")) if arguments.trace else export.blocks()
        with explain_write_errors(file), write_atomically(file) as target:
            for block in blocks:
                target.write(block)
    print(visible(f"wrote {file}: {size(os.path.getsize(file))}"), file=sys.stderr)
    for part in (*export.holds, *([] if arguments.trace else export.contents().left_out)):
        print(visible(f"  {part.what}: {part.text}"), file=sys.stderr)


def _remove_leftovers(file: str) -> None:
    """Remove the temporary files of exports to this file that were killed."""
    for leftover in glob.glob(f"{glob.escape(os.path.realpath(file))}.*.tmp"):
        pid = leftover.removesuffix(".tmp").rpartition(".")[2]
        if pid.isdecimal() and not is_running(int(pid)):
            with suppress(OSError):
                os.unlink(leftover)
