"""Names that a page, a terminal or a spreadsheet would obey: nowhere do they leave as they are."""

from pathlib import Path

import pytest
from werkzeug.test import Client

from browser.panels.hostile import IN_A_PATH, OBEYED, hostile_logdir
from profiles import SPAN_QUESTIONS
from served import ROOT, ask_span, error_of, make_client, make_plugin
from tb_torchcompile_plugin.cli.command import main

TURNING = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Client:
    return make_client(make_plugin(hostile_logdir(tmp_path_factory.mktemp("hostile"))))


@pytest.fixture(scope="module")
def ids(client: Client) -> dict[str, str]:
    (run,) = client.get(f"{ROOT}/runs").get_json()["runs"]
    (worker,) = run["workers"]
    return {"run": run["run"], "worker": worker["worker"], "span": worker["spans"][0]["span"]}


QUESTIONS = (*SPAN_QUESTIONS, "runs", "all_runs", "compile", "compile_time", "compilations", "artifact")


@pytest.mark.parametrize("question", QUESTIONS)
def test_answers_turn_no_letters_around(client: Client, ids: dict[str, str], question: str) -> None:
    answer = ask_span(client, {**ids, "id": "0", "epoch": "0", "compile_id": "0/0"}, question)
    assert answer.status_code == 200
    assert not set(TURNING) & set(answer.get_data(as_text=True))


def test_what_is_shown_can_be_asked_for_again(client: Client, ids: dict[str, str]) -> None:
    rows = ask_span(client, ids, "kernels").get_json()["rows"]
    for row in rows:
        keys = {key: row[key] or "" for key in ("name", "compile_id", "graph_key")}
        asked = {**ids, **keys, "device": str(row["device"])}
        assert ask_span(client, asked, "kernel").status_code == 200


def test_an_error_names_it_in_one_line(client: Client) -> None:
    error = error_of(client.get(f"{ROOT}/span", query_string={"run": IN_A_PATH, "worker": "w", "span": "1"}))
    assert not set(OBEYED) & set(error["message"])


@pytest.mark.parametrize("command", ["report", "compare", "what-if"])
def test_a_terminal_sees_them_written_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    logdir = str(hostile_logdir(tmp_path))
    (tmp_path / IN_A_PATH).mkdir()
    (tmp_path / IN_A_PATH / "x.1.pt.trace.json").write_text("no trace\x1b")
    assert main([command, logdir, *([logdir] if command == "compare" else [])]) in (0, 1)
    captured = capsys.readouterr()
    assert captured.out + captured.err and not (set(OBEYED) | set(TURNING)) & set(captured.out + captured.err)


def test_a_link_to_another_file_is_no_trace(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("root:x:0:0")
    (tmp_path / "logdir").mkdir()
    (tmp_path / "logdir" / "vm_1.1.pt.trace.json").symlink_to(tmp_path / "secret")
    client = make_client(make_plugin(tmp_path / "logdir"))
    answer = client.get(f"{ROOT}/trace_file", query_string={"run": ".", "worker": "vm_1", "span": "1"})
    assert (answer.status_code, answer.get_json()["error"]["code"]) == (422, "unreadable")
