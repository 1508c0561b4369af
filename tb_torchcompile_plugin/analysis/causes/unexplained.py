"""Is the recording complete enough, and which large part of a step has no other cause?"""

from collections.abc import Iterator

from tb_torchcompile_plugin.analysis import thresholds
from tb_torchcompile_plugin.analysis.causes.cause import Cause, SpanContext
from tb_torchcompile_plugin.analysis.finding import Finding
from tb_torchcompile_plugin.analysis.formatting import duration, percent, plural
from tb_torchcompile_plugin.analysis.runtime.gpu_utilization import utilization
from tb_torchcompile_plugin.analysis.runtime.ledger import KIND_WORDS, LedgerSite, calling_sites, ledger
from tb_torchcompile_plugin.analysis.runtime.span_report import unnamed_cpu_kernels
from tb_torchcompile_plugin.analysis.runtime.step_breakdown import step_breakdown
from tb_torchcompile_plugin.profile.compiled.regions import region_calls
from tb_torchcompile_plugin.profile.gpu_work import gpu_work
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.torch_names import kernels, python_frames, slices
from tb_torchcompile_plugin.torch_names.operators import is_embedding_backward, is_foreach
from tb_torchcompile_plugin.torch_names.python_frames import frame_of, is_torch_function

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


_SHAPES_SHOW = "The step needs this work. The Operators panel shows its shapes if record_shapes=True was set"
_MAX_SITES = 3  # large sites that are findings: the table has all of them
# Shares of a site that a fix must gain to explain it: predicted, and at least. Chosen on the recordings.
_EXPLAINED, _LEAST_EXPLAINED = 0.5, 0.25


class LargeSite(Cause):
    """A site of the [ledger](../concepts/step.md#ledger) takes a share of the step that no other finding explains.

    It names the line, operator or position with its kernels or functions (warning on the host; info for kernel time).
    """

    id = "large_site"
    panel = "step"
    needs_all = True
    limits = ("site_percent",)

    def detect(self, context: SpanContext) -> Iterator[Finding]:
        sites = [
            site for site in context.profile.of(calling_sites) if site.site and _is_unexplained(context, site)
        ]
        for site in sites[:_MAX_SITES]:
            kind = site.kinds[0]
            # A step needs its kernels (on the CPU, its operators), but not launches that the GPU waits for.
            on_cpu, rows = context.profile.of(utilization) is None, context.profile.of(ledger).rows
            is_operator = kind == "eager_operators" and not site.file and on_cpu
            is_work = site.gpu_us > site.host_us or kind == "compiled_graph" or is_operator
            named = [name for row in rows if row.site == site.site for name in row.names]
            shown = [name for name in named if kind != "python" or frame_of(name)]
            inside = next((name for name in shown if kernels.short_kernel(name) not in site.site), "")
            is_position = site.site.startswith(("after ", "before "))
            title = f"The time {site.site}" if is_position else site.site
            what = f"{'mostly ' if site.kinds[1:] else ''}{KIND_WORDS.get(kind, f'{kind} kernels').replace('_', ' ')}"
            yield self.finding(
                f"{title} {'is' if is_position else 'takes'} {duration(site.time_us)}, {percent(site.step_percent)} of "
                f"{'the step' if context.steps else 'the span'} ({what}"
                f"{f', such as {kernels.short_kernel(inside)}' if inside else ''})",
                _next_step(context, site, is_work, named),
                {"site_us": site.time_us, "share_percent": site.step_percent},
                severity="info" if is_work and not _is_dense_update(context, site) else "warning",
                where=[site.site],
            )


def _is_unexplained(context: SpanContext, site: LedgerSite) -> bool:
    """Whether no other finding names a site, or gains most of what it could gain.

    Less host time shortens a step only as far as its GPU idles. A gain "up to" a bound explains nothing: missing
    compilation must not hide other work of the program.
    """
    used, most_percent = context.profile.of(utilization), site.step_percent
    if used and site.host_us > site.gpu_us and used.mean.busy_percent is not None:
        most_percent = min(most_percent, 100 - used.mean.busy_percent)
    is_explained = any(
        site.site in row.where
        or (
            row.predicted is not None
            and row.predicted.gain_percent >= _EXPLAINED * most_percent
            and row.predicted.least_gain_percent >= _LEAST_EXPLAINED * most_percent
        )
        for row in context.found
    )
    return most_percent >= thresholds.site_percent and not is_explained


def _is_dense_update(context: SpanContext, site: LedgerSite) -> bool:
    """Whether the site is an optimizer's kernels, and the program computes the dense gradient of an embedding."""
    return is_foreach(site.site) and any(map(is_embedding_backward, context.profile.trace.names))


def _next_step(context: SpanContext, site: LedgerSite, is_work: bool, names: list[str]) -> str:
    kind = site.kinds[0]
    if _is_dense_update(context, site):
        return (
            "An embedding has a dense gradient, so the optimizer updates all of its rows. If a step looks up few of "
            "them, use nn.Embedding(sparse=True) with an optimizer for sparse gradients, such as SparseAdam"
        )
    if kind == "kernel_launches" and context.profile.of(region_calls):
        return (
            'Launch less often: use CUDA graphs (mode="reduce-overhead"), which need the same shapes and memory in '
            "each step (for example a static cache), or a larger batch"
        )
    if is_work:
        shown = (
            "The Kernels panel shows how close its kernels are to the peak of the device"
            if site.gpu_us
            else _SHAPES_SHOW
        )
        return f"{shown}. Other shapes or types may take less time"
    function = next((name for name in names if frame_of(name)), "")  # sorted by time
    if work := python_frames.library_work(function):
        return f"{work.library} {work.does} there. {work.next_step}"
    if kind in ("kernel_launches", "eager_operators", "graph_breaks"):
        return "Compile the function that calls them, or use one operator for the inputs of several calls"
    if is_torch_function(function):  # such as `backward`: no program can move it elsewhere
        return "This is torch's own time, much of it for each call: make fewer calls, or compute more in each of them"
    if site.file and (not names or any(map(frame_of, names))):
        return "Move this code out of the step: run it before the loop, in data loader workers, or on the GPU"
    has_calls = context.summary and context.summary.environment.HasField("compile_called")
    may_compile = site.site.endswith(slices.LOOKUPS) and not has_calls  # directly before a compiled call
    example = " (such as torch.compile in each step)" if may_compile else ""
    return f"Record with with_stack=True to see the functions. This time is either Python code{example} or waiting"
