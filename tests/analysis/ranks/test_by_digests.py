"""Jobs by their digests alone tell what their traces tell: the same numbers, to the last digit, and the same blame."""

import msgspec
import pytest

from jobs import job_in, without_traces
from recordings import Recording
from tb_torchcompile_plugin.analysis.ranks.job_report import job_report
from tb_torchcompile_plugin.analysis.ranks.job_rows import JobReport

pytestmark = pytest.mark.slow

_ONLY_TRACES = {"headline", "basis", "findings", "traced"}
_POINTS = 35.0  # of a step: by how much the chain and the replay of traces may differ
_OF_RANKS = ("late_rank", "ranks_take_turns", "uneven_stages")


JOBS = (
    *("accumulated", "compiled_on_main_rank", "exposed_communication", "gradients_in_one_bucket"),
    *("healthy_ddp", "healthy_fsdp2", "healthy_tp", "late_loader", "lone_recompile", "nccl_loop"),
    *("photos_scaled_by_host", "python_late_rank", "python_late_rank_of_split_layers", "rotating"),
    *("shards_of_nearly_one_size", "slow_gpu", "stages_in_turn", "sync_on_one_rank", "uneven_work"),
    *("validated_by_main_rank", "wrapped_one_by_one"),
)


@pytest.fixture(scope="module", params=JOBS)
def both(request: pytest.FixtureRequest, recording: Recording) -> tuple[JobReport, JobReport]:
    """What a recorded job tells by its traces, and by what was written of its digests."""
    traced = job_in(recording("jobs") / request.param)
    return traced.of(job_report), without_traces(traced).of(job_report)


def test_these_are_all_jobs_that_were_recorded(recording: Recording) -> None:
    assert sorted(path.name for path in recording("jobs").iterdir() if path.is_dir()) == list(JOBS)


def test_every_number_is_the_same(both: tuple[JobReport, JobReport]) -> None:
    traced, digested = (msgspec.structs.asdict(one) for one in both)
    assert digested["traced"] is False
    for field in traced.keys() - _ONLY_TRACES:
        assert digested[field] == traced[field], field


def test_the_same_rank_is_blamed_for_the_same_and_a_healthy_one_for_nothing(
    both: tuple[JobReport, JobReport],
) -> None:
    traced, digested = ([row for row in one.findings if row.rule in _OF_RANKS] for one in both)
    assert [(row.rule, row.where[:1]) for row in digested] == [(row.rule, row.where[:1]) for row in traced]
    for row, other in zip(digested, traced):
        assert row.predicted and other.predicted
        assert abs(row.predicted.gain_percent - other.predicted.gain_percent) <= _POINTS
        assert row.predicted.low_us <= row.predicted.after_us <= row.predicted.high_us
