"""What was compiled too often, compiled without the caches, or is not replayed as a CUDA graph?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tb_torchcompile_plugin.analysis import thresholds
from tb_torchcompile_plugin.analysis.causes.fix_words import instead, next_step, with_gain
from tb_torchcompile_plugin.analysis.causes.rule import CompileRule, SpanContext, SpanRule
from tb_torchcompile_plugin.analysis.compile.compilations import problems
from tb_torchcompile_plugin.analysis.compile.compile_time import count_compilations
from tb_torchcompile_plugin.analysis.compile.cuda_graph_recordings import skipped_graphs
from tb_torchcompile_plugin.analysis.compile.dynamic_sizes import dynamic_shapes, size_advice
from tb_torchcompile_plugin.analysis.finding import Finding
from tb_torchcompile_plugin.analysis.formatting import at_line, duration, often, plural
from tb_torchcompile_plugin.analysis.runtime.cuda_graph_functions import NOT_REPLAYED, complaint, remedy
from tb_torchcompile_plugin.analysis.runtime.cuda_graphs import cuda_graphs
from tb_torchcompile_plugin.analysis.runtime.launch_stats import cudagraph_skips, skip_reason
from tb_torchcompile_plugin.compile_log.summary_pb2 import CompileSummary
from tb_torchcompile_plugin.profile.units import to_seconds
from tb_torchcompile_plugin.reader.arrays import grouped
from tb_torchcompile_plugin.reader.compile_data import CompileData
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
_MAX_LINES = 3  # of one function in a finding


class RecompileLimit(CompileRule, id="recompile_limit", panel="compilations"):
    """A frame that hit the recompile limit."""

    def evaluate_data(self, data: CompileData) -> Iterator[Finding]:
        """Yield a finding for each frame."""
        limits = [row for row in data.of(problems) if row.kind == "limit"]
        for row, *_ in grouped(limits, lambda row: (row.function, row.file, row.line)).values():
            frame = row.compile_id.partition("/")[0]
            ids = {
                compiled.key.compile_id
                for compiled in data.summary.compilations
                if compiled.key.epoch == row.epoch
                and compiled.key.compile_id.partition("/")[0] == frame
                and not compiled.HasField("failure")
            }
            yield self.finding(
                None,
                f"{row.function or 'A frame'} was compiled {often(len(ids))} and now runs eager: it hit the "
                "recompile limit",
                "See which guard fails each time: mark what changes as dynamic, or keep it the same. "
                "torch._dynamo.config.recompile_limit raises the limit",
                {"versions": len(ids)},
                severity="critical",
                row=f"compilation:{row.compile_id},{row.epoch},forward",
            )


class CudaGraphsSkipped(CompileRule, SpanRule, id="cudagraphs_skipped", panel="compilations"):
    """CUDA graphs that torch was asked for and skipped."""

    def evaluate(self, context: SpanContext) -> Iterator[Finding]:
        """Yield a finding for each reason; the first one with its price."""
        data = context.profile.data
        return self._skipped(data, context) if data else iter(())

    def evaluate_data(self, data: CompileData) -> Iterator[Finding]:
        """Yield a finding for each reason."""
        return self._skipped(data, None)

    def _skipped(self, data: CompileData, context: SpanContext | None) -> Iterator[Finding]:
        by = context.best("graph_capture") if context else None
        reasons = _skip_reasons(data.summary)
        for index, (reason, ids) in enumerate(reasons.items()):
            word = next((word for word in _AGAINST_SKIPS if word in reason.lower()), None)
            skips = [row for row in data.of(skipped_graphs) if failures.skip_reason(row.text) == reason]
            lines = dict.fromkeys((row.file, row.line) for row in skips if row.file)
            compilations = f" for {plural(len(ids), 'compilation')}" if ids else ""
            yield self.finding(
                context,
                f"CUDA graphs are skipped{compilations}: {reason}",
                _AGAINST_SKIPS[word] if word else "Change what torch names",
                {"compilations": len(ids)} if ids else {},
                severity="warning",
                row=f"compilation:{ids[0][1]},{ids[0][0]},forward" if ids else None,
                by=by if index == 0 else None,
                where=[at_line(file, line) for file, line in lines],
            )
        unexplained = data.of(cudagraph_skips) or 0
        if unexplained and not reasons:
            yield self.finding(
                context,
                f"CUDA graphs were skipped {often(unexplained)}; why, torch told its log only",
                "Run with TORCH_LOGS=cudagraphs to see the reason: mutated inputs, CPU tensors, dynamic shapes …",
                {"skips": unexplained},
                severity="warning",
                code="TORCH_LOGS=cudagraphs",
                by=by or (context.best("cuda_graphs") if context else None),
            )


def _skip_reasons(summary: CompileSummary) -> dict[str, list[tuple[int, str]]]:
    """Return (epoch, compile id) of the known compilations by the first line of torch's reason."""
    by_reason: dict[str, dict[tuple[int, str], None]] = {}
    for row in (*summary.compilations, *summary.runtime_metrics):
        if reason := skip_reason(row.metrics):
            by_reason.setdefault(failures.skip_reason(reason), {})[row.key.epoch, row.key.compile_id] = None
    return {reason: [key for key in keys if key[1]] for reason, keys in by_reason.items()}


