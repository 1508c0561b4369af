"""The programs and jobs of the exam run, planted and mended; the archive of their recordings is whole.

On the CPU, with tiny sizes, in a process that has torch already; jobs as two ranks. They are imported where they are
needed: to collect the tests nobody has to load torch.
"""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from forked import statuses
from recordings import Recording

ROOT = Path(__file__).parents[2]
EXAM = ROOT / "benchmarks" / "diagnosis"
FOLDER = ROOT / "tests" / "data" / "2.11.0" / "exam"
RUNNERS = {  # module and options of what runs them
    "programs": ("benchmarks.diagnosis.record", "--limit", "300"),
    "jobs": ("benchmarks.diagnosis.jobs.record", "--batch", "1"),
}
FEW = {
    "programs": ["item_each_parameter", "postprocessing_left_eager", "healthy_training"],
    "jobs": ["python_late_rank", "healthy_tp"],
}
pytestmark = pytest.mark.torch
both = pytest.mark.parametrize("kind", RUNNERS)


def registered(kind: str) -> Mapping[str, Any]:
    """All programs, or all jobs, by name."""
    from benchmarks.diagnosis.jobs.catalogue import JOBS
    from benchmarks.diagnosis.programs import PROGRAMS

    return PROGRAMS if kind == "programs" else JOBS


def run_quickly(kind: str, out: Path, names: list[str]) -> dict[str, dict[str, Any]]:
    """What their runner measured of these."""
    runner, *options = RUNNERS[kind]
    program = f"import sys\nsys.path.insert(0, {str(ROOT)!r})\nfrom {runner} import main\nsys.exit(main())"
    printed = out / "printed"
    printed.touch()
    call = ["--out", str(out), "--cpu", "--quick", *options, "--only", *names]
    codes = statuses(program, [call], ROOT, str(printed), os.environ, 1800)
    assert codes == [0], printed.read_text()
    return {row["name"]: row for row in json.loads((out / "measured.json").read_text())["programs"]}


def check(kind: str, out: Path, names: list[str]) -> None:
    measured, known = run_quickly(kind, out, names), registered(kind)
    assert {name: row["errors"] for name, row in measured.items() if "errors" in row} == {}
    assert [name for name in names if "mended_us" not in measured[name] and not known[name].healthy] == []
    for name in names:
        folder = out / ("planted" if kind == "programs" else "jobs") / name
        workers = sorted(path.name.split(".")[0] for path in folder.glob("*.pt.trace.json"))
        assert workers == (["rank0", "rank1"] if kind == "jobs" else [name]), name


@pytest.mark.slow
@both
def test_some_run_planted_and_mended(tmp_path: Path, kind: str) -> None:
    check(kind, tmp_path, FEW[kind])


@pytest.mark.slow
@both
def test_those_that_were_asked_for_run_planted_and_mended(tmp_path: Path, kind: str) -> None:
    variable = f"EXAM_{kind.upper()}"
    if variable not in os.environ:
        pytest.skip(f"minutes: {variable}=all, or names")
    names = os.environ[variable].split()
    check(kind, tmp_path, list(registered(kind)) if names == ["all"] else names)


@both
def test_every_planted_line_is_marked_in_its_file(kind: str) -> None:
    from benchmarks.diagnosis.program import planted_line

    marked = {name for name, one in registered(kind).items() if planted_line(name, one.build)}
    written = {
        line.rsplit("# planted: ", 1)[1]
        for path in (EXAM / kind).rglob("*.py")
        for line in path.read_text().splitlines()
        if "# planted: " in line
    }
    assert written == marked


def test_the_package_describes_every_job() -> None:
    described = "".join(path.read_text() for path in (EXAM / "jobs").rglob("__init__.py"))
    assert [name for name in registered("jobs") if f"`{name}`" not in described] == []


def test_the_archive_holds_what_was_measured(recording: Recording) -> None:
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
    assert sorted(registered("programs")) == sorted([*rows, *left_out])
