"""Recorded jobs are replayed, and their calls matched, as they ran."""

import json

import numpy as np
import numpy.typing as npt
import pytest

from jobs import job_in, members_of
from profiles import key_of
from recordings import Recording
from tb_torchcompile_plugin.job.as_early import has_models, job_clocks
from tb_torchcompile_plugin.job.instances import calls, first_shared_steps, waits
from tb_torchcompile_plugin.job.job import TracedJob
from tb_torchcompile_plugin.profile.model.model import recorded_clock
from tb_torchcompile_plugin.reader.memo import answers_of

pytestmark = pytest.mark.slow

Jobs = dict[str, TracedJob]


@pytest.fixture(scope="module")
def jobs(recording: Recording) -> Jobs:
    """By name. What was asked of a job is remembered: change nothing in its answers."""
    folder = recording("jobs")
    rows = json.loads((folder / "measured.json").read_text())["programs"]
    assert {row["name"] for row in rows} == {path.name for path in folder.iterdir() if path.is_dir()}
    return {row["name"]: job_in(folder / row["name"]) for row in rows}


def test_the_recorded_steps_of_every_recorded_job_come_back(jobs: Jobs) -> None:
    for job in jobs.values():
        assert job.of(has_models)
        assert job.of(job_clocks) == [recorded_clock(one.profile) for one in job.ranks]
    assert len(jobs) >= 12


def without_numbers(job: TracedJob, seq: bool) -> TracedJob:
    """The same, of which torch tells no ids of collectives, nor (seq) their numbers."""
    made = job.of(calls)
    less = made._replace(
        comms=np.full(len(made.seq), -1), seq=np.full(len(made.seq), -1) if seq else made.seq
    )
    other = TracedJob(job.ranks, job.unread)
    assert answers_of(other).get(key_of(calls), lambda: less) is less
    return other


def grouped(job: TracedJob, counted: npt.NDArray[np.bool_]) -> set[frozenset[int]]:
    """Instances of which all calls are among the counted ones."""
    return {frozenset(rows.tolist()) for rows in members_of(job) if counted[rows].all()}


def test_of_nccl_the_kth_call_is_the_one_with_its_number(jobs: Jobs) -> None:
    """On every recorded job, of all that was launched from the first common step on. The torch of these recordings
    wrote neither ids nor numbers: what tells then is that ranks are done together with what was counted."""
    matched = 0
    for name, job in jobs.items():
        made, times = job.of(calls), job.of(waits)
        begin = np.array(job.of(first_shared_steps) or [0] * len(job.ranks))
        counted = made.launch >= np.maximum(begin, 0)[made.rank_index]
        by_torch, by_seq, by_count = (
            grouped(one, counted)
            for one in (job, without_numbers(job, seq=False), without_numbers(job, seq=True))
        )
        assert by_torch == by_seq == by_count, name
        apart = [np.ptp(times.end[rows]) for rows in members_of(job)]
        assert np.median(apart) <= 20_000, name
        matched += len(by_torch)
    assert len(jobs) >= 12 and matched > 300
