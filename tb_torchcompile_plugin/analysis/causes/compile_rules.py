"""Rules about what was compiled; they need no trace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tb_torchcompile_plugin.analysis import thresholds
from tb_torchcompile_plugin.analysis.causes.context import RuleContext
from tb_torchcompile_plugin.analysis.causes.fix_words import instead, next_step, with_gain
from tb_torchcompile_plugin.analysis.causes.rule import Rule
from tb_torchcompile_plugin.analysis.causes.what_if import WhatIf
from tb_torchcompile_plugin.analysis.compile.compilations import Problem, problems
from tb_torchcompile_plugin.analysis.compile.compile_time import count_compilations
from tb_torchcompile_plugin.analysis.compile.cuda_graph_recordings import (
    CudaGraphReport,
    GraphedFunction,
    skipped_graphs,
)
from tb_torchcompile_plugin.analysis.compile.dynamic_shapes import dynamic_shapes, size_advice
from tb_torchcompile_plugin.analysis.finding import Finding
from tb_torchcompile_plugin.analysis.formatting import at_line, duration, often, plural
from tb_torchcompile_plugin.analysis.runtime.cuda_graph_functions import NOT_REPLAYED, complaint, remedy
from tb_torchcompile_plugin.analysis.runtime.cuda_graphs import cuda_graphs
from tb_torchcompile_plugin.analysis.runtime.launch_stats import cudagraph_skips, skip_reason
from tb_torchcompile_plugin.compile_log.summary_pb2 import CompileSummary
from tb_torchcompile_plugin.profile.units import to_seconds
from tb_torchcompile_plugin.torch_names import graph_breaks as failures
from tb_torchcompile_plugin.torch_names.artifacts import CACHES

# What helps against each reason to skip CUDA graphs, by a word of torch's text.
_AGAINST_SKIPS = {
    "mutated": "Do not write to inputs in place: clone them, or make them parameters or buffers of the module",
    "cpu": "Keep all inputs, outputs and operators of the graph on the GPU",
    "dynamic": "Give the graph static shapes: pad, or torch.compile(..., dynamic=False)",
    "symbolic": "Give the graph static shapes: pad, or torch.compile(..., dynamic=False)",
    "incompatible": "Replace the operator that torch names, or compile it apart",
}


class RecompileLimit(Rule):
    id = "recompile_limit"
    panel = "compilations"

    def look(self, context: RuleContext) -> Iterator[Finding]:
        if context.data is None:
            return
        frames: dict[tuple[str, str, int | None], Problem] = {}
        for row in context.data.of(problems):
            if row.kind == "limit":
                frames.setdefault((row.function, row.file, row.line), row)
        for row in frames.values():
            versions = _versions(context.data.summary, row)
            yield self.finding(
                context,
                f"{row.function or 'A frame'} was compiled {often(versions)} and now runs eager: it hit the "
                "recompile limit",
                "See which guard fails each time: mark what changes as dynamic, or keep it the same. "
                "torch._dynamo.config.recompile_limit raises the limit",
                {"versions": versions},
                severity="critical",
                row=f"compilation:{row.compile_id},{row.epoch},forward",
            )


def _versions(summary: CompileSummary, problem: Problem) -> int:
    """How many versions of a frame there are."""
    frame = problem.compile_id.partition("/")[0]
    ids = {
        row.key.compile_id
        for row in summary.compilations
        if row.key.epoch == problem.epoch
        and row.key.compile_id.partition("/")[0] == frame
        and not row.HasField("failure")
    }
    return len(ids)


class CudaGraphsSkipped(Rule):
    id = "cudagraphs_skipped"
    panel = "compilations"

    def look(self, context: RuleContext) -> Iterator[Finding]:
        if context.data is None:
            return
        reasons = _skips(context.data.summary)
        for place, (reason, ids) in enumerate(reasons.items()):
            word = next((word for word in _AGAINST_SKIPS if word in reason.lower()), None)
            skips = [
                row for row in context.data.of(skipped_graphs) if failures.skip_reason(row.text) == reason
            ]
            places = dict.fromkeys((row.file, row.line) for row in skips if row.file)
            yield self.finding(
                context,
                f"CUDA graphs are skipped{_for_compilations(ids)}: {reason}",
                _AGAINST_SKIPS[word] if word else "Change what torch names",
                {"compilations": len(ids)} if ids else {},
                severity="warning",
                row=f"compilation:{ids[0][1]},{ids[0][0]},forward" if ids else None,
                by=context.best("graph_capture") if place == 0 else None,
                where=[at_line(*one) for one in places],
            )
        untold = context.data.of(cudagraph_skips) or 0
        if untold and not reasons:
            yield self.finding(
                context,
                f"CUDA graphs were skipped {often(untold)}; why, torch told its log only",
                "Run with TORCH_LOGS=cudagraphs to see the reason: mutated inputs, CPU tensors, dynamic shapes …",
                {"skips": untold},
                severity="warning",
                code="TORCH_LOGS=cudagraphs",
                by=context.best("graph_capture") or context.best("cuda_graphs"),
            )


def _for_compilations(ids: list[tuple[int, str]]) -> str:
    return f" for {plural(len(ids), 'compilation')}" if ids else ""


def _skips(summary: CompileSummary) -> dict[str, list[tuple[int, str]]]:
    """First line of torch's reason → (epoch, compile id) of what it holds for, as far as torch told."""
    by_reason: dict[str, dict[tuple[int, str], None]] = {}
    for row in (*summary.compilations, *summary.runtime_metrics):
        if reason := skip_reason(row.metrics):
            by_reason.setdefault(failures.skip_reason(reason), {})[row.key.epoch, row.key.compile_id] = None
    return {reason: [key for key in ids if key[1]] for reason, ids in by_reason.items()}


class CacheMissed(Rule):
    """A first run cannot hit. So a miss counts where it took long; a bypass always."""

    id = "cache_missed"
    panel = "compile_time"

    def look(self, context: RuleContext) -> Iterator[Finding]:
        if context.summary is None:
            return
        rows = context.summary.compilations
        missed = [row for row in rows if any(one.result == "miss" for one in row.cache)]
        spent = sum(row.duration_ns for row in missed) / 1e9
        compiled = count_compilations(missed)
        if spent >= thresholds.cache_missed_s:
            yield self.finding(
                context,
                f"The compile cache missed for {plural(compiled, 'compilation')}, which took "
                f"{duration(spent * 1e6)}",
                "A first run cannot hit. If this is not one, keep TORCHINDUCTOR_CACHE_DIR from job to job, "
                "with the same torch and GPU",
                {"compilations": compiled, "compile_s": spent},
                severity="info",
            )
        bypassed = Counter(
            (one.cache, one.reason) for row in rows for one in row.cache if one.result == "bypass"
        )
        for (cache, reason), count in bypassed.items():
            yield self.finding(
                context,
                f"The {CACHES.get(cache, cache)} cache was bypassed {often(count)}, which makes compiling slower, "
                f"not what is compiled: {reason or 'torch does not say why'}",
                "Change what torch names, or this is compiled again in every process",
                {"lookups": count},
                severity="info",
            )


COMPILE_RULES: tuple[Rule, ...] = (RecompileLimit(), CudaGraphsSkipped(), CacheMissed())


# CUDA graphs that were asked for and do not serve, and graphs that are compiled for each size.


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
