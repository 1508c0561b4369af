"""A job whose ranks are more than readings are remembered is read to its end, each trace once."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from browser.rank_traces import write_job
from tb_torchcompile_plugin.api import read_queue
from tb_torchcompile_plugin.api.session import Session
from tb_torchcompile_plugin.job.job import Job


def test_a_job_of_many_ranks_is_read_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_queue, "KEPT", 2)
    write_job(tmp_path, ranks=5, steps=2, late=1)
    session = Session([("", str(tmp_path))])
    deadline = time.monotonic() + 30
    while not isinstance(job := session.poll_job("."), Job):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert job.numbers == [0, 1, 2, 3, 4]
    assert session.poll_job(".") is job
    session.close()
