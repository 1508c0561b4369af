"""What one rank of a job is told: for whom it waits and how long, and not to overlap what only waits."""

from pathlib import Path

import pytest

from jobs import TRANSFER, Does, job_in, training
from recordings import Recording
from tb_torchcompile_plugin.analysis.causes.scenario import Scenario, scenario
from tb_torchcompile_plugin.analysis.ranks.job_report import rank_findings, rank_what_if
from tb_torchcompile_plugin.analysis.runtime.gpu_utilization import gpu_utilization
from tb_torchcompile_plugin.api.report import SpanReport, read_report
from tb_torchcompile_plugin.errors import NotFound
from tb_torchcompile_plugin.job.job import TracedJob, one_rank
from tb_torchcompile_plugin.profile.model.launch_sequence import OVERLAP_GAIN

MS = 1_000_000


def late_job(folder: Path) -> TracedJob:
    """Rank 1 keeps rank 0 waiting for 3 ms of each step."""
    return training(folder, 2, 5, lambda rank, step: Does(3 * MS * rank))


def overlap_gain_us(answer: Scenario) -> float:
    rows = [row.predicted for row in answer.fixes if row.kind == "communication"]
    return sum(row.step_us - row.after_us for row in rows)


def test_who_waits_is_told_for_whom_and_how_long(tmp_path: Path) -> None:
    made = late_job(tmp_path)
    waits, late = rank_findings(one_rank(made, 0)), rank_findings(one_rank(made, 1))
    assert " This rank waits for rank 1 for 92.1 % of its steps." in waits.step
    assert waits.headline.startswith(waits.step)
    assert "waits for rank" not in late.headline


def test_a_rank_that_nobody_keeps_waiting_is_told_nothing(tmp_path: Path) -> None:
    made = training(tmp_path, 2, 5, lambda rank, step: Does())
    assert "waits for rank" not in rank_findings(one_rank(made, 0)).headline
    assert "waits for rank" not in rank_what_if(one_rank(made, 0)).headline


def test_waiting_is_nothing_to_overlap_and_transfers_are(tmp_path: Path) -> None:
    made = late_job(tmp_path)
    alone, known = scenario(made.ranks[0].profile), rank_what_if(one_rank(made, 0))
    assert overlap_gain_us(known) == pytest.approx(OVERLAP_GAIN * TRANSFER / 1000)
    assert overlap_gain_us(alone) > 2 * overlap_gain_us(known)
    assert "This rank waits for rank 1 for 92.1 % of its steps." in known.headline
    (offered,) = [row.id for row in known.fixes if row.kind == "communication"]
    picked = rank_what_if(one_rank(made, 0), (offered,))
    assert picked.combined and picked.combined.after_us == pytest.approx(
        picked.combined.step_us - OVERLAP_GAIN * TRANSFER / 1000
    )
    late = rank_what_if(one_rank(made, 1))
    assert "waits for rank" not in late.headline
    assert {row.kind for row in late.fixes} >= {row.kind for row in scenario(made.ranks[1].profile).fixes}
    with pytest.raises(NotFound, match="rank 7"):
        rank_what_if(one_rank(made, 7))


def test_the_report_tells_a_rank_the_same(tmp_path: Path) -> None:
    made = late_job(tmp_path)
    (run,) = read_report(str(tmp_path)).runs
    for worker, one in zip(run.workers, made.ranks, strict=True):
        (span,) = worker.spans
        assert isinstance(span, SpanReport)
        assert span.overview.step == rank_findings(one_rank(made, one.rank)).step
        assert span.what_if == rank_what_if(one_rank(made, one.rank))


def test_a_recorded_rank_that_waits_is_bound_by_communication(recording: Recording) -> None:
    made = job_in(recording("jobs") / "lone_recompile")
    waits = made.ranks[0].profile
    verdict = waits.of(gpu_utilization).verdict
    assert verdict and verdict.bound == "communication" and (verdict.share_percent or 0) > 90
    assert overlap_gain_us(rank_what_if(one_rank(made, 0))) < 1_000
