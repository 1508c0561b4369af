"""One step of all ranks side by side, of recorded jobs whose late rank is known."""

from __future__ import annotations

import json
import tarfile
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tb_torchcompile_plugin.analysis.ranks.side_by_side import SideBySide, StepSideBySide, side_by_side
from tb_torchcompile_plugin.api.read_queue import Progress
from tb_torchcompile_plugin.api.session import Session
from tb_torchcompile_plugin.job.calls import calls
from tb_torchcompile_plugin.job.job import Job

ARCHIVE = Path(__file__).parents[1] / "data" / "2.11.0" / "jobs" / "jobs.tar.xz"
MOST_BYTES = 200_000  # of one answer about two ranks


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[dict[str, Any], SideBySide]]:
    folder = tmp_path_factory.mktemp("jobs")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    rows = json.loads((folder / "measured.json").read_text())["programs"]
    return {row["name"]: (row, SideBySide(job_in(folder / row["name"]))) for row in rows}


def job_in(folder: Path) -> Job:
    session = Session([("", str(folder))])
    try:
        while isinstance(job := session.poll_job("."), Progress):
            time.sleep(0.02)
    finally:
        session.close()
    return job


def steps_of(about: SideBySide) -> list[StepSideBySide]:
    return [side_by_side(about, name, None) for name in about.steps]


def test_the_late_rank_is_the_one_that_stands_out(jobs: dict[str, tuple[dict[str, Any], SideBySide]]) -> None:
    for name, (measured, about) in jobs.items():
        late = [[one.rank for one in step.ranks if one.late] for step in steps_of(about)]
        if measured["late_rank"] is not None:
            those = [measured["late_rank"]]
            assert those in late and all(ranks in ([], those) for ranks in late), (name, late)
        if name in ("healthy_ddp", "healthy_tp", "nccl_loop", "exposed_communication"):
            assert late == [[]] * len(late), (name, late)


def test_every_collective_that_steps_launched_is_in_one_of_them(
    jobs: dict[str, tuple[dict[str, Any], SideBySide]],
) -> None:
    for name, (_, about) in jobs.items():
        shown = {
            (call.rank, call.row)
            for step in steps_of(about)
            for one in step.collectives
            for call in one.calls
        }
        if any(rank.rest.start_ns for step in steps_of(about) for rank in step.ranks):
            continue  # more than are drawn one by one
        made = about.job.of(calls)
        launched = made.launch >= 0
        ranks = about.job.numbers
        known = {(ranks[place], row) for place, row in zip(made.place[launched], made.row[launched].tolist())}
        assert known <= shown, name


def test_answers_stay_small(jobs: dict[str, tuple[dict[str, Any], SideBySide]]) -> None:
    for name, (_, about) in jobs.items():
        sizes = [len(msgspec.json.encode(step)) for step in steps_of(about)]
        assert max(sizes) < MOST_BYTES, (name, sizes)
