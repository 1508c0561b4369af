"""One cost, one count and one compile time: what one screen shows of a run is what every other one shows."""

import json
from pathlib import Path
from typing import Any

import pytest

from recordings import Recording
from tb_torchcompile_plugin.analysis.formatting import duration
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


@pytest.fixture(params=["recompile_count", "pytorch163093_plateau", "breaks"])
def folder(request: pytest.FixtureRequest, recording: Recording) -> Path:
    name: str = request.param
    return recording(name) if name == "breaks" else CASES / name


def test_times_and_counts_are_those_of_their_parts(folder: Path, capsys: Capture) -> None:
    answers = Answers(folder, capsys)
    total = answers.compile["total_s"]
    assert sum(answers.compile["phases_s"].values()) == pytest.approx(total)
    parts = [part for part in answers.worker["startup"]["parts"] if part["title"].startswith("Compiling: ")]
    assert sum(part["time_s"] for part in parts) <= total + 1e-6, "what is compiled later is no part of it"
    counts: dict[CountName, int] = {
        "breaks": len(answers.span["graph_break_sites"]),
        "recompiles": len(answers.compile["recompiles"]),
    }
    for name, number in counts.items():
        assert sum(row.number for row in counted_rows(answers.summary, name) or ()) == number


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
    folder = str(CASES / "pytorch163093_plateau")
    assert main(["compare", folder, folder]) == 0
    assert f"compiles ({duration(inside_us)})" in " ".join(capsys.readouterr().out.split())


def test_on_a_cpu_the_cost_of_a_break_is_unknown(capsys: Capture) -> None:
    answers = Answers(CASES / "pytorch163093_plateau", capsys)
    assert all(site["saves_us"] is None for site in answers.span["graph_break_sites"])
    finding = answers.findings["graph_breaks"]
    direct_us = finding["evidence"]["direct_us_per_step"]
    assert finding["predicted"] is None and 0 < direct_us < answers.span["step_time"]["step_us"]
    for sentence in (finding["title"], answers.span["headlines"]["graph_breaks"]):
        assert f"No cost is predicted. The direct cost is {duration(direct_us)} per step" in sentence
