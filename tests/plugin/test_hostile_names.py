"""Names that a page, a terminal or a spreadsheet would obey: no door lets them out as they are."""

import asyncio
import io
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from mcp.server.mcpserver.exceptions import ToolError
from werkzeug.test import Client

from browser.panels.exported import exported
from browser.panels.hostile import HOSTILE, IN_A_PATH, IN_UTF8, OBEYED, hostile_logdir
from profiles import SPAN_QUESTIONS
from served import ROOT, ask_span, make_client, make_plugin
from tb_torchcompile_plugin.cli.command import main
from tb_torchcompile_plugin.cli.mcp import Tools, server
from tb_torchcompile_plugin.dataframes import load

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def logdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = hostile_logdir(tmp_path_factory.mktemp("hostile"))
    (folder / IN_A_PATH).mkdir()
    (unreadable := folder / IN_A_PATH / "x.0.pt.trace.json").write_text("no trace\x1b")
    os.utime(unreadable, (0, 0))
    return folder


@pytest.fixture(scope="module")
def client(logdir: Path) -> Client:
    return make_client(make_plugin(logdir))


@pytest.fixture(scope="module")
def ids(client: Client) -> dict[str, str]:
    (run,) = [row for row in client.get(f"{ROOT}/runs").get_json()["runs"] if row["run"].startswith("run ")]
    (worker,) = run["workers"]
    return {"run": run["run"], "worker": worker["worker"], "span": worker["spans"][0]["span"]}


def strings(value: Any) -> Iterator[str]:
    """All texts in JSON."""
    if isinstance(value, str):
        yield value
    inside = (
        [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, list) else ()
    )
    for item in inside:
        yield from strings(item)


def printed(*argv: str | Path) -> list[str]:
    """What a command writes to a terminal, and the texts of its JSON."""
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
        assert main([*map(str, argv)]) in (0, 1)
    parsed = strings(json.loads(out.getvalue())) if "--json" in argv else ()
    return [out.getvalue(), err.getvalue(), *parsed]


def reports(logdir: Path, out: Path) -> Iterable[str]:
    for command in (["report"], ["report", "--full"], ["doctor"], ["what-if"], ["compare", logdir]):
        yield from printed(*command, logdir)
        if command != ["report", "--full"]:
            yield from printed(*command, logdir, "--json")
    yield from printed("index", logdir, "--out", out)


def shown_rows(logdir: Path, out: Path) -> Iterable[str]:
    ids = {
        tuple(id.split("/")[:4]): id
        for id in strings(json.loads(printed("report", "--json", logdir)[0]))
        if id.startswith("run%20") and id.count("/") > 3
    }
    assert len(ids) > 20  # one of each table
    for id in ids.values():
        yield from (
            *printed("show", id, "--logdir", logdir),
            *printed("show", id, "--logdir", logdir, "--json"),
        )


def gate(logdir: Path, out: Path) -> Iterable[str]:
    files = out / "gate.md", out / "gate.xml"
    options = ("--fail-on", "step>3%", "--name", IN_UTF8, "--markdown", files[0], "--junit", files[1])
    yield from printed("compare", *options, "--json", logdir, logdir)
    yield from (file.read_text() for file in files)


def watched(logdir: Path, out: Path) -> Iterable[str]:
    texts = dict.fromkeys(("compile_id", "frame", "direction", "phase", "autotuning"), IN_UTF8)
    counts = dict.fromkeys(("rank", "attempt", "compilations", "kernels", "kernels_done"), 1)
    status = {**texts, **counts, "host": "another", "pid": 1, "updated_s": time.time(), "seconds": 1.0}
    (out / "w.1.pt.compiling").write_text(json.dumps(status))
    (line, *_) = printed("watch", "--once", out)
    assert "red" in line
    yield line


def exported_file(logdir: Path, out: Path) -> Iterable[str]:
    yield from printed("export", logdir, out / "file.html")
    file = exported(out / "file.html")
    yield from strings([file.page.partition("<script")[0], file.contents])
    for body in file.answers.values():
        if body.type == "application/octet-stream":
            continue  # the names of the timeline are those of `timeline_slice`
        is_json = body.type == "application/json"
        yield from strings(json.loads(body.data)) if is_json else [body.data.decode("utf-8", "ignore")]


def tables_of_pandas(logdir: Path, out: Path) -> Iterable[str]:
    tables = load(str(logdir))
    yield tables.verdict
    for frame in tables.values():
        yield from strings(frame.to_dict("records"))


