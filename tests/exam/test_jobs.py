"""The jobs of the exam run, planted and mended, as two ranks on the CPU.

They are imported where they are needed: to collect the tests nobody has to load torch.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from exam.quickly import run_quickly

ROOT = Path(__file__).parents[2]
JOB_FILES = ROOT / "tests" / "exam" / "jobs"
FEW = ["python_late_rank", "healthy_tp"]
pytestmark = pytest.mark.torch


def check(out: Path, names: list[str]) -> None:
    from exam.jobs.catalogue import JOBS

    measured = run_quickly("exam.jobs.record", out, names, "--batch", "1")
    assert {name: row["errors"] for name, row in measured.items() if "errors" in row} == {}
    assert [name for name in names if "mended_us" not in measured[name] and not JOBS[name].healthy] == []
    for name in names:
        traces = (out / "jobs" / name).glob("*.pt.trace.json")
        assert sorted(path.name.split(".")[0] for path in traces) == ["rank0", "rank1"]


@pytest.mark.slow
def test_some_jobs_run_planted_and_mended(tmp_path: Path) -> None:
    check(tmp_path, FEW)


@pytest.mark.slow
@pytest.mark.skipif("EXAM_JOBS" not in os.environ, reason="minutes: EXAM_JOBS=all, or names")
def test_the_jobs_that_were_asked_for_run_planted_and_mended(tmp_path: Path) -> None:
    from exam.jobs.catalogue import JOBS

    names = os.environ["EXAM_JOBS"].split()
    check(tmp_path, list(JOBS) if names == ["all"] else names)


def test_every_planted_line_is_marked_in_its_file() -> None:
    from exam.jobs.catalogue import JOBS

    marked = {name for name, job in JOBS.items() if job.described("gloo", 2)["line"]}
    written = {
        line.rsplit("# planted: ", 1)[1]
        for path in JOB_FILES.rglob("*.py")
        for line in path.read_text().splitlines()
        if "# planted: " in line
    }
    assert written == marked


def test_the_package_describes_every_job() -> None:
    from exam.jobs.catalogue import JOBS

    described = "".join(path.read_text() for path in JOB_FILES.rglob("__init__.py"))
    assert [name for name in JOBS if f"`{name}`" not in described] == []
