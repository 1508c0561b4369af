"""The programs of the exam run, planted and mended; the archive of their recordings is whole.

They are imported where they are needed: to collect the tests nobody has to load torch.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from exam.quickly import run_quickly

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "tests" / "data" / "2.11.0" / "exam"
FEW = ["item_each_parameter", "postprocessing_left_eager", "healthy_training"]
pytestmark = pytest.mark.torch


def check(out: Path, names: list[str]) -> None:
    from exam.programs import PROGRAMS

    measured = run_quickly("exam.record", out, names, "--limit", "300")
    assert {name: row["errors"] for name, row in measured.items() if "errors" in row} == {}
    assert [name for name in names if "mended_us" not in measured[name] and not PROGRAMS[name].healthy] == []
    assert [name for name in names if not list((out / "planted" / name).glob("*.pt.trace.json"))] == []


@pytest.mark.slow
def test_some_programs_run_planted_and_mended(tmp_path: Path) -> None:
    check(tmp_path, FEW)


@pytest.mark.slow
@pytest.mark.skipif("EXAM_PROGRAMS" not in os.environ, reason="minutes: EXAM_PROGRAMS=all, or names")
def test_the_programs_that_were_asked_for_run_planted_and_mended(tmp_path: Path) -> None:
    from exam.programs import PROGRAMS

    names = os.environ["EXAM_PROGRAMS"].split()
    check(tmp_path, list(PROGRAMS) if names == ["all"] else names)


def test_every_planted_line_is_marked_in_its_file() -> None:
    from exam.program import PROGRAMS as REGISTERED
    from exam.programs import PROGRAMS

    assert REGISTERED is PROGRAMS
    marked = {name for name, program in PROGRAMS.items() if program.line}
    written = {
        line.rsplit("# planted: ", 1)[1]
        for path in (ROOT / "tests" / "exam" / "programs").rglob("*.py")
        for line in path.read_text().splitlines()
        if "# planted: " in line
    }
    assert written == marked


def test_the_archive_holds_what_was_measured(recording: Callable[[str], Path]) -> None:
    from exam.programs import PROGRAMS

    folder = recording("exam")
    measured = json.loads((folder / "measured.json").read_text())
    rows = {row["name"]: row for row in measured["programs"]}
    traces, summaries = (
        sorted(path.parent.name for path in folder.glob(f"*/*{end}"))
        for end in (".pt.trace.json", ".pt.compile.pb")
    )
    real = [row["name"] for row in measured["real"]]
    assert traces == sorted([*rows, *real])
    assert summaries == sorted([*real, *(name for name, row in rows.items() if not row["recorded"]["stock"])])
    assert all(row["healthy"] or row["mended_us"] * 1.1 < row["planted_us"] for row in rows.values())
    not_recorded = (FOLDER / "README.md").read_text().split("## Not in the archive")[1]
    left_out = re.findall(r"^\| `(\w+)` \|", not_recorded, re.MULTILINE)
    assert sorted(PROGRAMS) == sorted([*rows, *left_out])
