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
from tb_torchcompile_plugin.job.digest import file as room
from tb_torchcompile_plugin.job.digest import make
from tb_torchcompile_plugin.job.digest.file import MOST_BYTES, Room, fitting
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
def cut(monkeypatch: pytest.MonkeyPatch) -> Callable[..., RankDigest]:
    """The digest of a rank where there is so much room."""

    def digest_of(profile: Profile, **rooms: int) -> RankDigest:
        monkeypatch.setattr(make, "LARGEST", 0)
        monkeypatch.setattr(
            make, "ROOM", Room(**{"calls": 45_000, "compiled": 15_000, "host": 35_000} | rooms)
        )
        return RankDigest(0, "rank0", "1", digest_columns(anew(profile)))

    return digest_of


def anew(profile: Profile) -> Profile:
    """Without what it was asked before."""
    return Profile(profile.trace, profile.data, profile.span, profile.most_calls)


def whole(job: TracedJob) -> RankDigest:
    return RankDigest(0, "rank0", "1", job.ranks[0].profile.of(digest_columns))


def problems(one: RankDigest) -> list[str]:
    return [notice.problem for notice in one.notices]


def test_with_room_enough_nothing_is_left_out(job: TracedJob, cut: Callable[..., RankDigest]) -> None:
    assert message_from_columns(cut(job.ranks[0].profile).columns) == message_from_columns(whole(job).columns)
    assert whole(job).host_steps == STEPS and whole(job).notices == []


def test_the_host_is_told_of_in_whole_steps(job: TracedJob, cut: Callable[..., RankDigest]) -> None:
    all_of_it = whole(job)
    at = all_of_it.columns.cuts
    sizes = []
    for host_room in (10_000, 700, 500, 350, 250, 150, 0):
        one = cut(job.ranks[0].profile, host=host_room)
        sizes.append(
            len(message_from_columns(one.columns).host) + len(message_from_columns(one.columns).kernels)
        )
        mine, costs, kernels = one.columns.cuts, one.of(details_of).host, one.of(details_of).kernels
        assert np.array_equal(mine, at[: len(mine)])
        known, count = all_of_it.of(details_of).host, len(mine) - 1
        kept = known.stretch < count
        assert costs.ns.tolist() == known.ns[kept].tolist()
        assert [costs.blamed[code] for code in costs.code] == [
            known.blamed[code] for code in known.code[kept]
        ]
        waits = known.wait_begin < mine.max(initial=0) if len(mine) < len(at) else known.wait_begin >= 0
        assert costs.wait_begin.tolist() == known.wait_begin[waits].tolist()
        all_kernels = all_of_it.of(details_of).kernels
        assert kernels.ns.sum() == all_kernels.ns[all_kernels.stretch < count].sum()
        if len(mine) < len(at):
            assert any("of the host" in problem for problem in problems(one))
        if one.columns.header.host_steps:
            windows = one.columns.windows
            assert len(mine) == len(at) or mine[-1] == windows.begin[one.columns.header.host_steps]
        assert one.columns.calls.begin.tolist() == all_of_it.columns.calls.begin.tolist()
    assert sizes == sorted(sizes, reverse=True) and sizes[0] > 2 * sizes[-1]


def test_collectives_and_steps_go_together(job: TracedJob, cut: Callable[..., RankDigest]) -> None:
    all_of_it, one = whole(job), cut(job.ranks[0].profile, calls=400)
    kept = len(one.columns.windows.names)
    assert 0 < kept < STEPS
    assert problems(one)[0] == f"too long for a digest: of {STEPS} steps it holds the first {kept}"
    assert one.columns.windows.names == all_of_it.columns.windows.names[:kept]
    assert one.columns.calls.seq.tolist() == list(range(kept))
    gpu, all_gpu = one.columns.gpu, all_of_it.columns.gpu
    assert gpu and all_gpu
    assert gpu.steps.window.tolist() == list(range(kept))
    assert gpu.steps.compute.tolist() == all_gpu.steps.compute[:kept].tolist()
    assert gpu.exposed.ends.max() <= gpu.steps.end.max() < all_gpu.exposed.ends.max()
    assert one.columns.cuts.max() < all_of_it.columns.windows.begin[kept]


def test_a_job_of_such_digests_tells_of_the_steps_that_they_hold(
    job: TracedJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(make, "LARGEST", 0)
    monkeypatch.setattr(make, "ROOM", Room(400, 0, 300))
    ranks = [JobRank(one.rank, one.worker, anew(one.profile)) for one in job.ranks]
    report, known = TracedJob(ranks).of(job_report), job.of(job_report)
    steps = {(row.rank, row.step): row for row in known.steps}
    assert report.steps and all(steps[row.rank, row.step] == row for row in report.steps[:1])
    assert len(report.steps) < len(known.steps)


def test_without_steps_the_first_collectives_are_told(job: TracedJob, cut: Callable[..., RankDigest]) -> None:
    trace = job.ranks[0].profile.trace
    names = [name.replace("ProfilerStep#", "round ") for name in trace.names]
    profile = Profile(replace(trace, names=names), None, job.ranks[0].profile.span)
    one = cut(profile, calls=200)
    seq = one.columns.calls.seq.tolist()
    assert 0 < len(seq) < STEPS and seq == list(range(len(seq)))
    assert problems(one)[0] == f"too long for a digest: of {STEPS} collectives it holds the first {len(seq)}"


def test_what_was_compiled_is_told_from_the_first_one_on(
    job: TracedJob, cut: Callable[..., RankDigest]
) -> None:
    summary = CompileSummary()
    for number in range(100):
        summary.compilations.add(
            key=CompileKey(compile_id=f"{number}/0"), function=f"f{number * 7919}", file="x.py"
        )
    data = CompileData(summary, "summary", "")
    one = cut(Profile(job.ranks[0].profile.trace, data), compiled=600)
    compiled = one.of(compiled_of)
    assert compiled and 0 < len(compiled.compilations) < 100
    assert list(compiled.compilations) == list(summary.compilations)[: len(compiled.compilations)]
    assert f"of 100 compilations it holds the first {len(compiled.compilations)}" in problems(one)[0]


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
    assert [notice.problem.split(":")[0] for notice in made.notices] == ["too long for a digest"] * 2
    assert job.of(job_report).steps


def test_what_fits_is_halved_until_it_does() -> None:
    assert fitting(lambda count: count, 100, 100) == 100
    assert fitting(lambda count: count, 100, 99) == 50
    assert fitting(lambda count: count + 5, 100, 4) == 0
    assert room.left_out("steps", 3, 3) == []
