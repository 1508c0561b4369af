"""A job of many ranks by its digests: what was planted is told, and nothing but digests is opened."""

from pathlib import Path
from typing import Any

import pytest
from s3fs import S3FileSystem

from jobs import polled, polled_in
from many_ranks import HOST, PLANTED, Planted, write_job
from served import s3_server
from tb_torchcompile_plugin.analysis.ranks.job_report import job_report
from tb_torchcompile_plugin.analysis.ranks.job_rows import late_ranks
from tb_torchcompile_plugin.api.session import Session
from tb_torchcompile_plugin.errors import NotFound, UserError
from tb_torchcompile_plugin.job.chain import chain, ends, saved_share
from tb_torchcompile_plugin.job.digest.digest_pb2 import Digest
from tb_torchcompile_plugin.job.instances import instances, waits
from tb_torchcompile_plugin.job.job import Job, TracedJob
from tb_torchcompile_plugin.logdir import discovery, filesystem
from tb_torchcompile_plugin.reader import merge as log_owners

pytestmark = pytest.mark.slow

RANKS = 128


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("many")
    write_job(made, RANKS, traces=True)
    return made


@pytest.fixture
def job(folder: Path) -> Job:
    read: Job = polled_in(folder)
    return read


def test_a_rank_and_a_host_that_are_late_are_told_with_their_lines(job: Job) -> None:
    assert not isinstance(job, TracedJob) and len(job.digests) == job.world_size == RANKS
    rows = {row.rank: row for row in job.of(late_ranks)}
    assert rows[PLANTED.rank].causes[0].where == "train.py:41"
    of_host = range(PLANTED.host * HOST, (PLANTED.host + 1) * HOST)
    assert {*rows} == {PLANTED.rank, *of_host}, "ranks that only wait for these are not late"
    for rank in of_host:
        (cause,) = rows[rank].causes
        assert (cause.cause, cause.where) == ("data_loading", "train.py:38")
        assert rows[rank].excess_us == 4 * PLANTED.host_ns / 1000, "told once, in whichever group it shows"


def test_the_chain_gives_the_recording_back(job: Job) -> None:
    held = job.of(chain)
    last = [int(job.of(waits).end[held.row[held.rank_index == place]].max()) for place in range(RANKS)]
    assert ends(held).tolist() == last


def test_what_is_saved_is_what_was_planted(tmp_path: Path) -> None:
    alone = Planted(rank=5, host=-1, pair=-1)
    for name, planted in (("with", alone), ("without", alone._replace(rank=-1))):
        write_job(tmp_path / name, 16, planted)
    session = Session([("", str(tmp_path))])
    made = {name: session.poll_job(name) for name in ("with", "without")}
    session.close()
    lengths = {}
    for name, one in made.items():
        assert isinstance(one, Job)
        times = one.of(waits)
        lengths[name] = int(times.end.max() - times.begin[one.of(instances).rows].min())
    assert isinstance(made["with"], Job)
    share = saved_share(made["with"], [5])
    assert share == pytest.approx(1 - lengths["without"] / lengths["with"], abs=0.01)


def test_no_trace_is_opened(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    read = filesystem.read_range

    def noted(path: str, start: int, stop: int) -> bytes:
        opened.append(path)
        return read(path, start, stop)

    for module in (filesystem, discovery, log_owners):
        if hasattr(module, "read_range"):
            monkeypatch.setattr(module, "read_range", noted)
    session = Session([("", str(folder))])
    (run,) = session.runs().runs
    polled(session)
    session.close()
    assert (len(run.workers), run.ranks) == (RANKS, RANKS) and not [
        one for one in opened if "trace.json" in one
    ]


def test_a_digest_of_which_a_part_is_damaged_costs_its_rank(tmp_path: Path) -> None:
    write_job(tmp_path, 128)
    (path,) = tmp_path.glob(f"*_{100_000 + PLANTED.rank}.*.digest.pb")
    made = Digest.FromString(path.read_bytes())
    made.host = made.host[:-20]
    path.write_bytes(made.SerializeToString())
    report = polled_in(tmp_path).of(job_report)
    assert report.missing_ranks == [PLANTED.rank] and report.findings
    assert ["cut off" in notice.problem for notice in report.warnings] == [True]


def test_of_a_store_only_digests_are_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few listings, one request for each digest, and no byte of a trace."""
    write_job(tmp_path, 128, traces=True)
    asked: list[tuple[str, str]] = []
    call = S3FileSystem._call_s3

    async def noted(store: S3FileSystem, method: str, *arguments: Any, **more: Any) -> Any:
        asked.append((method, str(more.get("Key", ""))))
        return await call(store, method, *arguments, **more)

    with s3_server("ranks"):
        filesystem._store("s3://ranks").put(f"{tmp_path}/", "ranks/run/", recursive=True)
        monkeypatch.setattr(S3FileSystem, "_call_s3", noted)
        session = Session([("", "s3://ranks")])
        assert session.runs().runs[0].ranks == 128
        job = polled(session, run="run")
        session.close()
        monkeypatch.undo()
    assert len(job.digests) == 128
    opened = [key for method, key in asked if method == "get_object"]
    assert len(opened) == 128 and all(key.endswith(".digest.pb") for key in opened)
    assert len(asked) - len(opened) <= 10


def test_many_ranks_without_digests_are_not_read(tmp_path: Path) -> None:
    for rank in range(70):
        (tmp_path / f"rank{rank}.1795347931600000000.pt.trace.json").write_text('{"traceEvents": []}')
    session = Session([("", str(tmp_path))])
    with pytest.raises(UserError, match="tb-torchcompile index"):
        session.poll_job(".")
    session.close()


def test_a_rank_that_is_not_there_is_told(folder: Path) -> None:
    session = Session([("", str(folder))])
    polled(session)
    with pytest.raises(NotFound, match="rank 4000"):
        session.poll_rank(".", "", 4000)
    session.close()