class CacheMissed(CompileRule, id="cache_missed", panel="compile_time"):
    """Compile caches that did not help: a first run cannot hit, so misses count only where they took long."""

    def evaluate_data(self, data: CompileData) -> Iterator[Finding]:
        """Yield one finding for all misses, and one for each cache and reason that was bypassed."""
        rows = data.summary.compilations
        missed = [row for row in rows if any(lookup.result == "miss" for lookup in row.cache)]
        spent = sum(row.duration_ns for row in missed) / 1e9
        compiled = count_compilations(missed)
        if spent >= thresholds.cache_missed_s:
            yield self.finding(
                None,
                f"The compile cache missed for {plural(compiled, 'compilation')}, which took "
                f"{duration(spent * 1e6)}",
                "A first run cannot hit. If this is not one, keep TORCHINDUCTOR_CACHE_DIR from job to job, "
                "with the same torch and GPU",
                {"compilations": compiled, "compile_s": spent},
                severity="info",
            )
        lookups = [lookup for row in rows for lookup in row.cache if lookup.result == "bypass"]
        bypassed = Counter((lookup.cache, lookup.reason) for lookup in lookups)
        for (cache, reason), count in bypassed.items():
            yield self.finding(
                None,
                f"The {CACHES.get(cache, cache)} cache was bypassed {often(count)}, which makes compiling slower, "
                f"not what is compiled: {reason or 'torch does not say why'}",
                "Change what torch names, or this is compiled again in every process",
                {"lookups": count},
                severity="info",
            )


COMPILE_RULES: tuple[CompileRule, ...] = (RecompileLimit(), CudaGraphsSkipped(), CacheMissed())


class CudaGraphsNotReplayed(SpanRule, id="graph_capture", panel="cuda_graphs"):
    """CUDA graphs that are recorded again or never, apart from first recordings and from what torch skips."""

    def evaluate(self, context: SpanContext) -> Iterator[Finding]:
        """Yield the function with the most calls that are not replayed, with its cause."""
        by = context.best("graph_capture")
        if by is None or by.predicted.gain_percent < thresholds.gain_percent:
            return
        report = context.profile.of(cuda_graphs)
        if not report.functions:  # recorded by the program itself
            title = with_gain(by, context.paced)
            yield self.finding(context, title, next_step(by), {"times_per_step": by.times}, by=by)
        functions = [row for row in report.functions if row.state in NOT_REPLAYED]
        if not functions:
            return
        row = min(functions, key=lambda row: row.replayed_calls - row.calls)
        advice, code = remedy(row, report.recordings)
        lines = [
            at_line(recording.file, recording.line)
            for recording in report.recordings
            if recording.compile_id == row.compile_id and recording.file
        ]
        yield self.finding(
            context,
            f"{complaint(row)}: replayed, {context.paced.one} takes {instead(by.predicted)}",
            advice,
            {
                "gain_us_per_step": by.predicted.gain_us,
                "share_percent": by.predicted.gain_percent,
                "times_per_step": by.times,
                "calls": row.calls,
                "calls_that_recorded": row.recorded_calls,
                "calls_kernel_by_kernel": row.plain_calls,
            },
            by=by,
            where=list(dict.fromkeys([*lines, at_line(row.file, row.line)]))[:_MAX_LINES],
            code=code,
        )


class CompiledForEachSize(SpanRule, id="dynamic_shapes", panel="dynamic_shapes"):
    """Recompiles for other sizes before the profiled time; inside it `recompiles` shows them with their price."""

    def evaluate(self, context: SpanContext) -> Iterator[Finding]:
        """Yield one finding for all of them."""
        if context.summary is None:
            return
        advice = context.profile.of(size_advice)
        ids = {row.key.compile_id for row in context.summary.recompiles}
        rows = [row for row in context.summary.compilations if row.key.compile_id in ids]
        spent_s = to_seconds(sum(row.duration_ns for row in rows))
        if advice is None or spent_s < thresholds.sizes_s or context.inside_us(context.compiling(rows)):
            return
        report = context.profile.of(dynamic_shapes)
        lines = (at_line(row.file, row.line) for row in report.guards if row.recompiles)
        yield self.finding(
            context,
            f"{report.says[0].rstrip('.')}: recompiling took {duration(1e6 * spent_s)} before this span",
            advice.sentence,
            {"recompiles": len(rows), "compile_s": spent_s, "sizes": len({row.size for row in report.sizes})},
            severity="info",
            where=[line for line in lines if line],
            code=advice.code,
        )


GRAPH_RULES: tuple[SpanRule, ...] = (CudaGraphsNotReplayed(), CompiledForEachSize())
