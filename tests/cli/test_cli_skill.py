"""SKILL.md is correct: each command in it is run, and what it shows is in the answer."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from recordings import Recording
from tb_torchcompile_plugin.cli.answers.commands import skill
from tb_torchcompile_plugin.cli.command import main

SESSIONS = re.findall(r"^```console\n(.*?)^```", skill(), re.DOTALL | re.MULTILINE)
LEFT_OUT = "…"


def commands() -> Iterator[tuple[str, list[str]]]:
    """Each with the lines that are shown of its answer."""
    for session in SESSIONS:
        for one in session.split("$ ")[1:]:
            command, *shown = one.splitlines()
            yield command, shown


@pytest.mark.parametrize(("command", "shown"), list(commands()))
def test_the_examples_are_true(
    command: str,
    shown: list[str],
    recording: Recording,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "runs").symlink_to(recording("breaks"))
    monkeypatch.chdir(tmp_path)
    program, *argv = shlex.split(command)
    assert program == "tb-torchcompile" and main(argv) == 0
    lines = iter([*capsys.readouterr().out.splitlines(), LEFT_OUT])
    for before, line in zip([None, *shown], shown):
        if line != LEFT_OUT:
            assert line in lines if before == LEFT_OUT else next(lines) == line, line


def test_it_names_its_tools_and_its_limits() -> None:
    text = skill()
    assert text.startswith("---\nname: tb-torchcompile\ndescription:")
    assert len(list(commands())) >= 6 and len(text) < 8000
    for tool in ("list", "report", "show", "compare", "what_if", "search"):
        assert f"`{tool}`" in text


def test_it_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["skill"]) == 0 and capsys.readouterr().out == skill()
