"""Findings of many ranks by their digests: what was planted is named, each once, and nobody where nothing was."""

from functools import cache

import msgspec
import numpy as np
import pytest

from many_ranks import Planted, course, digest_of
from tb_torchcompile_plugin.analysis.ranks.job_findings import job_findings
from tb_torchcompile_plugin.analysis.ranks.job_report import job_report
from tb_torchcompile_plugin.analysis.ranks.job_rows import job_map
from tb_torchcompile_plugin.analysis.ranks.outliers import outliers
from tb_torchcompile_plugin.errors import BadRequest
from tb_torchcompile_plugin.job.chain import chain, own_excess
from tb_torchcompile_plugin.job.digest.rank_digest import RankDigest, columns_from_message
from tb_torchcompile_plugin.job.job import Job
from tb_torchcompile_plugin.job.steps import job_steps
from tb_torchcompile_plugin.profile.steps import mean_of_steps

pytestmark = pytest.mark.slow

NOTHING = Planted(rank=-1, host=-1, pair=-1)
ALL = Planted(rank=37, host=2, pair=3)


@cache
def job_of(planted: Planted, ranks: int = 80) -> Job:
    ran = course(ranks, planted)
    made = (digest_of(rank, ranks, ran, planted) for rank in range(ranks))
    return Job(
        tuple(
            RankDigest(rank, f"rank{rank}", "1", columns_from_message(one)) for rank, one in enumerate(made)
        )
    )


def gpu_step_ns(planted: Planted, ranks: int = 80) -> float:
    """How long a step of the job is on its GPUs."""
    return max(float(mean_of_steps(one.span)) for one in job_of(planted, ranks).of(job_steps) if one)


def test_a_rank_a_host_and_a_link_are_named_at_once_and_each_once() -> None:
    rows = [row for row in job_of(ALL).of(job_findings) if row.rule != "communication"]
    assert {row.rule: row.where for row in rows} == {
        "late_rank": ["rank 37", "train.py:41"],
        "slow_host": ["node0002", "train.py:38"],
        "slow_link": ["node0006", "node0007"],
    }
    assert len(rows) == 3
    titles = {row.rule: row.title for row in rows}
    assert "runs Python for" in titles["late_rank"]
    assert "8 of 80 ranks (host node0002: 16, 17, 18, 19, 20, 21, 22, 23)" in titles["slow_host"]
    assert "waits for its next batch" in titles["slow_host"]
    assert "8 groups between node0006 and node0007" in titles["slow_link"]


def test_nobody_is_blamed_where_nothing_was_planted() -> None:
    job = job_of(NOTHING)
    assert {row.rule for row in job.of(job_findings)} <= {"communication"}
    assert job.of(outliers) == []


@pytest.mark.parametrize(
    ("planted", "brings_us"), [(NOTHING._replace(rank=5), 6_000), (NOTHING._replace(host=1), 3_000)]
)
def test_what_mending_one_brings_is_near_what_was_planted(planted: Planted, brings_us: int) -> None:
    (row,) = (row for row in job_of(planted).of(job_findings) if row.rule != "communication")
    assert row.predicted
    planted_share = 1e3 * brings_us / gpu_step_ns(planted)
    assert 0.7 * planted_share <= row.predicted.gain_percent / 100 <= 1.1 * planted_share
    assert row.predicted.low_us <= row.predicted.after_us <= row.predicted.high_us < row.predicted.step_us


def test_of_several_each_is_priced_with_those_before_it_mended() -> None:
    together = [row.predicted.gain_us for row in job_of(ALL).of(outliers) if row.predicted]
    step_us = job_of(ALL).of(job_report).step_us
    assert len(together) == 3 and step_us
    assert sum(together) / step_us == pytest.approx(1 - gpu_step_ns(NOTHING) / gpu_step_ns(ALL), rel=0.3)


def test_what_is_told_is_bounded_and_says_what_is_left_out() -> None:
    report, whole = job_of(ALL).of(job_report), job_of(ALL).of(job_report, True)
    assert len(report.by_rank) == 64 and report.left_out.by_rank == 16
    assert {row.rank for row in report.by_rank[:9]} == {37, *range(16, 24)}
    assert len(whole.by_rank) == 80 and [row.rank for row in whole.by_rank] == list(range(80))
    assert set(msgspec.structs.asdict(whole.left_out).values()) == {0}
    assert len(report.steps) + report.left_out.steps == len(whole.steps)
    assert len(report.waits) + report.left_out.waits == len(whole.waits)
    assert len(report.collectives) + report.left_out.collectives == len(whole.collectives)
    assert report.waits == whole.waits[: len(report.waits)]


def test_the_map_holds_every_rank_and_step() -> None:
    job = job_of(ALL)
    late, waited = job.of(job_map, "late_us"), job.of(job_map, "exposed_wait_us")
    assert late.ranks == list(range(80)) and len(late.us) == len(late.steps) == 4
    assert late.hosts[:9] == [*["node0000"] * 8, "node0001"]
    total = np.array([sum(values) for values in zip(*late.us)])
    assert total.argmax() == 37
    excess = job.of(own_excess)[job.of(chain).rank_index == 37].sum()
    assert total[37] * 1000 <= excess <= (total[37] + 1) * 1000
    by_rank = {(row.step, row.rank): row.exposed_wait_us for row in job.of(job_report, True).steps}
    for step, values in zip(waited.steps, waited.us):
        assert values == [round(by_rank[step, rank], 1) for rank in range(80)]
    with pytest.raises(BadRequest, match="no measure 'size'"):
        job_map(job, "size")


def test_the_excess_of_a_rank_is_a_part_of_its_gaps() -> None:
    for planted in (NOTHING, ALL):
        excess = job_of(planted).of(own_excess)
        assert (excess >= 0).all() and (excess <= np.maximum(job_of(planted).of(chain).gap, 0)).all()
