"""What a rule is, and what it finds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import ClassVar, Literal, TypeAlias

import msgspec

from tb_torchcompile_plugin.analysis.findings import thresholds
from tb_torchcompile_plugin.analysis.findings.context import RuleContext
from tb_torchcompile_plugin.analysis.what_if.what_if import Predicted, WhatIf

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


class Rule(ABC):
    """One question with a threshold. `id` never changes: people switch rules off by it."""

    id: ClassVar[str]
    panel: ClassVar[Panel]

    @abstractmethod
    def look(self, context: RuleContext) -> Iterator[Finding]:
        """What there is to find, most important first."""

    def finding(
        self,
        context: RuleContext,
        title: str,
        next_step: str,
        evidence: Evidence,
        *,
        saves_us: float | None = None,
        severity: Severity | None = None,
        row: str | None = None,
        by: WhatIf | None = None,
        where: list[str] | None = None,
        code: str | None = None,
        advised: bool = True,
    ) -> Finding:
        """A finding of this rule; `by`: what mends it. Without a severity the predicted gain tells it, as a share of a
        step; without a prediction the share of the profiled time that it would save."""
        predicted = by.predicted if by else None
        share = predicted.gain_percent if predicted else context.share(saves_us)
        return Finding(
            rule=self.id,
            severity=severity or severity_of(share),
            title=title,
            evidence=evidence,
            saves_us=saves_us,
            panel=self.panel,
            row=row,
            next_step=next_step,
            predicted=predicted,
            where=where or [],
            fix=by.id if by else None,
            code=code,
            advised=advised,
        )


def severity_of(share: float | None) -> Severity:
    """By the share of a step that is to be gained, in percent."""
    if share is None or share < thresholds.warning_percent:
        return "info"
    return "warning" if share < thresholds.critical_percent else "critical"
