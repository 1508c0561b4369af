"""The report as text: tables for people."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from tb_torchcompile_plugin.compile_spans import PHASES
from tb_torchcompile_plugin.reader.kineto import Progress as Reading
from tb_torchcompile_plugin.report import Compile, Report, Run, SpanReport, UnreadSpan, Worker
from tb_torchcompile_plugin.text_findings import print_findings
from tb_torchcompile_plugin.text_gpu import print_gpu_utilization
from tb_torchcompile_plugin.text_regions import print_regions
from tb_torchcompile_plugin.text_steps import print_steps
from tb_torchcompile_plugin.text_table import Plain, compile_id, first_lines, place, plural, table

_KERNELS_SHOWN = 20
_OPERATORS_SHOWN = 20
_FUNCTIONS_SHOWN = 15
_SOURCES = {"summary": "compile summary", "torch_trace": "TORCH_TRACE log"}


@contextmanager
def progress_bar() -> Iterator[Callable[[Reading], None]]:
    """A bar on stderr while traces are read; nothing where stderr is not a terminal."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        tasks: dict[str, int] = {}

        def advance(reading: Reading) -> None:
            if reading.file not in tasks:
                tasks[reading.file] = bar.add_task(reading.file, total=reading.bytes_total)
            bar.update(tasks[reading.file], completed=reading.bytes_read)  # type: ignore[arg-type]  # a TaskID is an int

        yield advance


def print_report(report: Report) -> None:
    """Print every run, worker and span to stdout."""
    console = Console(file=sys.stdout, highlight=False, width=None if sys.stdout.isatty() else 160)
    for run in report.runs:
        for worker in run.workers:
            _print_worker(console, run, worker)
        _print_ranks(console, run)
    print_findings(console, report.findings)


def _print_worker(console: Console, run: Run, worker: Worker) -> None:
    rank = "" if worker.rank is None else f"  rank {worker.rank}"
    console.rule(Plain(f"run {run.run}  worker {worker.worker}{rank}"), align="left")
    if worker.compile:
        _print_compile(console, worker.compile)
    for span in worker.spans:
        _print_span(console, span)


def _print_ranks(console: Console, run: Run) -> None:
    table(
        console,
        f"ranks that were compiled otherwise, of {len(run.ranks.ranks)} in run {run.run}",
        ("compile id", "function", "what", "ranks", "have"),
        [
            (
                row.compile_id,
                row.function,
                row.kind.replace("_", " "),
                ", ".join(map(str, group.ranks)),
                group.told,
            )
            for row in run.ranks.differences
            for group in row.groups
        ],
    )


def _print_compile(console: Console, found: Compile) -> None:
    versions = f"torch {found.environment.torch_version or 'unknown'}"
    sites = len({(row.file, row.line, row.reason) for row in found.graph_breaks})
    total = "unknown" if found.total_s is None else f"{found.total_s:.3f} s"
    console.print(
        Plain(
            f"compile time {total}, {_compilations(found)}, {plural(sites, 'graph break')}, "
            f"{plural(len(found.recompiles), 'recompile')} ({versions}, from a {_SOURCES[found.source]})"
        )
    )
    _print_problems(console, found)
    _print_compilations(console, found)
    _print_phases(console, found)
    _print_caches(console, found)
    _print_autotune(console, found)
    _print_breaks_and_recompiles(console, found)
    table(
        console,
        "generated kernels",
        ("compile id", "direction", "category", ">kernels"),
        ((compile_id(row), row.direction, row.category, len(row.kernels)) for row in found.generated_kernels),
    )
    _print_compile_times(console, found)


def _compilations(found: Compile) -> str:
    """A backward that was compiled lazily belongs to its forward: it is a row, not a compilation more."""
    backwards = sum(row.direction == "backward" for row in found.compilations)
    apart = f" (and {plural(backwards, 'lazy backward')})" if backwards else ""
    return plural(len(found.compilations) - backwards, "compilation") + apart


