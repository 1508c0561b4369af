"""Print the full report: tables of every run, job, worker and span."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from tb_torchcompile_plugin.analysis.compile.startup import StartUp
from tb_torchcompile_plugin.analysis.finding import Panel
from tb_torchcompile_plugin.analysis.formatting import duration
from tb_torchcompile_plugin.analysis.ranks.job_rows import JobReport
from tb_torchcompile_plugin.analysis.runtime.gpu_utilization import GpuUtilization
from tb_torchcompile_plugin.analysis.runtime.span_report import Compile
from tb_torchcompile_plugin.analysis.runtime.step_breakdown import StepBreakdown, StepPart
from tb_torchcompile_plugin.api.report import Report, Run, SpanReport, UnreadSpan, Worker
from tb_torchcompile_plugin.cli.text_table import (
    Plain,
    first_lines,
    place,
    print_lines,
    stdout_console,
    table,
)
from tb_torchcompile_plugin.reader.trace.kineto import BytesRead
from tb_torchcompile_plugin.torch_names.records import PHASES

_SENTENCES: tuple[Panel, ...] = ("compile_time", "recompiles")
_SOURCES = {"summary": "compile summary", "torch_trace": "TORCH_TRACE log"}

# Rows of a table, chosen by eye so that a span fits a few screens; the tab and --json have all of them.
_MAX_ROWS = 20
_MAX_EAGER = 15
_MAX_FUNCTIONS = 15
_MAX_IDLE_CAUSES = 10
_MAX_STEPS = 6  # columns
_MAX_GAPS = 5
_MAX_RANKS = 32
_MAX_WAITS = 16
_MAX_OVERLAPS = 12
_MAX_ROWS_OF_MANY_RANKS = 10  # of each table
_MAX_CAUSES_PER_RANK = 5


@contextmanager
def progress_bar() -> Iterator[Callable[[BytesRead], None]]:
    """Show a bar on stderr while traces are read; nothing where stderr is not a terminal."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        tasks: dict[str, int] = {}

        def advance(read: BytesRead) -> None:
            if read.file not in tasks:
                tasks[read.file] = bar.add_task(read.file, total=read.bytes_total)
            bar.update(tasks[read.file], completed=read.bytes_read)  # type: ignore[arg-type]  # a TaskID is an int

        yield advance


def print_report(report: Report, rank: int | None = None) -> None:
    """Print every run, worker and span to stdout. The ranks of a job fold to a line each, all but this one."""
    console = stdout_console(160)
    if len(report.runs) > 1:
        table(
            console,
            "runs",
            report.all_runs,
            "run step_us deviation_us gpu_busy_percent compiled_percent compile_s breaks recompiles first_finding",
            deviation_us=lambda row: row.times.deviation_us if row.times else None,
            breaks=lambda row: row.graph_breaks,
            first_finding=lambda row: row.finding,
        )
    for run in report.runs:
        if run.job:
            _print_job(console, run.run, run.job)
        for worker in run.workers:
            is_folded = run.job is not None and worker.rank is not None and worker.rank != rank
            (_print_folded if is_folded else _print_worker)(console, run, worker)
        _print_ranks(console, run)
    if report.findings:
        console.rule(Plain("findings, most important first"), align="left")
    for row in report.findings:
        where = row.run if row.span is None else f"{row.run} {row.span}"
        scope = f"worker {row.worker}" if row.worker else "the job"
        print_lines(console, f"[{row.severity}] {row.title}")
        print_lines(console, row.next_step, f"{row.rule}, run {where}, {scope}", indent="  ")


def _print_worker(console: Console, run: Run, worker: Worker) -> None:
    rank = "" if worker.rank is None else f"  rank {worker.rank}"
    console.rule(Plain(f"run {run.run}  worker {worker.worker}{rank}"), align="left")
    if worker.compile:
        # What breaks cost is printed with each span.
        _print_compile(console, worker.compile, _SENTENCES if worker.spans else (*_SENTENCES, "graph_breaks"))
    if worker.startup:
        _print_startup(console, worker.startup)
    for span in worker.spans:
        _print_span(console, span)


def _print_compile(console: Console, compiled: Compile, panels: tuple[Panel, ...]) -> None:
    versions = f"torch {compiled.environment.torch_version or 'unknown'}"
    console.print(Plain(f"from a {_SOURCES[compiled.source]} of {versions}"))
    print_lines(console, *(compiled.headlines[panel] for panel in panels), indent="  ")
    _print_compilations(console, compiled)
    _print_caches_and_autotuning(console, compiled)
    _print_breaks_and_recompiles(console, compiled)
    table(
        console,
        f"generated kernels: {compiled.generated_kernel_count}",
        compiled.generated_kernels,
        "compile_id direction category kernels",
        kernels=lambda row: len(row.kernels),
    )
    complete = "" if compiled.compile_times_complete else " (incomplete: a log does not hold every function)"
    columns = "function runs total_s min_s max_s"
    table(console, f"compile_times{complete}", compiled.compile_functions, columns, _MAX_FUNCTIONS)


