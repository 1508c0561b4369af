"""What an eager run is told where the same program was recorded compiled beside it."""

from pathlib import Path

import pytest

from recordings import Recording
from tb_torchcompile_plugin.analysis.causes.findings import span_findings
from tb_torchcompile_plugin.analysis.causes.payback import payback
from tb_torchcompile_plugin.analysis.finding import Finding
from tb_torchcompile_plugin.api.session import Session


def finding(folder: Path, run: str) -> tuple[Finding | None, float | None]:
    """What it says of nothing being compiled, and the compiled step of the run beside it."""
    session = Session([("", str(folder))], ahead=False)
    (worker,) = next(one.workers for one in session.runs().runs if one.run == run)
    profile = session.profile(run, worker.worker, worker.spans[0].span)
    rows = [row for row in profile.of(span_findings) if row.rule == "nothing_compiled"]
    return (rows[0] if rows else None), profile.of(payback).gain[0].compiled_us


def test_where_compiling_pays_its_step_is_the_measured_one(recording: Recording) -> None:
    row, compiled_us = finding(recording("pays"), "pointwise_chain/eager")
    assert row and row.predicted and row.predicted.after_us == compiled_us
    assert row.severity == "critical" and row.fix is None


@pytest.mark.parametrize("program", ["recurrent_cell", "tiny_linear_training"])
def test_where_it_does_not_nobody_is_told_to_compile(recording: Recording, program: str) -> None:
    row, compiled_us = finding(recording("pays"), f"{program}/eager")
    assert row is None and compiled_us
