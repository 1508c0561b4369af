"""job: however long a recording is, its digest is of 100 kB at most, holds whole steps, and says what it left out."""

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from jobs import Does, host, training
from tb_torchcompile_plugin.analysis.ranks.job_report import job_report
from tb_torchcompile_plugin.compile_log.summary_pb2 import CompileKey, CompileSummary
from tb_torchcompile_plugin.job.digest import make
from tb_torchcompile_plugin.job.digest.file import MOST_BYTES
from tb_torchcompile_plugin.job.digest.make import digest, digest_columns
from tb_torchcompile_plugin.job.digest.rank_digest import (
    RankDigest,
    compiled_of,
    details_of,
    message_from_columns,
)
from tb_torchcompile_plugin.job.job import JobRank, TracedJob
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.compile_data import CompileData

Cut = Callable[[Profile, int], RankDigest]
STEPS = 12
LATE_NS = 3_000_000


def late_by_turns(rank: int, step: int) -> Does:
    chance = random.Random(2 * step + rank)
    ns = chance.randrange(LATE_NS // 2, LATE_NS) if rank == step % 2 else chance.randrange(50_000)
    name = f"train.py({step}): work"
    return Does(ns, lambda begin: [host(name, begin, ns, "python_function")], 4, chance.randrange(100_000))


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> TracedJob:
    return training(tmp_path_factory.mktemp("job"), 2, STEPS, late_by_turns)


@pytest.fixture
def cut(monkeypatch: pytest.MonkeyPatch) -> Cut:
    """The digest of a rank that may have so many bytes."""

    def digest_of(profile: Profile, most: int) -> RankDigest:
        monkeypatch.setattr(make, "LARGEST", most)
        return RankDigest(0, "rank0", "1", digest_columns(anew(profile)))

    return digest_of


def anew(profile: Profile) -> Profile:
    """Without what it was asked before."""
    return Profile(profile.trace, profile.data, profile.span, profile.most_calls)


def whole(job: TracedJob) -> RankDigest:
    return RankDigest(0, "rank0", "1", job.ranks[0].profile.of(digest_columns))


def problems(one: RankDigest) -> list[str]:
    return [notice.problem for notice in one.notices]


def size_of(one: RankDigest) -> int:
    return len(message_from_columns(one.columns).SerializeToString())


def test_with_room_enough_nothing_is_left_out(job: TracedJob, cut: Cut) -> None:
    all_of_it = whole(job)
    one = cut(job.ranks[0].profile, size_of(all_of_it))
    assert message_from_columns(one.columns) == message_from_columns(all_of_it.columns)
    assert all_of_it.host_steps == STEPS and all_of_it.notices == []


def test_what_is_held_are_the_first_whole_steps(job: TracedJob, cut: Cut) -> None:
    all_of_it = whole(job)
    known, at, windows = (all_of_it.of(details_of).host, all_of_it.columns.cuts, all_of_it.columns.windows)
    counts = []
    for share in (0.9, 0.7, 0.5, 0.3, 0.0):
        one = cut(job.ranks[0].profile, round(share * size_of(all_of_it)))
        mine, costs = one.columns.cuts, one.of(details_of).host
        kept, host = len(one.columns.windows.names), int(one.columns.header.host_steps)
        counts.append((kept, host))
        assert size_of(one) <= share * size_of(all_of_it) or kept == host == 0
        assert np.array_equal(mine, at[: len(mine)]) and (host == STEPS or mine[-1] == windows.begin[host])
        count = len(mine) - 1
        inside = known.stretch < count
        assert costs.ns.tolist() == known.ns[inside].tolist()
        assert [costs.blamed[code] for code in costs.code] == [
            known.blamed[code] for code in known.code[inside]
        ]
        waits = known.wait_begin < mine[-1] if len(mine) < len(at) else known.wait_begin >= 0
        assert costs.wait_begin.tolist() == known.wait_begin[waits].tolist()
        kernels, all_kernels = one.of(details_of).kernels, all_of_it.of(details_of).kernels
        assert kernels.ns.sum() == all_kernels.ns[all_kernels.stretch < count].sum()
        assert one.columns.windows.names == windows.names[:kept]
        assert one.columns.calls.seq.tolist() == list(range(kept))
        gpu, all_gpu = one.columns.gpu, all_of_it.columns.gpu
        assert all_gpu and (gpu is not None) == (kept > 0)
        if gpu:
            assert gpu.steps.compute.tolist() == all_gpu.steps.compute[:kept].tolist()
            assert gpu.exposed.ends.max() <= gpu.steps.end.max()
        endings = [f" of {STEPS} {what}" for what in ("steps", "steps of the host")]
        for count, ending in zip((kept, host), endings):
            assert (count < STEPS) == any(problem.endswith(ending) for problem in problems(one))
    assert counts == sorted(counts, reverse=True) and counts[0] > counts[2] > (0, 0) == counts[-1]


def test_a_job_of_such_digests_tells_of_the_steps_that_they_hold(
    job: TracedJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(make, "LARGEST", size_of(whole(job)) // 2)
    ranks = [JobRank(one.rank, one.worker, anew(one.profile)) for one in job.ranks]
    report, known = TracedJob(ranks).of(job_report), job.of(job_report)
    steps = {(row.rank, row.step): row for row in known.steps}
    assert report.steps and all(steps[row.rank, row.step] == row for row in report.steps[:1])
    assert len(report.steps) <= len(known.steps) and report.warnings


def test_without_steps_the_first_collectives_are_told(job: TracedJob, cut: Cut) -> None:
    trace = job.ranks[0].profile.trace
    names = [name.replace("ProfilerStep#", "round ") for name in trace.names]
    profile = Profile(replace(trace, names=names), None, job.ranks[0].profile.span)
    one = cut(profile, 700)
    seq = one.columns.calls.seq.tolist()
    assert 0 < len(seq) < STEPS and seq == list(range(len(seq)))
    assert problems(one)[0] == f"too long for a digest, which has the first {len(seq)} of {STEPS} collectives"


def test_what_was_compiled_is_told_from_the_first_one_on(job: TracedJob, cut: Cut) -> None:
    summary = CompileSummary()
    for number in range(1000):
        summary.compilations.add(
            key=CompileKey(compile_id=f"{number}/0"), function=f"f{number * 7919}", file="x.py"
        )
    data = CompileData(summary, "summary", "")
    one = cut(Profile(job.ranks[0].profile.trace, data), 4000)
    compiled = one.of(compiled_of)
    assert compiled and 0 < len(compiled.compilations) < 1000
    assert list(compiled.compilations) == list(summary.compilations)[: len(compiled.compilations)]
    assert problems(one) == [
        f"too long for a digest, which has the first {len(compiled.compilations)} of 1000 compilations"
    ]


@pytest.mark.slow
def test_a_long_job_fits(tmp_path: Path) -> None:
    """Each step does what no other one does."""
    chance = random.Random(1)

    def does(rank: int, step: int) -> Does:
        ns = chance.randrange(10_000, 5_000_000)
        name = f"t.py({step}): f{chance.randrange(1 << 60)}"
        return Does(ns, lambda at: [host(name, at, ns, "python_function")], 4, chance.randrange(1_000_000))

    job = training(tmp_path, 2, 3_000, does)
    made = job.ranks[0].profile.of(digest)
    assert MOST_BYTES // 2 < len(made.SerializeToString()) <= MOST_BYTES
    assert 0 < made.host_steps < 3_000
    assert [notice.problem.split(",")[0] for notice in made.notices] == ["too long for a digest"] * 2
    assert job.of(job_report).steps
