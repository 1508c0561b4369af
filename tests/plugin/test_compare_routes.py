"""The route that compares two spans: ids of both sides, progress, and errors that name the side."""

import json
import shutil
from pathlib import Path

import pytest
from werkzeug.test import Client

from recordings import Recording
from served import ROOT, ask_span, error_of, make_client, make_plugin
from tb_torchcompile_plugin.analysis.compare import compare as verdict
from tb_torchcompile_plugin.api.read_queue import Progress
from tb_torchcompile_plugin.api.session import Session
from tb_torchcompile_plugin.cli.command import main

A = {"run": "resnet18_eager", "worker": "vm_1119", "span": "1795230258714803450"}
B = {"run2": "resnet18", "worker2": "vm_424", "span2": "1795230236326796082"}


@pytest.fixture(scope="module")
def logdir(recording: Recording, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compare")
    for name in ("resnet18_eager", "resnet18"):
        shutil.copytree(recording(name), folder / name)
    (folder / "damaged").mkdir()
    (folder / "damaged" / "w.1.pt.trace.json").write_text('{"traceEvents": 7')
    return folder


@pytest.fixture(scope="module")
def client(logdir: Path) -> Client:
    return make_client(make_plugin(logdir))


def test_it_answers_what_the_command_prints(
    client: Client, logdir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = ask_span(client, A | B, "compare").get_json()
    assert main(["compare", str(logdir / "resnet18_eager"), str(logdir / "resnet18"), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    names = {"baseline": printed["baseline"], "candidate": printed["candidate"]}  # the command names no run
    assert answer | names | {"jobs": None} == printed
    assert answer["baseline"] == A | {"trace_file": "vm_1119.1795230258714803450.pt.trace.json"}


def test_a_comparison_is_made_once(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    first = ask_span(client, A | B, "compare")
    monkeypatch.setattr(verdict, "compare", None)
    assert ask_span(client, A | B, "compare").data == first.data


def test_a_worker_without_a_span_is_compared_by_what_it_compiled(client: Client) -> None:
    ids = {
        "run": "resnet18",
        "worker": "vm_424",
        **{key: value for key, value in B.items() if key != "span2"},
    }
    comparison = ask_span(client, ids, "compare").get_json()
    assert comparison["parts"] == comparison["operators"] == [] and len(comparison["compilations"]) == 2


@pytest.mark.parametrize(
    ("ids", "status", "message"),
    [
        (A, 400, "missing parameters: run2, worker2"),
        (A | B | {"run": "gone"}, 404, "baseline: there is no worker 'vm_1119' in run 'gone'"),
        (A | B | {"span2": "7"}, 404, "candidate: worker 'vm_424' has no span '7'"),
        (
            A | {"run2": "resnet18_eager", "worker2": "vm_1119"},
            404,
            "candidate: worker 'vm_1119' has no compile data",
        ),
        (A | {"run2": "damaged", "worker2": "w", "span2": "1"}, 422, "candidate: "),
    ],
)
def test_errors_name_the_side(client: Client, ids: dict[str, str], status: int, message: str) -> None:
    response = ask_span(client, ids, "compare")
    error = error_of(response)
    assert response.status_code == status
    assert error["message"].startswith(message)
    assert error["file"].endswith("w.1.pt.trace.json") or message != "candidate: "


def test_both_sides_are_read_at_the_same_time(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def reading(_: Session, run: str, worker: str, span: str) -> Progress:
        asked.append(run)
        return Progress(run, 1, 2, 3, None)

    monkeypatch.setattr(Session, "poll_profile", reading)
    response = client.get(f"{ROOT}/compare", query_string=A | B)
    assert response.status_code == 202 and asked == ["resnet18_eager", "resnet18"]
    assert response.get_json()["progress"]["file"] == "resnet18_eager"


def test_stopping_stops_both(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped = []
    monkeypatch.setattr(Session, "cancel", lambda _, *ids: stopped.append(ids[0]))
    assert client.delete(f"{ROOT}/reading", query_string=A | B).status_code == 204
    assert stopped == ["resnet18_eager", "resnet18"]
