"""Print one span, and one job of several ranks, as tables."""

from __future__ import annotations

import msgspec
from rich.console import Console

from tb_torchcompile_plugin.analysis.formatting import duration
from tb_torchcompile_plugin.analysis.ranks.job_rows import JobReport
from tb_torchcompile_plugin.analysis.runtime.gpu_utilization import GpuUtilization
from tb_torchcompile_plugin.analysis.runtime.step_breakdown import StepBreakdown, StepPart
from tb_torchcompile_plugin.api.report import Report, Run, SpanReport, UnreadSpan, Worker
from tb_torchcompile_plugin.cli.text_table import Plain, place, print_lines, table

# Rows of a table, chosen by eye so that a span fits a few screens; the tab and --json have all of them.
_MAX_ROWS = 20
_MAX_EAGER = 15
_MAX_IDLE_CAUSES = 10
_MAX_STEPS = 6  # columns
_MAX_GAPS = 5
_MAX_RANKS = 32
_MAX_WAITS = 16
_MAX_OVERLAPS = 12
_MAX_ROWS_OF_MANY_RANKS = 10  # of each table
_MAX_CAUSES_PER_RANK = 5


def print_span(console: Console, span: SpanReport | UnreadSpan) -> None:
    """Print all tables of one span; one line if it could not be read."""
    if isinstance(span, UnreadSpan):
        console.print(Plain(f"span {span.span}  {span.trace_file}  could not be read"))
        return
    console.print(Plain(f"span {span.span}  {span.trace_file}  {span.events} events"))
    hints = span.hints.unnamed_cpu_kernels, span.hints.unnamed_triton_kernels
    sentences = span.overview.headline, span.overview.recording, *span.pays.says, *hints
    print_lines(console, *filter(None, sentences), indent="  ")
    table(
        console,
        "GPUs: busy = compute + exposed communication + exposed memory; with idle it is the span",
        span.gpu,
        "device name span_us busy_us busy_percent compute_us exposed_communication_us exposed_memory_us idle_us",
    )
    _print_gpu_utilization(console, span.gpu_utilization)
    columns = "device name size_bytes kernels time_us mean_us min_us max_us wait_us transfer_us gb_s gb_s_is"
    table(console, "collectives", span.collectives, columns)
    _print_steps(console, span)
    _print_regions(console, span)
    _print_cuda_graphs_and_sizes(console, span)
    _print_kernels_and_operators(console, span)
    table(
        console,
        f"lines of the program: {span.headlines['source']}",
        span.source,
        "line function forward_us backward_us host_us above_floor_us kernels text",
        _MAX_ROWS,
        line=lambda row: place(row.file, row.line),
        kernels=lambda row: len(row.kernels),
        text=lambda row: row.text.strip() if row.text else f"({row.no_text})",
    )


def _print_gpu_utilization(console: Console, report: GpuUtilization) -> None:
    table(
        console,
        "launches",
        [report.launch_stats] if report.launch_stats else [],
        "launches launches_per_step call_us call_median_us latency_median_us queue_wait_median_us short_percent",
    )
    table(
        console,
        "where the mean step goes on the busiest device",
        [report.mean] if report.mean and report.steps else [],
        "device busy_us busy_percent compute_us exposed_communication_us exposed_memory_us idle_us",
    )
    windows = [*report.steps, *([report.window] if report.window else [])]
    table(
        console,
        "steps by device",
        [(window, device) for window in windows for device in window.devices],
        "step device busy_us busy_percent idle_us bound launches launch_call_us",
        step=lambda row: row[0].step or "the span",
        bound=lambda row: row[0].verdict.bound,
    )
    table(
        console,
        "what held the GPUs up: idle time of a step by what the host did meanwhile",
        report.held_up,
        "device cause name idle_us share_percent calls pattern place longest_us",
        _MAX_IDLE_CAUSES,
        place=lambda row: place(row.file, row.line) if row.file else None,
    )
    for idle in report.idle:
        table(
            console,
            f"why GPU {idle.device} idles for {idle.idle_us:.3f} µs: what the launching thread did",
            [(field, time_us) for field, time_us in msgspec.structs.asdict(idle.causes).items() if time_us],
            "cause idle_us",
            cause=lambda row: row[0].removesuffix("_us").replace("_", " "),
            idle_us=lambda row: row[1],
        )
    columns = "device start_us idle_us step cause thread before"
    table(console, "longest idle gaps", report.longest_gaps, columns, _MAX_GAPS)


