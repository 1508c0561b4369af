"""A job whose ranks are more than readings are remembered is read to its end, each trace once; and no request waits for
what is made of it."""

import threading
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from browser.rank_traces import write_job
from served import in_the_end
from tb_torchcompile_plugin.analysis.causes.findings import Findings
from tb_torchcompile_plugin.api import read_queue
from tb_torchcompile_plugin.api import session as session_module
from tb_torchcompile_plugin.api.joined import job_of
from tb_torchcompile_plugin.api.read_queue import Progress
from tb_torchcompile_plugin.api.routes import JOB, ROUTES, Answer, Route, number, poll
from tb_torchcompile_plugin.api.session import Session
from tb_torchcompile_plugin.errors import NotFound
from tb_torchcompile_plugin.job.job import Job, TracedJob

pytestmark = pytest.mark.slow


def test_a_job_of_many_ranks_is_read_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_queue, "KEPT", 2)
    write_job(tmp_path, ranks=5, steps=2, late=1)
    session = Session([("", str(tmp_path))])
    job = in_the_end(lambda: session.poll_job("."))
    assert job.numbers == [0, 1, 2, 3, 4]
    assert session.poll_job(".") is job
    session.close()


def test_no_request_waits_until_the_job_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_job(tmp_path, ranks=2, steps=2, late=1)
    session, goes_on, makers = Session([("", str(tmp_path))]), threading.Event(), []
    really = job_of

    def slow(read: Mapping[object, object], like: str = "") -> TracedJob | None:
        makers.append(threading.current_thread())
        assert goes_on.wait(120)
        return really(read, like)  # type: ignore[arg-type]

    monkeypatch.setattr(session_module, "job_of", slow)
    deadline = time.monotonic() + 120
    while not makers:
        assert isinstance(session.poll_job("."), Progress) and time.monotonic() < deadline
        time.sleep(0.02)
    made = session.poll_job(".")
    assert isinstance(made, Progress) and made.bytes_read == made.bytes_total > 0
    goes_on.set()
    assert in_the_end(lambda: session.poll_job(".")).numbers == [0, 1]
    assert len(makers) == 1 and makers[0] is not threading.current_thread()
    session.close()


def test_no_request_waits_for_what_is_asked_of_a_rank(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_job(tmp_path, ranks=2, steps=2, late=1)
    session, goes_on, asked = Session([("", str(tmp_path))]), threading.Event(), []

    def slow(job: Job, rank: int) -> Findings:
        asked.append(rank)
        assert goes_on.wait(120)
        return Findings([], 0)

    monkeypatch.setattr(session_module, "PATIENCE_S", 0.01)
    route = Route("slow", JOB, slow, (number("rank"),))

    def ask(rank: int) -> Answer | Progress:
        return poll(session, route, {"run": ".", "rank": str(rank)})

    in_the_end(lambda: session.poll_job("."))
    assert isinstance(ask(0), Progress) and isinstance(ask(1), Progress) and isinstance(ask(0), Progress)
    goes_on.set()
    first = in_the_end(lambda: ask(0))
    assert isinstance(first, Findings) and in_the_end(lambda: ask(1)) is not first
    assert sorted(asked) == [0, 1] and ask(0) is first
    session.close()


def test_a_rank_that_is_not_there_is_told(tmp_path: Path) -> None:
    write_job(tmp_path, ranks=2, steps=2, late=1)
    session = Session([("", str(tmp_path))])
    with pytest.raises(NotFound, match="rank 7"):
        in_the_end(lambda: poll(session, ROUTES["rank_findings"], {"run": ".", "rank": "7"}))
    session.close()
