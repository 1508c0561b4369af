"""The jobs of the exam, each read once for all tests that ask about them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tb_torchcompile_plugin.api.session import Session
from tb_torchcompile_plugin.job.job import TracedJob


class RecordedJob(NamedTuple):
    """measured: what was noted of the job when it was recorded."""

    folder: Path
    measured: dict[str, Any]
    job: TracedJob


@pytest.fixture(scope="session")
def recorded_jobs(recording: Callable[[str], Path]) -> dict[str, RecordedJob]:
    """By name. What was asked of a job is remembered: change nothing in its answers."""
    folder = recording("jobs")
    rows = json.loads((folder / "measured.json").read_text())["programs"]
    assert {row["name"] for row in rows} == {path.name for path in folder.iterdir() if path.is_dir()}
    return {row["name"]: RecordedJob(folder / row["name"], row, job_in(folder / row["name"])) for row in rows}


def job_in(folder: Path) -> TracedJob:
    session = Session([("", str(folder))])
    job = session.job(".")
    session.close()
    assert job is not None
    return job
