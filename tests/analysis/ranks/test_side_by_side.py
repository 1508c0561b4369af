"""side_by_side.py: planted times come back on one clock, however the ranks' own clocks are set; answers are bounded."""

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from job_plans import KEYS, Plan, course, job, plans, truth
from jobs import Does, host, launched, training, written
from tb_torchcompile_plugin.analysis.ranks.job_rows import step_rows
from tb_torchcompile_plugin.analysis.ranks.side_by_side import (
    BUCKETS,
    MAX_RANKS,
    SideBySide,
    StepSideBySide,
    side_by_side,
)
from tb_torchcompile_plugin.errors import BadRequest
from traces import kernel

Folders = pytest.TempPathFactory
MS = 1_000_000


def late(rank: int, ns: int = 3 * MS) -> dict[int, Does]:
    return {rank: Does(ns, lambda begin: [host("aten::item", begin, ns)])}


def of_training(folder: Path, ranks: int, slow: int, step: str = "") -> StepSideBySide:
    does = late(slow)
    return side_by_side(SideBySide(training(folder, ranks, 3, lambda r, s: does.get(r, Does()))), step, None)


@given(plans(), st.sampled_from(KEYS), st.data())
def test_planted_times_come_back_under_clock_shifts(
    tmp_path_factory: Folders, plan: Plan, key: str, data: st.DataObject
) -> None:
    about = SideBySide(job(plan, tmp_path_factory.mktemp("job"), key))
    took, known = course(plan), truth(plan, key)
    name = data.draw(st.sampled_from(about.steps))
    step = side_by_side(about, name, None)
    number = int(name.partition("#")[2])
    begins = {one.rank: one.host_step_ns for one in step.ranks}
    zeros = {took.windows[rank][number][0] - at[0] for rank, at in begins.items() if at}
    (zero,) = zeros  # all ranks stand on one clock
    runs = {(rank, one.begin): one for rank, ran in took.ran.items() for one in ran}
    for collective in step.collectives:
        for call in collective.calls:
            ran = runs[call.rank, call.start_ns + zero]
            assert call.dur_ns == ran.end - ran.begin
            known_ns = None if call.wait_ns is None else (call.unknown_ns or 0) + (call.transfer_ns or 0)
            assert (call.wait_ns, known_ns) == known.get((call.rank, ran.op.number), (None, None))
        assert len({call.rank for call in collective.calls}) == len(collective.calls)


@given(plans(), st.data())
def test_a_clock_that_is_ahead_moves_only_what_leads_to_its_own_timeline(
    tmp_path_factory: Folders, plan: Plan, data: st.DataObject
) -> None:
    rank, ns = data.draw(st.integers(0, plan.size - 1)), 5_000_001
    answers = [
        side_by_side(SideBySide(job(one, tmp_path_factory.mktemp("job"))), "", None)
        for one in (plan, plan.with_shift(rank, ns))
    ]
    before, after = ([msgspec.structs.replace(row, own_ns=0) for row in one.ranks] for one in answers)
    assert before == after
    assert [msgspec.structs.replace(one, ranks=[]) for one in answers] == [
        msgspec.structs.replace(answers[0], ranks=[])
    ] * 2


def test_the_late_rank_stands_out_and_its_cause_is_drawn(tmp_path: Path) -> None:
    step = of_training(tmp_path, 3, slow=2, step="ProfilerStep#2")
    assert [one.late for one in step.ranks] == [False, False, True]
    assert step.headline.startswith(
        "Step 2 takes 3.26 ms on all ranks together: rank 2 comes last at 1 collective"
    )
    assert sum(one.wait_us for one in step.ranks) == 6000.0 and step.ranks[2].wait_us == 0
    host_of = step.ranks[2].host
    longest = max(range(len(host_of.dur_ns)), key=lambda at: host_of.dur_ns[at])
    assert (host_of.dur_ns[longest], step.names[host_of.name[longest]]) == (3 * MS, "aten::item")
    (joined,) = step.collectives
    assert [(call.rank, call.last, call.for_rank) for call in joined.calls] == [
        (0, False, 2),
        (1, False, 2),
        (2, True, None),
    ]


def test_own_times_lead_to_the_call_on_the_ranks_timeline(tmp_path: Path) -> None:
    made = training(tmp_path, 2, 3, lambda rank, step: late(1).get(rank, Does()))
    step = side_by_side(SideBySide(made), "ProfilerStep#2", None)
    for call in step.collectives[0].calls:
        trace, lanes = made.ranks[call.rank].profile.trace, step.ranks[call.rank]
        assert call.start_ns + lanes.own_ns == trace.ts[call.row] - trace.window()[0]


def test_of_many_ranks_the_outliers_are_shown(tmp_path: Path) -> None:
    step = of_training(tmp_path, 12, slow=7)
    shown = [one.rank for one in step.ranks]
    assert shown[0] == 7 and len(shown) == MAX_RANKS
    assert step.notes[0].startswith("8 of 12 ranks are shown")
    assert {call.rank for one in step.collectives for call in one.calls} == set(shown)


def test_an_answer_is_bounded_and_what_is_joined_is_counted(tmp_path: Path) -> None:
    """20,000 kernels of 1 µs, half of the time."""
    events = [
        event for at in range(20_000) for event in launched("gemm", 2_000 * at, 2_000 * at + 900, 1_000)
    ]
    made = written(tmp_path, {0: events, 1: [kernel("gemm", 1.0, 2.0)]})
    step = side_by_side(SideBySide(made), "", None)
    assert step.step is None and step.steps == []
    gpu = step.ranks[0].gpu
    assert BUCKETS // 2 < len(gpu.start_ns) <= 2 * BUCKETS + 2
    filled = sum(ns * share for ns, share in zip(gpu.dur_ns, gpu.busy))
    assert filled == pytest.approx(20_000 * 1_000, rel=0.01)
    closer = side_by_side(SideBySide(made), "", (10 * MS, 10 * MS + 20_000)).ranks[0].gpu
    assert set(closer.dur_ns) == {1_000} and set(closer.busy) == {1.0}


@pytest.mark.parametrize("window", [(5, 5), (9, 2), (-(10**15), 0), (0, 10**15)])
def test_windows_without_time_or_far_away_are_refused(tmp_path: Path, window: tuple[int, int]) -> None:
    about = SideBySide(training(tmp_path, 2, 2, lambda rank, step: Does()))
    with pytest.raises(BadRequest):
        side_by_side(about, "", window)
    with pytest.raises(BadRequest, match="ProfilerStep#9"):
        side_by_side(about, "ProfilerStep#9", None)


def test_compile_time_stands_in_the_step_that_compiled(tmp_path: Path) -> None:
    def compiles(begin: int) -> list[dict[str, object]]:
        names = ("_compile.compile_inner (dynamo_timed)", "bytecode_tracing (dynamo_timed)")
        return [host(name, begin, 2 * MS, "user_annotation") for name in names]

    def does(rank: int, step: int) -> Does:
        return Does(2 * MS, compiles) if (rank, step) == (1, 1) else Does()

    rows = training(tmp_path, 2, 3, does).of(step_rows)
    assert {(row.rank, row.step): row.compile_us for row in rows if row.compile_us} == {
        (1, "ProfilerStep#1"): 2000.0
    }
