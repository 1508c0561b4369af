"""One step of all ranks side by side, of recorded jobs whose late rank is known."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from exam.conftest import RecordedJob
from tb_torchcompile_plugin.analysis.ranks.side_by_side import SideBySide, StepSideBySide, side_by_side
from tb_torchcompile_plugin.job.as_early import has_models, job_clocks
from tb_torchcompile_plugin.job.instances import calls, trace_rows
from tb_torchcompile_plugin.profile.model.clock import recorded_clock

pytestmark = pytest.mark.slow

MOST_BYTES = 200_000  # of one answer about two ranks


@pytest.fixture(scope="module")
def jobs(recorded_jobs: dict[str, RecordedJob]) -> dict[str, tuple[dict[str, Any], SideBySide]]:
    return {name: (one.measured, SideBySide(one.job)) for name, one in recorded_jobs.items()}


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
        known = {
            (ranks[place], row)
            for place, row in zip(made.place[launched], about.job.of(trace_rows)[launched].tolist())
        }
        assert known <= shown, name


def test_answers_stay_small(jobs: dict[str, tuple[dict[str, Any], SideBySide]]) -> None:
    for name, (_, about) in jobs.items():
        sizes = [len(msgspec.json.encode(step)) for step in steps_of(about)]
        assert max(sizes) < MOST_BYTES, (name, sizes)


def test_the_recorded_steps_of_every_recorded_job_come_back(recorded_jobs: dict[str, RecordedJob]) -> None:
    for _, _, job in recorded_jobs.values():
        assert job.of(has_models)
        assert job.of(job_clocks) == [recorded_clock(one.profile) for one in job.ranks]
    assert len(recorded_jobs) >= 12
