"""What is no file is passed over; where it takes a file's place, whoever asks is told and nobody waits."""

import os
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from werkzeug.test import Client

from compile_records import write_log
from many_ranks import PLANTED, course, digest_of
from served import ROOT, ask_span, error_of, make_client, make_plugin
from tb_torchcompile_plugin.cli.command import main
from tb_torchcompile_plugin.compile_log.summary import save as save_summary
from tb_torchcompile_plugin.compile_log.summary_pb2 import CompileSummary
from tb_torchcompile_plugin.job.digest.file import save as save_digest
from tb_torchcompile_plugin.logdir.discovery import digest_name
from traces import slice_, write_trace

SPAN = {"run": ".", "worker": "w", "span": "1"}
FIRST_DIGEST = digest_name("rank0", "1")
PATIENCE_S = 60


def a_socket(path: Path) -> None:
    """Its name may be longer than a socket's address."""
    with socket.socket(socket.AF_UNIX) as one:
        before = Path.cwd()
        os.chdir(path.parent)
        one.bind(path.name)
        os.chdir(before)


INSTEAD: dict[str, Callable[[Path], None]] = {
    "pipe": os.mkfifo,
    "socket": a_socket,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "folder": Path.mkdir,
    "nothing": lambda path: path.symlink_to("/nowhere"),
    "itself": lambda path: path.symlink_to(path),
}


@pytest.fixture
def logdir(tmp_path: Path) -> Path:
    """A trace with a summary and a log, and a job of two digests."""
    write_trace(tmp_path, [slice_("a", 1, 1)])
    summary = CompileSummary()
    summary.compilations.add(duration_ns=5)
    save_summary(summary, str(tmp_path / "w.1.pt.compile.pb"))
    write_log(tmp_path, "a")
    (tmp_path / "job").mkdir()
    ran = course(2, PLANTED)
    for rank in range(2):
        save_digest(digest_of(rank, 2, ran, PLANTED), str(tmp_path / "job" / digest_name(f"rank{rank}", "1")))
    return tmp_path


def asked(client: Client, name: str, ids: dict[str, str]) -> tuple[int, str]:
    """Status and message; whoever would wait for a pipe waits on a thread of its own."""
    pool = ThreadPoolExecutor(1)
    response = pool.submit(ask_span, client, ids, name).result(PATIENCE_S)
    pool.shutdown(wait=False)
    return response.status_code, "" if response.status_code == 200 else error_of(response)["file"]


@pytest.mark.parametrize("instead", INSTEAD)
def test_it_is_passed_over(logdir: Path, instead: str) -> None:
    for name in (
        *("w.2.pt.trace.json", "w.3.pt.trace.json.gz", "any.json", "w.2.pt.compile.pb"),
        *("dedicated_log_torch_trace_b.log", digest_name("rank2", "1")),
    ):
        INSTEAD[instead](logdir / name)
    client = make_client(make_plugin(logdir))
    answer = client.get(f"{ROOT}/runs").get_json()
    assert answer["warnings"] == []
    rows = [[one["span"] for one in worker["spans"]] for worker in answer["runs"][0]["workers"]]
    assert rows == [[], ["1"]]
    assert asked(client, "span", SPAN)[0] == asked(client, "compile", SPAN)[0] == 200
    assert main(["report", str(logdir)]) == 0


@pytest.mark.parametrize("instead", INSTEAD)
@pytest.mark.parametrize(
    ("name", "route", "run"),
    [
        ("w.1.pt.trace.json", "span", "."),
        ("w.1.pt.trace.json", "trace_file", "."),
        ("w.1.pt.compile.pb", "compile", "."),
        ("dedicated_log_torch_trace_a.log", "compile", "."),
        (f"job/{FIRST_DIGEST}", "job", "job"),
    ],
)
def test_it_takes_a_files_place(logdir: Path, instead: str, name: str, route: str, run: str) -> None:
    """After the listing. What else is known is still told, or the file is named."""
    client = make_client(make_plugin(logdir))
    runs = client.get(f"{ROOT}/runs").get_json()["runs"]
    worker = "w" if name.startswith("w.") else runs[0]["workers"][0]["worker"]
    (logdir / name).unlink()
    INSTEAD[instead](logdir / name)
    ids = {"run": run, "span": "1"} if run == "job" else {**SPAN, "worker": worker}
    status, file = asked(client, route, ids)
    assert status in (404, 422) and (file == str(logdir / name) or route == "job")
