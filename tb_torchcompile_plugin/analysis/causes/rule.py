"""What a rule is, and what it finds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import ClassVar

from tb_torchcompile_plugin.analysis.causes.context import RuleContext
from tb_torchcompile_plugin.analysis.causes.what_if import WhatIf
from tb_torchcompile_plugin.analysis.finding import Evidence, Finding, Panel, Severity, severity_of


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