def _print_steps(console: Console, span: SpanReport) -> None:
    report = span.step_breakdown
    table(console, "steps", span.steps, "name start_us wall_us gpu_us gpu_busy_us")
    print_lines(console, report.headline, indent="  ")
    steps = {
        step.step or "span": (lambda part, step=step: _time_of(step, part))
        for step in (report.steps or ([report.window] if report.window else []))[:_MAX_STEPS]
    }
    table(
        console,
        "where a step goes, µs" if report.steps else "where the span goes, µs",
        report.mean_parts,
        " ".join(("while part mean percent", *steps)),
        **{"while": lambda part: part.kind, "mean": lambda part: part.time_us, **steps},
    )
    table(console, "slow steps", report.slow, "step excess_us times_median why explained_us")


def _time_of(step: StepBreakdown, part: StepPart) -> float:
    return sum(other.time_us for other in step.parts if (other.kind, other.part) == (part.kind, part.part))


def _print_regions(console: Console, span: SpanReport) -> None:
    if span.graph_break_sites:
        print_lines(console, span.headlines["graph_breaks"], indent="  ")
    table(
        console,
        "graph breaks by cost",
        span.graph_break_sites,
        "where kind reason compile_ids calls calls_per_step host_us step_mean_us step_median_us step_p95_us "
        "share_percent gpu_idle_us",
    )
    if span.compiled_regions:
        print_lines(console, span.headlines["compiled_regions"], indent="  ")
    table(
        console,
        "compiled regions",
        span.compiled_regions,
        "compile_id function calls guard_us overhead_us graph_us gpu_us backward_calls backward_cpu_us backward_gpu_us",
    )
    if span.recompile_moments is None:
        print_lines(console, span.headlines["recompiles"], indent="  ")
    columns = "compile_id entries calls median_us max_us"
    table(console, "guards by version and versions alive", span.guard_scans or (), columns)
    columns = "compile_id start_us when calls duration_s"
    table(console, "recompiles, from the start of the span", span.recompile_moments or (), columns)
    table(
        console,
        f"ran eager: {span.eager.headline or 'at graph breaks only'}",
        span.eager.ops,
        "name kind called_in calls host_us device_us",
        _MAX_EAGER,
        called_in=lambda row: row.file and f"{row.function} {place(row.file, row.line)}",
    )


def _print_cuda_graphs_and_sizes(console: Console, span: SpanReport) -> None:
    graphs, shapes = span.cuda_graphs, span.dynamic_shapes
    for report, rows in ((graphs, graphs.functions), (shapes, (*shapes.sizes, *shapes.symbols))):
        if rows:
            print_lines(console, *report.says, indent="  ")
    table(
        console,
        "CUDA graphs",
        graphs.functions,
        "compile_id direction function state calls replayed_calls recorded_calls plain_calls recordings recording_us "
        "replay_us replay_kernels launches_avoided",
    )
    table(console, "counts of CUDA graphs", graphs.counts, "counted log trace torch agree")
    table(console, "sizes that came", shapes.sizes, "function source size served compile_id calls", _MAX_ROWS)


def _print_kernels_and_operators(console: Console, span: SpanReport) -> None:
    print_lines(console, span.headlines["kernels"], indent="  ")
    columns = "device category launches distinct_kernels time_us gpu_time_percent wall_time_percent"
    table(console, "kernel categories", span.kernel_categories, columns)
    columns = "name category compile_id launches time_us mean_us bandwidth_percent"
    table(console, "kernels", span.kernels, columns, _MAX_ROWS)
    if "memory" in span.headlines:
        print_lines(console, span.headlines["memory"], indent="  ")
    print_lines(console, span.headlines["operators"], indent="  ")
    columns = "name kind calls self_host_us host_us self_device_us device_us"
    table(console, "operators", span.operators, columns, _MAX_ROWS)


