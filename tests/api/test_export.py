"""A run as one file: no route is forgotten, what is embedded is what the routes answer, and budgets hold."""

import base64
import hashlib
import html
import json
import re
import shutil
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from browser.panels.exported import Exported, exported, question_of
from recordings import Recording
from served import ROOT, SPAN, ask_span, error_of, make_client, make_plugin
from tb_torchcompile_plugin.api.bodies import Body
from tb_torchcompile_plugin.api.export import page
from tb_torchcompile_plugin.api.export.ask import LEFT_OUT, NO_CODE, TIMELINE, VALUES
from tb_torchcompile_plugin.api.export.export import Export
from tb_torchcompile_plugin.api.routes import JOB, RANK, ROUTES
from tb_torchcompile_plugin.api.session import Session
from tb_torchcompile_plugin.errors import WrongArgument
from traces import slice_, write_trace

pytestmark = pytest.mark.slow

Make = Callable[..., Exported]
COMPARED = {"compare", "compare_jobs"}  # asked about what `--compare` names
SAMPLE = 12  # answers of a route that are compared
# What says how much is wanted, where the file has one answer for all.
MORE = {"timeline_search": {"at": str(-(10**15)), "limit": "50"}}


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Make:
    """`make(logdir, step="ProfilerStep#3")`: the file, read back."""

    def write(logdir: Path, **chosen: Any) -> Exported:
        file = tmp_path_factory.mktemp("exported") / "file.html"
        session = Session([("", str(logdir))])
        file.write_bytes(b"".join(Export(session, logdir=str(logdir), **chosen).blocks()))
        session.close()
        return exported(file)

    return write


@pytest.fixture(scope="module")
def breaks(exported_breaks: Path) -> Exported:
    return exported(exported_breaks)


@pytest.fixture(scope="module")
def job(make: Make, recording: Recording) -> Exported:
    return make(recording("jobs") / "exposed_communication", timeline_bytes=100_000, panels_bytes=0)


def test_every_route_is_asked_or_left_out_for_a_reason() -> None:
    """One that needs parameters has their values somewhere, and only such a one."""
    planned = {*VALUES, *LEFT_OUT, *COMPARED, *TIMELINE}
    assert planned <= set(ROUTES)
    asked_more = {name for name, route in ROUTES.items() if any(not one.optional for one in route.parameters)}
    assert asked_more <= planned
    assert not LEFT_OUT.keys() & (VALUES.keys() | COMPARED | TIMELINE)


def test_no_route_is_forgotten(breaks: Exported, job: Exported) -> None:
    there = {key.split("\x1f")[0] for key in breaks.answers}
    of_job = {name for name, route in ROUTES.items() if route.subject in (JOB, RANK)}
    assert there - {"terms", "definitions"} == set(ROUTES) - of_job - COMPARED - LEFT_OUT.keys()
    assert of_job <= {key.split("\x1f")[0] for key in job.answers}


def test_what_is_embedded_is_what_the_routes_answer(breaks: Exported, recording: Recording) -> None:
    client = make_client(make_plugin(recording("breaks")))
    for name in ROUTES.keys() - {"timeline"}:
        for key, body in islice(breaks.of(name).items(), SAMPLE):
            _, texts = question_of(key)
            lanes = {"lanes": lanes_of(breaks)} if name == "timeline_window" else {}
            answer = ask_span(client, {**texts, **MORE.get(name, {}), **lanes}, name)
            assert (answer.status_code, answer.mimetype) == (body.status, body.type), key
            assert answer.get_data() == body.data, key


def lanes_of(file: Exported) -> str:
    ((_, described),) = file.of("timeline").items()
    return ",".join(str(lane["id"]) for lane in json.loads(described.data)["lanes"])


def test_the_timeline_says_what_of_it_is_there(breaks: Exported, recording: Recording) -> None:
    ((key, body),) = breaks.of("timeline").items()
    answer = ask_span(
        make_client(make_plugin(recording("breaks"))), question_of(key)[1], "timeline"
    ).get_json()
    said = json.loads(body.data)
    assert said["notes"] == [*answer["notes"], "This file contains every slice of the timeline"]
    assert {**said, "notes": answer["notes"]} == answer


