"""`tb-torchcompile mcp`: tools with which an agent reads a logdir, over stdin and stdout.

Each tool returns JSON of at most `max_bytes`, and writes nothing.
"""

import argparse
import inspect
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from tb_torchcompile_plugin import __version__
from tb_torchcompile_plugin.api.answers.bounded import AFTER, AnswerLimits, Commands, fitted
from tb_torchcompile_plugin.api.answers.sections import Address, schema
from tb_torchcompile_plugin.api.answers.show import Logdir, bounded_report, search
from tb_torchcompile_plugin.api.bodies import json_body
from tb_torchcompile_plugin.api.catalog import Ids, ids_of, newest_span
from tb_torchcompile_plugin.api.report import Report
from tb_torchcompile_plugin.api.session import Session, check
from tb_torchcompile_plugin.api.starts import comparison
from tb_torchcompile_plugin.cli.answers.commands import default_logdir
from tb_torchcompile_plugin.cli.what_if import scenario_of
from tb_torchcompile_plugin.errors import Notice, UserError, WrongArgument, quoted, visible
from tb_torchcompile_plugin.logdir.filesystem import is_remote, is_within
from tb_torchcompile_plugin.reader.memo import Memo

if TYPE_CHECKING:
    from mcp.server import MCPServer

INSTRUCTIONS = """Read recorded profiler traces and compile logs: what torch.compile did, and where the time of a
training or inference step goes. Nothing is executed or written. list() returns the runs; report() the findings, most
important first, each with a predicted step time; show(id) the evidence, the line, the next step and how to verify a
fix; search("train.py") and search("item") the rows that contain a word. Every row has an id. Every answer has
at most max_bytes, and states what it omits and how to get it."""

MAX_BYTES = 4000  # about a thousand tokens
_MIN_BYTES, _MAX_BYTES = 500, 100_000
_DEFAULT_SECTIONS = ("findings", "step.mean_parts")
_ROOT = "the logdir"
_MAX_LOGDIRS = 4  # folders whose reports are kept


def serve(arguments: argparse.Namespace) -> None:
    """Serve until stdin ends. Raises UserError if the extra is not installed, and for remote folders."""
    logdir = arguments.logdir or default_logdir()
    if is_remote(logdir):
        raise UserError(
            "only local folders are supported", file=logdir, next_step="Copy the runs, or mount the bucket"
        )
    server(logdir).run("stdio")


def server(logdir: str) -> "MCPServer":
    """Return a server with the tools of a logdir. Raises UserError."""
    try:
        from mcp.server import MCPServer
        from mcp.server.mcpserver.exceptions import ToolError
        from mcp.types import ToolAnnotations
    except ImportError as error:
        raise UserError(
            "the package mcp, version 2 or newer, is not installed",
            next_step="Install it with: pip install 'tb-torchcompile-plugin[mcp]'",
        ) from error
    tools = tools_of(Tools(logdir))

    class Server(MCPServer):
        """Reports user errors as the CLI does: the SDK hides them, and drops unknown arguments."""

        async def call_tool(self, name: str, arguments: dict[str, Any], context: Any = None) -> Any:
            try:
                check_call(tools, name, arguments)
                return await super().call_tool(name, arguments, context)
            except (UserError, ToolError) as error:
                cause = error.__cause__ if isinstance(error.__cause__, UserError) else error
                raise ToolError(visible(str(cause))) from error

    answering = Server("tb-torchcompile", instructions=INSTRUCTIONS, version=__version__, log_level="WARNING")
    read_only = ToolAnnotations(read_only_hint=True, open_world_hint=False)
    for name, tool in tools.items():
        answering.add_tool(tool, name=name, annotations=read_only, structured_output=False)
    return answering


def check_call(tools: Mapping[str, Callable[..., str]], name: str, arguments: Collection[str]) -> None:
    """Raise WrongArgument, with the valid names, for unknown tools and for unknown or missing arguments."""
    if name not in tools:
        raise WrongArgument(f"there is no tool {quoted(name)}", next_step=f"Use one of: {', '.join(tools)}")
    accepted = inspect.signature(tools[name]).parameters
    needed = [parameter.name for parameter in accepted.values() if parameter.default is parameter.empty]
    unknown = ", ".join(argument for argument in arguments if argument not in accepted)
    problems = [f"{name} has no argument {quoted(unknown)}"] if unknown else []
    problems += [f"{name} needs {quoted(argument)}" for argument in needed if argument not in arguments]
    if problems:
        signature = ", ".join(argument if argument in needed else f"{argument}=…" for argument in accepted)
        raise WrongArgument(", ".join(problems), next_step=f"Call {name}({signature})")


def tools_of(tools: "Tools") -> dict[str, Callable[..., str]]:
    """Return the tools by the name under which an agent calls them."""
    return {
        "list": tools.runs,
        "report": tools.report,
        "show": tools.show,
        "compare": tools.compare,
        "what_if": tools.what_if,
        "search": tools.search,
    }


