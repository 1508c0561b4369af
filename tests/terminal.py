"""The command line as a test asks it, how much of a screen it fills, and a folder that it may not look into."""

import os
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from tb_torchcompile_plugin.api.indexing.index import attempt
from tb_torchcompile_plugin.api.report import Report
from tb_torchcompile_plugin.cli import index
from tb_torchcompile_plugin.cli.command import main
from tb_torchcompile_plugin.cli.text import print_screen

Run = Callable[..., tuple[int, str, str]]
LINES, COLUMNS = 60, 120  # of a terminal


def command_line(capsys: pytest.CaptureFixture[str], command: str) -> Run:
    """`run(logdir, …)` of one command: exit status, stdout, stderr."""

    def run(*argv: str | Path) -> tuple[int, str, str]:
        status = main([command, *map(str, argv)])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run


def screen_lines(report: Report, logdir: str, width: int) -> list[str]:
    """The lines of the screen on a terminal of this width."""
    console = Console(file=StringIO(), width=width, highlight=False)
    print_screen(console, report, logdir)
    assert isinstance(console.file, StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def of_commands(lines: list[str]) -> list[str]:
    """Those of commands to be copied, each of which is whole in its line."""
    return lines[lines.index("Next commands") :]


def indexing(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """`index` in the process of the test: processes have tests of their own."""
    monkeypatch.setattr(
        index, "in_processes", lambda orders, workers: ((one, attempt(one)) for one in orders)
    )
    return command_line(capsys, "index")


def digests(folder: Path) -> dict[str, bytes]:
    """The bytes of each digest below a folder."""
    return {path.name: path.read_bytes() for path in folder.rglob("*.digest.pb")}


def height(text: str) -> int:
    """Lines that it takes in a terminal."""
    return sum(-(-max(cell_len(line), 1) // COLUMNS) for line in text.splitlines())


def deny(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """From now on this folder cannot be listed."""
    scandir = os.scandir

    def denied(path: str | Path = ".", *args: Any) -> Any:
        if os.fspath(path) == str(folder):
            raise PermissionError(13, "Permission denied", str(folder))
        return scandir(path, *args)

    monkeypatch.setattr(os, "scandir", denied)
