"""The tools alone name what was planted: cause, and line where the recording knows lines, in few bytes.

One program of each family here. All of them, with what is reported of each:
`python -m benchmarks.diagnosis.agent FOLDER`.
"""

import json
import re
from typing import Any

import pytest

from benchmarks.diagnosis.agent import Learned, learned
from diagnosis.test_findings import MISSES, rules_of
from recordings import Recording
from tb_torchcompile_plugin.api.report import read_report
from terminal import height, screen_lines

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("remembered")]

MOST_BYTES = 20_000


@pytest.fixture(scope="module")
def chosen(recording: Recording) -> dict[str, dict[str, Any]]:
    """The first of each family that the findings know, rather one that was recorded with stacks."""
    rows = json.loads((recording("exam") / "measured.json").read_text())["programs"]
    known = [row for row in rows if not row["healthy"] and row["name"] not in MISSES]
    known.sort(key=lambda row: not row["recorded"]["stacks"])
    return {row["name"]: row for row in {row["family"]: row for row in reversed(known)}.values()}


@pytest.fixture(scope="module")
def answers(chosen: dict[str, dict[str, Any]], recording: Recording) -> dict[str, Learned]:
    return {name: learned(recording("exam") / name) for name in chosen}


def test_the_cause_is_named_in_few_bytes(
    chosen: dict[str, dict[str, Any]], answers: dict[str, Learned]
) -> None:
    assert len(answers) >= 12
    for name, answer in answers.items():
        assert answer.rule in rules_of(chosen[name]), (name, answer.title)
        assert answer.bytes <= MOST_BYTES, (name, answer.bytes)


def test_the_line_is_named_where_it_was_recorded(
    chosen: dict[str, dict[str, Any]], answers: dict[str, Learned]
) -> None:
    """torch's stacks tell where a function begins: the one with the planted line, or the one that it calls."""
    named = {name: answer.place for name, answer in answers.items() if answer.place and chosen[name]["line"]}
    assert len(named) >= 6
    for name, place in named.items():
        assert place.rpartition("/")[2].split(":")[0] == chosen[name]["line"].split(":")[0], (name, place)
        line = place.rpartition(":")[2]
        found = [match["id"] for match in json.loads(answers[name].texts[-1])["matches"]]
        assert any(re.search(f"[:,]{line}$", row) for row in found), name


def test_a_screen_is_enough(chosen: dict[str, dict[str, Any]], recording: Recording) -> None:
    for name in list(chosen)[:4]:
        folder = str(recording("exam") / name)
        lines = screen_lines(read_report(folder), folder, 120)
        assert height("\n".join(lines)) <= 60
        assert all(len(line) <= 120 for line in lines[:4])
        assert any(line.startswith("Do: ") for line in lines[2:6])  # the sentence may need some lines
