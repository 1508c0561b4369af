"""The routes of the compile side in depth: shapes, texts as plain text, and errors."""

import os
import re
from pathlib import Path
from typing import Any

import pytest
from werkzeug.test import Client

from compile_records import a_compilation, artifact, line
from recordings import Recording
from served import BREAKS, ROOT, error_of, make_client, make_plugin
from tb_torchcompile_plugin.compile_log import summary as summary_file
from tb_torchcompile_plugin.compile_log import summary_pb2 as pb
from tb_torchcompile_plugin.errors import visible

LOG_TIME_S = 1795230247  # of the lines that `line` makes, but for the time zone

HOSTILE = "<script>alert('\x1b[31m\"')</script>"


@pytest.fixture
def client(recording: Recording) -> Client:
    return make_client(make_plugin(recording("breaks")))


def ask(client: Client, route: str, **ids: Any) -> Any:
    response = client.get(f"{ROOT}/{route}", query_string={**BREAKS, **ids})
    assert response.status_code == 200, response.text
    return response.get_json()


def test_guards_are_a_question_of_their_own(client: Client) -> None:
    of = {"epoch": 0, "compile_id": "3/0"}
    details, answer = ask(client, "compilation", **of), ask(client, "guards", **of)
    dump = next(row["id"] for row in details["artifacts"] if row["name"] == "dynamo_cpp_guards_str")
    tree = client.get(f"{ROOT}/artifact", query_string={**BREAKS, "id": dump}).text
    leaves = re.findall(r"^[| ]*\+- (?!\w*Manager)\w+(?=:)", tree, re.MULTILINE)
    assert len(answer["guards"]) == len(leaves) == details["guard_checks"] > 10
    assert answer["warnings"] == []


def test_a_text_is_plain_text_whatever_its_content(client: Client) -> None:
    details = ask(client, "compilation", epoch=0, compile_id="0/0")
    code = next(row for row in details["artifacts"] if row["name"] == "inductor_output_code")
    response = client.get(f"{ROOT}/artifact", query_string={**BREAKS, "id": code["id"]})
    assert response.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    assert len(response.data) == code["bytes"]
    assert "async_compile.triton" in response.text


@pytest.mark.parametrize(
    ("route", "ids", "status", "code"),
    [
        ("compilation", {"epoch": 0, "compile_id": "99/0"}, 404, "not_found"),
        ("compilation", {"epoch": 7, "compile_id": "0/0"}, 404, "not_found"),
        ("compilation", {"epoch": "-1", "compile_id": "0/0"}, 400, "bad_request"),
        ("compilation", {"epoch": "٣", "compile_id": "0/0"}, 400, "bad_request"),
        ("compilation", {"compile_id": "0/0"}, 400, "bad_request"),
        ("guards", {"epoch": 0, "compile_id": "99/0"}, 404, "not_found"),
        ("guards", {"compile_id": "0/0"}, 400, "bad_request"),
        ("artifact", {"id": "../../etc/passwd"}, 400, "bad_request"),
        ("artifact", {"id": "99999"}, 404, "not_found"),
        ("artifact", {"id": "9" * 30}, 400, "bad_request"),
        ("artifact", {}, 400, "bad_request"),
        ("compile_time", {"worker": "nobody"}, 404, "not_found"),
        ("compilations", {"run": "nowhere"}, 404, "not_found"),
    ],
)
def test_ids_that_there_are_not(
    client: Client, route: str, ids: dict[str, object], status: int, code: str
) -> None:
    response = client.get(f"{ROOT}/{route}", query_string={**BREAKS, **ids})
    assert response.status_code == status
    assert error_of(response)["code"] == code


def test_hostile_text_is_carried_and_never_interpreted(tmp_path: Path) -> None:
    records = [*a_compilation(), artifact(HOSTILE, HOSTILE)]
    records[-3].metadata["compilation_metrics"]["co_name"] = HOSTILE
    (tmp_path / "dedicated_log_torch_trace_x.log").write_bytes(b"".join(map(line, records)))
    client, ids = make_client(make_plugin(tmp_path)), {"run": ".", "worker": "pid_77"}
    (row,) = ask(client, "compile", **ids)["compilations"]
    assert row["function"] == visible(HOSTILE)
    (text,) = ask(client, "compilation", **ids, epoch=0, compile_id="0/0")["artifacts"]
    assert (text["name"], text["title"], text["language"]) == (visible(HOSTILE), visible(HOSTILE), "text")
    response = client.get(f"{ROOT}/artifact", query_string={**ids, "id": text["id"]})
    assert (response.mimetype, response.text) == ("text/plain", visible(HOSTILE))


def summary_with(tmp_path: Path, **fields: Any) -> tuple[Client, dict[str, str]]:
    key = pb.CompileKey(compile_id="0/0")
    rows = {"compilations": [pb.Compilation(key=key)], **fields}
    summary_file.save(pb.CompileSummary(**rows), str(tmp_path / "w_1.1795230236326796082.pt.compile.pb"))
    return make_client(make_plugin(tmp_path)), {"run": ".", "worker": "w_1"}


def test_without_source_the_route_explains_how_to_get_it(tmp_path: Path) -> None:
    client, ids = summary_with(tmp_path, environment=pb.Environment(capture="summary"))
    error = error_of(client.get(f"{ROOT}/artifact", query_string={**ids, "id": 0}))
    assert 'capture="summary"' in error["message"]
    assert 'capture="full"' in error["next_step"]


@pytest.mark.parametrize(
    "payloads", [[], [pb.Payload(codec=pb.Payload.ZLIB, data=b"not zlib")]], ids=["missing", "damaged"]
)
def test_a_damaged_text_costs_itself_alone(tmp_path: Path, payloads: list[pb.Payload]) -> None:
    key = pb.CompileKey(compile_id="0/0")
    client, ids = summary_with(
        tmp_path, artifacts=[pb.Artifact(key=key, name="dynamo_cpp_guards_str")], payloads=payloads
    )
    response = client.get(f"{ROOT}/artifact", query_string={**ids, "id": 0})
    assert (response.status_code, error_of(response)["code"]) == (422, "unreadable")
    details = ask(client, "compilation", **ids, epoch=0, compile_id="0/0")
    checks = ask(client, "guards", **ids, epoch=0, compile_id="0/0")
    assert (details["guard_checks"], checks["guards"]) == (None, [])
    assert len(details["warnings"]) == len(checks["warnings"]) == 1


def test_a_log_adds_the_texts_that_a_summary_lacks(tmp_path: Path) -> None:
    """A summary without texts next to a log of the same process: the rows of the one, the texts of the other."""
    client, ids = summary_with(tmp_path, environment=pb.Environment(capture="summary", pid=1))
    data = b"".join(line(record, pid=1) for record in [*a_compilation(), artifact("wanted", "text")])
    (tmp_path / "dedicated_log_torch_trace_x.log").write_bytes(data)
    for file in tmp_path.iterdir():  # of the day that the log's lines tell
        os.utime(file, (LOG_TIME_S, LOG_TIME_S))
    client.get(f"{ROOT}/runs")  # as the tab does at each reload
    details = ask(client, "compilation", **ids, epoch=0, compile_id="0/0")
    assert [row["name"] for row in details["artifacts"]] == ["wanted"]
    response = client.get(f"{ROOT}/artifact", query_string={**ids, "id": details["artifacts"][0]["id"]})
    assert response.text == "text"
