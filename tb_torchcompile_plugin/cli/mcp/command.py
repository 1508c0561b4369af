"""The arguments of `tb-torchcompile mcp`."""

from __future__ import annotations

import argparse


def add_mcp(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    mcp = commands.add_parser(
        "mcp", help="answer an agent over the Model Context Protocol, on stdin and stdout"
    )
    mcp.add_argument(
        "logdir",
        nargs="?",
        help="a local folder, beside which nothing is read (default: runs, where that is here, else .)",
    )
    mcp.set_defaults(run=_serve)


def _serve(arguments: argparse.Namespace) -> int:
    from tb_torchcompile_plugin.cli.mcp.server import serve

    serve(arguments)
    return 0
