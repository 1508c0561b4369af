"""jobs.py of compare: two jobs of as many ranks side by side, in the answer, over HTTP's route and in the terminal."""

import json
from dataclasses import replace
from pathlib import Path
from time import monotonic, sleep

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs import TRANSFER, Does, doing, training
from tb_torchcompile_plugin.analysis.compare.jobs import Jobs, JobsCompared, RankCompared, compare_jobs
from tb_torchcompile_plugin.analysis.ranks.job_rows import collective_rows, rank_rows
from tb_torchcompile_plugin.api.read_queue import Progress
from tb_torchcompile_plugin.api.routes import ROUTES, poll
from tb_torchcompile_plugin.api.session import Session
from tb_torchcompile_plugin.cli.command import main
from tb_torchcompile_plugin.job.job import TracedJob
from tb_torchcompile_plugin.profile.model.launch_sequence import launch_sequence

pytestmark = pytest.mark.slow

MS = 1_000_000
PARTS = (
    *("compute", "overlapped", "exposed_transfer", "exposed_wait", "exposed_unknown", "exposed_memory"),
    "idle",
)


def late(folder: Path, ranks: int = 3, rank: int = 2, steps: int = 5) -> TracedJob:
    folder.mkdir()
    garbage = doing("Python GC", 3 * MS)
    return training(folder, ranks, steps, lambda one, step: garbage if one == rank else Does())


def healthy(folder: Path, ranks: int = 3, steps: int = 5) -> TracedJob:
    folder.mkdir()
    return training(folder, ranks, steps, lambda rank, step: Does())


def sums_up(row: RankCompared) -> None:
    for side in ("baseline", "candidate"):
        parts = [getattr(getattr(row, f"{part}_us"), side) for part in PARTS]
        assert sum(parts) == pytest.approx(getattr(row.step_us, side))


def test_a_late_rank_that_was_mended(tmp_path: Path) -> None:
    known = compare_jobs(Jobs(late(tmp_path / "a"), healthy(tmp_path / "b")))
    assert len(known.ranks) == 3
    assert known.step_time
    assert known.step_time.candidate.mean_us - known.step_time.baseline.mean_us == pytest.approx(-3_000)
    assert known.verdict.startswith("The candidate is faster: the job's step takes 262 µs instead of 3.26 ms")
    assert "0 µs instead of 2.00 ms (−100 %) per step" in known.verdict
    assert "In the baseline, rank 2 is the straggler (it collects garbage" in known.verdict
    assert known.verdict.endswith("In the candidate, no rank is a straggler.")
    for row in known.ranks:
        sums_up(row)
        assert row.outcome == "faster" and row.step_us.delta == pytest.approx(-3_000)
        waits = row.rank != 2
        assert (row.wait_us.baseline, row.wait_us.candidate) == pytest.approx((3_000 * waits, 0))
        assert (row.late_us.baseline, row.late_us.candidate) == pytest.approx((6_000 * (not waits), 0))
        assert row.exposed_wait_us.baseline == pytest.approx(3_000 * waits)
    (moved,) = known.collectives
    assert (moved.op, moved.instances.baseline, moved.instances.candidate) == ("all_reduce", 1, 1)
    assert (moved.transfer_us.baseline, moved.transfer_us.candidate) == pytest.approx(
        (3 * TRANSFER / 1000,) * 2
    )
    assert (moved.wait_us.baseline, moved.wait_us.candidate) == pytest.approx((6_000, 0))
    assert moved.busbw_gb_s.delta == 0


@given(st.lists(st.integers(0, 2_000_000), min_size=6, max_size=6), st.tuples(*[st.integers(3, 5)] * 2))
def test_numbers_are_those_of_each_job_by_step(
    tmp_path_factory: pytest.TempPathFactory, extra: list[int], steps: tuple[int, int]
) -> None:
    sides = []
    for some, count in zip((extra[:3], extra[3:]), steps):
        sides.append(
            training(tmp_path_factory.mktemp("job"), 3, count, lambda rank, step: Does(some[rank]))  # noqa: B023
        )
    known = compare_jobs(Jobs(*sides))
    for name, job, count in zip(("baseline", "candidate"), sides, steps):
        waited = {row.rank: row.wait_us for row in job.of(rank_rows)}
        for row in known.ranks:
            sums_up(row)
            assert getattr(row.wait_us, name) * count == pytest.approx(waited[row.rank])
        (moved,) = job.of(collective_rows)
        assert getattr(known.collectives[0].transfer_us, name) * count == pytest.approx(moved.transfer_us)


