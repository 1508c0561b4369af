"""`tb-torchcompile mcp`: a real client asks a real server, which reads below its logdir alone and writes nothing."""

import builtins
import json
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, StdioServerParameters, stdio_client

from benchmarks.diagnosis.agent import text_of
from recordings import Recording
from tb_torchcompile_plugin.api.answers.sections import tables
from tb_torchcompile_plugin.api.report import read_report
from tb_torchcompile_plugin.cli.command import main
from tb_torchcompile_plugin.cli.mcp import MAX_BYTES, Tools, server, tools_of
from traces import kernel, slice_, write_trace

pytestmark = pytest.mark.usefixtures("remembered")

EVENTS = [slice_("aten::mm", 0, 50), kernel("gemm", 5, 2)]


@pytest.fixture(scope="module")
def logdir(recording: Recording) -> Path:
    return recording("breaks")


@pytest.fixture(scope="module")
def tools(logdir: Path) -> Tools:
    return Tools(str(logdir))


def asked(target: Any, tool: str, **arguments: Any) -> tuple[bool, str]:
    """Whether it is an error, and the text."""

    async def ask() -> tuple[bool, str]:
        async with Client(target) as client:
            result = await client.call_tool(tool, arguments)
            return bool(result.is_error), text_of(result)

    return anyio.run(ask)


@pytest.mark.slow
def test_a_client_over_stdin_and_stdout(logdir: Path) -> None:
    started = StdioServerParameters(
        command=sys.executable, args=["-m", "tb_torchcompile_plugin.cli", "mcp", str(logdir)]
    )

    async def talk() -> None:
        async with Client(stdio_client(started)) as client:
            listed = (await client.list_tools()).tools
            assert {one.name for one in listed} == set(tools_of(Tools(str(logdir))))
            assert all(one.annotations and one.annotations.read_only_hint for one in listed)
            assert all(one.description for one in listed)
            (findings, *_) = json.loads(text_of(await client.call_tool("report", {})))["tables"]
            shown = json.loads(text_of(await client.call_tool("show", {"id": findings["rows"][0]["id"]})))
            assert "capture.py:26" in shown["row"]["title"]
            assert shown["verify"]["compare"] == "compare(a='.', b='AFTER')"

    anyio.run(talk)


@pytest.mark.parametrize("most", [500, 1000, MAX_BYTES, 20_000])
def test_every_answer_is_bounded_json(tools: Tools, logdir: Path, most: int) -> None:
    (finding, *_) = next(iter(tables(read_report(str(logdir))))).ids
    answers = [
        tools.runs(max_bytes=most),
        tools.report(section="kernels,operators", max_bytes=max(most, 800)),
        tools.show(finding, max_bytes=most),
        tools.compare("", ".", max_bytes=most),
        tools.what_if(["graph_breaks"], max_bytes=most),
        tools.search("triton", max_bytes=most),
    ]
    for answer in answers:
        assert json.loads(answer) and len(answer.encode()) <= max(most, 800)


def test_what_was_cut_is_counted(tools: Tools) -> None:
    whole = json.loads(tools.search("triton", max_bytes=100_000))
    some = json.loads(tools.search("triton", max_bytes=1000))
    assert len(whole["matches"]) == whole["total"] == some["total"] > len(some["matches"])
    assert some["cut"]["matches"] == f"{len(some['matches'])} of {some['total']}"


@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        (
            "show",
            {"row": "x"},
            "show has no argument 'row', show needs 'id'. Call show(id, path=…, max_bytes=…).",
        ),
        (
            "report",
            {"sections": "kernels"},
            "report has no argument 'sections'. Call report(run=…, section=…, ",
        ),
        ("search", {}, "search needs 'word'. Call search(word, "),
        ("kernel", {}, "there is no tool 'kernel'. Use one of: list, report, show, "),
    ],
)
def test_wrong_names_are_answered_with_the_right_ones(
    tools: Tools, tool: str, arguments: dict[str, Any], said: str
) -> None:
    error, text = asked(server(str(tools._root)), tool, **arguments)
    assert error and text.startswith(said) and "\n" not in text