@pytest.mark.parametrize("budget", [3_000, 300_000])
def test_the_timeline_keeps_to_its_budget(make: Make, recording: Recording, budget: int) -> None:
    file = make(recording("breaks"), timeline_bytes=budget, panels_bytes=0)
    chunks = file.chunks_of(*TIMELINE)
    assert sum(file.chunks[number] for number in chunks) <= budget
    assert not chunks & file.chunks_of(*(ROUTES.keys() - TIMELINE))
    said = next(held["text"] for held in file.contents["holds"] if held["what"] == "Timeline")
    if budget < 100_000:
        assert said.startswith("The timeline exceeds") and not file.of("timeline")
    else:
        assert "at full detail" in said or "merged" in said


def test_a_step_that_is_asked_for_is_there_at_full_detail(make: Make, recording: Recording) -> None:
    file = make(recording("breaks"), step="ProfilerStep#4", timeline_bytes=700_000, panels_bytes=0)
    ((_, body),) = file.of("timeline").items()
    said = json.loads(body.data)
    assert said["notes"][-1].startswith("This file contains ProfilerStep#4 in full detail, and an overview")
    step = next(one for one in said["steps"] if one["name"] == "ProfilerStep#4")
    assert said["home"][0] == step["start_ns"] and said["home"][1] >= step["end_ns"]
    middle = (step["start_ns"] + step["end_ns"]) // 2
    around = [
        one
        for one in map(header_of, file.of("timeline_window").values())
        if one["from"] <= middle < one["to"]
    ]
    finest = min(around, key=lambda one: int(one["to"]) - int(one["from"]))
    assert finest["bucket_ns"] < (step["end_ns"] - step["start_ns"]) / 1000


def header_of(window: Body) -> dict[str, Any]:
    length = int.from_bytes(window.data[:4], "little")
    header: dict[str, Any] = json.loads(window.data[4 : 4 + length])
    return header


def test_no_step_of_that_name(make: Make, recording: Recording) -> None:
    with pytest.raises(WrongArgument, match=r"no step 'ProfilerStep#99'.*ProfilerStep#"):
        make(recording("breaks"), step="ProfilerStep#99")


def test_without_code_no_text_of_the_program_or_the_compiler_is_there(
    make: Make, recording: Recording, breaks: Exported
) -> None:
    """The texts are those that the file with code holds: whole lines of them must not stand anywhere."""
    file = make(recording("breaks"), code=False, timeline_bytes=300_000)
    assert not any(file.of(name) for name in NO_CODE)
    lines = {
        line.strip()
        for body in breaks.of("artifact").values()
        if body.status == 200 and b"def " in body.data
        for line in body.data.decode().splitlines()
    }
    lines |= {
        row["text"]
        for body in breaks.of("your_code").values()
        for row in json.loads(body.data)["rows"]
        if row["text"]
    }
    telling = {line for line in lines if len(line) > 40 and not line.startswith(("#", "File"))}
    assert len(telling) > 100
    everything = "\n".join(text for body in file.answers.values() for text in texts_in(body))
    assert [line for line in telling if line in everything] == []
    assert {held["what"] for held in file.contents["left_out"]} >= {
        "Code and graphs",
        "Comparisons with other runs",
        "The trace",
    }


def test_without_code_no_guard_brings_the_line_that_asked_for_it(make: Make, recording: Recording) -> None:
    """In reasons of recompiles, wherever they are shown."""
    file = make(recording("recompiles"), code=False, timeline_bytes=300_000)
    everything = [text for body in file.answers.values() for text in texts_in(body)]
    assert any("s == 0.0" in text for text in everything)
    assert [text for text in everything if "def g(x, s)" in text or "  # " in text] == []


def texts_in(body: Body) -> list[str]:
    """All texts of an answer, however they are escaped in it."""
    return strings(json.loads(body.data)) if body.type == "application/json" else []


def strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for one in inside for text in strings(one)]


def test_the_job_is_the_same_of_each_of_its_ranks(job: Exported) -> None:
    answers = {tuple(question_of(key)[1].items()): body for key, body in job.of("job").items()}
    assert len(answers) > 1 and len(set(answers.values())) == 1
    assert len({question_of(key)[1]["rank"] for key in job.of("rank_findings")}) == len(answers)


