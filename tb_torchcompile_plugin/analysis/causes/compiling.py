"""What is compiled too often, too late, without caches, or without benefit?"""

from collections import Counter
from collections.abc import Iterable, Iterator

from tb_torchcompile_plugin.analysis import thresholds
from tb_torchcompile_plugin.analysis.causes.cause import (
    Cause,
    SpanContext,
    Words,
    called_at,
    named_with_caller,
)
from tb_torchcompile_plugin.analysis.causes.host import HostTimeCause
from tb_torchcompile_plugin.analysis.causes.payback import measured_step, payback, run_facts
from tb_torchcompile_plugin.analysis.compile.compilations import Problem, compilations, problems_by_function
from tb_torchcompile_plugin.analysis.compile.compile_time import count_frames, frames_s
from tb_torchcompile_plugin.analysis.compile.dynamic_sizes import dynamic_shapes, size_advice
from tb_torchcompile_plugin.analysis.compile.recompiles import (
    ADVICE,
    FailedGuard,
    RecompiledFrame,
    frame_of,
    recompiled_frames,
    recompiles,
    sharing,
)
from tb_torchcompile_plugin.analysis.finding import Finding, severity_of
from tb_torchcompile_plugin.analysis.formatting import at_line, duration, often, percent, plural, seconds
from tb_torchcompile_plugin.profile.columns import Intervals, covered_ns, host_slices
from tb_torchcompile_plugin.profile.compiled.regions import compiling_in_trace
from tb_torchcompile_plugin.profile.gpu_work import busy
from tb_torchcompile_plugin.profile.model.attribution import Attribution
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.torch_names.artifacts import CACHES
from tb_torchcompile_plugin.torch_names.graph_breaks import ADDRESS, is_of_self
from tb_torchcompile_plugin.torch_names.slices import CALL_CATS, PYTHON_FUNCTION, is_autotuning

_MAX_GUARD_CHARS = 90  # longer guards are cut off in a title


class Recompiles(HostTimeCause):
    """Torch recompiled frames during profiling."""

    id = "recompiles"
    kind = "compile"
    panel = "recompiles"
    needs_records = False
    limits = ("recompiles_percent",)
    words = Words(
        "torch.compile compiles during the step",
        "Keep the values that guards check constant, or mark them as dynamic. The Recompiles panel shows the guard "
        "that failed",
        "Without compiling",
    )

    def fix_of(self, culprit: Attribution) -> str | None:
        """Include autotuning, which happens only in steps that compile."""
        return self.kind if culprit.cause in ("compile", "autotuning") else None

    def detect(self, context: SpanContext) -> Iterator[Finding]:
        inside = [row for row in context.recompilations if context.compiling_us([row])]
        us = context.compiling_us(inside)
        share = context.share(us)
        if share < thresholds.recompiles_percent:
            return
        longest = max(inside, key=lambda row: row.duration_ns)
        key, caller = longest.key, called_at(longest.stack)
        ids = {row.key.compile_id for row in inside}
        reasons = [row for row in context.rows(recompiles) if row.compile_id in ids]
        guards = [guard for row in reasons for guard in row.guards[:1]]
        guard = guards[0] if guards else None
        row = next((row for row in reasons if row.compile_id == key.compile_id), None)
        frame = f"{named_with_caller(row.function, row.file, row.line, caller)} " if row else ""
        count, frames = count_frames(inside), {(row.function, row.file, row.line) for row in reasons}
        if len(frames) > 1:
            frame = f"{plural(len(frames), 'function')}, mainly {frame.rstrip(', ')}, "
        where = caller or (at_line(row.file, row.line) if row else "")
        sizes = context.profile.of(size_advice) if guard and guard.kind in ("tensor_size", "shape") else None
        advice = (sizes and sizes.sentence) or (guard and guard.advice)
        yield self.finding(
            f"Torch recompiled {frame}{often(count)} during profiling, which took "
            f"{duration(us)}{failed_guards_clause(guards)}",
            advice or "Check which guard failed, and keep the value that it checks constant",
            {"recompiles": count, "compile_us": us, "share_percent": share},
            saves_us=us,
            share=share,
            by=context.best("compile"),
            row=f"recompiles:{key.compile_id},{key.epoch}",
            where=[where],
            code=sizes.code if sizes else None,
        )


class CompileInSteps(Cause):
    """Torch compiled frames for the first time during profiling."""

    id = "compile_in_steps"
    panel = "compile_time"
    section = "compilations"
    needs_records = False
    limits = ("compile_percent",)

    def detect(self, context: SpanContext) -> Iterator[Finding]:
        again, summary = context.recompilations, context.summary
        if summary:
            us = context.compiling_us(summary.compilations) - context.compiling_us(again)
        else:
            us = context.inside_us(context.profile.of(compiling_in_trace))
        share = context.share(us)
        if share < thresholds.compile_percent:
            return
        yield self.finding(
            f"{'First-time compilation' if again else 'Compilation'} took {duration(us)}, "
            f"{percent(share)} of the profiled time",
            "Run the model a few times before the profiled steps: `schedule(wait=1, warmup=3, active=3)`",
            {"compile_us": us, "share_percent": share},
            saves_us=us,
            share=share,
            by=None if again else context.best("compile"),
        )


