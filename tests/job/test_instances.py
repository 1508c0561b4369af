"""job: which calls are one collective, whose wait is whose, and how far the clocks are apart, in jobs of which all is
known."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from job_plans import KEYS, Plan, grouped, job, measured, plans, truth
from jobs import ALL_REDUCE, PG, blamed, kinds_of, launched, metadata_of, written
from tb_torchcompile_plugin.job.instances import calls, clocks, instances, waits
from tb_torchcompile_plugin.job.job import TracedJob
from tb_torchcompile_plugin.job.steps import job_steps
from traces import Event

pytestmark = pytest.mark.slow

Folders = pytest.TempPathFactory


@given(plans(), st.sampled_from(KEYS))
def test_planted_waits_come_back_to_the_nanosecond(tmp_path_factory: Folders, plan: Plan, key: str) -> None:
    made = job(plan, tmp_path_factory.mktemp("job"), key)
    known, times = made.of(calls), made.of(waits)
    assert measured(plan, made) == truth(plan, key)
    matched = times.wait >= 0
    assert np.array_equal((times.wait + times.transfer)[matched], known.dur[matched])
    assert np.array_equal(matched, made.of(instances).of_call >= 0)
    matrix = blamed(made)
    assert matrix.sum() == times.wait[matched].sum() and not matrix.diagonal().any()
    for place in range(len(made.ranks)):
        assert matrix[place].sum() == times.wait[matched & (known.rank_index == place)].sum()
    for steps in made.of(job_steps):
        assert steps is None or np.array_equal(steps.span, sum(steps[2:]))


@pytest.mark.slow
@given(plans())
def test_keys_by_id_and_by_number_give_the_same_instances(tmp_path_factory: Folders, plan: Plan) -> None:
    """By count they are those from the first common step on: all where every rank has the same steps."""
    even = Plan(**{**vars(plan), "recorded": ((0, plan.steps),) * plan.size})
    folder = tmp_path_factory.mktemp("job")
    by_id, by_seq, by_count = (grouped(even, job(even, folder, key)) for key in KEYS)
    assert by_id == by_seq == by_count
    by_id, by_seq, by_count = (grouped(plan, job(plan, folder, key)) for key in KEYS)
    assert by_id == by_seq and by_count <= by_id


@given(plans(), st.data())
def test_a_clock_that_is_ahead_changes_nothing_but_its_offset(
    tmp_path_factory: Folders, plan: Plan, data: st.DataObject
) -> None:
    rank = data.draw(st.integers(0, plan.size - 1))
    moved = plan.with_shift(rank, 5_000_000)
    one, other = (job(each, tmp_path_factory.mktemp("job")) for each in (plan, moved))
    assert measured(plan, one) == measured(moved, other)
    assert np.array_equal(blamed(one), blamed(other))
    before, after = one.of(clocks), other.of(clocks)
    apart = after.offset_ns - before.offset_ns
    apart -= apart[(rank + 1) % plan.size]
    assert apart[rank] == 5_000_000 and not np.delete(apart, rank).any()
    assert before.residual_ns_p95 == after.residual_ns_p95 == 0


@given(plans(), st.sampled_from(KEYS), st.data())
def test_without_a_rank_waits_are_lower_bounds(
    tmp_path_factory: Folders, plan: Plan, key: str, data: st.DataObject
) -> None:
    assume(plan.size > 2)
    rank = data.draw(st.integers(0, plan.size - 1))
    whole, less = (job(each, tmp_path_factory.mktemp("job"), key) for each in (plan, plan.without(rank)))
    assert (whole.missing, less.missing) == ([], [rank])
    times, bounds = measured(plan, whole), measured(plan, less)
    assert bounds == truth(plan.without(rank), key)
    for call, (wait, transfer) in bounds.items():
        if call in times:
            assert wait <= times[call][0] and wait + transfer == sum(times[call])
    dropped = {number for one, number in times if one == rank}
    left = {number for _, number in bounds}
    for call in times.keys() - bounds.keys():
        assert call[0] == rank or call[1] not in left, "nobody else is missing where two are there"
    for call in times.keys() & bounds.keys():
        assert call[1] in dropped or times[call] == bounds[call]


def calls_at(word: str, group: PG, times: list[tuple[int, int]], **more: object) -> list[Event]:
    """Kernels that begin and take so long."""
    events: list[Event] = []
    for number, (begin, ns) in enumerate(times):
        metadata = metadata_of(word, group, Seq=number, **more)
        events += launched(ALL_REDUCE, begin - 2_000, begin, ns, **metadata)
    return events


WORLD = PG("0", (0, 1))


def numbers(made: TracedJob) -> list[int]:
    known: list[int] = made.of(instances).of_call.tolist()
    return known


def test_clocks_of_ranks_that_meet_in_pairs_only(tmp_path: Path) -> None:
    """0 meets 1, 1 meets 2, and so on: a difference is passed on without a loss."""
    ahead = [0, 5_000_000, -3, 40_000_001, 0, 7]
    events: dict[int, list[Event]] = {rank: [] for rank in range(6)}
    for one in range(5):
        group = PG(str(one), (one, one + 1))
        for rank in group.ranks:
            begin = 1_000_000 * (one + 1) + 300 * rank + ahead[rank]
            events[rank] += calls_at("allreduce", group, [(begin, 9_000 - 300 * rank)])
    known = written(tmp_path, events).of(clocks)
    assert (known.offset_ns - known.offset_ns[0]).tolist() == ahead and known.residual_ns_p95 == 0


def test_a_clock_is_the_median_over_collectives(tmp_path: Path) -> None:
    """One end that is far off moves nothing."""
    ends = [0, 2, -2, 0, 90_000]
    times = [(100_000 * (at + 1), 5_000) for at in range(5)]
    late = [(begin + 1_000_000, ns + end) for (begin, ns), end in zip(times, ends)]
    made = written(tmp_path, {0: calls_at("allreduce", WORLD, times), 1: calls_at("allreduce", WORLD, late)})
    assert np.diff(made.of(clocks).offset_ns).tolist() == [1_000_000]
    assert made.of(clocks).residual_ns_p95 == 45_000


def test_without_collectives_all_clocks_count(tmp_path: Path) -> None:
    made = written(tmp_path, {0: launched("k", 0, 10, 10), 1: launched("k", 0, 10, 10)})
    assert made.of(clocks).offset_ns.tolist() == [0, 0] and made.of(clocks).residual_ns_p95 is None


def test_what_differs_is_of_no_instance_and_counted(tmp_path: Path) -> None:
    """The second one: other words, sizes or types under one number."""
    times, others = [(10_000, 5_000), (20_000, 5_000), (30_000, 5_000)], ("_allgather_base", 1024, "Float")
    for word, elements, dtype in (others, ("allreduce", 8, "Float"), ("allreduce", 1024, "Half")):
        first, other = calls_at("allreduce", WORLD, times), calls_at("allreduce", WORLD, times)
        other[3]["args"] |= {"Collective name": word, "In msg nelems": elements, "dtype": dtype}
        made = written(tmp_path, {0: first, 1: other})
        assert numbers(made) == [0, -1, 1, 0, -1, 1]
        assert made.of(waits).wait.tolist() == [0, -1, 0, 0, -1, 0]


def test_two_calls_of_one_rank_under_one_number_are_none(tmp_path: Path) -> None:
    once, other = (calls_at("allreduce", WORLD, [(10_000, 5_000)]) for _ in range(2))
    assert numbers(written(tmp_path, {0: once * 2, 1: other})) == [-1] * 3


def test_a_list_of_ranks_that_torch_shortened(tmp_path: Path) -> None:
    """It is no JSON then. The group is still told from others by its name."""
    events = calls_at("allreduce", WORLD, [(10_000, 5_000)])
    for event in events:
        if "Process Group Ranks" in event["args"]:
            event["args"]["Process Group Ranks"] = "[0, 1, 2, 3, ...]"
    made = written(tmp_path, {0: events, 1: events})
    assert numbers(made) == [0, 0]
    (kind,) = set(kinds_of(made))
    assert kind.group is not None and kind.group.ranks == ()


@pytest.mark.parametrize("label", ["", "nccl:coalesced"])
def test_kernels_of_which_nothing_is_told_are_shown_and_not_matched(tmp_path: Path, label: str) -> None:
    """BreakEven in a job of a single group; but they do not count among the others."""
    events = [
        *(launched("ncclDevKernel_Generic", 5_000, 8_000, 1_000)),
        *(launched("deep_ep::internode::dispatch<4>", 15_000, 18_000, 1_000)),
        *calls_at("allreduce", WORLD, [(30_000, 5_000)]),
    ]
    del events[-1]["args"]["Seq"]
    if label:
        events.append({**events[0], "name": label, "cat": "user_annotation", "ts": 4, "dur": 5})
    made = written(tmp_path, {0: events, 1: events[2:]}, [WORLD])
    assert numbers(made) == [-1, -1, 0, -1, 0]


def test_by_count_without_steps_where_all_launched_as_many(tmp_path: Path) -> None:
    events = calls_at("allreduce", WORLD, [(10_000, 5_000), (20_000, 5_000), (30_000, 5_000)])
    for event in events:
        event["args"].pop("Seq", None)
    assert numbers(written(tmp_path, {0: events, 1: events})) == [0, 1, 2, 0, 1, 2]
    assert numbers(written(tmp_path, {0: events, 1: events[2:]})) == [-1] * 5


def test_what_a_rank_exchanges_with_several_is_told_apart(tmp_path: Path) -> None:
    """torch numbers all that a rank sends and receives in one row, so the numbers of two ranks differ."""
    group = PG("0", (0, 1, 2))

    def exchange(word: str, peer: int, seq: int, begin: int, ns: int = 5_000) -> list[Event]:
        side = {"Dst_Rank": peer} if word == "send" else {"Src_Rank": peer}
        args = metadata_of(word, group, Seq=seq, Comms_Id=1_000 + seq, **side)
        return launched("ncclDevKernel_SendRecv", begin - 2_000, begin, ns, **args)

    ranks = {
        0: [*exchange("send", 1, 0, 10_000), *exchange("send", 2, 1, 20_000)],
        1: exchange("recv", 0, 0, 9_000, 6_000),
        2: exchange("recv", 0, 0, 19_000, 6_000),
    }
    made = written(tmp_path, ranks)
    assert numbers(made) == [0, 1, 0, 1]
    assert made.of(waits).wait.tolist() == [0, 0, 1_000, 1_000]
    assert made.of(waits).awaited.tolist() == [-1, -1, 0, 0]
