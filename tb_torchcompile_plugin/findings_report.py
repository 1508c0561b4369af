"""Findings, put together: of one span for the tab, of everything for the command line."""

from __future__ import annotations

import msgspec

from tb_torchcompile_plugin.analysis.findings import (
    COMPILE_RULES,
    RULES,
    Finding,
    compile_findings,
    ranked,
    span_findings,
)
from tb_torchcompile_plugin.analysis.profile import Profile
from tb_torchcompile_plugin.logdir import Span
from tb_torchcompile_plugin.summary_pb2 import CompileSummary


class Findings(msgspec.Struct, frozen=True):
    """Most time to save first. `rules`: how many looked."""

    findings: list[Finding]
    rules: int


class RunFinding(Finding, frozen=True):
    """A finding with where it holds; `span` is None for what compile data alone shows."""

    run: str
    worker: str
    span: str | None


def findings_report(_: Span, profile: Profile) -> Findings:
    """What one span and the compile data of its worker show."""
    compiled = compile_findings(profile.summary) if profile.summary else []
    return Findings(ranked([*span_findings(profile), *compiled]), len(RULES))


def worker_findings(summary: CompileSummary) -> Findings:
    """What compile data alone shows."""
    return Findings(compile_findings(summary), len(COMPILE_RULES))


def located(findings: list[Finding], run: str, worker: str, span: str | None) -> list[RunFinding]:
    """The same findings, each with its place."""
    return [RunFinding(**msgspec.structs.asdict(row), run=run, worker=worker, span=span) for row in findings]