class AutotuneInSteps(Cause):
    """Kernels were autotuned during profiling, outside of compilation."""

    id = "autotune_in_steps"
    panel = "compile_time"
    section = "autotune"
    limits = ("autotune_percent",)

    def detect(self, context: SpanContext) -> Iterator[Finding]:
        trace, compiling = context.profile.trace, context.profile.of(compiling_in_trace)
        tuning = busy(trace, host_slices(trace, is_autotuning, (*CALL_CATS, PYTHON_FUNCTION)))
        alone = covered_ns(compiling, tuning.starts, tuning.starts + 1) == 0
        us = context.inside_us(Intervals(tuning.starts[alone], tuning.ends[alone]))
        share = context.share(us)
        if share < thresholds.autotune_percent:
            return
        yield self.finding(
            f"Kernel autotuning took {duration(us)}, {percent(share)} of the profiled time",
            "Run every shape once before the profiled steps: inductor caches the choices",
            {"autotune_us": us, "share_percent": share},
            saves_us=us,
            share=share,
        )


class CompileDoesNotPay(Cause):
    """A step of the [eager baseline run](../concepts/runs.md#baseline-run) is as fast or faster.

    `predicted` is its time.

    Not reported if the eager step is only predicted (info if the difference may be noise).
    """

    id = "compile_does_not_pay"
    panel = "compare"
    needs_all = True

    def detect(self, context: SpanContext) -> Iterator[Finding]:
        if context.profile.baseline_run is None or not context.profile.of(run_facts).compiled:
            return
        result = context.profile.of(payback)
        gain = result.gain[0]
        if gain.determined_by != "measured" or gain.verdict != "not_worth_it":
            return
        lines = dict.fromkeys(at_line(row.file, row.line) for row in context.rows(compilations) if row.line)
        fixes = [row for row in context.found if row.predicted]
        # A generic fix often gains most only because of a specific cause, such as many graphs because of breaks.
        fixes.sort(key=lambda row: (row.role == "generic", -row.predicted.gain_us if row.predicted else 0.0))
        also = [f", or first fix what limits the speed-up: {row.title}" for row in fixes[:1]]
        compile_s = result.cost[0].blocked_s if result.cost else None
        step = measured_step(gain, is_eager=False)
        yield self.finding(
            result.sentences[0].removesuffix("."),
            f"Run this model without torch.compile{''.join(also)}",
            {"eager_us": gain.eager_us, "compiled_us": gain.compiled_us, "compile_s": compile_s},
            severity=severity_of(step.gain_percent),
            where=list(lines)[: thresholds.MAX_LINES],
            predicted=step if step.gain_percent >= thresholds.gain_percent else None,
        )


class DynamicShapes(Cause):
    """Torch compiled for each size, or specialized a dynamic size again, before the profiled time (info).

    During the profiled time, `recompiles` reports this.
    """

    id = "dynamic_shapes"
    panel = "recompiles"
    section = "shapes"
    limits = ("sizes_s",)

    def detect(self, context: SpanContext) -> Iterator[Finding]:
        advice, rows = context.profile.of(size_advice), context.recompilations
        spent_s = frames_s(rows) or 0.0
        if advice is None or spent_s < thresholds.sizes_s or context.compiling_us(rows):
            return
        report = context.profile.of(dynamic_shapes)
        yield self.finding(
            f"{report.sentences[0].rstrip('.')}. Recompiling took {duration(1e6 * spent_s)} before this span",
            advice.sentence,
            {
                "recompiles": count_frames(rows),
                "compile_s": spent_s,
                "sizes": len({row.size for row in report.sizes}),
            },
            severity="info",
            where=[at_line(row.file, row.line) for row in report.guards if row.recompiles],
            code=advice.code,
        )


class RecompileLimit(Cause):
    """A frame hit the recompile limit, so torch runs it eagerly (critical)."""

    id = "recompile_limit"
    panel = "compilations"
    superseded_by = ("frame_given_up", "profiler_hooks")

    def detect_in_data(self, data: CompileData) -> Iterator[Finding]:
        for row, *_ in data.of(problems_by_function, "limit"):
            frame, advice = at_recompile_limit(data, row)
            versions = frame.versions if frame else []
            # A text may contain the end of a program alone.
            after = f" after {plural(len(versions), 'compilation')}" if versions else ""
            yield self.finding(
                f"{row.function or 'A frame'} hit the recompile limit{after}: calls that no compilation fits run "
                "eagerly",
                f"{advice.rstrip('.')}. torch._dynamo.config.recompile_limit raises the limit",
                {"versions": len(versions)},
                severity="critical",
                row=f"compilation:{row.compile_id},{row.epoch},forward",
            )


