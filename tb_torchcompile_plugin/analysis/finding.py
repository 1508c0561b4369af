"""A finding: what to change, where, and what it would save."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from tb_torchcompile_plugin.analysis import thresholds

Severity = Literal["info", "warning", "critical"]
Panel = Literal[
    "runs",
    "overview",
    "findings",
    "startup",
    "compile_time",
    "compilations",
    "code",
    "graph_breaks",
    "recompiles",
    "dynamic_shapes",
    "compiled_regions",
    "source",
    "kernels",
    "gpu_utilization",
    "cpu",
    "cuda_graphs",
    "step_breakdown",
    "what_if",
    "timeline",
    "operators",
    "python",
    "memory",
    "modules",
    "exports",
    "triton",
    "compare",
    "pays",
    "ranks",
]
SEVERITIES: tuple[Severity, ...] = ("critical", "warning", "info")
Evidence: TypeAlias = dict[str, float | int]


class Predicted(msgspec.Struct, frozen=True):
    """A step now and after a fix, in µs: unrecorded where that is known. low, high: where the change is uncertain.
    gain_percent: how much of a step it saves."""

    step_us: float
    after_us: float
    low_us: float
    high_us: float
    gain_percent: float


def prediction(step_ns: float, *after_ns: float) -> Predicted:
    """From a step now to one after a fix; behind the first what it may take as well."""
    now, after, low, high = (ns / 1000 for ns in (step_ns, after_ns[0], min(after_ns), max(after_ns)))
    return Predicted(now, after, low, high, 100 * (1 - after / now))


class Finding(msgspec.Struct, frozen=True):
    """Something to change. `title`: a sentence with a verb and a number. `evidence`: numbers with their units in their
    names. `saves_us`: at most so much of the profiled time would be saved, None where nothing tells. `predicted`: how
    long a step takes without it, None where no model tells. `where`: lines, operators or kernels. `fix`: its
    id in `what_if`. `code`: what of the next step is code, to be pasted; None where it is none. `advised`: False for
    what was considered and would not help yet; the title says why.

    panel, row: where it can be seen; `row` is "table:key", None for the panel as a whole.
    """

    rule: str
    severity: Severity
    title: str
    evidence: Evidence
    saves_us: float | None
    panel: Panel
    row: str | None
    next_step: str
    predicted: Predicted | None = None
    where: list[str] = []
    fix: str | None = None
    code: str | None = None
    advised: bool = True

    @property
    def asks_for_change(self) -> bool:
        """Whether a step is said to be slower for it: what is only worth knowing is no verdict."""
        return self.predicted is not None or self.severity != "info"


def severity_of(share: float | None) -> Severity:
    """By the share of a step that is to be gained, in percent."""
    if share is None or share < thresholds.warning_percent:
        return "info"
    return "warning" if share < thresholds.critical_percent else "critical"
