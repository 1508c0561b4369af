"""job: which spans belong together, and a run of which not all can be read."""

from __future__ import annotations

from pathlib import Path
from time import monotonic, sleep

import pytest

from jobs import Does, training
from tb_torchcompile_plugin.api.read_queue import Progress
from tb_torchcompile_plugin.api.report import read_report
from tb_torchcompile_plugin.api.session import Session
from tb_torchcompile_plugin.errors import NotFound, UserError
from tb_torchcompile_plugin.job.job import Job
from tb_torchcompile_plugin.job.members import Member, members
from tb_torchcompile_plugin.logdir.discovery import File, SpanFile, WorkerFiles

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


def polled(session: Session) -> Job:
    until = monotonic() + 60
    while isinstance(job := session.poll_job("."), Progress):
        assert monotonic() < until
        sleep(0.01)
    return job


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
    with pytest.raises(NotFound, match="no traces of two ranks"):
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
    session.look()
    assert polled(session).missing == [], "it was written again"


def test_where_only_one_rank_can_be_read_it_is_said_why(tmp_path: Path) -> None:
    run_of(tmp_path, 2)
    (tmp_path / "rank1.1.pt.trace.json").write_text(DAMAGED)
    with pytest.raises(UserError, match="rank1"):
        polled(Session([("", str(tmp_path))]))
    assert read_report(str(tmp_path)).runs[0].job is None