class ModulesCompiledApart(Cause):
    """Modules of one class do not share a compilation: the code of each holds another number (info)."""

    id = "modules_compiled_apart"
    panel = "recompiles"
    superseded_by = ("frame_given_up", "recompile_limit", "recompiles")
    limits = ("sizes_s",)

    def detect_in_data(self, data: CompileData) -> Iterator[Finding]:
        for frame in data.of(recompiled_frames):
            saved_s = frame.avoidable_s or 0.0
            if saved_s >= thresholds.sizes_s:
                yield self.finding(
                    f"{sharing(frame)} Sharing one would save up to {seconds(saved_s)} of compile time",
                    ADVICE["attribute"],
                    {"modules": frame.modules, "compilations": len(frame.versions), "compile_s": saved_s},
                    severity="info",
                    row=f"recompiles:{frame.versions[-1].compile_id},{frame.epoch}",
                    where=[at_line(frame.file, frame.line)],
                )


class CacheMissed(Cause):
    """Compilations that missed the compile caches took long, or a cache was bypassed (info).

    A bypass slows down compilation but not the compiled code.
    """

    id = "cache_missed"
    panel = "compile_time"
    limits = ("cache_missed_s",)

    def detect_in_data(self, data: CompileData) -> Iterator[Finding]:
        rows = data.summary.compilations
        missed = [row for row in rows if any(lookup.result == "miss" for lookup in row.cache)]
        spent, compiled = frames_s(missed) or 0.0, count_frames(missed)
        if spent >= thresholds.cache_missed_s:
            yield self.finding(
                f"{plural(compiled, 'compilation')} missed the compile cache and took "
                f"{duration(spent * 1e6)}",
                "This is expected on a first run, and takes less time if repeated blocks are compiled one by one. "
                "Otherwise, keep the folder TORCHINDUCTOR_CACHE_DIR between jobs with the same torch version and GPU",
                {"compilations": compiled, "compile_s": spent},
                severity="info",
            )
        lookups = (lookup for row in rows for lookup in row.cache if lookup.result == "bypass")
        bypassed = Counter((lookup.cache, lookup.reason) for lookup in lookups)
        for (cache, reason), count in bypassed.items():
            yield self.finding(
                f"The {CACHES.get(cache, cache)} cache was bypassed {often(count)} "
                f"({reason or 'torch gives no reason'}). This slows down compilation, but not the compiled code",
                "Remove what prevents caching. Otherwise, every process compiles this code again",
                {"lookups": count},
                severity="info",
            )


def failed_guards_clause(guards: Iterable[FailedGuard]) -> str:
    """Return ". The guard that failed: tensor 'x' size mismatch at index 0", "" without guards."""
    texts = [text for text in dict.fromkeys(_short(guard) for guard in guards) if text]
    if not texts:
        return ""
    more = f" and {len(texts) - thresholds.MAX_NAMES} more" if len(texts) > thresholds.MAX_NAMES else ""
    which = "The guard" if len(texts) == 1 else "Guards"
    return f". {which} that failed: {'; '.join(texts[: thresholds.MAX_NAMES])}{more}"


def at_recompile_limit(data: CompileData, row: Problem) -> tuple[RecompiledFrame | None, str]:
    """Return a frame at the limit, and what to do about the guard that failed when it was last compiled."""
    key = row.epoch, frame_of(row.compile_id)
    frame = next((row for row in data.of(recompiled_frames) if (row.epoch, row.frame) == key), None)
    failures = (again for again in data.of(recompiles) if (again.epoch, frame_of(again.compile_id)) == key)
    guards = [guard for again in failures for guard in again.guards[:1]]
    advice = "Check which guard fails each time: mark the value as dynamic, or keep it constant"
    # Guards of the modules themselves come first: sizes of inputs differ because the modules do.
    guards = [guard for guard in guards if is_of_self(guard.text)] or guards
    if guards and guards[-1].advice:
        advice = f"A guard that fails is {_short(guards[-1])}. {guards[-1].advice}"
    if frame and frame.modules:
        advice = f"{advice.rstrip('.')}. {sharing(frame)}"
    return frame, advice


def _short(guard: FailedGuard) -> str:
    # The text may end in a comment of the compiler, far to the right.
    text = ADDRESS.sub("", " ".join(guard.text.partition("  #")[0].split()))
    return text[:_MAX_GUARD_CHARS] + ("…" if len(text) > _MAX_GUARD_CHARS else "")
