"""`tb-torchcompile`: the answers of the tab, in a terminal.

Exit status: 0 if something was read, 1 with one clear line if nothing could be, 2 for wrong arguments; as a gate 3
if a condition holds, 4 if runs cannot be compared. With `--json` stdout holds the report alone; warnings and progress
go to stderr.
"""

import argparse
import sys
from collections.abc import Sequence

from tb_torchcompile_plugin.analysis.compare.baseline import is_baseline
from tb_torchcompile_plugin.analysis.compare.conditions import InvalidGateError
from tb_torchcompile_plugin.api.catalog import plugin_version
from tb_torchcompile_plugin.api.session import check
from tb_torchcompile_plugin.cli.answers.commands import add_commands
from tb_torchcompile_plugin.cli.compare import show_comparison
from tb_torchcompile_plugin.cli.export import add_export
from tb_torchcompile_plugin.cli.gate import add_baseline, add_gate, is_gate, show_gate
from tb_torchcompile_plugin.cli.index import show_index
from tb_torchcompile_plugin.cli.kernel import show_kernel
from tb_torchcompile_plugin.cli.text_table import discard_stdout
from tb_torchcompile_plugin.cli.what_if import show_what_if
from tb_torchcompile_plugin.errors import BadRequest, UserError, WrongArgument, visible


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv` (default: the process's own) and return the exit status."""
    arguments = _parser().parse_args(argv)
    try:
        return int(arguments.run(arguments) or 0)
    except (BadRequest, WrongArgument, InvalidGateError) as error:
        return _fail(str(error), 2)
    except UserError as error:
        return _fail(str(error))
    except KeyboardInterrupt:
        return _fail("interrupted", 130)
    except BrokenPipeError:
        discard_stdout()
        return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tb-torchcompile", description="What torch.compile did, from a logdir."
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {plugin_version() or 'unknown'}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    add_commands(commands)
    mcp = commands.add_parser(
        "mcp", help="answer an agent over the Model Context Protocol, on stdin and stdout"
    )
    mcp.add_argument(
        "logdir",
        nargs="?",
        help="a local folder; nothing outside of it is read (default: runs if there is such a folder, otherwise .)",
    )
    mcp.set_defaults(run=_serve)
    kernel = commands.add_parser("kernel", help="print one kernel: numbers, launch configurations, source")
    kernel.add_argument("logdir", help="as for report")
    kernel.add_argument("name", help="the kernel's name, as the report prints it")
    kernel.add_argument("--graph", metavar="KEY", help="only the kernel that the graph of this key launches")
    kernel.add_argument(
        "--extract", metavar="FILE", help="write inductor's own benchmark of the kernel to FILE instead"
    )
    kernel.set_defaults(run=lambda a: show_kernel(a.logdir, a.name, a.graph, a.extract))
    compare = commands.add_parser(
        "compare", help="compare the newest spans of two logdirs or traces; with --fail-on, as a gate"
    )
    compare.add_argument(
        "baseline",
        metavar="BASELINE",
        nargs="+",
        help="a folder, a trace or a baseline file: the run before; as a gate, several",
    )
    compare.add_argument("candidate", metavar="CANDIDATE", help="the run after")
    add_gate(compare)
    compare.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    compare.add_argument(
        "--run",
        dest="only_runs",
        metavar="NAME",
        action="append",
        default=[],
        help="of this run only; given twice, the first is for BASELINE and the second for CANDIDATE",
    )
    compare.set_defaults(run=_compare)
    add_baseline(commands)
    _add_what_if(commands)
    _add_index(commands)
    add_export(commands)
    return parser


def _add_what_if(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    what_if = commands.add_parser("what-if", help="print how long a step would take with some fixes")
    what_if.add_argument(
        "logdir", help="a folder or one trace; of several spans the newest of the first worker is taken"
    )
    for name in ("run", "worker", "span"):
        what_if.add_argument(f"--{name}", dest=f"only_{name}", default="", help=f"of this {name} only")
    what_if.add_argument(
        "--fix", metavar="ID", action="append", default=[], help="with this fix; repeat it for several"
    )
    what_if.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    what_if.set_defaults(
        run=lambda a: show_what_if(a.logdir, (a.only_run, a.only_worker, a.only_span), a.fix, a.json)
    )


def _add_index(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    index = commands.add_parser(
        "index",
        help="write a digest of each trace that has none, so that a job can be looked at without its traces",
    )
    index.add_argument("logdir", help="a folder, or one trace; a path or a URL")
    index.add_argument(
        "--out", metavar="DIR", default="", help="write below this folder, where the logdir cannot be written"
    )
    engine = index.add_mutually_exclusive_group()
    engine.add_argument("--workers", type=_count, metavar="N", help="processes (default: one a core)")
    engine.add_argument(
        "--scheduler", metavar="ADDRESS", default="", help="of Dask, whose workers do it: tcp://host:8786"
    )
    index.set_defaults(run=lambda a: show_index(a.logdir, a.workers, a.scheduler, a.out))


def _count(text: str) -> int:
    if (count := int(text)) < 1:
        raise ValueError
    return count


def _compare(arguments: argparse.Namespace) -> int:
    paths, runs = [*arguments.baseline, arguments.candidate], arguments.only_runs or [""]
    for path in paths:
        check(path)
    if len(runs) > 2:
        return _fail(f"--run is given {len(runs)} times; name one for BASELINE and one for CANDIDATE", 2)
    if is_gate(arguments) or len(paths) > 2 or any(map(is_baseline, paths)):
        return show_gate(arguments, paths, runs)
    show_comparison((paths[0], runs[0]), (paths[1], runs[-1]), arguments.json)
    return 0


def _serve(arguments: argparse.Namespace) -> None:
    from tb_torchcompile_plugin.cli.mcp import serve

    serve(arguments)


def _fail(line: str, status: int = 1) -> int:
    print(visible(f"tb-torchcompile: {line}"), file=sys.stderr)
    return status
