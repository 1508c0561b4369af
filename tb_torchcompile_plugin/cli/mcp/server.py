"""`tb-torchcompile mcp`: the tools over stdin and stdout, until whoever started this closes them."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING

from tb_torchcompile_plugin.api.catalog import plugin_version
from tb_torchcompile_plugin.cli.answers.commands import default_logdir
from tb_torchcompile_plugin.cli.mcp.tools import Tools
from tb_torchcompile_plugin.errors import UserError
from tb_torchcompile_plugin.logdir.filesystem import is_remote

if TYPE_CHECKING:
    from mcp.server import MCPServer

INSTRUCTIONS = """What torch.compile did and where the time of a training or inference step goes, from profiler traces
and compile logs that were recorded. Nothing is run or written. Ask list() for the runs; report() for the findings,
best first, each with a predicted step time; show(id) for the evidence, the line, the next step and how to verify it;
source("train.py:12") and search("item") for where in the program. Every row has an id, every answer has at most
max_bytes, and says what it left out and how to get it."""


def serve(arguments: argparse.Namespace) -> None:
    """Answer until stdin ends. Raises UserError where the extra is not installed, and for what is not local."""
    logdir = arguments.logdir or default_logdir()
    if is_remote(logdir):
        raise UserError(
            "only what lies on this machine is served",
            file=logdir,
            next_step="Copy the runs, or mount the store",
        )
    server(logdir).run("stdio")


def server(logdir: str) -> MCPServer:
    """Return a server with the tools of a logdir. Raises UserError."""
    try:
        from mcp.server import MCPServer
        from mcp.types import ToolAnnotations
    except ImportError as error:
        raise UserError(
            "the package mcp, version 2 or newer, is not installed",
            next_step="Install it with: pip install 'tb-torchcompile-plugin[mcp]'",
        ) from error
    answering = MCPServer(
        "tb-torchcompile", instructions=INSTRUCTIONS, version=plugin_version() or "", log_level="WARNING"
    )
    read_only = ToolAnnotations(read_only_hint=True, open_world_hint=False)
    for name, tool in tools_of(Tools(logdir)).items():
        answering.add_tool(_with_errors(tool), name=name, annotations=read_only, structured_output=False)
    return answering


def tools_of(tools: Tools) -> dict[str, Callable[..., str]]:
    """Return the tools by the name under which an agent calls them."""
    return {
        "list": tools.runs,
        "report": tools.report,
        "show": tools.show,
        "compare": tools.compare,
        "what_if": tools.what_if,
        "search": tools.search,
        "source": tools.source,
    }


def _with_errors(tool: Callable[..., str]) -> Callable[..., str]:
    """Return `tool` with the errors of the user's making shown as in a terminal; the SDK hides all others."""
    from mcp.server.mcpserver.exceptions import ToolError

    @wraps(tool)
    def call(*args: object, **kwargs: object) -> str:
        try:
            return tool(*args, **kwargs)
        except UserError as error:
            raise ToolError(str(error)) from error

    return call
