"""One span as text: what its GPUs did, its steps, compiled code, kernels and operators."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from rich.console import Console

from tb_torchcompile_plugin.analysis.finding import Panel
from tb_torchcompile_plugin.analysis.formatting import duration
from tb_torchcompile_plugin.analysis.ranks.job_rows import JobReport, RankRow
from tb_torchcompile_plugin.analysis.runtime.gpu_utilization import DeviceIdle, GpuUtilization
from tb_torchcompile_plugin.analysis.runtime.step_breakdown import StepBreakdown, StepPart, StepReport
from tb_torchcompile_plugin.api.report import Report, Run, SpanReport, UnreadSpan, Worker
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


# A job of several ranks as text: who waits for whom, why, and what collectives took. Its ranks fold to a
# line each.


_RANKS_SHOWN = 32
_MANY_SHOWN = 10  # of each table of a job of many ranks
_WAITS_SHOWN = 16
_OVERLAP_SHOWN = 12
_CAUSES_SHOWN = 5  # of each rank


def print_job(console: Console, run: str, job: JobReport) -> None:
    """All tables of one job, under its sentence."""
    console.rule(Plain(f"run {run}  job of {job.ranks} ranks"), align="left")
    for line in (job.headline, job.basis):
        console.print(Plain(f"  {line}"), soft_wrap=True)
    _print_outliers(console, job)
    host = " host" if any(row.host for row in job.by_rank) else ""
    table(
        console,
        "ranks: communication = transfer + wait + unknown + unmatched; the others waited late for it",
        job.by_rank,
        f"rank{host} step_us communication_us transfer_us wait_us unknown_us unmatched_us last late_us",
        _MANY_SHOWN if job.left_out.by_rank else _RANKS_SHOWN,
    )
    few = _MANY_SHOWN if job.left_out.by_rank else _WAITS_SHOWN
    table(console, "who waits for whom", job.waits, "rank for_rank wait_us", few)
    if job.waits_left_out_us:
        console.print(Plain(f"  all other pairs of ranks: {duration(job.waits_left_out_us)}"))
    _print_late(console, job)
    _print_overlap(console, job)
    unknown = " unknown_us" if any(row.unknown_us for row in job.collectives) else ""
    table(
        console,
        "collectives of all ranks",
        job.collectives,
        f"group op dtype message_bytes group_size instances transfer_us wait_us{unknown} wait_percent algbw_gb_s "
        "busbw_gb_s end_skew_p95_us",
        _MANY_SHOWN if job.left_out.by_rank else None,
        end_skew_p95_us=lambda row: row.end_skew_us_p95,
    )
    table(
        console,
        "the same over the ranks: who waits most, who transfers longest",
        job.collectives,
        "op message_bytes wait_min_us wait_median_us wait_max_us wait_max_rank transfer_min_us transfer_max_us "
        "transfer_max_rank",
        _MANY_SHOWN if job.left_out.by_rank else None,
    )


def _print_outliers(console: Console, job: JobReport) -> None:
    table(
        console,
        "outliers of all ranks",
        job.outliers,
        "name count longer_us gain_us words",
        count=lambda row: row.count,
    )
    if job.left_out.by_rank:
        console.print(
            Plain(
                f"  {job.left_out.by_rank:,} more ranks: --json holds the map of all, --json --all all rows"
            )
        )


def _print_late(console: Console, job: JobReport) -> None:
    table(
        console,
        f"why ranks come last: what takes longer than on their peers, {_CAUSES_SHOWN} causes of each",
        [(row, cause) for row in job.late for cause in row.causes[:_CAUSES_SHOWN]],
        "rank cause name where excess_us usual_us",
        rank=lambda row: row[0].rank,
        cause=lambda row: row[1].cause.replace("_", " "),
        name=lambda row: row[1].name or None,
        where=lambda row: row[1].where,
        excess_us=lambda row: row[1].excess_us,
        usual_us=lambda row: row[1].usual_us,
    )


def _print_overlap(console: Console, job: JobReport) -> None:
    if job.overlap_headline:
        console.print(Plain(f"  {job.overlap_headline}"), soft_wrap=True)
    table(
        console,
        "kernels beside a collective and alone: medians, and what they take longer a step",
        job.overlap,
        "name compile_id beside known alone_us beside_us wait_percent loss_us",
        _OVERLAP_SHOWN,
    )


def ranks_of_jobs(report: Report) -> list[int]:
    """All that can be unfolded."""
    jobs = [run for run in report.runs if run.job]
    named = {worker.rank for run in jobs for worker in run.workers if worker.rank is not None}
    return sorted(named.union(*(run.job.map.ranks for run in jobs if run.job)))


def folds(run: Run, worker: Worker, unfolded: int | None) -> bool:
    """Whether a rank is told in one line: those of a job are, but for the one that is asked for."""
    return run.job is not None and worker.rank is not None and worker.rank != unfolded


def print_folded(console: Console, run: Run, worker: Worker) -> None:
    """One line, which says how to see the rest."""
    rows = run.job.by_rank if run.job else []
    row = next((row for row in rows if row.worker == worker.worker), None)
    said = _in_short(row) if row else "not among those recorded together"
    console.print(Plain(f"rank {worker.rank}: {said} … --rank {worker.rank} unfolds"), soft_wrap=True)


def _in_short(row: RankRow) -> str:
    step = [] if row.step_us is None else [f"{duration(row.step_us)} a step"]
    waits = f"waits {duration(row.wait_us)} for others, they {duration(row.late_us)} for it"
    return ", ".join([*step, waits])
