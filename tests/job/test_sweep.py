"""job: the models of all ranks walked together, against walking them again and again until nothing moves."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from job_plans import Plan, job, plans
from jobs import ALL_REDUCE, PG, Does, host, launched, metadata_of, training, written
from tb_torchcompile_plugin.analysis.ranks.job_findings import job_findings
from tb_torchcompile_plugin.analysis.ranks.job_report import job_report
from tb_torchcompile_plugin.job.as_early import job_clocks, step_of_job_ns, tied, without_excess
from tb_torchcompile_plugin.job.job import TracedJob
from tb_torchcompile_plugin.job.sweep import CircularWaitError, Tied, sweep
from tb_torchcompile_plugin.profile.model.model import Model, Replayed, model, recorded_clock, replay
from traces import Event

NEVER = np.iinfo(np.int64).min // 2


def again_and_again(models: list[Model], held: Tied) -> list[Replayed]:
    """Each rank alone; then again with no collective over before its last member has begun."""
    walked = [replay(made) for made in models]
    while True:
        begin, end = np.zeros((2, len(held.work)), np.int64)
        for place, times in enumerate(walked):
            mine = held.rank_index == place
            begin[mine], end[mine] = times.work_begin[held.work[mine]], times.work_end[held.work[mine]]
        until = held.latest(begin - held.ahead)[held.instance] + held.ahead + held.transfer
        if (until <= end)[held.needs].all():
            return walked
        walked = [replay(made, not_before(held, place, made, until)) for place, made in enumerate(models)]


def not_before(held: Tied, place: int, made: Model, until: np.ndarray) -> np.ndarray:
    times, mine = np.full(len(made.dur), NEVER), (held.rank_index == place) & held.needs
    times[held.work[mine]] = until[mine]
    return times


def models_of(made: TracedJob, slower: list[int]) -> list[Model]:
    """Of its ranks; the host of each is so many times as slow."""
    known = [one.profile.of(model) for one in made.ranks]
    return [one._replace(host=one.host * times) for one, times in zip(known, slower)]


@given(plans(), st.lists(st.integers(1, 9), min_size=6, max_size=6))
def test_times_are_those_of_walking_again_and_again(
    tmp_path_factory: pytest.TempPathFactory, plan: Plan, slower: list[int]
) -> None:
    made = job(plan, tmp_path_factory.mktemp("job"), "id")
    models, held = models_of(made, slower), made.of(tied)
    for one, other in zip(sweep(models, held), again_and_again(models, held)):
        assert all(np.array_equal(mine, its) for mine, its in zip(one, other))


@given(st.lists(st.integers(0, 900_000), min_size=12, max_size=12))
def test_loops_that_wait_for_their_gpus_too(
    tmp_path_factory: pytest.TempPathFactory, extra: list[int]
) -> None:
    made = training(tmp_path_factory.mktemp("job"), 3, 4, lambda rank, step: Does(extra[rank * 4 + step]))
    models, held = models_of(made, [3, 1, 2]), made.of(tied)
    for one, other in zip(sweep(models, held), again_and_again(models, held)):
        assert all(np.array_equal(mine, its) for mine, its in zip(one, other))


def test_ranks_that_wait_by_turns_a_thousand_times(tmp_path: Path) -> None:
    made = training(tmp_path, 2, 1_000, lambda rank, step: Does(50_000 * (step % 2 == rank), kernels=1))
    recorded = [recorded_clock(one.profile).step for one in made.ranks]
    assert [clock.step for clock in made.of(job_clocks)] == recorded
    mended = step_of_job_ns(job_clocks(made, {0: without_excess(made, 0), 1: without_excess(made, 1)}))
    assert min(recorded) - 50_000 <= mended < min(recorded) - 40_000


def crossed(folder: Path) -> TracedJob:
    """Two collectives on one stream, which the ranks queue in another order each; recorded where they did not hold."""
    groups = PG("0", (0, 1)), PG("1", (0, 1))
    events: dict[int, list[Event]] = {0: [], 1: []}
    for rank in (0, 1):
        events[rank].append(host("ProfilerStep#0", 1_000, 900_000, "user_annotation"))
        events[rank].append(host("ProfilerStep#1", 901_000, 100_000, "user_annotation"))
        for at, group in zip((100_000, 300_000), groups if rank == 0 else groups[::-1]):
            args = metadata_of("allreduce", group, Seq=0)
            events[rank] += launched(ALL_REDUCE, at - 9_000, at, 50_000, **args)
        events[rank] += launched("gemm", 950_000, 960_000, 10_000)
    return written(folder, events, groups)


def test_a_circle_is_said_and_predicts_nothing(tmp_path: Path) -> None:
    made = crossed(tmp_path)
    assert len(made.of(tied).work) == 4
    with pytest.raises(CircularWaitError):
        made.of(job_clocks)
    assert made.of(job_findings) == []
    assert "wait for each other in a circle" in made.of(job_report).basis


def test_work_of_streams_of_their_own_may_be_queued_in_any_order(tmp_path: Path) -> None:
    """The same on two streams is no circle: none holds the other."""
    made = crossed(tmp_path)
    models = [
        one.profile.of(model)._replace(
            stream=np.array([0, 1, 0] if one.rank == 0 else [1, 0, 0]), free=np.zeros(2, np.int64)
        )
        for one in made.ranks
    ]
    models = [one._replace(waits=np.zeros((len(one.before), 2), bool)) for one in models]
    held = made.of(tied)
    for one, other in zip(sweep(models, held), again_and_again(models, held)):
        assert all(np.array_equal(mine, its) for mine, its in zip(one, other))


def test_a_call_that_returns_before_what_its_work_waits_for_is_called(tmp_path: Path) -> None:
    """As calls of two threads may stand in the lane: then the work does not wait for it, and nobody is stuck."""
    made = crossed(tmp_path).ranks[0].profile.of(model)
    lone = made._replace(
        stream=np.array([0, 1, 0]),
        after=np.array([1, -1, -1]),
        after_gap=np.zeros(3, np.int64),
        free=np.zeros(2, np.int64),
        waits=np.repeat(np.arange(len(made.before))[:, None] == made.point[0], 2, axis=1) & [True, False],
        target=np.full(len(made.before), -1),
    )
    none = np.zeros(0, np.int64)
    (times,) = sweep([lone], Tied(none, none, none, none, none, none.astype(bool), none.astype(bool)))
    alone = replay(lone._replace(after=np.full(3, -1)))
    assert all(np.array_equal(mine, its) for mine, its in zip(times, alone))
