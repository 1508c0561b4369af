"""Print the full report: tables of every run, worker and span."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from tb_torchcompile_plugin.analysis.compile.startup import StartUp
from tb_torchcompile_plugin.analysis.finding import Panel
from tb_torchcompile_plugin.analysis.runtime.span_report import Compile
from tb_torchcompile_plugin.api.report import Report, Run, RunFinding, Worker
from tb_torchcompile_plugin.cli.text_span import folds, print_folded, print_job, print_span
from tb_torchcompile_plugin.cli.text_table import Plain, first_lines, print_lines, stdout_console, table
from tb_torchcompile_plugin.reader.trace.kineto import BytesRead
from tb_torchcompile_plugin.torch_names.records import PHASES

_MAX_FUNCTIONS = 15  # rows of compile_times, chosen by eye; --json has all
_SENTENCES: tuple[Panel, ...] = ("compile_time", "recompiles")
_SOURCES = {"summary": "compile summary", "torch_trace": "TORCH_TRACE log"}


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
            print_job(console, run.run, run.job)
        for worker in run.workers:
            (print_folded if folds(run, worker, rank) else _print_worker)(console, run, worker)
        _print_ranks(console, run)
    _print_findings(console, report.findings)


def _print_worker(console: Console, run: Run, worker: Worker) -> None:
    rank = "" if worker.rank is None else f"  rank {worker.rank}"
    console.rule(Plain(f"run {run.run}  worker {worker.worker}{rank}"), align="left")
    if worker.compile:
        # What breaks cost is printed with each span.
        _print_compile(console, worker.compile, _SENTENCES if worker.spans else (*_SENTENCES, "graph_breaks"))
    if worker.startup:
        _print_startup(console, worker.startup)
    for span in worker.spans:
        print_span(console, span)


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


def _print_findings(console: Console, findings: list[RunFinding]) -> None:
    if findings:
        console.rule(Plain("findings, most important first"), align="left")
    for row in findings:
        where = row.run if row.span is None else f"{row.run} {row.span}"
        scope = f"worker {row.worker}" if row.worker else "the job"
        print_lines(console, f"[{row.severity}] {row.title}")
        print_lines(console, row.next_step, f"{row.rule}, run {where}, {scope}", indent="  ")