def agent(logdir: Path, out: Path) -> Iterable[str]:
    tools = Tools(str(logdir))
    sections = json.loads(tools.runs())["sections"]
    answers = [tools.report(section=section, max_bytes=10**5) for section in ("", *sections)]
    answers += [tools.runs(), tools.what_if(), tools.search("red"), tools.compare("", "")]
    for answer in answers:
        yield from strings([answer, json.loads(answer)])
    wrong = (("show", "id"), ("what_if", "worker"), ("report", "path"), (HOSTILE, HOSTILE))
    for tool, argument in wrong:
        with pytest.raises(ToolError) as error:
            asyncio.run(server(str(logdir)).call_tool(tool, {argument: HOSTILE + 9999 * "9"}))
        yield str(error.value)
        assert len(str(error.value)) < 1000


def wrong_arguments(logdir: Path, out: Path) -> Iterable[str]:
    for argv in ([f"--{HOSTILE}"], ["--top", HOSTILE], ["--rank", HOSTILE]):
        with redirect_stderr(io.StringIO()) as err, pytest.raises(SystemExit):
            main(["report", str(logdir), *argv])
        yield err.getvalue()


DOORS: tuple[Callable[[Path, Path], Iterable[str]], ...] = (
    *(reports, shown_rows, gate, watched, exported_file, tables_of_pandas, agent, wrong_arguments),
)


@pytest.mark.parametrize("door", DOORS)
def test_no_door_lets_them_out(
    logdir: Path, tmp_path: Path, door: Callable[[Path, Path], Iterable[str]]
) -> None:
    texts = [*door(logdir, tmp_path)]
    assert any("red" in text for text in texts)
    assert not [text for text in texts if OBEYED.search(text)]


QUESTIONS = (
    *SPAN_QUESTIONS,
    *("runs", "all_runs", "compile", "compile_time", "compilations", "artifact", "kernel"),
)


@pytest.mark.parametrize("question", QUESTIONS)
def test_no_route_lets_them_out(client: Client, ids: dict[str, str], question: str) -> None:
    more = {"id": "0", "epoch": "0", "compile_id": "0/0", "device": "0", "name": IN_UTF8}
    answer = ask_span(client, {**ids, **more}, question)
    assert answer.status_code == (404 if question == "kernel" else 200)
    for text in strings(answer.get_json() if answer.is_json else [answer.get_data(as_text=True)]):
        assert answer.mimetype == "application/octet-stream" or not OBEYED.search(text)


def test_the_log_of_the_server_has_one_line(
    client: Client, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError(IN_UTF8)

    monkeypatch.setattr("tb_torchcompile_plugin.plugin.plugin.poll", fail)
    assert client.get(f"{ROOT}/kernels", query_string={"run": IN_UTF8}).status_code == 500
    (line,) = caplog.messages
    assert "red" in line and not OBEYED.search(line)


def test_a_compilation_with_such_an_id_can_be_asked_for() -> None:
    client = make_client(make_plugin(Path(__file__).parents[1] / "data" / "cases" / "attack_bidi_compile_id"))
    (run,) = client.get(f"{ROOT}/runs").get_json()["runs"]
    ids = {"run": run["run"], "worker": run["workers"][0]["worker"]}
    (row,) = ask_span(client, ids, "compile").get_json()["compilations"]
    for question in ("compilation", "guards"):
        asked = {**ids, "epoch": "0", "compile_id": row["compile_id"]}
        assert ask_span(client, asked, question).status_code == 200


def test_what_is_shown_can_be_asked_for_again(client: Client, ids: dict[str, str]) -> None:
    for row in ask_span(client, ids, "kernels").get_json()["rows"]:
        keys = {key: row[key] or "" for key in ("name", "compile_id", "graph_key")}
        asked = {**ids, **keys, "device": str(row["device"])}
        assert ask_span(client, asked, "kernel").status_code == 200


def test_a_link_to_another_file_is_no_trace(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("root:x:0:0")
    (tmp_path / "logdir").mkdir()
    (tmp_path / "logdir" / "vm_1.1.pt.trace.json").symlink_to(tmp_path / "secret")
    client = make_client(make_plugin(tmp_path / "logdir"))
    answer = client.get(f"{ROOT}/trace_file", query_string={"run": ".", "worker": "vm_1", "span": "1"})
    assert (answer.status_code, answer.get_json()["error"]["code"]) == (422, "unreadable")
