"""Every finding leads to evidence: a row that exists in its panel, or a section of that."""

import re
from pathlib import Path

import pytest

from tb_torchcompile_plugin.analysis.causes.cause import Cause
from tb_torchcompile_plugin.analysis.causes.registry import CAUSES
from tb_torchcompile_plugin.analysis.finding import SECTIONS, Panel
from tb_torchcompile_plugin.analysis.formatting import count_per_step
from tb_torchcompile_plugin.analysis.ranks import job_findings
from tb_torchcompile_plugin.api.routes import ROUTES
from tb_torchcompile_plugin.api.sheets import tables_of

ROOT = Path(__file__).parents[3]
FRONTEND = ROOT / "frontend" / "src" / "panels"


@pytest.mark.parametrize("cause", [*CAUSES, *job_findings.CAUSES], ids=lambda cause: cause.id)
def test_the_section_of_each_cause_is_one_of_its_panel(cause: Cause) -> None:
    assert cause.section in ("", *SECTIONS[cause.panel])


@pytest.mark.parametrize("panel", SECTIONS)
def test_each_section_is_in_the_source_of_its_panel(panel: Panel) -> None:
    text = "\n".join(path.read_text() for path in sorted((FRONTEND / panel).glob("*.svelte")))
    names = set(re.findall(r"""["'](\w+)["']""", text))
    if "COMPILATION_TABLE" in text:
        names.add("compilation")
    for route in re.findall(r"""\b(?:part|of)=["'](\w+)["']""", text):
        names |= {table.rows for table in tables_of(ROUTES[route].answer)}  # type: ignore[arg-type]
    assert not [name for name in SECTIONS[panel] if name not in names]


@pytest.mark.parametrize(
    ("mean", "words"),
    [
        (1, "1 per step"),
        (5 / 6, "5 in 6 steps"),
        (14 / 11, "14 in 11 steps"),
        (2.5, "5 in 2 steps"),
        (2.999, "3 per step"),
        (37 / 11, "about 3 per step"),
        (12.4, "12 per step"),
        (1152, "1,152 per step"),
    ],
)
def test_a_mean_count_reads_as_a_count(mean: float, words: str) -> None:
    assert " ".join(count_per_step(mean, "per step")) == words
