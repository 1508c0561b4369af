"""One cost, one count and one compile time: what one screen shows of a run is what every other one shows."""

import json
from pathlib import Path
from typing import Any

import pytest

from recordings import Recording
from tb_torchcompile_plugin.analysis.formatting import duration, percent
from tb_torchcompile_plugin.api.session import Session
from tb_torchcompile_plugin.cli.command import main
from tb_torchcompile_plugin.compile_log.counts import CountName, counted_rows

CASES = Path(__file__).parents[1] / "data" / "cases"
Capture = pytest.CaptureFixture[str]


class Answers:
    """What a report holds of the only span of a folder."""

    def __init__(self, folder: Path, capsys: Capture) -> None:
        assert main(["report", str(folder), "--json"]) == 0
        document: dict[str, Any] = json.loads(capsys.readouterr().out)
        (run,) = document["runs"]
        (self.worker,) = run["workers"]
        (self.span,) = self.worker["spans"]
        self.compile = self.worker["compile"]
        session = Session([("", str(folder))])
        self.summary = session.compile_data(run["run"], self.worker["worker"]).summary
        self.findings = {row["rule"]: row for row in document["findings"]}
        self.line = document["all_runs"][0] if document.get("all_runs") else None


def figures(folder: Path, capsys: Capture) -> dict[str, float | None]:
    assert main(["compare", str(folder), str(folder), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    return {row["name"]: row["value"]["baseline"] for row in document["figures"]}


@pytest.fixture(params=["recompile_count", "pytorch163093_plateau", "breaks"])
def folder(request: pytest.FixtureRequest, recording: Recording) -> Path:
    name: str = request.param
    return recording(name) if name == "breaks" else CASES / name


def test_the_compile_time_of_a_process_is_one_number(folder: Path, capsys: Capture) -> None:
    answers = Answers(folder, capsys)
    total = answers.compile["total_s"]
    assert sum(answers.compile["phases_s"].values()) == pytest.approx(total)
    assert figures(folder, capsys)["compile_s"] == total
    (cost,) = answers.span["payback"]["cost"]
    assert cost["blocked_s"] == total
    parts = [part for part in answers.worker["startup"]["parts"] if part["title"].startswith("Compiling: ")]
    assert sum(part["time_s"] for part in parts) <= total + 1e-6, "what is compiled later is no part of it"
    for sentence in (answers.compile["headlines"]["compile_time"], answers.span["overview"]["headline"]):
        assert duration(1e6 * total) in sentence


def test_counts_are_the_same_everywhere(folder: Path, capsys: Capture) -> None:
    answers, compared = Answers(folder, capsys), figures(folder, capsys)
    assert compared["recompiles"] == len(answers.compile["recompiles"])
    assert compared["graph_breaks"] == len(answers.span["graph_break_sites"])
    assert compared["compilations"] == answers.compile["distinct_compilations"]
    headline = answers.compile["headlines"]["compile_time"]
    assert headline.startswith(f"{answers.compile['distinct_compilations']} compilations took ")
    names: tuple[tuple[CountName, str], ...] = (("breaks", "graph_breaks"), ("recompiles", "recompiles"))
    for count, figure in names:
        assert sum(row.number for row in counted_rows(answers.summary, count) or ()) == compared[figure]


def test_a_backward_graph_of_a_recompilation_is_no_recompile(capsys: Capture) -> None:
    answers = Answers(CASES / "recompile_count", capsys)
    finding, again = answers.findings["recompiles"], answers.compile["recompiles"]
    assert len(again) == finding["evidence"]["recompiles"] == 2
    assert " 2 times during profiling" in finding["title"]
    spent_us = 1e6 * sum(row["duration_s"] for row in again)
    assert finding["evidence"]["compile_us"] == pytest.approx(spent_us)
    sentence = f"2 recompiles cost {duration(spent_us)} of compile time."
    assert answers.span["recompiles"]["sentences"] == [sentence]
    for guard in ("autocast", "grad_mode"):
        assert guard in finding["title"]


def test_what_was_compiled_while_profiling_is_one_number(capsys: Capture) -> None:
    answers = Answers(CASES / "pytorch163093_plateau", capsys)
    inside_us = answers.span["compile_overlap"]["inside_us"]
    assert inside_us == answers.findings["compile_in_steps"]["evidence"]["compile_us"]
    assert f"including {duration(inside_us)} inside ProfilerStep#5" in answers.span["overview"]["headline"]
    assert duration(inside_us) in answers.span["headlines"]["compile_time"]
    folder = str(CASES / "pytorch163093_plateau")
    assert main(["compare", folder, folder]) == 0
    assert f"1 step of the baseline compiles ({duration(inside_us)})" in " ".join(
        capsys.readouterr().out.split()
    )


def test_on_a_cpu_the_cost_of_a_break_is_unknown(capsys: Capture) -> None:
    answers = Answers(CASES / "pytorch163093_plateau", capsys)
    assert all(site["saves_us"] is None for site in answers.span["graph_break_sites"])
    finding = answers.findings["graph_breaks"]
    direct_us = finding["evidence"]["direct_us_per_step"]
    assert finding["predicted"] is None and 0 < direct_us < answers.span["step_time"]["step_us"]
    for sentence in (finding["title"], answers.span["headlines"]["graph_breaks"]):
        assert f"No cost is predicted. The direct cost is {duration(direct_us)} per step" in sentence


def test_the_cost_of_breaks_is_what_removing_them_saves(recording: Recording, capsys: Capture) -> None:
    answers, compared = Answers(recording("breaks"), capsys), figures(recording("breaks"), capsys)
    finding = answers.findings["graph_breaks"]
    gain_us = finding["predicted"]["step_us"] - finding["predicted"]["after_us"]
    assert compared["graph_break_us"] == finding["evidence"]["gain_us_per_step"] == pytest.approx(gain_us)
    share = percent(finding["predicted"]["gain_percent"], 2)
    cost, _, rest = answers.span["headlines"]["graph_breaks"].partition(" (")
    assert cost == f"4 graph break sites cost about {duration(gain_us, 2)}"
    assert rest.endswith(f") per step, {share} of the step (predicted).")
    saved = {site["line"]: site["saves_us"] for site in answers.span["graph_break_sites"]}
    assert max(saved.values()) == finding["evidence"]["most_expensive_us_per_step"] == saved[26]
    assert compared["graph_break_direct_us"] == pytest.approx((636.7 + 523.9 + 505.2) / 3, abs=0.1)
    marks = {(row["line"], mark["cost_us"]) for row in answers.span["your_code"] for mark in row["breaks"]}
    assert marks <= set(saved.items()) and marks
