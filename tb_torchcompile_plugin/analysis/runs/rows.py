"""A span, and what its worker compiled, in one line each: all that is remembered of them once they were read."""

from __future__ import annotations

import msgspec

from tb_torchcompile_plugin.analysis.compile_time import compile_time as ct
from tb_torchcompile_plugin.analysis.compiled_regions.coverage import coverage
from tb_torchcompile_plugin.analysis.findings.finding import Finding, Severity
from tb_torchcompile_plugin.analysis.findings.findings import findings
from tb_torchcompile_plugin.analysis.gpu_utilization.devices import gpus
from tb_torchcompile_plugin.analysis.graph_breaks.costs import graph_break_costs
from tb_torchcompile_plugin.analysis.graph_breaks.sites import graph_break_sites, reported_sites
from tb_torchcompile_plugin.analysis.overview.headline import first_change
from tb_torchcompile_plugin.analysis.overview.overview import Overview, overview
from tb_torchcompile_plugin.analysis.step_breakdown.step_times import StepTimes, step_times
from tb_torchcompile_plugin.profile.model.clock import step_clock
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import step_ns
from tb_torchcompile_plugin.reader.compile_data import CompileData

_FINDINGS = 8


class CompileLine(msgspec.Struct, frozen=True):
    """compile_s and graph_breaks (sites) None where nothing tells; compilations and recompiles without compile data.
    finding: what to change first, None where nothing asks for a change; severity: its own."""

    compile_s: float | None
    compilations: int | None
    graph_breaks: int | None
    recompiles: int | None
    finding: str | None
    severity: Severity | None


class SpanLine(CompileLine, frozen=True):
    """step_us: the mean step by the clock that sets the pace; times: of the steps that the profiler marked, by the same
    clock, None without any. gpu_busy_percent: of the device that is busy least. compiled_percent: of GPU time, of the
    host's where no GPU worked."""

    step_us: float | None
    times: StepTimes | None
    gpu_busy_percent: float | None
    compiled_percent: float | None


class LastOverview(msgspec.Struct, frozen=True):
    """What was seen first of a span when it was last read."""

    line: SpanLine
    overview: Overview
    findings: list[Finding]


def compile_line(data: CompileData) -> CompileLine:
    """Of a worker, without any trace."""
    first = first_change(data.of(findings).findings)
    return CompileLine(
        data.of(ct.total_s),
        ct.count_compilations(data.summary.compilations),
        len(data.of(reported_sites)),
        len(data.summary.recompiles),
        first.title if first else None,
        first.severity if first else None,
    )


def span_line(profile: Profile) -> SpanLine:
    """Of a span, with what its worker compiled."""
    data, first = profile.data, first_change(profile.of(findings).findings)
    clock, covered = profile.of(step_clock), profile.of(coverage)
    busy = [row.busy_percent for row in profile.of(gpus) if row.busy_percent is not None]
    return SpanLine(
        compile_s=data.of(ct.total_s) if data else None,
        compilations=ct.count_compilations(data.summary.compilations) if data else None,
        graph_breaks=_breaks(profile),
        recompiles=len(data.summary.recompiles) if data else None,
        finding=first.title if first else None,
        severity=first.severity if first else None,
        step_us=clock.step / 1000 if clock else None,
        times=step_times((profile.of(step_ns) / 1000).tolist()),
        gpu_busy_percent=min(busy, default=None),
        compiled_percent=covered.host_percent if covered.gpu_percent is None else covered.gpu_percent,
    )


def last_overview(profile: Profile) -> LastOverview:
    """What is to be remembered of a span."""
    return LastOverview(
        profile.of(span_line), profile.of(overview), profile.of(findings).findings[:_FINDINGS]
    )


def _breaks(profile: Profile) -> int | None:
    known = profile.data is not None or profile.of(graph_break_costs) is not None
    return len(profile.of(graph_break_sites)) if known else None