class ToolCalls(Commands):
    """Tool calls that return more; each method returns one."""

    def __init__(self, path: str = "") -> None:
        self._path = path  # below the logdir, "" for all of it

    def show(self, id: str) -> str:
        """One row."""
        return self._call("show", id=id)

    def rows(self, section: str) -> str:
        """All rows of a table."""
        return self._call("report", section=section, max_bytes=_MAX_BYTES)

    def tables(self, sections: Sequence[str]) -> str:
        """Other tables."""
        return self._call("report", section=",".join(sections))

    def what_if(self, place: Address, fix: str) -> str:
        """A step with a fix."""
        fixes = [fix] if fix else []
        return self._call("what_if", run=place.run, worker=place.worker, span=place.span, fixes=fixes)

    def compare(self, run: str, several: bool) -> str:
        """A run and the one after the fix."""
        return self._call("compare", a=run, b=AFTER)

    def _call(self, tool: str, **arguments: str | int | list[str]) -> str:
        values = {**arguments, "path": self._path}
        return f"{tool}({', '.join(f'{name}={value!r}' for name, value in values.items() if value)})"


class RunListed(msgspec.Struct, frozen=True):
    """A run."""

    run: str
    ranks: int
    paths: list[str]  # RUN/WORKER/SPAN of each trace, RUN/WORKER/- of a worker without one


class Listed(msgspec.Struct, frozen=True):
    """All runs of a logdir."""

    runs: list[RunListed]
    sections: list[str]  # of a report, each with its tables
    warnings: list[Notice]


class Tools:
    """The tools of one logdir. Thread-safe. Agents read the docstrings."""

    def __init__(self, root: str) -> None:
        """Take a local folder or file; nothing outside it is read."""
        check(root)
        self._root = root
        self._within = root if os.path.isdir(root) else os.path.dirname(os.path.abspath(root))
        self._logdirs = Memo(_MAX_LOGDIRS)

    def runs(self, path: str = "", max_bytes: int = MAX_BYTES) -> str:
        """List runs, workers and spans, and the sections of a report. Does not read traces."""
        runs = self._logdir(path).session.runs()
        sections = list(dict.fromkeys(name.partition(".")[0] for name in schema().sections))
        rows = [
            RunListed(row.run, row.ranks, [str(Address(*ids)) for ids in ids_of([row])]) for row in runs.runs
        ]
        return fitted(Listed(rows, sections, runs.warnings), _clamped(max_bytes))

    def report(
        self, run: str = "", section: str = "", top: int = 0, path: str = "", max_bytes: int = MAX_BYTES
    ) -> str:
        """Return tables of a run (default: the newest): findings, and where the time of a step goes.

        section: other tables, separated by commas. top: rows of each, 0 for as many as fit.
        """
        sections = [name for name in section.split(",") if name] or list(_DEFAULT_SECTIONS)
        ask = AnswerLimits(sections, top or None, _clamped(max_bytes))
        return json_body(bounded_report(self._report(run, path), ask, ToolCalls(path))).decode()

    def show(self, id: str, path: str = "", max_bytes: int = MAX_BYTES) -> str:
        """Return one row by its id.

        A finding has its evidence, prediction and how to verify the fix; a kernel its launches and source; a graph
        break its reason, stack and cost. `next`: related rows.
        """
        return fitted(self._logdir(path).show(id, ToolCalls(path)), _clamped(max_bytes))

    def compare(self, a: str, b: str, max_bytes: int = MAX_BYTES) -> str:
        """Compare the newest spans of two runs of the logdir, or of two paths below it.

        Returns which one is faster, whether the difference exceeds the noise, and its causes.
        """
        sides = [(logdir.session, ids) for logdir, ids in (self._side(a), self._side(b))]
        return fitted(comparison(*sides), _clamped(max_bytes))

    def what_if(
        self,
        fixes: list[str] | None = None,
        run: str = "",
        worker: str = "",
        span: str = "",
        path: str = "",
        max_bytes: int = MAX_BYTES,
    ) -> str:
        """Predict the step time with these fixes; without `fixes`, list them.

        Default: the newest span. run, worker and span select another one.
        """
        session = self._logdir(path).session
        _, answer = scenario_of(session, path or _ROOT, (run, worker, span), fixes or [])
        return fitted(answer, _clamped(max_bytes))

    def search(self, word: str, run: str = "", path: str = "", max_bytes: int = MAX_BYTES) -> str:
        """Find rows that contain a word in all tables of a run (default: the newest). Returns ids for `show`."""
        return fitted(search(self._report(run, path), word), _clamped(max_bytes))

    def _report(self, run: str, path: str) -> Report:
        logdir = self._logdir(path)
        return logdir.report(run or newest_span(logdir.session.runs(), path or _ROOT)[0])

    def _logdir(self, path: str) -> Logdir:
        """Return all of the logdir, or what is at a path below it. Raises WrongArgument for one that is not."""
        full_path = os.path.normpath(os.path.join(self._root, path))
        is_local = not is_remote(path) and not os.path.isabs(path) and "\0" not in path
        if not is_local or not is_within(full_path, self._root) or not os.path.exists(full_path):
            raise WrongArgument(
                f"{quoted(path)} is not in the logdir",
                next_step="Use a run, a file or a folder below it, as listed by list()",
            )
        check(full_path)
        return self._logdirs.get(full_path, lambda: Logdir(Session([("", full_path)], self._within)))

    def _side(self, name: str) -> tuple[Logdir, Ids]:
        """name: a run, otherwise a path; "" for all of the logdir."""
        logdir = self._logdir("")
        runs = logdir.session.runs()
        if not name or any(row.run == name for row in runs.runs):
            return logdir, newest_span(runs, name or _ROOT, name)
        other = self._logdir(name)
        return other, newest_span(other.session.runs(), name)


def _clamped(max_bytes: int) -> int:
    return min(max(max_bytes, _MIN_BYTES), _MAX_BYTES)
