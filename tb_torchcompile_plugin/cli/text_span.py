"""One span as text: what its GPUs did, its steps, compiled code, kernels and operators."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from rich.console import Console

from tb_torchcompile_plugin.analysis.finding import Panel
from tb_torchcompile_plugin.analysis.runtime.gpu_utilization import DeviceIdle, GpuUtilization
from tb_torchcompile_plugin.analysis.runtime.step_breakdown import StepBreakdown, StepPart, StepReport
from tb_torchcompile_plugin.api.report import SpanReport, UnreadSpan
from tb_torchcompile_plugin.cli.text_table import Plain, place, table

_GAPS_SHOWN = 5
_HELD_UP_SHOWN = 10
_STEPS_SHOWN = 6
_EAGER_SHOWN = 15
_KERNELS_SHOWN = 20
_LINES_SHOWN = 20
_OPERATORS_SHOWN = 20
_SIZES_SHOWN = 20


def print_span(console: Console, span: SpanReport | UnreadSpan) -> None:
    """All tables of one span; one line for what could not be read."""
    if isinstance(span, UnreadSpan):
        console.print(Plain(f"span {span.span}  {span.trace_file}  could not be read"))
        return
    console.print(Plain(f"span {span.span}  {span.trace_file}  {span.events} events"))
    hints = span.hints.unnamed_cpu_kernels, span.hints.unnamed_triton_kernels
    known = span.overview.headline, span.overview.recording, *span.pays.says, *hints
    for line in filter(None, known):
        console.print(Plain(f"  {line}"), soft_wrap=True)
    table(
        console,
        "GPUs: busy = compute + exposed communication + exposed memory; with idle it is the span",
        span.gpu,
        "device name span_us busy_us busy_percent compute_us exposed_communication_us exposed_memory_us idle_us",
    )
    _print_gpu_utilization(console, span.gpu_utilization)
    table(
        console,
        "collectives",
        span.collectives,
        "device name size_bytes kernels time_us mean_us min_us max_us wait_us transfer_us gb_s gb_s_is",
    )
    _print_steps(console, span)
    _print_regions(console, span)
    _print_graphs(console, span)
    _print_work(console, span)
    _print_source(console, span)


def _print_gpu_utilization(console: Console, used: GpuUtilization) -> None:
    """What launching costs, what bounds the steps, why the GPUs idle. Nothing without GPU events."""
    table(
        console,
        "launches",
        [used.launch_stats] if used.launch_stats else [],
        "launches launches_per_step call_us call_median_us latency_median_us queue_wait_median_us short_percent",
    )
    table(
        console,
        "where the mean step goes on the busiest device",
        [used.mean] if used.mean and used.steps else [],
        "device busy_us busy_percent compute_us exposed_communication_us exposed_memory_us idle_us",
    )
    windows = [*used.steps, *([used.window] if used.window else [])]
    table(
        console,
        "steps by device",
        [(window, device) for window in windows for device in window.devices],
        "step device busy_us busy_percent idle_us bound launches launch_call_us",
        step=lambda row: row[0].step or "the span",
        device=lambda row: str(row[1].device),
        busy_us=lambda row: row[1].busy_us,
        busy_percent=lambda row: row[1].busy_percent,
        idle_us=lambda row: row[1].idle_us,
        bound=lambda row: row[0].verdict.bound,
        launches=lambda row: row[0].launches,
        launch_call_us=lambda row: row[0].launch_call_us,
    )
    table(
        console,
        "what held the GPUs up: idle time of a step by what the host did meanwhile",
        used.held_up,
        "device cause name idle_us share_percent calls pattern place longest_us",
        _HELD_UP_SHOWN,
        place=lambda row: place(row.file, row.line) if row.file else None,
    )
    for idle in used.idle:
        table(
            console,
            f"why GPU {idle.device} idles for {idle.idle_us:.3f} µs: what the launching thread did",
            _causes(idle),
            "cause idle_us",
            cause=lambda row: row[0],
            idle_us=lambda row: row[1],
        )
    table(
        console,
        "longest idle gaps",
        used.longest_gaps,
        "device start_us idle_us step cause thread before",
        _GAPS_SHOWN,
    )


def _print_graphs(console: Console, span: SpanReport) -> None:
    """Whether CUDA graphs served, and which sizes came. Nothing where there is nothing but that sentence."""
    graphs, shapes = span.cuda_graphs, span.dynamic_shapes
    for report, rows in ((graphs, graphs.functions), (shapes, (*shapes.sizes, *shapes.symbols))):
        for line in report.says if rows else ():
            console.print(Plain(f"  {line}"), soft_wrap=True)
    table(
        console,
        "CUDA graphs",
        list(graphs.functions),
        "compile_id direction function state calls replayed_calls recorded_calls plain_calls recordings recording_us "
        "replay_us replay_kernels launches_avoided",
    )
    table(console, "counts of CUDA graphs", list(graphs.counts), "counted log trace torch agree")
    table(
        console,
        "sizes that came",
        list(shapes.sizes),
        "function source size served compile_id calls",
        _SIZES_SHOWN,
    )


def _causes(idle: DeviceIdle) -> Iterator[tuple[str, float]]:
    """Those that occur, in their order."""
    for field, time in msgspec.structs.asdict(idle.causes).items():
        if time:
            yield field.removesuffix("_us").replace("_", " "), time


def _print_steps(console: Console, span: SpanReport) -> None:
    """How long steps take, how much that varies, where the time goes, and which were slow and why."""
    report = span.step_breakdown
    table(console, "steps", span.steps, "name start_us wall_us gpu_us gpu_busy_us")
    console.print(Plain(f"  {report.headline}"), soft_wrap=True)
    _print_parts(console, report)
    table(
        console,
        "slow steps",
        report.slow,
        "step excess_us times_median why explained_us",
    )


def _print_parts(console: Console, report: StepReport) -> None:
    """One row a part; one column a step."""
    steps = {
        row.step or "span": (lambda part, row=row: _time_of(row, part))
        for row in (report.steps or ([report.window] if report.window else []))[:_STEPS_SHOWN]
    }
    table(
        console,
        "where a step goes, µs" if report.steps else "where the span goes, µs",
        report.mean_parts,
        " ".join(("while part mean percent", *steps)),
        **{"while": lambda part: part.kind, "mean": lambda part: part.time_us, **steps},
    )


def _time_of(row: StepBreakdown, part: StepPart) -> float:
    return sum(one.time_us for one in row.parts if (one.kind, one.part) == (part.kind, part.part))


def _print_regions(console: Console, span: SpanReport) -> None:
    """Breaks with their price, the calls of regions with theirs, and operators outside of them."""
    if span.graph_break_sites:
        _say(console, span, "graph_breaks")
    table(
        console,
        "graph breaks by cost",
        span.graph_break_sites,
        "where kind reason compile_ids calls calls_per_step host_us step_mean_us step_median_us step_p95_us "
        "share_percent gpu_idle_us",
    )
    if span.compiled_regions:
        _say(console, span, "compiled_regions")
    table(
        console,
        "compiled regions",
        span.compiled_regions,
        "compile_id function calls guard_us overhead_us graph_us gpu_us backward_calls backward_cpu_us backward_gpu_us",
    )
    if span.recompile_moments is None:
        _say(console, span, "recompiles")
    table(
        console,
        "guards by version and versions alive",
        span.guard_scans or (),
        "compile_id entries calls median_us max_us",
    )
    table(
        console,
        "recompiles, from the start of the span",
        span.recompile_moments or (),
        "compile_id start_us when calls duration_s",
    )
    table(
        console,
        f"ran eager: {span.eager.headline or 'at graph breaks only'}",
        span.eager.ops,
        "name kind called_in calls host_us device_us",
        _EAGER_SHOWN,
        called_in=lambda row: row.file and f"{row.function} {place(row.file, row.line)}",
    )


def _say(console: Console, span: SpanReport, panel: Panel) -> None:
    """The sentence that the tab's panel opens with."""
    console.print(Plain(f"  {span.headlines[panel]}"), soft_wrap=True)


def _print_work(console: Console, span: SpanReport) -> None:
    _say(console, span, "kernels")
    table(
        console,
        "kernel categories",
        span.kernel_categories,
        "device category launches distinct_kernels time_us gpu_time_percent wall_time_percent",
    )
    table(
        console,
        "kernels",
        span.kernels,
        "name category compile_id launches time_us mean_us bandwidth_percent",
        _KERNELS_SHOWN,
    )
    if "memory" in span.headlines:
        _say(console, span, "memory")
    _say(console, span, "operators")
    table(
        console,
        "operators",
        span.operators,
        "name kind calls self_host_us host_us self_device_us device_us",
        _OPERATORS_SHOWN,
    )


def _print_source(console: Console, span: SpanReport) -> None:
    """The hottest lines of the program, with their text or why it is not known."""
    table(
        console,
        f"lines of the program: {span.headlines['source']}",
        span.source,
        "line function forward_us backward_us host_us above_floor_us kernels text",
        _LINES_SHOWN,
        line=lambda row: place(row.file, row.line),
        kernels=lambda row: len(row.kernels),
        text=lambda row: row.text.strip() if row.text else f"({row.no_text})",
    )
