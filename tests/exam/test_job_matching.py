"""The k-th call of a group is the one that torch's own numbers tell, on recorded jobs that have both."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from exam.conftest import RecordedJob
from tb_torchcompile_plugin.job.instances import anchors, calls, instances
from tb_torchcompile_plugin.job.job import TracedJob
from tb_torchcompile_plugin.job.waits import waits
from tb_torchcompile_plugin.reader.memo import answers_of, key_of

pytestmark = pytest.mark.slow


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
    return {frozenset(rows.tolist()) for rows in job.of(instances).members if counted[rows].all()}


def test_of_nccl_the_kth_call_is_the_one_with_its_number(recorded_jobs: dict[str, RecordedJob]) -> None:
    """On every recorded job, of all that was launched from the first common step on. The torch of these recordings
    wrote neither ids nor numbers: what tells then is that ranks are done together with what was counted."""
    matched = 0
    for name, (_, _, job) in recorded_jobs.items():
        made, times = job.of(calls), job.of(waits)
        begin = np.array(job.of(anchors) or [0] * len(job.ranks))
        counted = made.launch >= np.maximum(begin, 0)[made.place]
        by_torch, by_seq, by_count = (
            grouped(one, counted)
            for one in (job, without_numbers(job, seq=False), without_numbers(job, seq=True))
        )
        assert by_torch == by_seq == by_count, name
        apart = [np.ptp(times.end[rows]) for rows in job.of(instances).members]
        assert np.median(apart) <= 20_000, name
        matched += len(by_torch)
    assert len(recorded_jobs) >= 12 and matched > 300
