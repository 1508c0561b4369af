"""What is a rule, and what does it find?"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar, TypedDict

from msgspec.structs import replace

from tb_torchcompile_plugin.analysis.causes.context import SpanContext
from tb_torchcompile_plugin.analysis.causes.what_if import WhatIf
from tb_torchcompile_plugin.analysis.finding import Evidence, Finding, Panel, Severity, severity_of
from tb_torchcompile_plugin.reader.compile_data import CompileData

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Details(TypedDict, total=False):
    """The fields of a finding that not all findings have."""

    saves_us: float | None
    row: str | None
    where: list[str]
    code: str | None
    advised: bool


class Rule:
    """One question with a threshold."""

    id: ClassVar[str]  # never changes: people switch rules off by it
    panel: ClassVar[Panel]

    def finding(
        self,
        context: SpanContext | None,
        title: str,
        next_step: str,
        evidence: Evidence,
        *,
        by: WhatIf | None = None,
        severity: Severity | None = None,
        **details: Unpack[Details],
    ) -> Finding:
        """Return a finding of this rule that the fix `by` would remove.

        Without a severity the predicted gain determines it, as a share of a step; without a prediction the share of the
        profiled time that it would save.
        """
        share = context.share(details.get("saves_us")) if context else None
        finding = Finding(
            rule=self.id,
            severity=severity or severity_of(by.predicted.gain_percent if by else share),
            title=title,
            evidence=evidence,
            saves_us=None,
            panel=self.panel,
            row=None,
            next_step=next_step,
            predicted=by.predicted if by else None,
            fix=by.id if by else None,
        )
        return replace(finding, **details)


class SpanRule(Rule, ABC):
    """A rule about one profiled span."""

    @abstractmethod
    def evaluate(self, context: SpanContext) -> Iterator[Finding]:
        """Yield what the span shows, most important first."""


class CompileRule(Rule, ABC):
    """A rule that needs no trace."""

    @abstractmethod
    def evaluate_data(self, data: CompileData) -> Iterator[Finding]:
        """Yield what the compile data of a worker shows, most important first."""
