"""The first finding of programs that were written by somebody who knew none of the rules, around other people's models.

tests/data/2.11.0/README.md says what they are, and docs/what_if.md what all 25 of them showed.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from exam.test_findings import findings_of, share

pytestmark = pytest.mark.slow

# The rule that names the cause, and how many points of a step its prediction is off at most.
EXPECTED = {
    "gin_pooling": ("frame_given_up", 5),
    "gpt2_empty_cache": ("allocation", 25),  # what it does to the caching allocator is in no call
    "vit_latency": ("launch_bound", 5),
    "whisper_eager": ("nothing_compiled", 45),  # more of its kernels stay apart than the model has it
}


@pytest.mark.parametrize("name", EXPECTED)
def test_the_first_finding_names_the_cause(recording: Callable[[str], Path], name: str) -> None:
    folder = recording("strangers")
    rows = {row["name"]: row for row in json.loads((folder / "measured.json").read_text())["programs"]}
    assert rows.keys() == EXPECTED.keys()
    first = next(findings_of(folder / name))
    rule, points = EXPECTED[name]
    assert first.rule == rule and first.predicted is not None
    measured = 100 * rows[name]["mended_us"] / rows[name]["planted_us"]
    assert share(first.predicted) == pytest.approx(measured, abs=points)
