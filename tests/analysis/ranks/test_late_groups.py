"""Ranks that are late together: one finding names them, what they share and the cause, with and without traces."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from test_outliers import NOTHING, gpu_step_ns, job_of

from jobs import PG, Does, doing, training, without_traces
from many_ranks import HOST, Planted, Together
from tb_torchcompile_plugin.analysis.finding import Finding
from tb_torchcompile_plugin.analysis.ranks.job_findings import is_symptom, job_findings
from tb_torchcompile_plugin.analysis.ranks.job_report import job_report
from tb_torchcompile_plugin.job import late as late_module
from tb_torchcompile_plugin.job.as_early import job_clocks, step_of_job_ns
from tb_torchcompile_plugin.job.job import Job, TracedJob
from tb_torchcompile_plugin.job.late import early_ranks, late_by_rank

pytestmark = pytest.mark.slow

MS = 1_000_000
LATE = Does(20 * MS)


def python(line: int, ns: int) -> Does:
    return doing(f"train.py({line}): tokenize", ns, "python_function")


def of_ranks(job: Job) -> list[Finding]:
    return [row for row in job.of(job_findings) if row.rule != "communication"]


def both(job: TracedJob) -> tuple[Job, Job]:
    return job, without_traces(job)


def only(*ranks: int, does: Does = LATE) -> Callable[[int, int], Does]:
    return lambda rank, step: does if rank in ranks else Does()


@pytest.mark.parametrize("ranks", [4, 8, 12])
def test_ranks_that_share_nothing_but_the_cause_are_one_finding(tmp_path: Path, ranks: int) -> None:
    late_ranks = tuple(range(3, ranks, 4)) if ranks > 4 else (1, 3)
    listed = ", ".join(map(str, late_ranks))
    traced = training(tmp_path, ranks, 5, only(*late_ranks, does=python(12, 20 * MS)))
    (healthy := tmp_path / "healthy").mkdir()
    usual = step_of_job_ns(training(healthy, ranks, 5, lambda rank, step: Does()).of(job_clocks))
    for job in both(traced):
        (row,) = of_ranks(job)
        assert (row.rule, row.severity) == ("late_rank", "critical")
        assert row.where == [f"ranks {listed}", "train.py:12"]
        assert row.title.startswith(
            f"{len(late_ranks)} of {ranks} ranks ({listed}) arrive up to 20.0 ms late"
        )
        assert "runs Python for 20.0 ms per step at train.py:12" in row.title
        assert row.evidence["ranks"] == len(late_ranks) and row.predicted
        gain_ns = 1000 * row.predicted.gain_us
        assert gain_ns == pytest.approx(20 * MS, rel=0.02)
        assert job.of(job_report).headline == f"{row.title}."
    (row,) = of_ranks(traced)
    assert row.predicted and 1000 * row.predicted.after_us == pytest.approx(usual, rel=0.02)


def test_unaccounted_time_is_placed_where_there_are_traces(tmp_path: Path) -> None:
    (row,) = of_ranks(training(tmp_path, 8, 5, only(3, 7)))
    assert "has 20.0 ms per step unaccounted for before `cudaLaunchKernel`" in row.title


def test_ranks_of_one_shard_are_named_by_their_process_group(tmp_path: Path) -> None:
    shards = [PG(f"shard{first}", (first, first + 2, first + 4)) for first in (0, 1)]
    for job in both(training(tmp_path, 6, 5, only(0, 2, 4), shards=shards)):
        (row,) = of_ranks(job)
        assert "3 of 6 ranks (process group shard0: 0, 2, 4) arrive" in row.title
        assert row.predicted and row.predicted.gain_us == pytest.approx(20_000, rel=0.02)


def test_ranks_of_one_stage_are_named_by_it(tmp_path: Path) -> None:
    pipelines = [PG(f"pp{first}", (first, first + 4, first + 8)) for first in range(4)]
    for job in both(training(tmp_path, 12, 5, only(4, 5, 6, 7), pipelines=pipelines)):
        (row,) = of_ranks(job)
        assert "4 of 12 ranks (stage 1 of the pipeline: 4, 5, 6, 7) arrive" in row.title
        assert row.predicted and row.predicted.gain_us == pytest.approx(20_000, rel=0.02)


def test_ranks_of_one_host_are_one_finding_whatever_they_do(tmp_path: Path) -> None:
    traced = training(
        tmp_path, 8, 5, lambda rank, step: python(rank, 20 * MS) if 4 <= rank < 7 else Does(), host_size=4
    )
    for job in both(traced):
        (row,) = of_ranks(job)
        assert row.rule == "slow_host" and row.where[0] == "node1" and "nvidia-smi" in row.next_step
        assert "3 of 8 ranks (host node1: 4, 5, 6) arrive" in row.title
        assert row.predicted and row.predicted.gain_us == pytest.approx(20_000, rel=0.02)


def test_groups_with_other_causes_are_findings_of_their_own(tmp_path: Path) -> None:
    """The slower one hides the other, which is predicted with that fixed."""
    slow, other = python(12, 20 * MS), python(34, 8 * MS)
    traced = training(
        tmp_path, 12, 5, lambda rank, step: slow if rank in (3, 7) else other if rank in (1, 5, 9) else Does()
    )
    for job in both(traced):
        first, second = sorted(
            of_ranks(job), key=lambda row: -(row.predicted.gain_us if row.predicted else 0)
        )
        assert "2 of 12 ranks (3, 7)" in first.title and first.where[1:] == ["train.py:12"]
        assert "3 of 12 ranks (1, 5, 9)" in second.title and second.where[1:] == ["train.py:34"]
        assert "Without the delay and that of ranks 3, 7, a step takes" in second.title
        assert first.predicted and first.predicted.gain_us == pytest.approx(12_000, rel=0.02)
        assert second.predicted and second.predicted.gain_us == pytest.approx(8_000, rel=0.03)


def test_equally_late_groups_are_predicted_together(tmp_path: Path) -> None:
    """Neither helps alone: the finding names both."""
    traced = training(
        tmp_path, 12, 5, lambda rank, step: python(12 + rank, 20 * MS) if rank in (3, 7) else Does()
    )
    for job in both(traced):
        (row,) = of_ranks(job)
        assert row.title.startswith("Rank 7 is") and "and that of rank 3, a step takes about" in row.title


def test_symptoms_are_of_all_ranks_of_the_group(tmp_path: Path) -> None:
    job = training(tmp_path, 8, 5, only(3, 7, does=python(12, 20 * MS)))
    line = Finding("python", "info", "", {}, None, "overview", None, "", where=["train.py:12"])
    assert [rank for rank in range(8) if is_symptom(job, rank, line)] == [3, 7]


def test_more_work_of_several_ranks_is_shared_evenly(tmp_path: Path) -> None:
    heavy, light = Does(kernels=60), Does(kernels=20)
    job = training(tmp_path, 4, 5, lambda rank, step: heavy if rank in (1, 3) else light)
    (row,) = of_ranks(job)
    assert "2 of 4 ranks (1, 3)" in row.title and row.predicted
    assert row.predicted.gain_us == pytest.approx(40 * 101 / 2, rel=0.05)


MANY_RANKS = [64, 160, pytest.param(512, marks=pytest.mark.large)]
EVERY_FOURTH = Together(tuple(range(3, 64, 4)), 55, 6 * MS)


@pytest.mark.parametrize("ranks", MANY_RANKS)
def test_a_quarter_of_many_ranks_by_digests(ranks: int) -> None:
    late_ranks = tuple(range(3, ranks, 4))
    planted = NOTHING._replace(groups=(Together(late_ranks, 55, 6 * MS),))
    (row,) = of_ranks(job_of(planted, ranks))
    assert row.rule == "late_rank" and row.where[1:] == ["train.py:55"]
    assert row.title.startswith(
        f"{ranks // 4} of {ranks} ranks (3, 7, 11, 15, 19, 23, 27, 31 …) arrive up to "
    )
    share = (gpu_step_ns(planted, ranks) - gpu_step_ns(NOTHING, ranks)) / gpu_step_ns(planted, ranks)
    assert row.predicted and row.predicted.gain_percent / 100 == pytest.approx(share, rel=0.3)


def test_several_groups_of_many_ranks_by_digests() -> None:
    """Two sets of ranks, and two hosts for one cause."""
    hosts = tuple(range(2 * HOST, 4 * HOST))
    groups = (EVERY_FOURTH, Together((0, 8, 40, 48, 56), 77, 3 * MS))
    hidden = job_of(NOTHING._replace(groups=groups), 64)
    first, second = sorted(of_ranks(hidden), key=lambda row: row.where[1])
    assert "16 of 64 ranks" in first.title and "5 of 64 ranks (0, 8, 40, 48, 56)" in second.title
    (row,) = of_ranks(job_of(NOTHING._replace(groups=(Together(hosts, 55, 6 * MS),)), 64))
    assert row.rule == "slow_host" and row.where == ["node0002", "node0003", "train.py:55"]
    assert "16 of 64 ranks (hosts node0002 and node0003: 16, 17," in row.title


def test_one_of_two_hosts_is_late() -> None:
    """Half of the ranks are, so the rank in the middle must be one of the others."""
    (row,) = of_ranks(job_of(NOTHING._replace(groups=(Together(tuple(range(HOST)), 55, 6 * MS),)), 2 * HOST))
    assert row.rule == "slow_host" and row.where == ["node0000", "train.py:55"]
    assert "8 of 16 ranks (host node0000: 0, 1, 2, 3, 4, 5, 6, 7) arrive" in row.title


MOST = tuple(rank for rank in range(64) if rank % 8 < 5)


def test_more_than_half_of_64_ranks_by_traces(tmp_path: Path) -> None:
    """The rank in the middle is late itself: the early ones are the peers."""
    traced = training(tmp_path, 64, 3, only(*MOST, does=python(12, 20 * MS)))
    for job in both(traced):
        (row,) = of_ranks(job)
        assert row.rule == "late_rank" and row.where[1:] == ["train.py:12"]
        assert row.title.startswith(
            "40 of 64 ranks (0, 1, 2, 3, 4, 8, 9, 10 …) arrive up to 20.0 ms late per step"
        )
        assert row.predicted and row.predicted.gain_us == pytest.approx(20_000, rel=0.02)


@pytest.mark.parametrize("late_ranks", [MOST, tuple(range(40)), tuple(range(48))])
def test_more_than_half_of_64_ranks_by_digests(late_ranks: tuple[int, ...]) -> None:
    planted = NOTHING._replace(groups=(Together(late_ranks, 55, 6 * MS),))
    (row,) = of_ranks(job_of(planted, 64))
    assert row.where[-1] == "train.py:55" and f"{len(late_ranks)} of 64 ranks" in row.title
    assert row.rule == ("late_rank" if late_ranks == MOST else "slow_host")
    share = (gpu_step_ns(planted, 64) - gpu_step_ns(NOTHING, 64)) / gpu_step_ns(planted, 64)
    assert row.predicted and row.predicted.gain_percent / 100 == pytest.approx(share, rel=0.3)


def test_lateness_without_two_clusters_has_its_peers_in_the_middle() -> None:
    """Nor has it where fewer than a quarter are early, or two: they may do less by design."""
    rising = np.arange(64) * MS
    assert early_ranks(rising).all() and early_ranks(np.zeros(64, np.int64)).all()
    assert early_ranks(np.array([0] * 15 + [9 * MS] * 49)).all()
    assert early_ranks(np.array([0, 0, MS, MS, MS])).all()
    two = np.array([9 * MS, 0] * 24 + [9 * MS] * 16)
    assert early_ranks(two).tolist() == (two == 0).tolist()
    assert early_ranks(two + rising // 50).tolist() == (two == 0).tolist()


@pytest.mark.parametrize("ranks", MANY_RANKS)
def test_nothing_is_found_in_healthy_jobs(ranks: int) -> None:
    assert of_ranks(job_of(NOTHING, ranks)) == []


def test_nothing_is_found_in_a_healthy_job_by_its_traces(tmp_path: Path) -> None:
    for job in both(training(tmp_path, 12, 5, lambda rank, step: Does(10_000 * (rank % 3)))):
        assert of_ranks(job) == []


@pytest.mark.parametrize("late_of_8", [(3, 7), (0, 1, 2, 3, 4)])
def test_the_cost_is_linear_in_the_ranks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late_of_8: tuple[int, ...]
) -> None:
    """Calls that are compared, by digests and by traces, and ranks whose models are changed."""
    compared: list[int] = []
    compare = late_module._compared

    def counted(*arguments: object) -> object:
        compared.append(1)
        return compare(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(late_module, "_compared", counted)
    counts = []
    for ranks in (64, 128, 192):
        compared.clear()
        late_ranks = tuple(rank for rank in range(ranks) if rank % 8 in late_of_8)
        planted = Planted(-1, -1, -1, groups=(Together(late_ranks, 66, 6 * MS),))
        job_of(planted, ranks).of(job_report)
        counts.append(len(compared))
    assert counts[2] - counts[1] <= 1.1 * (counts[1] - counts[0]) <= 2 * 64 * 32, counts
    rows = []
    for ranks in (8, 16):
        (folder := tmp_path / str(ranks)).mkdir()
        compared.clear()
        job = training(folder, ranks, 5, only(*(rank for rank in range(ranks) if rank % 8 in late_of_8)))
        job.of(job_report)
        assert len(compared) == sum(map(len, job.of(late_by_rank).values()))
        rows.append(len(compared))
    assert rows[1] == 2 * rows[0]