def test_a_comparison_is_there_where_it_was_asked_for(
    make: Make, recording: Recording, tmp_path: Path
) -> None:
    for name in ("resnet18", "resnet18_eager"):
        shutil.copytree(recording(name), tmp_path / name)
    file = make(tmp_path, run="resnet18", compare="resnet18_eager", timeline_bytes=3_000, panels_bytes=0)
    sides = [question_of(key)[1] for key in file.of("compare")]
    rows = [(side["run"], side["run2"]) for side in sides]
    assert rows == [("resnet18_eager", "resnet18"), ("resnet18", "resnet18_eager")]
    (runs,) = file.of("runs").values()
    assert {run["run"] for run in json.loads(runs.data)["runs"]} == {"resnet18", "resnet18_eager"}
    assert file.contents["place"]["run"] == "resnet18"


def test_names_are_text_and_nothing_else(make: Make, tmp_path: Path) -> None:
    folder = tmp_path / "<script>alert(1)<&amp;"
    write_trace(folder, [slice_("</script><img src=x onerror=alert(1)>", 3, 4)])
    file = make(tmp_path)
    assert f"<title>torch.compile: {html.escape(folder.name)}</title>" in file.page
    assert "<img" not in file.page and "alert(1)<" not in file.page.replace(html.escape(folder.name), "")
    outside = re.sub(r"<script type=\"application[^>]*>[^<]*</script>", "", file.page)
    assert outside.count("<script") == 1 and file.page.count("</script>") == file.page.count("<script")


def test_the_policy_lets_the_one_script_run_and_nobody_be_asked(breaks: Exported) -> None:
    (script,) = re.findall(r'<script type="module">(.*?)</script>', breaks.page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', breaks.page)
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'" and "connect-src" not in rules
    assert rules["script-src"] == f"'sha256-{digest}' blob:"
    assert "unsafe-eval" not in policy and "http" not in policy
    assert "</script" not in script and "<!--" not in script


def test_the_files_of_the_tab_are_there_each_behind_what_it_imports(breaks: Exported) -> None:
    static = {path.name: path.read_text() for path in page.STATIC.iterdir() if path.name != page.SCRIPT}
    assert breaks.files == static
    seen: set[str] = set()
    for name, text in breaks.files.items():
        assert set(re.findall(r'(?:from|import)\s*"\./([\w.]+)"', text)) <= seen, name
        seen.add(name)


def test_every_question_about_what_is_left_out_has_a_reason(breaks: Exported) -> None:
    contents = breaks.contents
    assert LEFT_OUT.keys() | COMPARED - {"compare_jobs"} <= contents["reasons"].keys()
    assert set(contents["parameters"]) == set(ROUTES)
    assert contents["instead"].startswith("To see these, open the logdir in TensorBoard: ")


def test_the_tab_saves_the_same_file(recording: Recording, tmp_path: Path, breaks: Exported) -> None:
    client = make_client(make_plugin(recording("breaks")))
    response = client.get(f"{ROOT}/export", query_string=SPAN)
    assert response.headers["Content-Disposition"] == "attachment; filename=breaks.html"
    (tmp_path / "saved.html").write_bytes(response.get_data())
    saved = exported(tmp_path / "saved.html")
    assert saved.answers.keys() == breaks.answers.keys()
    assert saved.contents["place"] == breaks.contents["place"]


def test_the_tab_saves_with_what_the_user_ticks(tmp_path: Path) -> None:
    for run in ("before", "after", "other"):
        write_trace(tmp_path / "logs" / run, [slice_("aten::mm", 3, 4)])
    client = make_client(make_plugin(tmp_path / "logs"))
    (worker,) = client.get(f"{ROOT}/runs").get_json()["runs"][0]["workers"]
    chosen = {"run": "after", "worker": worker["worker"], "compare": "before", "code": "0"}
    (tmp_path / "saved.html").write_bytes(client.get(f"{ROOT}/export", query_string=chosen).get_data())
    saved = exported(tmp_path / "saved.html")
    (runs,) = saved.of("runs").values()
    assert {run["run"] for run in json.loads(runs.data)["runs"]} == {"after", "before"}
    assert "Code and graphs" in {line["what"] for line in saved.contents["left_out"]}


def test_a_run_that_there_is_not_is_said_before_anything_is_sent(recording: Recording) -> None:
    client = make_client(make_plugin(recording("breaks")))
    response = client.get(f"{ROOT}/export", query_string={"run": "other", "worker": "w"})
    assert response.status_code == 404 and error_of(response)["message"] == "there is no run 'other'"