def print_job(console: Console, run: str, job: JobReport) -> None:
    """Print all tables of one job."""
    console.rule(Plain(f"run {run}  job of {job.ranks} ranks"), align="left")
    print_lines(console, job.headline, job.basis, indent="  ")
    table(console, "outliers of all ranks", job.outliers, "name count longer_us gain_us words")
    many = job.left_out.by_rank  # rows that are not there
    if many:
        console.print(Plain(f"  {many:,} more ranks: --json holds the map of all, --json --all all rows"))
    host = " host" if any(row.host for row in job.by_rank) else ""
    table(
        console,
        "ranks: communication = transfer + wait + unknown + unmatched; the others waited late for it",
        job.by_rank,
        f"rank{host} step_us communication_us transfer_us wait_us unknown_us unmatched_us last late_us",
        _MAX_ROWS_OF_MANY_RANKS if many else _MAX_RANKS,
    )
    max_waits = _MAX_ROWS_OF_MANY_RANKS if many else _MAX_WAITS
    table(console, "who waits for whom", job.waits, "rank for_rank wait_us", max_waits)
    if job.waits_left_out_us:
        console.print(Plain(f"  all other pairs of ranks: {duration(job.waits_left_out_us)}"))
    table(
        console,
        f"why ranks come last: what takes longer than on their peers, {_MAX_CAUSES_PER_RANK} causes of each",
        [(row, cause) for row in job.late for cause in row.causes[:_MAX_CAUSES_PER_RANK]],
        "rank cause name where excess_us usual_us",
        cause=lambda row: row[1].cause.replace("_", " "),
        name=lambda row: row[1].name or None,
        where=lambda row: row[1].where,
    )
    if job.overlap_headline:
        print_lines(console, job.overlap_headline, indent="  ")
    table(
        console,
        "kernels beside a collective and alone: medians, and what they take longer a step",
        job.overlap,
        "name compile_id beside known alone_us beside_us wait_percent loss_us",
        _MAX_OVERLAPS,
    )
    _print_collectives(console, job)


def _print_collectives(console: Console, job: JobReport) -> None:
    max_rows = _MAX_ROWS_OF_MANY_RANKS if job.left_out.by_rank else None
    unknown = " unknown_us" if any(row.unknown_us for row in job.collectives) else ""
    table(
        console,
        "collectives of all ranks",
        job.collectives,
        f"group op dtype message_bytes group_size instances transfer_us wait_us{unknown} wait_percent algbw_gb_s "
        "busbw_gb_s end_skew_p95_us",
        max_rows,
        end_skew_p95_us=lambda row: row.end_skew_us_p95,
    )
    table(
        console,
        "the same over the ranks: who waits most, who transfers longest",
        job.collectives,
        "op message_bytes wait_min_us wait_median_us wait_max_us wait_max_rank transfer_min_us transfer_max_us "
        "transfer_max_rank",
        max_rows,
    )


def ranks_of_jobs(report: Report) -> list[int]:
    """Return all ranks that can be unfolded."""
    jobs = [(run, run.job) for run in report.runs if run.job]
    ranks = {worker.rank for run, _ in jobs for worker in run.workers if worker.rank is not None}
    return sorted(ranks.union(*(job.map.ranks for _, job in jobs)))


def folds(run: Run, worker: Worker, unfolded: int | None) -> bool:
    """Return whether a rank is printed in one line: those of a job are, except for one."""
    return run.job is not None and worker.rank is not None and worker.rank != unfolded


def print_folded(console: Console, run: Run, worker: Worker) -> None:
    """Print a rank in one line, which says how to see the rest."""
    rows = run.job.by_rank if run.job else []
    row = next((row for row in rows if row.worker == worker.worker), None)
    summary = "not among those recorded together"
    if row:
        step = "" if row.step_us is None else f"{duration(row.step_us)} a step, "
        summary = f"{step}waits {duration(row.wait_us)} for others, they {duration(row.late_us)} for it"
    print_lines(console, f"rank {worker.rank}: {summary} … --rank {worker.rank} unfolds")