_PROBLEMS = {
    "limit": "compiled too often: from here on it runs eager",
    "skipped": "cannot be resumed after a graph break: all of it runs eager",
}


def _print_problems(console: Console, found: Compile) -> None:
    """What must not be overlooked, in front of everything else."""
    table(
        console,
        "problems",
        ("compile id", "~function", "~where", "~what happened", "~reason"),
        (
            (
                compile_id(row),
                row.function,
                place(row.file, row.line),
                _PROBLEMS.get(row.kind) or f"failed{', then ran eager' if row.ran_eager else ''}: {row.type}",
                first_lines([row.reason]),
            )
            for row in found.problems
        ),
    )


def _print_compilations(console: Console, found: Compile) -> None:
    table(
        console,
        "compilations",
        (
            "compile id",
            "direction",
            "~function",
            "~where",
            ">attempts",
            ">duration s",
            ">graph ops",
            ">guards",
            "~cache",
        ),
        (
            (
                compile_id(row),
                row.direction,
                row.function,
                place(row.file, row.line),
                row.attempts,
                row.duration_s,
                row.graph_ops,
                row.guards,
                ", ".join(dict.fromkeys(f"{cache.cache} {cache.result}" for cache in row.cache)) or None,
            )
            for row in found.compilations
        ),
    )


def _print_phases(console: Console, found: Compile) -> None:
    rows = [(row, row.phases_s) for row in found.compilations if row.phases_s]
    phases = [phase for phase in PHASES if any(phase in told for _, told in rows)]
    table(
        console,
        "compile time by phase, s",
        ("compile id", "direction", *(f">{phase}" for phase in phases)),
        ((compile_id(row), row.direction, *(told.get(phase, 0.0) for phase in phases)) for row, told in rows),
    )


def _print_caches(console: Console, found: Compile) -> None:
    """One line for each lookup that cost or saved something: hits with the time saved, the others with the reason."""
    table(
        console,
        "cache lookups",
        ("compile id", "direction", "cache", "result", ">graph", ">saved s", "~why not"),
        (
            (
                compile_id(row),
                cache.direction,
                cache.cache,
                cache.result,
                cache.graph,
                cache.time_saved_s,
                cache.why,
            )
            for row in found.compilations
            for cache in row.cache
        ),
    )


def _print_autotune(console: Console, found: Compile) -> None:
    for where, title in (("compile", "autotuning while compiling"), ("run", "autotuning at the first run")):
        rows = [row for row in found.autotune if row.where == where]
        total = sum(row.time_s or 0 for row in rows)
        table(
            console,
            f"{title}, {total:.3f} s",
            ("~kernel or operator", "compile id", "direction", ">time s", ">tried", "~winner"),
            (
                (row.kernel, compile_id(row), row.direction, row.time_s, row.configs, row.choice)
                for row in rows
            ),
        )


def _print_breaks_and_recompiles(console: Console, found: Compile) -> None:
    table(
        console,
        "graph breaks",
        ("compile id", "~where", "~source", "~reason"),
        ((compile_id(row), place(row.file, row.line), row.source, row.reason) for row in found.graph_breaks),
    )
    table(
        console,
        "recompiles",
        ("compile id", "~function", "~where", ">duration s", "~was → came", "~reason"),
        (
            (
                compile_id(row),
                row.function,
                place(row.file, row.line),
                row.duration_s,
                next((f"{guard.old} → {guard.new or 'another'}" for guard in row.guards if guard.old), None),
                first_lines(row.reasons),
            )
            for row in found.recompiles
        ),
    )
    table(
        console,
        "recompiled frames",
        ("frame", "~function", "~versions", ">limit", "refused: from there on eager"),
        (
            (
                row.frame,
                row.function,
                ", ".join(version.compile_id for version in row.versions),
                row.limit,
                row.limit_hit,
            )
            for row in found.recompiled_frames
        ),
    )