def test_the_suggested_calls_work(tools: Tools) -> None:
    report = json.loads(tools.report(section="kernels", top=5))
    call = report["tables"][0]["omitted"]["next"]
    assert call == "report(section='kernels', max_bytes=100000)"
    more = json.loads(eval(call, {"report": tools.report}))
    assert len(more["tables"][0]["rows"]) == report["tables"][0]["total"] > 5


@pytest.fixture
def fenced(tmp_path: Path) -> Path:
    """A logdir with a run of its own, and links to one outside."""
    write_trace(tmp_path / "logdir" / "mine", EVENTS, "w.1.pt.trace.json")
    secret = write_trace(tmp_path / "outside", EVENTS, "secret.1.pt.trace.json")
    (tmp_path / "logdir" / "folder").symlink_to(tmp_path / "outside")
    (tmp_path / "logdir" / "mine" / "linked.2.pt.trace.json").symlink_to(secret)
    (tmp_path / "logdir" / "inner").symlink_to(tmp_path / "logdir" / "mine")
    return tmp_path / "logdir"


@pytest.mark.parametrize(
    "path",
    [
        *("..", "../outside", "folder", "mine/../../outside", "/etc", "s3://b/x"),
        *("mine/linked.2.pt.trace.json", "a\0b"),
    ],
)
def test_nothing_outside_the_logdir_is_read(fenced: Path, path: str) -> None:
    error, text = asked(server(str(fenced)), "report", path=path)
    assert error and "is not in the logdir" in text
    error, text = asked(server(str(fenced)), "compare", a="mine", b=path)
    assert error and "is not in the logdir" in text


def test_links_that_lead_out_are_not_followed(fenced: Path) -> None:
    _, text = asked(server(str(fenced)), "list")
    assert "secret" not in text and "linked" not in text
    (run,) = json.loads(text)["runs"]
    assert len(run["paths"]) == 1
    error, text = asked(server(str(fenced)), "report", path="inner")
    assert not error and "aten" in json.dumps(
        asked(server(str(fenced)), "search", word="aten::mm", path="mine")
    )


def test_compile_data_outside_the_logdir_is_not_read(fenced: Path, recording: Recording) -> None:
    (summary,) = recording("handler_breaks").glob("*.compile.pb")
    (fenced / "mine" / "w.1.pt.compile.pb").symlink_to(summary)
    for path in ("", "mine/w.1.pt.trace.json"):
        assert "5 compilations" not in Tools(str(fenced)).report(section="compilations", path=path)
    (fenced / "mine" / "w.1.pt.compile.pb").unlink()
    (fenced / "mine" / "w.1.pt.compile.pb").write_bytes(summary.read_bytes())
    for path in ("", "mine/w.1.pt.trace.json"):
        assert "5 compilations" in Tools(str(fenced)).report(section="compilations", path=path)
    assert "5 compilations" in Tools(str(fenced / "mine" / "w.1.pt.trace.json")).report(
        section="compilations"
    )


def test_nothing_is_written_to_the_logdir(fenced: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in sorted(fenced.rglob("*"))}
    tools = Tools(str(fenced))
    tools.runs(), tools.report(), tools.search("gemm"), tools.compare("mine", "mine")
    assert {path: path.stat().st_mtime_ns for path in sorted(fenced.rglob("*"))} == before


def test_a_changed_logdir_is_read_again(tmp_path: Path) -> None:
    write_trace(tmp_path, EVENTS, "w.1.pt.trace.json")
    tools = Tools(str(tmp_path))
    assert '"total":0' in tools.search("conv2d") or json.loads(tools.search("conv2d"))["total"] == 0
    write_trace(tmp_path, [*EVENTS, slice_("aten::conv2d", 60, 5)], "w.2.pt.trace.json")
    assert json.loads(tools.search("conv2d"))["total"] > 0


def test_without_the_extra_one_line_names_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any, **named: Any) -> Any:
        if name.partition(".")[0] == "mcp":
            raise ImportError(name)
        return real(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    assert main(["mcp", str(tmp_path)]) == 1
    assert "pip install 'tb-torchcompile-plugin[mcp]'" in capsys.readouterr().err


def test_a_remote_logdir_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mcp", "s3://bucket/runs"]) == 1
    assert "only local folders are supported" in capsys.readouterr().err
