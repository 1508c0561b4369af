"""HEAD's numbers in Bencher's metric format, for a chart over many commits."""

from __future__ import annotations

import json

from tb_torchcompile_plugin.analysis.compare.gate import GateReport
from tb_torchcompile_plugin.analysis.compare.gate_judge import bounds
from tb_torchcompile_plugin.analysis.compare.gate_metrics import Measure, MeasuredRun


def bmf(report: GateReport, head: MeasuredRun) -> str:
    """One benchmark; by metric ns, bytes or a count, with bounds where the steps tell them, without what is unknown."""
    values = {name: _value(one) for name, one in head.measures.items() if one.value is not None}
    return json.dumps({report.name or head.name: values}, indent=2) + "\n"


def _value(one: Measure) -> dict[str, float | None]:
    low, high = bounds(one.value or 0, one.samples) or (None, None)
    known = {"value": one.value, "lower_value": low, "upper_value": high}
    return {name: value for name, value in known.items() if value is not None}
