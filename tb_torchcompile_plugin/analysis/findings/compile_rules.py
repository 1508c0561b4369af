"""Rules about what was compiled; they need no trace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tb_torchcompile_plugin.analysis.compilations.compilations import Problem, problems
from tb_torchcompile_plugin.analysis.compile_time.compile_time import count_compilations
from tb_torchcompile_plugin.analysis.cuda_graphs.recordings import skipped_graphs
from tb_torchcompile_plugin.analysis.findings import thresholds
from tb_torchcompile_plugin.analysis.findings.context import RuleContext
from tb_torchcompile_plugin.analysis.findings.finding import Finding
from tb_torchcompile_plugin.analysis.findings.rule import Rule
from tb_torchcompile_plugin.analysis.gpu_utilization.launch_stats import cudagraph_skips, skip_reason
from tb_torchcompile_plugin.analysis.words import at_line, duration, often, plural
from tb_torchcompile_plugin.compile_log.summary_pb2 import CompileSummary
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
