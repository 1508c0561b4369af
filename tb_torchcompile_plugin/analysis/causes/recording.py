"""Was the recording made well enough?"""

from collections.abc import Iterator

from tb_torchcompile_plugin.analysis import thresholds
from tb_torchcompile_plugin.analysis.causes.cause import Cause
from tb_torchcompile_plugin.analysis.causes.context import SpanContext
from tb_torchcompile_plugin.analysis.finding import Finding
from tb_torchcompile_plugin.analysis.formatting import percent, plural
from tb_torchcompile_plugin.analysis.runtime.span_report import unnamed_cpu_kernels
from tb_torchcompile_plugin.analysis.runtime.step_breakdown import step_breakdown
from tb_torchcompile_plugin.profile.gpu_work import gpu_work
from tb_torchcompile_plugin.reader.compile_data import CompileData

_CALL_STEP = "Call prof.step() at the end of each step, inside of the profiler's block"


class UnnamedCpuKernels(Cause):
    """Compiled code on the CPU takes a share of a step, and its kernels are not named (info)."""

    id = "unnamed_cpu_kernels"
    panel = "step"
    section = "host"
    limits = ("unexplained_percent",)

    def detect(self, context: SpanContext) -> Iterator[Finding]:
        rows = context.profile.of(step_breakdown).mean_parts
        share = sum(row.percent for row in rows if (row.kind, row.part) == ("host", "compiled_graph"))
        if share < thresholds.unexplained_percent or not context.profile.of(unnamed_cpu_kernels):
            return
        yield self.finding(
            f"Compiled code takes {percent(share)} of a step, and its kernels are not named",
            "Set `TORCHINDUCTOR_CPP_ENABLE_KERNEL_PROFILE=1` before compiling, and record again: each generated "
            "kernel is then an event",
            {"share_percent": share},
            severity="info",
        )


class EmptyProfile(Cause):
    """The trace holds no event (critical), or no GPU event though there is a GPU (warning), or too few steps (info)."""

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
                "The trace holds 0 events: the profiler was not active",
                "Let the schedule come to its active steps: call prof.step() at the end of each step, often enough",
                {"events": 0},
                severity="critical",
            )
        elif trace.is_lossy:
            return
        elif trace.metadata.get("deviceProperties") and not len(context.profile.of(gpu_work).index):
            yield self.finding(
                "The trace holds 0 GPU events, though there is a GPU",
                "Record them: `activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]`; and run something on it",
                {"gpu_events": 0, "events": trace.events},
                severity="warning",
            )
        elif 0 < context.steps < thresholds.steps_least:
            yield self.finding(
                f"Only {plural(context.steps, 'step')} was profiled: whether it is typical is unknown",
                "Profile a few steps: `schedule(wait=1, warmup=3, active=3)`",
                {"steps": context.steps},
                severity="info",
            )


class NoTrace(Cause):
    """Every profiler that was stopped until the process ended had not recorded a step (critical).

    Its schedule was still waiting or warming up. Or the compile summary of a worker has neither a trace nor such a
    note, as of an older handler (info).
    """

    id = "no_trace"
    panel = "all_runs"

    def detect_in_data(self, data: CompileData) -> Iterator[Finding]:
        recorded, code = data.summary.steps, None
        if recorded.HasField("unused"):
            steps = recorded.unused.steps
            why = f"it ended after {plural(steps, 'call')} of its step()"
            advice = "Run more steps, or shorten wait and warmup of the schedule"
            if not steps:
                why, advice, code = "its step() was not called", _CALL_STEP, "prof.step()"
            yield self.finding(
                f"There is no trace, as the profiler's schedule never began to record: {why}",
                advice,
                {"profiler_steps": steps},
                severity="critical",
                code=code,
            )
        elif data.source == "summary" and not data.has_trace:  # torch writes a log without a trace
            steps = len(recorded.recorded_ns)
            why = f"though the profiler recorded {plural(steps, 'step')}"
            advice = (
                "Put the trace into the same folder. If none was written, let the profiler's schedule end"
            )
            if not steps:
                why = "and no call of a profiler's step() was recorded"
                advice = f"If a profiler was to write one, its schedule has not ended. {_CALL_STEP}"
            title = f"The compile summary has no trace, {why}"
            yield self.finding(title, advice, {"profiled_steps": steps}, severity="info")