def test_of_other_sizes_there_is_a_reason_alone(tmp_path: Path) -> None:
    known = compare_jobs(Jobs(late(tmp_path / "a"), healthy(tmp_path / "b", ranks=2)))
    assert known.verdict.startswith("The baseline has 3 ranks, the candidate 2.")
    assert (known.ranks, known.collectives, known.step_time) == ([], [], None)


def test_of_one_that_lacks_ranks_there_is_a_reason(tmp_path: Path) -> None:
    whole = healthy(tmp_path / "a")
    part = TracedJob(whole.ranks[:2])
    known = compare_jobs(Jobs(whole, part))
    assert known.verdict.startswith("The trace of rank 2 can be read in the baseline only.")
    assert known.ranks == []


def test_of_two_that_lack_other_ranks_there_is_a_reason(tmp_path: Path) -> None:
    before, after = late(tmp_path / "a", ranks=4), healthy(tmp_path / "b", ranks=4)
    known = compare_jobs(Jobs(TracedJob(before.ranks[:2]), TracedJob(after.ranks[1:])))
    assert "rank 0 can be read in the baseline only, traces of ranks 2, 3" in known.verdict
    known = compare_jobs(Jobs(TracedJob(before.ranks[:3]), TracedJob(after.ranks[:3])))
    assert [row.rank for row in known.ranks] == [0, 1, 2]


def test_what_is_late_is_of_the_steps_that_are_compared(tmp_path: Path) -> None:
    """The model of a rank holds the first steps alone where there are many calls."""
    cut = TracedJob(
        tuple(
            one._replace(profile=replace(one.profile, most_calls=12))
            for one in late(tmp_path / "a", steps=12).ranks
        )
    )
    assert all(one.profile.of(launch_sequence).steps < 12 for one in cut.ranks)
    known = compare_jobs(Jobs(cut, healthy(tmp_path / "b", steps=12)))
    assert "rank 2 is the straggler (it collects garbage" in known.verdict


def test_a_job_and_itself(tmp_path: Path) -> None:
    job = healthy(tmp_path / "a")
    known = compare_jobs(Jobs(job, job))
    assert "ranks of one job" in known.verdict


def answered(session: Session, **ids: str) -> JobsCompared:
    until = monotonic() + 180
    while isinstance(answer := poll(session, ROUTES["compare_jobs"], ids), Progress):
        assert monotonic() < until
        sleep(0.01)
    assert isinstance(answer, JobsCompared)
    return answer


def test_the_route_and_the_command_say_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    late(tmp_path / "a")
    healthy(tmp_path / "b")
    session = Session([("", str(tmp_path))])
    known = answered(session, run="a", run2="b")
    assert known.verdict.startswith("The candidate is faster") and len(known.ranks) == 3
    assert answered(session, run="a", run2="b") is known, "it is made once"
    assert "ranks of one job" in answered(session, run="a", run2="a").verdict
    session.close()
    assert main(["compare", str(tmp_path / "a"), str(tmp_path / "b"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["jobs"]["verdict"] == known.verdict
    assert main(["compare", str(tmp_path / "a"), str(tmp_path / "b")]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert known.verdict in out and "ranks per step" in out


def test_without_a_job_on_a_side_spans_are_compared_as_ever(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    late(tmp_path / "a")
    healthy(tmp_path / "b")
    (tmp_path / "b" / "rank1.1.pt.trace.json").unlink()
    (tmp_path / "b" / "rank2.1.pt.trace.json").unlink()
    assert main(["compare", str(tmp_path / "a"), str(tmp_path / "b"), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["jobs"] is None and answer["step_time"]
