"""What should be changed, in order of the time it would save? One small class per rule; see docs/findings.md."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from tb_torchcompile_plugin.analysis.findings.case import Case
from tb_torchcompile_plugin.analysis.findings.compile_rules import COMPILE_RULES
from tb_torchcompile_plugin.analysis.findings.gpu_rules import GPU_RULES
from tb_torchcompile_plugin.analysis.findings.host_rules import HOST_RULES
from tb_torchcompile_plugin.analysis.findings.rule import SEVERITIES, Finding, Rule
from tb_torchcompile_plugin.analysis.findings.scale_rules import SCALE_RULES
from tb_torchcompile_plugin.analysis.findings.setup_rules import SETUP_RULES
from tb_torchcompile_plugin.analysis.profile import Profile
from tb_torchcompile_plugin.summary_pb2 import CompileSummary

__all__ = ["COMPILE_RULES", "RULES", "SPAN_RULES", "Finding", "compile_findings", "ranked", "span_findings"]

Found = TypeVar("Found", bound=Finding)

SPAN_RULES: tuple[Rule, ...] = (*HOST_RULES, *GPU_RULES, *SCALE_RULES, *SETUP_RULES)
RULES: tuple[Rule, ...] = (*SPAN_RULES, *COMPILE_RULES)


def span_findings(profile: Profile) -> list[Finding]:
    """What one profiled span shows."""
    case = Case(profile, profile.summary)
    return ranked([finding for rule in SPAN_RULES for finding in rule.look(case)])


def compile_findings(summary: CompileSummary) -> list[Finding]:
    """What the compile data of a worker shows without a trace."""
    case = Case(None, summary)
    return ranked([finding for rule in COMPILE_RULES for finding in rule.look(case)])


def ranked(findings: Iterable[Found]) -> list[Found]:
    """Most time to save first; then, where that is unknown, the most severe."""
    return sorted(findings, key=lambda row: (-(row.saves_us or 0), SEVERITIES.index(row.severity)))