def _print_compile_times(console: Console, found: Compile) -> None:
    longest = sorted(found.compile_times.items(), key=lambda item: -sum(item[1]))
    complete = "" if found.compile_times_complete else " (incomplete: a log does not hold every function)"
    table(
        console,
        f"compile_times, {min(len(longest), _FUNCTIONS_SHOWN)} of {len(longest)} functions{complete}",
        ("~function", ">runs", ">total s", ">min s", ">max s"),
        (
            (name, len(runs), sum(runs), min(runs), max(runs))
            for name, runs in longest[:_FUNCTIONS_SHOWN]
            if runs
        ),
    )


def _print_span(console: Console, span: SpanReport | UnreadSpan) -> None:
    if isinstance(span, UnreadSpan):
        console.print(Plain(f"span {span.span}  {span.trace_file}  could not be read"))
        return
    console.print(Plain(f"span {span.span}  {span.trace_file}  {span.events} events"))
    for gpu in span.gpu:
        share = "" if gpu.busy_percent is None else f" ({gpu.busy_percent:.2f} %)"
        console.print(
            Plain(
                f"  GPU {gpu.device} {gpu.name or ''}: busy {gpu.busy_us:.3f} of {gpu.span_us:.3f} µs{share} = "
                f"compute {gpu.compute_us:.3f} + exposed communication {gpu.exposed_communication_us:.3f} "
                f"+ exposed memory {gpu.exposed_memory_us:.3f}; idle {gpu.idle_us:.3f}"
            )
        )
    if span.hints.cpu_kernels_hidden:
        hint = "compiled code ran on the CPU, but its kernels are not named: "
        console.print(Plain(f"  {hint}set TORCHINDUCTOR_CPP_ENABLE_KERNEL_PROFILE=1 before compiling"))
    print_gpu_utilization(console, span.gpu_utilization)
    table(
        console,
        "collectives",
        ("device", "name", ">bytes", ">kernels", ">time µs", ">mean µs", ">min µs", ">max µs", ">GB/s"),
        (msgspec.structs.astuple(row) for row in span.collectives),
    )
    _print_span_tables(console, span)


def _print_span_tables(console: Console, span: SpanReport) -> None:
    table(
        console,
        "steps",
        ("step", ">start µs", ">wall µs", ">GPU busy µs"),
        ((row.name, row.start_us, row.wall_us, row.gpu_busy_us) for row in span.steps),
    )
    print_steps(console, span.step_breakdown)
    print_regions(console, span)
    table(
        console,
        "kernel categories",
        ("device", "category", ">launches", ">distinct", ">time µs", ">% of GPU time", ">% of wall"),
        (
            (
                str(row.device),
                row.category,
                row.launches,
                row.distinct_kernels,
                row.time_us,
                row.gpu_time_percent,
                row.wall_time_percent,
            )
            for row in span.kernel_categories
        ),
    )
    rows = span.kernels
    table(
        console,
        f"kernels, {min(len(rows), _KERNELS_SHOWN)} of {len(rows)}",
        ("~name", "category", "compile id", ">launches", ">time µs", ">mean µs"),
        (
            (row.name, row.category, row.compile_id, row.launches, row.time_us, row.mean_us)
            for row in rows[:_KERNELS_SHOWN]
        ),
    )
    _print_operators(console, span)


def _print_operators(console: Console, span: SpanReport) -> None:
    rows = span.operators
    table(
        console,
        f"operators, {min(len(rows), _OPERATORS_SHOWN)} of {len(rows)}",
        ("~name", "kind", ">calls", ">self host µs", ">host µs", ">self device µs", ">device µs"),
        (
            (
                row.name,
                row.kind,
                row.calls,
                row.self_host_us,
                row.host_us,
                row.self_device_us,
                row.device_us,
            )
            for row in rows[:_OPERATORS_SHOWN]
        ),
    )
