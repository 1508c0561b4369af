"""Jobs by their digests alone tell what their traces tell: the same numbers, to the last digit, and the same blame."""

from __future__ import annotations

import tarfile
from pathlib import Path

import msgspec
import pytest

from jobs import RECORDED, job_in
from tb_torchcompile_plugin.analysis.ranks.job_report import job_report
from tb_torchcompile_plugin.analysis.ranks.job_rows import JobReport
from tb_torchcompile_plugin.job.digest.digest_pb2 import Digest
from tb_torchcompile_plugin.job.digest.rank_digest import RankDigest
from tb_torchcompile_plugin.job.job import Job

_ONLY_TRACES = {"headline", "basis", "findings", "traced", "overlap", "overlap_us", "overlap_headline"}
_POINTS = 35.0  # of a step: by how much the chain and the replay of traces may differ
_OF_RANKS = ("late_rank", "ranks_take_turns", "uneven_stages")


def names() -> list[str]:
    with tarfile.open(RECORDED) as archive:
        return sorted({Path(name).parts[0] for name in archive.getnames() if name.endswith(".trace.json")})


@pytest.fixture(scope="module", params=names())
def both(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[JobReport, JobReport]:
    """What a recorded job tells by its traces, and by what was written of its digests."""
    folder = tmp_path_factory.mktemp(request.param)
    with tarfile.open(RECORDED) as archive:
        mine = [one for one in archive.getmembers() if Path(one.name).parts[0] == request.param]
        archive.extractall(folder, mine, filter="data")
    traced = job_in(folder)
    copies = (
        RankDigest(one.rank, one.worker, one.span, Digest.FromString(one.message.SerializeToString()))
        for one in traced.digests
    )
    return traced.of(job_report), Job(tuple(copies), traced.unread).of(job_report)


def test_every_number_is_the_same(both: tuple[JobReport, JobReport]) -> None:
    traced, digested = (msgspec.structs.asdict(one) for one in both)
    assert digested["traced"] is False and digested["overlap"] == []
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
