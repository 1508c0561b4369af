"""Compiled code that makes the program no faster than it is without."""

from __future__ import annotations

from collections.abc import Iterator

from tb_torchcompile_plugin.analysis.compilations.rows import compilations
from tb_torchcompile_plugin.analysis.findings import thresholds
from tb_torchcompile_plugin.analysis.findings.context import RuleContext
from tb_torchcompile_plugin.analysis.findings.finding import Finding, severity_of
from tb_torchcompile_plugin.analysis.findings.rule import Rule
from tb_torchcompile_plugin.analysis.pays.pays import pays
from tb_torchcompile_plugin.analysis.pays.result import Gain, step_without
from tb_torchcompile_plugin.analysis.pays.twin import run_facts
from tb_torchcompile_plugin.analysis.words import at_line

_PLACES = 3


class DoesNotPay(Rule):
    """Only where an eager run was measured: what a model says of one is no reason to do without."""

    id = "compile_does_not_pay"
    panel = "pays"

    def look(self, context: RuleContext) -> Iterator[Finding]:
        if not context.whole or context.profile is None or context.profile.beside is None:
            return
        known = context.profile.of(pays)
        gain = known.gain[0]
        if (
            gain.told_by != "measured"
            or gain.verdict != "never"
            or not context.profile.of(run_facts).compiled
        ):
            return
        rows = context.data.of(compilations) if context.data else []
        places = dict.fromkeys(at_line(row.file, row.line) for row in rows if row.line)
        reason = (
            f", or mend first what keeps it from paying: {known.why_not[0].says}" if known.why_not else ""
        )
        predicted = step_without(gain)
        yield Finding(
            rule=self.id,
            severity=severity_of(predicted.gain_percent),
            title=known.says[0].removesuffix("."),
            evidence=_evidence(gain, known.cost[0].blocked_s if known.cost else None),
            saves_us=None,
            panel=self.panel,
            row=None,
            next_step=f"Do without torch.compile here{reason}",
            predicted=predicted if predicted.gain_percent >= thresholds.gain_percent else None,
            where=list(places)[:_PLACES],
        )


def _evidence(gain: Gain, compile_s: float | None) -> dict[str, float | int]:
    known = {"eager_us": gain.eager_us, "compiled_us": gain.compiled_us, "compile_s": compile_s}
    return {name: number for name, number in known.items() if number is not None}


PAYS_RULES: tuple[Rule, ...] = (DoesNotPay(),)