def _print_compilations(console: Console, compiled: Compile) -> None:
    table(
        console,
        "problems",  # first: they must not be overlooked
        compiled.problems,
        "compile_id function where what_happened reason consequence",
        reason=lambda row: first_lines([row.reason]),
    )
    table(
        console,
        "compilations",
        compiled.compilations,
        "compile_id direction function where attempts duration_s graph_ops guards cache",
        cache=lambda row: [f"{cache.cache} {cache.result}" for cache in row.cache],
    )
    timed = [row for row in compiled.compilations if row.phases_s]
    phases = [phase for phase in PHASES if any(phase in (row.phases_s or {}) for row in timed)]
    table(
        console,
        "compile time by phase, s",
        timed,
        " ".join(("compile_id direction", *phases)),
        **{phase: (lambda row, phase=phase: (row.phases_s or {}).get(phase, 0.0)) for phase in phases},
    )


def _print_caches_and_autotuning(console: Console, compiled: Compile) -> None:
    table(
        console,
        "cache lookups",  # with the time that each cost or saved, and why it missed
        [(row, cache) for row in compiled.compilations for cache in row.cache],
        "compile_id direction cache result graph saved_s why_not",
        saved_s=lambda row: row[1].time_saved_s,
        why_not=lambda row: row[1].why,
    )
    table(
        console,
        f"autotuning: {compiled.autotuning}",
        compiled.autotune,
        "kernel compile_id direction during time_s configs choice",
        during=lambda row: row.where,
    )
    columns = "kernel compile_id config registers spills shared_bytes time_us"
    table(console, "Triton kernels", compiled.triton_kernels, columns)
    tried = f"{columns} slower_percent chosen"
    table(console, "configurations that were tried", compiled.triton_candidates, tried)
    columns = "compile_id kind subject details where times next_step"
    table(console, "issues of exports", compiled.export_issues, columns)


def _print_breaks_and_recompiles(console: Console, compiled: Compile) -> None:
    table(console, "graph breaks", compiled.graph_breaks, "compile_id where source reason")
    table(
        console,
        "recompiles",
        compiled.recompiles,
        "compile_id function where duration_s change reasons",
        change=lambda row: next(
            (f"{guard.old} → {guard.new or 'another'}" for guard in row.guards if guard.old), None
        ),
        reasons=lambda row: first_lines(row.reasons),
    )
    table(
        console,
        "recompiled frames, and the compile id from which on one runs eager",
        compiled.recompiled_frames,
        "frame function versions limit limit_hit",
        versions=lambda row: [version.compile_id for version in row.versions],
    )


def _print_startup(console: Console, start: StartUp) -> None:
    print_lines(console, *start.says, indent="  ")
    table(console, "start-up", start.parts, "title time_s percent pieces")
    if len(start.starts) > 1:
        columns = "run worker kind start_up_s compile_s common_compile_s hits misses saved_s would_save_s"
        table(console, "start-up, beside others", start.starts, columns)
    columns = "cache result compile_id direction function where spent_s saved_s differs than"
    table(console, "start-up: cache lookups", start.start_lookups, columns)
    table(
        console,
        "start-up: compile time by line",
        start.compiled_lines,
        "function where cumulative_s own_s percent compilations",
        function=lambda row: "  " * row.depth + row.function,
    )


def _print_ranks(console: Console, run: Run) -> None:
    table(
        console,
        f"ranks that were compiled otherwise, of {len(run.ranks.ranks)} in run {run.run}",
        [(row, group) for row in run.ranks.differences for group in row.groups],
        "compile_id function what ranks have",
        compile_id=lambda row: row[0].compile_id,
        what=lambda row: row[0].kind.replace("_", " "),
        ranks=lambda row: list(map(str, row[1].ranks)),
        have=lambda row: row[1].value,
    )


def _print_span(console: Console, span: SpanReport | UnreadSpan) -> None:
    """Print all tables of one span; one line if it could not be read."""
    if isinstance(span, UnreadSpan):
        console.print(Plain(f"span {span.span}  {span.trace_file}  could not be read"))
        return
    console.print(Plain(f"span {span.span}  {span.trace_file}  {span.events} events"))
    hints = span.hints.unnamed_cpu_kernels, span.hints.unnamed_triton_kernels
    sentences = span.overview.headline, *span.pays.says, *hints
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
        ["while", "part", "mean", "percent", *steps],  # the name of a step may hold spaces
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
        "where kind reason compile_ids calls calls_per_step saves_us saves_percent direct_us direct_median_us "
        "direct_p95_us direct_percent direct_total_us gpu_idle_us",
        direct_us=lambda row: row.step_mean_us,
        direct_median_us=lambda row: row.step_median_us,
        direct_p95_us=lambda row: row.step_p95_us,
        direct_percent=lambda row: row.share_percent,
        direct_total_us=lambda row: row.host_us,
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


def _print_job(console: Console, run: str, job: JobReport) -> None:
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


def _print_folded(console: Console, run: Run, worker: Worker) -> None:
    """Print a rank in one line, which says how to see the rest."""
    rows = run.job.by_rank if run.job else []
    row = next((row for row in rows if row.worker == worker.worker), None)
    summary = "not among those recorded together"
    if row:
        step = "" if row.step_us is None else f"{duration(row.step_us)} a step, "
        summary = f"{step}waits {duration(row.wait_us)} for others, they {duration(row.late_us)} for it"
    print_lines(console, f"rank {worker.rank}: {summary} … --rank {worker.rank} unfolds")
