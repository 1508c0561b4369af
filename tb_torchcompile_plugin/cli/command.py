"""`tb-torchcompile`: the answers of the tab, in a terminal.

Exit status: 0 on success, 1 if nothing could be read, 2 for bad arguments. With `--fail-on`, 3 if a condition holds and
4 if runs cannot be compared. `--json` writes only the report to stdout; warnings and progress go to stderr.
"""

import argparse
import sys
from collections.abc import Sequence
from typing import NoReturn

from tb_torchcompile_plugin import __version__
from tb_torchcompile_plugin.analysis.compare.baseline import is_baseline
from tb_torchcompile_plugin.analysis.compare.gate import InvalidGateError
from tb_torchcompile_plugin.api.session import check
from tb_torchcompile_plugin.cli import text_table
from tb_torchcompile_plugin.cli.answers.commands import add_commands
from tb_torchcompile_plugin.cli.compare import add_baseline, add_gate, is_gate, show_comparison, show_gate
from tb_torchcompile_plugin.cli.export import add_export
from tb_torchcompile_plugin.cli.index import show_index
from tb_torchcompile_plugin.cli.mcp import serve
from tb_torchcompile_plugin.cli.watch import watch
from tb_torchcompile_plugin.cli.what_if import show_what_if
from tb_torchcompile_plugin.errors import BadRequest, UserError, WrongArgument, visible


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv` (default: the process's own) and return the exit status."""
    try:
        arguments = command_parser().parse_args(argv)
        text_table.accept_any_encoding()
        status = int(arguments.run(arguments) or 0)
        text_table.write_stdout("")
        return status
    except (BadRequest, WrongArgument, InvalidGateError) as error:
        return _fail(str(error), 2)
    except UserError as error:
        return _fail(str(error))
    except KeyboardInterrupt:
        return _fail("interrupted", 130)
    except BrokenPipeError:
        text_table.discard_stdout()
        return 0
    except OSError as error:
        if error.errno not in text_table.FULL:
            raise
        text_table.discard_stdout()
        return _fail(f"standard output cannot be written: {error.strerror}")


class _Parser(argparse.ArgumentParser):
    """Prints wrong arguments with their control characters written out."""

    def error(self, message: str) -> NoReturn:
        super().error(visible(message))


def command_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    parser: argparse.ArgumentParser = _Parser(
        prog="tb-torchcompile", description="Show what torch.compile did, from the files of a logdir."
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    add_commands(commands)
    mcp = commands.add_parser("mcp", help="serve an agent over the Model Context Protocol (stdio)")
    mcp.add_argument(
        "logdir",
        nargs="?",
        help="a local folder; nothing outside it is read (default: runs if it exists, otherwise .)",
    )
    mcp.set_defaults(run=serve)
    compare = commands.add_parser(
        "compare", help="compare two logdirs or traces; --fail-on makes this a CI gate"
    )
    compare.add_argument(
        "baseline",
        metavar="BASELINE",
        nargs="+",
        help="the earlier run: a folder, a trace or a baseline file; a gate accepts several",
    )
    compare.add_argument("candidate", metavar="CANDIDATE", help="the later run")
    add_gate(compare)
    compare.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    compare.add_argument(
        "--run",
        dest="only_runs",
        metavar="NAME",
        action="append",
        default=[],
        help="only this run; if passed twice, the first is for BASELINE and the second for CANDIDATE",
    )
    compare.set_defaults(run=_compare)
    add_baseline(commands)
    _add_what_if(commands)
    _add_index(commands)
    add_export(commands)
    live = commands.add_parser("watch", help="show what the processes of a logdir compile now, until Ctrl-C")
    live.add_argument("logdir", help="a local folder")
    live.add_argument("--once", action="store_true", help="print what compiles now, and exit")
    live.set_defaults(run=lambda a: watch(a.logdir, once=a.once))
    return parser


def _add_what_if(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    what_if = commands.add_parser("what-if", help="predict the step time with some fixes")
    what_if.add_argument("logdir", help="a folder (newest span of the first worker) or one trace")
    for name in ("run", "worker", "span"):
        only = f"only_{name}"
        what_if.add_argument(f"--{name}", metavar="NAME", dest=only, default="", help=f"only this {name}")
    what_if.add_argument(
        "--fix", metavar="ID", action="append", default=[], help="apply the fix with this id; can be repeated"
    )
    what_if.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    what_if.set_defaults(
        run=lambda a: show_what_if(a.logdir, (a.only_run, a.only_worker, a.only_span), a.fix, a.json)
    )


def _add_index(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    index = commands.add_parser(
        "index",
        help="write missing digests, so that jobs of many ranks can be shown without reading their traces",
    )
    index.add_argument("logdir", help="a folder or one trace; a path or a URL")
    index.add_argument("--out", metavar="DIR", default="", help="write below this folder instead")
    index.add_argument(
        "--workers", type=_count, metavar="N", help="number of processes (default: one per core)"
    )
    index.set_defaults(run=lambda a: show_index(a.logdir, a.workers, a.out))


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive integer")
    return int(text)


def _compare(arguments: argparse.Namespace) -> int:
    paths, runs = [*arguments.baseline, arguments.candidate], arguments.only_runs or [""]
    for path in paths:
        check(path)
    if len(runs) > 2:
        return _fail(f"--run is passed {len(runs)} times; pass one run of BASELINE and one of CANDIDATE", 2)
    if is_gate(arguments) or len(paths) > 2 or any(map(is_baseline, paths)):
        return show_gate(arguments, paths, runs)
    show_comparison((paths[0], runs[0]), (paths[1], runs[-1]), arguments.json)
    return 0


def _fail(line: str, status: int = 1) -> int:
    print(visible(f"tb-torchcompile: {line}"), file=sys.stderr)
    return status
