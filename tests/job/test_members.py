"""job: which spans belong together, and a run of which not all can be read."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs import BASE, Does, polled, polled_in, training
from tb_torchcompile_plugin.analysis.causes.findings import findings
from tb_torchcompile_plugin.analysis.finding import Finding
from tb_torchcompile_plugin.analysis.ranks.job_findings import job_findings
from tb_torchcompile_plugin.analysis.ranks.job_report import rank_findings
from tb_torchcompile_plugin.api import joined
from tb_torchcompile_plugin.api import session as session_module
from tb_torchcompile_plugin.api.report import read_report
from tb_torchcompile_plugin.api.session import Session
from tb_torchcompile_plugin.errors import NotFound, UserError
from tb_torchcompile_plugin.job.job import Member, RecordedAt, TracedJob, members, one_rank, recorded_together
from tb_torchcompile_plugin.job.late import late
from tb_torchcompile_plugin.logdir.discovery import File, SpanFile, WorkerFiles
from tb_torchcompile_plugin.profile.model.launch_sequence import is_truncated, launch_sequence
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.cache import copies as anywhere
from tb_torchcompile_plugin.reader.trace.kineto import Trace
from traces import slice_, write_trace

pytestmark = pytest.mark.slow

# Its head can be read, and tells the rank.
DAMAGED = '{"distributedInfo": {"rank": 1, "world_size": 3}, "traceEvents": 7'
CYCLES = ("1790000000000000000", "1790000060000000000")


def worker(rank: int | None, *spans: str, name: str = "") -> WorkerFiles:
    name = name or f"rank{rank}"
    files = [SpanFile(span, File(f"{name}.{span}.pt.trace.json", 1, 5, "")) for span in spans]
    return WorkerFiles(name, files, rank=rank)


def later(span: str, ns: int) -> str:
    return str(int(span) + ns)


def test_spans_of_one_cycle_are_written_at_about_one_time() -> None:
    first, second = CYCLES
    ranks = [worker(0, first, second), worker(1, later(first, 900_000_000), later(second, -3_000_000))]
    newest = [Member(0, "rank0", second), Member(1, "rank1", later(second, -3_000_000))]
    assert members(ranks) == members(ranks, second) == members(ranks, "unknown") == newest
    older = [Member(0, "rank0", first), Member(1, "rank1", later(first, 900_000_000))]
    assert members(ranks, first) == members(ranks, later(first, 900_000_000)) == older


def test_of_a_worker_that_was_started_again_the_later_one_counts() -> None:
    ranks = [worker(0, CYCLES[1]), worker(1, CYCLES[0], name="a1"), worker(1, CYCLES[1], name="b1")]
    assert members(ranks) == [Member(0, "rank0", CYCLES[1]), Member(1, "b1", CYCLES[1])]


def test_workers_without_spans_or_ranks_are_of_no_job() -> None:
    assert members([worker(0, "1"), worker(1), worker(None, "1", name="host_1")]) == []
    three = [worker(2, "1"), worker(0, "1"), worker(1)]
    assert [one.rank for one in members(three)] == [0, 2]


def run_of(folder: Path, ranks: int) -> Path:
    training(folder, ranks, 3, lambda rank, step: Does())
    return folder


def test_a_job_is_read_once(tmp_path: Path) -> None:
    session = Session([("", str(run_of(tmp_path, 3)))])
    job = polled(session)
    assert job.numbers == [0, 1, 2] and job.missing == [] and polled(session) is job


def test_one_rank_is_no_job(tmp_path: Path) -> None:
    run_of(tmp_path, 2)
    (tmp_path / "rank1.1.pt.trace.json").unlink()
    with pytest.raises(NotFound, match="does not contain traces of two ranks"):
        Session([("", str(tmp_path))]).poll_job(".")


def test_a_rank_that_cannot_be_read_is_missing_and_the_others_are_shown(tmp_path: Path) -> None:
    run_of(tmp_path, 3)
    damaged = tmp_path / "rank1.1.pt.trace.json"
    whole = damaged.read_bytes()
    damaged.write_text(DAMAGED)
    session = Session([("", str(tmp_path))])
    job = polled(session)
    assert job.numbers == [0, 2] and job.missing == [1]
    assert damaged.name in job.unread[1].file
    assert session.poll_job(".") is job, "what cannot be read is not read for each question"
    report = read_report(str(tmp_path)).runs[0].job
    assert report is not None and report.missing_ranks == [1]
    assert [warning.file for warning in report.warnings] == [str(damaged)]
    damaged.write_bytes(whole)
    session.catalog.look()
    assert polled(session).missing == [], "it was written again"


def test_where_only_one_rank_can_be_read_it_is_said_why(tmp_path: Path) -> None:
    run_of(tmp_path, 2)
    (tmp_path / "rank1.1.pt.trace.json").write_text(DAMAGED)
    with pytest.raises(UserError, match="rank1"):
        polled_in(tmp_path)
    assert read_report(str(tmp_path)).runs[0].job is None


def written_at(folder: Path, rank: int, seconds: float, host: str | None = None) -> None:
    """A trace of 10 ms that was recorded so long after the others."""
    header: dict[str, object] = {"distributedInfo": {"rank": rank, "world_size": 3}}
    if host:
        header["host_name"] = host
    base = BASE + round(seconds * 1e9)
    name = f"rank{rank}.{base}.pt.trace.json"
    write_trace(folder, [slice_("aten::mm", 0, 10_000)], name, baseTimeNanoseconds=base, **header)


def test_what_an_earlier_start_left_is_not_of_the_job(tmp_path: Path) -> None:
    """Rank 1 was not recorded again: steps and groups are the same, and the time is not."""
    for rank, seconds in ((0, 0), (1, -3600), (2, 0.001)):
        written_at(tmp_path, rank, seconds)
    session = Session([("", str(tmp_path))])
    job = polled(session)
    assert job.numbers == [0, 2] and job.missing == [1]
    assert "recorded at a different time" in job.unread[1].problem and "rank1" in job.unread[1].file
    report = read_report(str(tmp_path)).runs[0].job
    assert report and report.missing_ranks == [1] and len(report.warnings) == 1
    assert session.poll_job(".", str(BASE)) is job, "by the span of another rank it is the same job"
    session.close()


def test_the_span_that_is_asked_for_tells_the_time(tmp_path: Path) -> None:
    for rank, seconds in ((0, 0), (1, 0), (2, 7200), (3, 7200), (4, 7200)):
        written_at(tmp_path, rank, seconds)
    assert polled_in(tmp_path).numbers == [2, 3, 4], "most of them"
    assert polled_in(tmp_path, str(BASE)).numbers == [0, 1]


@pytest.mark.parametrize(
    ("hosts", "seconds", "ranks"),
    [
        (("a", "a"), 1, []),
        (("a", "b"), 1, [0, 1]),
        (("a", "b"), 61, []),
        ((None, None), 1, [0, 1]),
        (("a", "a"), 0.005, [0, 1]),
    ],
)
def test_spans_of_one_host_overlap_and_clocks_of_several_may_be_wrong(
    tmp_path: Path, hosts: tuple[str | None, str | None], seconds: float, ranks: list[int]
) -> None:
    written_at(tmp_path, 0, 0, hosts[0])
    written_at(tmp_path, 1, seconds, hosts[1])
    if ranks:
        assert polled_in(tmp_path).numbers == ranks
    else:
        with pytest.raises(UserError, match="at the same time"):
            polled_in(tmp_path)


@given(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 40)), min_size=1, max_size=8), st.data())
def test_each_group_is_what_overlaps(spans: list[tuple[int, int]], data: st.DataObject) -> None:
    """Against all pairs: two are together where a chain of those that overlap leads from one to the other."""
    profiles = {Member(rank, f"rank{rank}", str(rank)): recorded(*one) for rank, one in enumerate(spans)}
    like = data.draw(st.integers(0, len(spans) - 1))
    linked = {like}
    for _ in spans:
        linked |= {
            rank
            for rank, (begin, ns) in enumerate(spans)
            for other in linked
            if begin <= sum(spans[other]) and spans[other][0] <= begin + ns
        }
    assert {one.rank for one in recorded_together(profiles, str(like))} == linked
    most = recorded_together(profiles)
    assert len(most) >= len(linked)


def recorded(begin: int, ns: int) -> RecordedAt:
    return RecordedAt("a", begin, begin + ns)


def test_a_rank_costs_itself_whatever_happens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_of(tmp_path, 3)
    read = anywhere.read

    def broken(file: File, *how: Any) -> Trace:
        if "rank1" in file.name:
            raise ZeroDivisionError
        return read(file, *how)

    monkeypatch.setattr(session_module, "read", broken)
    session = Session([("", str(tmp_path))])
    job = polled(session)
    assert job.numbers == [0, 2] and "ZeroDivisionError" in job.unread[1].problem
    whole = session.job(".")
    assert whole is not None and whole.numbers == [0, 2]
    session.close()


def test_a_rank_that_cannot_be_asked_costs_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_of(tmp_path, 3)

    def no_costs(profile: Profile) -> None:
        if profile.trace.distributed["rank"] == 2:
            raise KeyError("lane")

    monkeypatch.setattr(joined, "digest", no_costs)
    job = polled_in(tmp_path)
    assert job.numbers == [0, 1] and "KeyError" in job.unread[2].problem
    report = read_report(str(tmp_path)).runs[0].job
    assert report is not None and report.missing_ranks == [2]


def test_a_rank_that_is_late_behind_many_calls(tmp_path: Path) -> None:
    """The model of a rank holds more than 8,000 calls."""

    def does(rank: int, step: int) -> Does:
        return Does(500_000_000 if (rank, step) == (1, 38) else 0, kernels=200)

    training(tmp_path, 2, 40, does)
    job = polled_in(tmp_path)
    assert all(len(one.profile.of(launch_sequence)) > 8_000 for one in job.ranks)
    (one,) = job.of(late)
    assert one.rank_index == 1 and one.excess == pytest.approx(500_000_000, rel=0.01)
    assert job.of(job_findings)[0].row == "ranks:1"
    cut = TracedJob(tuple(one._replace(profile=replace(one.profile, most_calls=6_000)) for one in job.ranks))
    assert not cut.of(late) and not cut.of(job_findings)


@pytest.mark.slow
def test_a_rank_has_one_model(tmp_path: Path) -> None:
    """Its steps get slower at the half: all that is said of them is of the same ones, alone and in the job."""

    def does(rank: int, step: int) -> Does:
        return Does(2_000_000 if rank and step >= 15 else 50_000, kernels=300, kernel_ns=3_000)

    training(tmp_path, 2, 30, does)
    session = Session([("", str(tmp_path))])
    job = polled(session)
    for one in job.ranks:
        assert one.profile.span and one.profile is session.profile(".", one.worker, one.profile.span.span)
        steps = predicted_steps(one.profile.of(findings).findings)
        assert steps and steps == predicted_steps(rank_findings(one_rank(job, one.rank)).findings)
        assert not one.profile.of(is_truncated)
    session.close()
    assert predicted_steps(read_report(str(tmp_path)).findings) == steps


def predicted_steps(rows: Sequence[Finding]) -> set[int]:
    """µs of a step, as they tell it."""
    return {round(row.predicted.step_us) for row in rows if row.predicted}


def test_a_trace_has_the_same_model_alone_and_in_its_job(tmp_path: Path) -> None:
    training(tmp_path, 2, 30, lambda rank, step: Does(kernels=500))
    other = tmp_path / "rank1.1.pt.trace.json"
    moved = other.rename(tmp_path / "later")
    session = Session([("", str(tmp_path))])
    alone = session.profile(".", "rank0", "1")
    moved.rename(other)
    session.catalog.look()
    rank = polled(session).ranks[0].profile
    session.close()
    assert alone.of(is_truncated) and rank.of(is_truncated)
    assert alone.most_calls == rank.most_calls
    assert len(alone.of(launch_sequence)) == len(rank.of(launch_sequence))
