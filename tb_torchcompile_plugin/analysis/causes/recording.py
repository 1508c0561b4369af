"""Is the recording complete enough?"""

from collections.abc import Iterator

from tb_torchcompile_plugin.analysis import thresholds
from tb_torchcompile_plugin.analysis.causes.cause import Cause, SpanContext
from tb_torchcompile_plugin.analysis.finding import Finding
from tb_torchcompile_plugin.analysis.formatting import percent, plural
from tb_torchcompile_plugin.analysis.runtime.span_report import unnamed_cpu_kernels
from tb_torchcompile_plugin.analysis.runtime.step_breakdown import step_breakdown
from tb_torchcompile_plugin.profile.gpu_work import gpu_work
from tb_torchcompile_plugin.reader.compile_data import CompileData

_CALL_STEP = "Call prof.step() at the end of each step, inside the profiler's with block"


class UnnamedCpuKernels(Cause):
    """Compiled code on the CPU takes a share of the step, but its kernels are not in the trace (info)."""

    id = "unnamed_cpu_kernels"
    panel = "kernels"
    limits = ("unexplained_percent",)

    def detect(self, context: SpanContext) -> Iterator[Finding]:
        rows = context.profile.of(step_breakdown).mean_parts
        share = sum(row.percent for row in rows if (row.kind, row.part) == ("host", "compiled_graph"))
        if share < thresholds.unexplained_percent or not context.profile.of(unnamed_cpu_kernels):
            return
        yield self.finding(
            f"Compiled code takes {percent(share)} of the step, but its kernels are not in the trace",
            "Set `TORCHINDUCTOR_CPP_ENABLE_KERNEL_PROFILE=1` before compiling, and record again. Each generated "
            "kernel is then an event in the trace",
            {"share_percent": share},
            severity="info",
        )


class EmptyProfile(Cause):
    """The trace contains no events (critical), no GPU events despite a GPU (warning), or too few steps (info)."""

    id = "empty_profile"
    panel = "step"
    section = "steps"
    needs_records = False
    limits = ("steps_least",)

    def detect(self, context: SpanContext) -> Iterator[Finding]:
        trace = context.profile.trace
        if trace.is_cut_off:
            return
        if not len(trace):
            yield self.finding(
                "The trace contains 0 events: the profiler was not active",
                "Let the schedule reach its active steps: call prof.step() after each step, and run enough steps",
                {"events": 0},
                severity="critical",
            )
        elif trace.is_lossy:
            return
        elif trace.metadata.get("deviceProperties") and not len(context.profile.of(gpu_work).index):
            yield self.finding(
                "The trace contains 0 GPU events, although there is a GPU",
                "Record them: `activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]`, and run work on the GPU",
                {"gpu_events": 0, "events": trace.events},
                severity="warning",
            )
        elif 0 < context.steps < thresholds.steps_least:
            yield self.finding(
                f"Only {plural(context.steps, 'step')} was profiled, which may not be typical",
                "Profile several steps: `schedule(wait=1, warmup=3, active=3)`",
                {"steps": context.steps},
                severity="info",
            )


class NoTrace(Cause):
    """No profiler recorded a step before the process ended, because its schedule was waiting or warming up (critical).

    Info if the compile summary has neither a trace nor a note about this, as older handlers write.
    """

    id = "no_trace"
    panel = "all_runs"

    def detect_in_data(self, data: CompileData) -> Iterator[Finding]:
        recorded, code = data.summary.steps, None
        if recorded.HasField("unused"):
            steps = recorded.unused.steps
            why = f"it ended after {plural(steps, 'call')} of prof.step()"
            advice = "Run more steps, or shorten wait and warmup in the schedule"
            if not steps:
                why, advice, code = "prof.step() was not called", _CALL_STEP, "prof.step()"
            yield self.finding(
                f"There is no trace because the profiler's schedule never started recording: {why}",
                advice,
                {"profiler_steps": steps},
                severity="critical",
                code=code,
            )
        elif data.source == "summary" and not data.has_trace:  # torch writes a log without a trace
            steps = len(recorded.recorded_ns)
            why = f"although the profiler recorded {plural(steps, 'step')}"
            advice = (
                "Put the trace into the same folder. If none was written, let the profiler's schedule finish"
            )
            if not steps:
                why = "and no call of prof.step() was recorded"
                advice = f"If a profiler was active, its schedule did not finish. {_CALL_STEP}"
            evidence = {"profiled_steps": steps}
            yield self.finding(f"There is no trace, {why}", advice, evidence, severity="info")
