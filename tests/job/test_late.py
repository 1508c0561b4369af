"""job: why a rank comes late, and what a step would take if it did not, in loops with one planted cause."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from job_plans import Plan, job, plans
from jobs import ALL_REDUCE, PG, Does, doing, host, launched, metadata_of, training, written
from profiles import profile_of
from recordings import Recording
from tb_torchcompile_plugin.analysis.finding import Finding
from tb_torchcompile_plugin.analysis.formatting import shortest_unique_paths
from tb_torchcompile_plugin.analysis.ranks.job_findings import is_symptom, job_findings
from tb_torchcompile_plugin.analysis.ranks.job_report import job_report
from tb_torchcompile_plugin.analysis.ranks.job_rows import late_ranks
from tb_torchcompile_plugin.job.as_early import has_models, job_clocks, step_of_job_ns, tied, without_excess
from tb_torchcompile_plugin.job.instances import blame
from tb_torchcompile_plugin.job.job import JobRank, TracedJob
from tb_torchcompile_plugin.job.late import late
from tb_torchcompile_plugin.job.steps import waited_in_steps
from tb_torchcompile_plugin.profile.model.model import recorded_clock
from traces import Event

MS = 1_000_000
RANKS, STEPS, LATE = 3, 5, 2
WORLD = PG("0", (0, 1))


PYTHON = doing("train.py(12): tokenize", 3 * MS, "python_function")
LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def only(rank: int, does: Does) -> Callable[[int, int], Does]:
    """This rank does it, the others what all do."""
    return lambda one, step: does if one == rank else Does()


CAUSES = {
    "python": (PYTHON, "runs Python for 3.00 ms per step at train.py:12"),
    "nothing": (Does(3 * MS), "has 3.00 ms per step unaccounted for"),
    "data_loading": (doing(LOADER, 3 * MS, "user_annotation"), "waits for its next batch for 3.00 ms"),
    "compile": (doing("_compile.compile_inner (dynamo_timed)", 3 * MS), "compiles for 3.00 ms"),
    "garbage": (doing("Python GC", 3 * MS), "collects garbage for 3.00 ms"),
    "operator": (
        doing("aten::nonzero", 3 * MS),
        "runs operators for an extra 3.00 ms per step (aten::nonzero)",
    ),
    "slower_kernels": (Does(kernels=20, kernel_ns=250_000), "the same kernels"),
    "more_work": (Does(kernels=50), "computes for an extra"),
}
USUAL = {"slower_kernels": Does(kernels=20), "more_work": Does(kernels=20)}


def planted(folder: Path, cause: str) -> TracedJob:
    does, usual = CAUSES[cause][0], USUAL.get(cause, Does())
    return training(folder, RANKS, STEPS, lambda rank, step: does if rank == LATE else usual)


@pytest.mark.parametrize("cause", CAUSES)
def test_the_planted_cause_is_the_job_s_first_finding(tmp_path: Path, cause: str) -> None:
    made = planted(tmp_path, cause)
    lates = made.of(late)
    assert {one.rank_index for one in lates} == {LATE} and len(lates) == STEPS
    for one in lates:
        assert one.excess == sum(one.parts.values()) == pytest.approx(one.lateness, rel=0.02)
        assert next(iter(one.parts)).cause == cause
    (row,) = made.of(late_ranks)
    assert row.rank == LATE and row.excess_us == pytest.approx(sum(part.excess_us for part in row.causes))
    first = made.of(job_findings)[0]
    assert first.rule == "late_rank" and first.row == f"ranks:{LATE}"
    assert first.title.startswith(f"Rank {LATE} is the straggler") and CAUSES[cause][1] in first.title
    assert made.of(job_report).headline == f"{first.title}."


@pytest.mark.parametrize("cause", CAUSES)
def test_without_the_excess_a_step_is_shorter_by_what_was_planted(tmp_path: Path, cause: str) -> None:
    made = planted(tmp_path, cause)
    (healthy := tmp_path / "healthy").mkdir()
    usual = training(healthy, RANKS, STEPS, lambda rank, step: USUAL.get(cause, Does()))
    after = step_of_job_ns(job_clocks(made, {LATE: without_excess(made, LATE)}))
    now, wanted = step_of_job_ns(made.of(job_clocks)), step_of_job_ns(usual.of(job_clocks))
    shared = 3 * MS / RANKS if cause == "more_work" else 0  # work does not vanish
    assert now - wanted == pytest.approx(3 * MS, rel=0.02)
    assert after == pytest.approx(wanted + shared, abs=0.02 * (now - wanted))


def test_a_gpu_that_is_behind_already_is_late_by_what_it_runs(tmp_path: Path) -> None:
    """Most of what it is late by at the second collective was queued before the first: its host is not to blame."""
    made = slow_gpu_behind_two_collectives(tmp_path)
    (row,) = made.of(late_ranks)
    assert row.rank == 1 and {cause.cause for cause in row.causes} == {"slower_kernels"}
    assert row.excess_us == pytest.approx(STEPS * 8_000)  # of 4 ms a step that its peer computes


def slow_gpu_behind_two_collectives(folder: Path) -> TracedJob:
    """Gradients are reduced on a stream of their own, and the host never waits; rank 1's GPU is three times as slow."""
    world = PG("0", (0, 1))
    events: dict[int, list[Event]] = {rank: [] for rank in world.ranks}
    for number in range(STEPS):
        at = 1 * MS + number * 30 * MS
        first, second = (
            {rank: at + (MS + 3 * MS * more) * (1 + 2 * rank) for rank in world.ranks} for more in (0, 1)
        )
        for rank, mine in events.items():
            slower, call = 1 + 2 * rank, at + rank * 1_000
            mine.append(host(f"ProfilerStep#{number}", at - MS // 2, 29 * MS, "user_annotation"))
            mine += launched("a", call, at, MS * slower, grid=[8, 1, 1])
            mine += launched("b", call + 10_000, at + MS * slower, 2 * MS * slower, grid=[8, 1, 1])
            mine += _reduced(world, 2 * number, call + 20_000, first[rank], max(first.values()) + MS // 4)
            mine += launched("c", call + 30_000, at + 3 * MS * slower, MS * slower, grid=[8, 1, 1])
            end = max(second.values()) + MS // 4
            mine += _reduced(world, 2 * number + 1, call + 40_000, second[rank], end)
    return written(folder, events, [world])


def _reduced(group: PG, seq: int, launch: int, begin: int, end: int) -> list[Event]:
    call, work = launched(ALL_REDUCE, launch, begin, end - begin, **metadata_of("allreduce", group, Seq=seq))
    return [call, {**work, "tid": 20, "args": work["args"] | {"stream": 20}}]


def test_the_others_wait_no_longer_than_a_step(tmp_path: Path) -> None:
    """They waited 30 ms before the steps, and wait 1 ms in each."""
    world = PG("0", (0, 1))
    events: dict[int, list[Event]] = {rank: [] for rank in world.ranks}
    for rank, mine in events.items():
        mine += _reduced(world, 0, MS, MS + 30 * MS * rank, 32 * MS)
        for number in range(STEPS):
            at = (40 + 5 * number) * MS
            mine.append(host(f"ProfilerStep#{number}", at - MS // 2, 5 * MS, "user_annotation"))
            mine += launched("a", at, at + MS // 10, MS * (1 + rank), grid=[8, 1, 1])
            mine += _reduced(world, number + 1, at + MS // 20, at + 2 * MS + MS * rank, at + 4 * MS)
    made = written(tmp_path, events, [world])
    assert made.of(blame).caused_by(2).tolist() == [0, (30 + STEPS) * MS]
    inside = made.of(waited_in_steps)
    assert (inside.steps, inside.caused_by.tolist()) == (STEPS, [0, STEPS * MS])


def test_ranks_that_take_turns(tmp_path: Path) -> None:
    made = training(tmp_path, 3, 7, lambda rank, step: PYTHON if step % 3 == rank else Does())
    assert {one.rank_index for one in made.of(late)} == {0, 1, 2}
    first = made.of(job_findings)[0]
    assert first.rule == "ranks_take_turns" and "(0, 1, 2)" in first.title and first.where == ["train.py:12"]


def test_nobody_is_to_blame_in_a_healthy_job(tmp_path: Path) -> None:
    made = training(tmp_path, 4, 5, lambda rank, step: Does(1_000 * rank, kernels=40))
    assert not made.of(late) and not made.of(late_ranks) and not made.of(job_findings)
    assert kept(made, 0, "communication") == []  # the job tells what transfers take
    assert "Ranks wait little for each other" in made.of(job_report).headline
    equal = training(tmp_path / "equal", 3, 3, lambda rank, step: Does(kernels=40))
    assert equal.of(job_report).headline.endswith("No rank waits for another.")


def kept(job: TracedJob, rank: int, *rules: str, where: str = "") -> list[str]:
    """Which of these findings of a rank are told beside the job's."""
    rows = [
        Finding(rule, "info", "", {}, None, "overview", None, "", where=[where] if where else [])
        for rule in rules
    ]
    return [row.rule for row in rows if not is_symptom(job, rank, row)]


def test_symptoms_are_of_the_rank_that_has_them(tmp_path: Path) -> None:
    """Those that wait are not told to overlap their communication, nor how much they move; the cause is told once, of
    the job."""
    job = planted(tmp_path, "garbage")
    rules = ("communication", "small_collectives", "garbage_collection", "guards")
    assert kept(job, 0, *rules) == ["garbage_collection", "guards"]
    assert kept(job, LATE, *rules) == ["small_collectives", "guards"]


def test_another_line_of_a_late_rank_is_told(tmp_path: Path) -> None:
    job = planted(tmp_path, "python")
    (line,) = job.of(job_findings)[0].where[1:]
    assert kept(job, LATE, "python", where=line) == []
    assert kept(job, LATE, "python", where="train.py:999") == ["python"]


def ddp(recording: Recording) -> TracedJob:
    paths = sorted(recording("ddp").glob("*.trace.json"))
    return TracedJob(tuple(JobRank(rank, f"rank{rank}", profile_of(path)) for rank, path in enumerate(paths)))


def replayed(made: TracedJob) -> Iterator[tuple[object, object]]:
    return zip(made.of(job_clocks), (one.profile.of(recorded_clock) for one in made.ranks))


def test_the_recorded_steps_of_two_ranks_come_back(recording: Recording) -> None:
    made = ddp(recording)
    for times, wanted in replayed(made):
        assert times == wanted
    assert len(made.of(late)) and all(one.excess == sum(one.parts.values()) for one in made.of(late))


@given(plans())
def test_the_recorded_steps_of_made_up_jobs_come_back(
    tmp_path_factory: pytest.TempPathFactory, plan: Plan
) -> None:
    made = job(plan, tmp_path_factory.mktemp("job"), "id")
    if made.of(has_models):
        for times, wanted in replayed(made):
            assert times == wanted


def test_recorded_steps_come_back_where_clocks_are_not_known_that_well(tmp_path: Path) -> None:
    """The second one is over on rank 0, by its clock, before rank 1 has come."""
    events: dict[int, list[Event]] = {0: [], 1: []}
    for rank, second in ((0, 120_000), (1, 140_000)):
        for number, (begin, ns) in enumerate(((20_000, 9_000), (second, 5_000), (220_000, 9_000))):
            metadata = metadata_of("allreduce", WORLD, Seq=number)
            events[rank] += launched(ALL_REDUCE, begin - 9_000, begin, ns, **metadata)
    made = written(tmp_path, events)
    assert len(made.of(tied).work) == 6 and made.of(tied).transfer.min() < 0
    for clock, wanted in replayed(made):
        assert clock == wanted


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 4), st.sampled_from([0, 2 * MS, 7 * MS])), max_size=4
    )
)
def test_causes_sum_to_the_excess_whatever_happens(
    tmp_path_factory: pytest.TempPathFactory, times: list[tuple[int, int, int]]
) -> None:
    extra = {(rank, step): ns for rank, step, ns in times}

    def does(rank: int, step: int) -> Does:
        return Does(extra.get((rank, step), 0), kernels=1 + step)

    made = training(tmp_path_factory.mktemp("job"), 3, 5, does)
    for one in made.of(late):
        assert one.excess == sum(one.parts.values())
        step = one.instance
        begun = [extra.get((rank, step), 0) for rank in range(3)]
        assert begun[one.rank_index] == max(begun) and one.lateness == max(begun) - sorted(begun)[1]
    now = step_of_job_ns(made.of(job_clocks))
    for place in range(3):
        assert step_of_job_ns(job_clocks(made, {place: without_excess(made, place)})) <= now
    assert np.array([one.step for one in made.of(job_clocks)]).min() == now


def test_lines_in_files_of_one_name_are_told_apart(tmp_path: Path) -> None:
    """By as much of their paths as that takes."""

    def both(begin: int) -> list[Event]:
        return [
            host(f"/home/user/{folder}/step.py(12): run", begin + at, 2 * MS, "python_function")
            for folder, at in (("a", 0), ("b", 2 * MS))
        ]

    made = training(tmp_path, RANKS, STEPS, only(LATE, Does(4 * MS, both)))
    (row,) = made.of(late_ranks)
    lines = {cause.where for cause in row.causes if cause.cause == "python"}
    assert lines == {"a/step.py:12", "b/step.py:12"}
    short = {"x/a.py": "x/a.py", "y/a.py": "y/a.py", "y/b.py": "b.py", "a.py": "a.py", "": ""}
    assert shortest_unique_paths([*short]) == short
