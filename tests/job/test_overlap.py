"""job: what kernels take longer beside a collective, planted: by rank, step and place."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from time import process_time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs import ALL_REDUCE, PG, Does, host, job_in, launched, metadata_of, training, written
from recordings import Recording
from tb_torchcompile_plugin.analysis.ranks import collectives as module
from tb_torchcompile_plugin.analysis.ranks.collectives import (
    OverlapRow,
    overlap_headline,
    overlap_rows,
    overlap_us,
)
from tb_torchcompile_plugin.analysis.ranks.job_report import job_report
from tb_torchcompile_plugin.job.job import TracedJob
from tb_torchcompile_plugin.job.overlap import Overlapped, SameKernel
from traces import Event

STEP, GAP = 10_000_000, 100_000
Takes = Callable[[int, int, int], int]  # rank, step, place → ns


def loop(
    folder: Path,
    beside: Callable[[int, int, int], bool],
    takes: Takes,
    name: str = "gemm",
    size: Sequence[int] = (2, 3, 4),
) -> TracedJob:
    """Ranks, steps, and kernels of one name and grid in each; some of them inside of an all-reduce."""
    ranks, steps, places = size
    world = PG("0", tuple(range(ranks)))
    events: dict[int, list[Event]] = {rank: [] for rank in world.ranks}
    for rank in world.ranks:
        for step in range(steps):
            at = 1_000_000 + step * STEP
            events[rank].append(host(f"ProfilerStep#{step}", at - 50_000, STEP - 100_000, "user_annotation"))
            for place in range(places):
                ns = takes(rank, step, place)
                events[rank] += launched(name, at, at + 5_000, ns, grid=[8, 1, 1])
                if beside(rank, step, place):
                    args = metadata_of("allreduce", world, Seq=step * places + place)
                    events[rank] += launched(ALL_REDUCE, at + 1_000, at + 3_000, ns + 4_000, **args)
                at += ns + GAP
    return written(folder, events, [world])


def only_row(job: TracedJob) -> OverlapRow:
    (row,) = job.of(overlap_rows)
    return row


def test_each_place_is_its_own_kernel(tmp_path: Path) -> None:
    """The grid is the same, and the work is not: the second of a step takes twice as long anyway."""

    def takes(rank: int, step: int, place: int) -> int:
        return 100_000 * (1 + place) * (3 if (step, place) == (1, 1) else 1)

    row = only_row(loop(tmp_path, lambda rank, step, place: (step, place) == (1, 1), takes))
    assert (row.beside, row.known, row.alone_us, row.beside_us) == (2, 2, 200, 600)
    assert row.loss_us == pytest.approx(400 / 3)


def test_a_place_that_is_never_alone_is_unknown(tmp_path: Path) -> None:
    job = loop(
        tmp_path, lambda rank, step, place: place == 1, lambda rank, step, place: 100_000 * (1 + place)
    )
    row = only_row(job)
    assert (row.beside, row.known, row.alone_us, row.loss_us) == (6, 0, None, None) and row.beside_us == 200
    assert job.of(overlap_us) is None and job.of(overlap_headline) is None


def test_generated_kernels_are_the_same_at_any_place(tmp_path: Path) -> None:
    row = only_row(
        loop(
            tmp_path,
            lambda rank, step, place: place == 1,
            lambda rank, step, place: 150_000 if place == 1 else 100_000,
            "triton_poi_fused_add_0",
        )
    )
    assert (row.known, row.alone_us, row.beside_us, row.loss_us) == (6, 100, 150, 50)


def test_what_is_alone_on_another_rank_counts_by_how_fast_that_is(tmp_path: Path) -> None:
    """Rank 1 takes 1.5 times as long for everything."""

    def takes(rank: int, step: int, place: int) -> int:
        return (100_000 if rank == 0 else 150_000) * (2 if (rank, place) == (0, 3) else 1)

    row = only_row(loop(tmp_path, lambda rank, step, place: (rank, place) == (0, 3), takes))
    assert (row.known, row.alone_us, row.beside_us) == (3, 100, 200)


def test_a_rank_with_other_work_lends_no_times(tmp_path: Path) -> None:
    def takes(rank: int, step: int, place: int) -> int:
        return 100_000 if rank == 0 else (100_000, 200_000, 100_000, 300_000)[place]

    row = only_row(loop(tmp_path, lambda rank, step, place: (rank, place) == (0, 3), takes))
    assert (row.known, row.alone_us) == (0, None)


def test_a_considerable_loss_has_a_sentence(tmp_path: Path) -> None:
    def takes(rank: int, step: int, place: int) -> int:
        return 2_000_000 if place == 1 and step else 1_000_000

    job = loop(tmp_path, lambda rank, step, place: bool(place == 1 and step), takes)
    assert job.of(overlap_us) == pytest.approx(2_000 / 3)
    headline, step_us = job.of(job_report).overlap_headline, job.of(job_report).step_us
    assert step_us and step_us == pytest.approx(9_900, rel=0.01)
    assert headline and f"667 µs per step longer than alone, {66_667 / step_us:.2f} %" in headline
    assert "gemm takes 2.00 ms beside one, 1.00 ms alone" in headline


@given(
    st.sets(st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 3)), max_size=18),
    st.lists(st.sampled_from([40_000, 90_000, 400_000]), min_size=4, max_size=4),
    st.sampled_from([1, 2]),
)
def test_the_planted_loss_comes_back(
    tmp_path_factory: pytest.TempPathFactory,
    besides: set[tuple[int, int, int]],
    usual: list[int],
    slower: int,
) -> None:
    """Of all that is alone at its place on any rank; what is left is unknown, and never 0."""
    speed = (1, slower, 1)

    def takes(rank: int, step: int, place: int) -> int:
        return usual[place] * speed[rank] * (3 if (rank, step, place) in besides else 2) // 2

    job = loop(tmp_path_factory.mktemp("job"), lambda *at: at in besides, takes, size=(3, 3, 4))
    rows = job.of(overlap_rows)
    assert len(rows) == bool(besides)
    for row in rows:
        here = [at for at in besides if any((at[0], step, at[2]) not in besides for step in range(3))]
        assert row.beside == len(besides) and len(here) <= row.known <= len(besides)
        if row.known == len(here):
            loss = sum(usual[place] * speed[rank] / 2 for rank, _, place in here)
            assert (row.loss_us or 0) == pytest.approx(loss / 1000 / 9)


def many(kernels: int, launches: int) -> Overlapped:
    """Kernels at random, all of them beside a collective, one of ten never alone."""
    numbers = np.random.default_rng(0)
    dur = numbers.integers(1_000, 5_000, launches)
    return Overlapped(
        kernels=[SameKernel(f"k{place}", None, None, None) for place in range(kernels)],
        rank=np.zeros(launches, np.int64),
        kernel=numbers.integers(0, kernels, launches),
        dur=dur,
        covered=dur.copy(),
        waited=dur // 2,
        alone=np.where(numbers.random(launches) < 0.1, -1, dur - 10),
    )


def test_many_kernels_cost_what_their_launches_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Launches are not looked through once for each."""
    job, ran = training(tmp_path, 2, 2, lambda rank, step: Does()), many(2_000, 400_000)
    monkeypatch.setattr(module, "overlap", lambda job: ran)
    begin = process_time()
    rows = module.overlap_rows(job)
    assert process_time() - begin < 0.8, "once for each: more than 1.6 s"
    assert sum(row.beside for row in rows) == 400_000
    row = next(row for row in rows if row.name == "k7")
    mine = ran.kernel == 7
    assert (row.beside, row.known) == (mine.sum(), (mine & (ran.alone >= 0)).sum())
    assert row.beside_us == np.median(ran.dur[mine & (ran.alone >= 0)]) / 1000


def test_matrix_products_beside_a_waiting_collective_of_two_h100s(recording: Recording) -> None:
    """A waiting NCCL kernel takes cores: a product with a block for each of 128 of them needs a second round."""
    job = job_in(recording("jobs") / "sync_on_one_rank")
    first, *_ = rows = job.of(overlap_rows)
    assert first.name.startswith("nvjet") and first.alone_us and 1.7 < first.beside_us / first.alone_us < 2
    assert first.wait_percent > 70 and first.known < first.beside
    losses = [row.loss_us for row in rows if row.loss_us is not None]
    assert all(one >= other for one, other in pairwise(losses)) and len(losses) < len(rows) + 1
