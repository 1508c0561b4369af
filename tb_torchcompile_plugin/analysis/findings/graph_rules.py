"""CUDA graphs that were asked for and do not serve, and graphs that are compiled for each size."""

from __future__ import annotations

from collections.abc import Iterator

from tb_torchcompile_plugin.analysis.cuda_graphs.cuda_graphs import cuda_graphs
from tb_torchcompile_plugin.analysis.cuda_graphs.rows import CudaGraphReport, GraphedFunction
from tb_torchcompile_plugin.analysis.cuda_graphs.words import NOT_REPLAYED, complaint, remedy
from tb_torchcompile_plugin.analysis.dynamic_shapes.dynamic_shapes import dynamic_shapes, size_advice
from tb_torchcompile_plugin.analysis.findings import thresholds
from tb_torchcompile_plugin.analysis.findings.context import RuleContext
from tb_torchcompile_plugin.analysis.findings.finding import Finding
from tb_torchcompile_plugin.analysis.findings.rule import Rule
from tb_torchcompile_plugin.analysis.what_if.what_if import WhatIf
from tb_torchcompile_plugin.analysis.what_if.words import instead, next_step, with_gain
from tb_torchcompile_plugin.analysis.words import at_line, duration
from tb_torchcompile_plugin.profile.units import to_seconds


class CudaGraphsNotReplayed(Rule):
    """Recorded anew, or never: each function with its own cause. What torch skips has a rule of its own; the first
    recordings of a program are none."""

    id = "graph_capture"
    panel = "cuda_graphs"

    def look(self, context: RuleContext) -> Iterator[Finding]:
        if context.profile is None:
            return
        by = context.best("graph_capture")
        if by is None or by.predicted.gain_percent < thresholds.gain_percent:
            return
        report = context.profile.of(cuda_graphs)
        causes = [row for row in report.functions if row.state in NOT_REPLAYED]
        if not report.functions:  # recorded by the program itself
            yield self._by_itself(context, by)
        causes.sort(key=lambda row: row.replayed_calls - row.calls)
        yield from (self._finding(context, report, row, by) for row in causes[:1])

    def _by_itself(self, context: RuleContext, by: WhatIf) -> Finding:
        return self.finding(
            context, with_gain(by, context.paced), next_step(by), {"times_per_step": by.times}, by=by
        )

    def _finding(
        self, context: RuleContext, report: CudaGraphReport, row: GraphedFunction, by: WhatIf
    ) -> Finding:
        advice, code = remedy(row, report.recordings)
        places = [
            at_line(one.file, one.line)
            for one in report.recordings
            if one.compile_id == row.compile_id and one.file
        ]
        return self.finding(
            context,
            f"{complaint(row)}: replayed, {context.paced.one} takes {instead(by.predicted)}",
            advice,
            {
                "gain_us_per_step": by.predicted.step_us - by.predicted.after_us,
                "share_percent": by.predicted.gain_percent,
                "times_per_step": by.times,
                "calls": row.calls,
                "calls_that_recorded": row.recorded_calls,
                "calls_kernel_by_kernel": row.plain_calls,
            },
            by=by,
            where=list(dict.fromkeys([*places, at_line(row.file, row.line)]))[:3],
            code=code,
        )


class CompiledForEachSize(Rule):
    """What was compiled for sizes before the profiled time; inside of it `recompiles` tells the same with its price."""

    id = "dynamic_shapes"
    panel = "dynamic_shapes"

    def look(self, context: RuleContext) -> Iterator[Finding]:
        if context.profile is None or context.summary is None:
            return
        helps = context.profile.of(size_advice)
        again = {row.key.compile_id for row in context.summary.recompiles}
        made = [row for row in context.summary.compilations if row.key.compile_id in again]
        spent_s = to_seconds(sum(row.duration_ns for row in made))
        if helps is None or spent_s < thresholds.sizes_s or context.inside_us(context.compiling(made)):
            return
        report = context.profile.of(dynamic_shapes)
        places = (at_line(row.file, row.line) for row in report.guards if row.recompiles)
        yield self.finding(
            context,
            f"{report.says[0].rstrip('.')}: recompiling took {duration(1e6 * spent_s)} before this span",
            helps.sentence,
            {"recompiles": len(made), "compile_s": spent_s, "sizes": len({row.size for row in report.sizes})},
            severity="info",
            where=[place for place in places if place],
            code=helps.code,
        )


GRAPH_RULES: tuple[Rule, ...] = (CudaGraphsNotReplayed(), CompiledForEachSize())
