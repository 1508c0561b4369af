"""What did torch.compile cost: how long did it take, in which phases, how much while profiling, and for autotuning?

`total_s` is the union of the compilations' spans per thread, summed over threads: one compiled while another is
being compiled on the same thread counts once.
"""

import contextlib
import json
from collections import Counter
from collections.abc import Iterable
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis.compile.cache_lookups import first_lookups, saved_ns
from tb_torchcompile_plugin.analysis.formatting import column_head, duration, plural
from tb_torchcompile_plugin.compile_log import summary_pb2 as pb
from tb_torchcompile_plugin.compile_log.record import Direction, Key, direction_of, key_of, optional_number
from tb_torchcompile_plugin.profile.columns import Int64s, Intervals, covered_ns, to_seconds, us
from tb_torchcompile_plugin.profile.compiled.regions import logged_times
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import StepWindows
from tb_torchcompile_plugin.reader.arrays import grouped
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.torch_names import records
from tb_torchcompile_plugin.torch_names.caches import is_export
from tb_torchcompile_plugin.torch_names.kernels import without_number

_Generated: TypeAlias = dict[tuple[Key, str], tuple[pb.Graph, pb.GeneratedKernel]]  # by compilation and name


class Autotune(msgspec.Struct, frozen=True, kw_only=True):
    """One choice between configurations of a kernel, or between templates of an operator."""

    kernel: Annotated[str, column_head("Kernel or operator", grow=True)]
    compile_id: str
    epoch: int
    direction: Annotated[Direction | None, column_head(hidden=True)]
    # Of its spans; None where torch wrote none.
    time_s: Annotated[float | None, column_head(bar=True, total=True)] = None
    configs: Annotated[int | None, column_head("Configurations", total=True)]  # how many were tried
    choice: Annotated[str | None, column_head("Best configuration", wrap=True, grow=True)]
    best_time_us: Annotated[float | None, column_head("Best time", hidden=True)] = None
    # While compiling, or when the compiled code first ran.
    where: Annotated[Literal["compile", "run"], column_head("Tuned during")]
    cache: Annotated[str | None, column_head("Autotune cache", hidden=True)]  # torch's word ("hit", "miss")


def autotune(data: CompileData) -> list[Autotune]:
    """Return the choices, longest first, then those without a time.

    A kernel with a single configuration is not autotuned.
    """
    summary = data.summary
    pairs = [(graph, kernel) for graph in summary.graphs for kernel in graph.kernels]
    generated: _Generated = {(key_of(pair[0].key), pair[1].name): pair for pair in pairs}
    roots = records.COMPILING_BACKWARD | records.FRAME_ROOTS
    root_spans = (span for span in summary.spans if span.name in roots)
    compile_spans = grouped(root_spans, lambda span: key_of(span.key))
    rows = [
        _timed(kernel, spans, generated.get((key, kernel)), compile_spans.get(key, []))
        for (key, kernel, _), spans in _by_choice(summary, generated).items()
    ]
    timed = {((row.epoch, row.compile_id), row.kernel) for row in rows}
    rows += [
        Autotune(
            compile_id=graph.key.compile_id,
            epoch=graph.key.epoch,
            direction=direction_of(graph.direction),
            kernel=kernel.name,
            configs=optional_number(kernel, "num_configs"),
            choice=kernel.config or None,
            cache=kernel.autotune or None,
            where="compile" if kernel.autotune == "hit" else "run",
        )
        for graph, kernel in pairs
        if kernel.num_configs > 1 or kernel.autotune == "hit"
        if (key_of(graph.key), kernel.name) not in timed
    ]
    return sorted(rows, key=lambda row: -(row.time_s or 0))


def _by_choice(
    summary: pb.CompileSummary, generated: _Generated
) -> dict[tuple[Key, str, int], list[pb.PhaseSpan]]:
    """Group the outermost autotune spans by compilation, kernel, and number of the choice.

    A span that names a winner ends its choice: the same operator and shapes may be tuned again, with another winner.
    """
    rows: dict[tuple[Key, str, int], list[pb.PhaseSpan]] = {}
    choices = Counter[tuple[Key, str]]()
    ends: dict[tuple[Key, int], int] = {}  # of the outermost span on each thread
    for span in sorted(summary.spans, key=lambda row: (row.start_ns, -row.duration_ns)):
        key = key_of(span.key)
        if records.phase_of(span.name) != "autotune" or span.start_ns < ends.get((key, span.thread), 0):
            continue
        ends[key, span.thread] = span.start_ns + span.duration_ns
        kernel = _kernel_of(span, generated)
        rows.setdefault((key, kernel, choices[key, kernel]), []).append(span)
        choices[key, kernel] += bool(span.choices)
    return rows


def _kernel_of(span: pb.PhaseSpan, generated: _Generated) -> str:
    """Return the kernel that a span tunes. torch 2.11 numbers a user's own kernel here, and only here."""
    key = key_of(span.key)
    if span.kernel:
        name = without_number(span.kernel)
        return name if (key, span.kernel) not in generated and (key, name) in generated else span.kernel
    if span.name.startswith(records.AUTOTUNER):
        return "Triton kernel (not named by torch)"
    operator = records.tuned_operator(span.name)  # torch 2.11 does not record for which shapes it compiles
    return f"{operator} (compiling the templates)" if records.compiles_templates(span.name) else operator


def _timed(
    name: str,
    spans: list[pb.PhaseSpan],
    generated: tuple[pb.Graph, pb.GeneratedKernel] | None,
    compile_spans: list[pb.PhaseSpan],
) -> Autotune:
    first = spans[0]
    graph, kernel = generated or (None, None)
    begun = [span for span in compile_spans if span.start_ns <= first.start_ns]
    around = [span for span in begun if first.start_ns < span.start_ns + span.duration_ns]
    compiled: Direction | None = None
    if around:  # a backward may be compiled inside its frame
        is_backward = any(span.name in records.COMPILING_BACKWARD for span in around)
        compiled = "backward" if is_backward else "forward"
    # What torch records of the templates that it tried: {"num_choices", "best_kernel", "best_time", …}.
    text = next((span.choices for span in spans if span.choices), "{}")
    choices: Any = {}
    with contextlib.suppress(ValueError):
        choices = json.loads(text)
    choices = choices if isinstance(choices, dict) else {}
    tried = choices.get("num_choices")
    best_ms = choices.get("best_time")  # as triton's do_bench returns it
    winner = [str(choices[field]) for field in ("best_kernel", "best_kernel_desc") if choices.get(field)]
    configs = optional_number(kernel, "num_configs") if kernel else None
    return Autotune(
        compile_id=first.key.compile_id,
        epoch=first.key.epoch,
        direction=direction_of(graph.direction) if graph else compiled,
        kernel=name,
        time_s=to_seconds(sum(span.duration_ns for span in spans)),
        configs=int(tried) if isinstance(tried, int) else configs,
        choice=": ".join(winner) or (kernel.config if kernel else None) or None,
        cache=(kernel.autotune if kernel else None) or None,
        best_time_us=best_ms * 1000 if isinstance(best_ms, int | float) else None,
        where="compile" if compiled else "run",
    )


def autotuning_headline(data: CompileData) -> str:
    """Summarize "2 choices among 14 configurations took 3.20 s while compiling."; "" where nothing was tuned.

    Compiling the templates is no choice, and what is tuned at the first run is no part of the compile time.
    """
    rows = data.of(autotune)
    if not rows:
        return ""
    tried = [row.configs for row in rows if row.configs is not None]
    times = []
    for where, words in (
        ("compile", "while compiling"),
        ("run", "on the first run, which is not compile time"),
    ):
        if time_s := sum(row.time_s or 0 for row in rows if row.where == where):
            times.append(f"{duration(1e6 * time_s)} {words}")
    what = f"{plural(len(tried), 'choice')} among {plural(sum(tried), 'configuration')}"
    took = f" took {', and '.join(times)}" if times else " were made"
    return f"{what}{took}."


EPOCH_FROM_NS = 10**18  # September 2001: a clock that shows less does not count from 1970


class CompileOverlap(msgspec.Struct, frozen=True):
    """Compile time that fell into the profiled steps; without steps, into the span."""

    inside_us: float
    window: str  # those with some, in words


class FunctionTime(msgspec.Struct, frozen=True):
    """One timed function of torch over all its runs."""

    function: Annotated[str, column_head(grow=True)]
    runs: int
    total_s: Annotated[float, column_head("Total", bar=True)]
    min_s: Annotated[float, column_head("Shortest")]
    max_s: Annotated[float, column_head("Longest")]


class CompileCost(NamedTuple):
    """The compile time of the process (s), with these caches and with others."""

    blocked_s: float
    cold_s: float | None  # with empty caches; None where this run does not show it, as `warm_s`
    warm_s: float | None  # with caches that hold everything
    hits: int
    lookups: int
    whole: bool  # whether all compilations were timed; otherwise it was more


def compile_cost(data: CompileData) -> CompileCost | None:
    """Return what compiling cost; None where no compilation has a known duration."""
    if (blocked := data.of(total_s)) is None:
        return None
    whole = all(row.HasField("duration_ns") for row in data.summary.compilations)
    by_compilation = data.of(first_lookups)
    saved = [ns for lookups in by_compilation for ns in saved_ns(lookups)]
    cold = blocked + to_seconds(sum(saved)) if whole else None
    results = [lookup.result for lookups in by_compilation for lookup in lookups]
    hits = results.count("hit")
    warm = blocked if hits and hits == len(results) else None
    return CompileCost(blocked, cold, warm, hits, len(results), whole)


def count_compilations(data: CompileData) -> int:
    """Count the compilations that happened in this process."""
    return count_frames(data.summary.compilations)


def count_frames(rows: Iterable[pb.Compilation]) -> int:
    """Count the forward compilations among these that happened in this process.

    A lazily compiled backward belongs to its forward. Exports compile nothing.
    """
    return len({key_of(row.key) for row in rows if not row.elsewhere and not is_export(row.key.compile_id)})


def compile_times(data: CompileData) -> dict[str, list[float]]:
    """Return what `torch._dynamo.utils.compile_times()` prints: seconds of every run of every function."""
    return {row.function: list(row.seconds) for row in data.summary.compile_times}


def function_times(data: CompileData) -> list[FunctionTime]:
    """Return the timed functions, longest first."""
    rows = [
        FunctionTime(name, len(runs), sum(runs), min(runs), max(runs))
        for name, runs in data.of(compile_times).items()
        if runs
    ]
    return sorted(rows, key=lambda row: -row.total_s)


def total_s(data: CompileData) -> float | None:
    """Return the compile time of the process; None when no compilation has a known duration."""
    return frames_s(data.summary.compilations)


def seconds_by_frame(data: CompileData) -> dict[Key, float | None]:
    """Return the compile time of each compile id, with that of its backward graph; None where it is unknown."""
    return {
        key: frames_s(rows)
        for key, rows in grouped(data.summary.compilations, lambda row: key_of(row.key)).items()
    }


def frames_s(rows: Iterable[pb.Compilation]) -> float | None:
    """Return the compile time of these; None where none has a known duration."""
    rows = [row for row in rows if row.HasField("duration_ns")]
    if not rows:
        return None
    untimed = sum(row.duration_ns for row in rows if not row.HasField("start_ns"))
    return to_seconds(untimed + sum(times.total_ns for times in _by_thread(rows)))


def frames_us_in(rows: Iterable[pb.Compilation], base_ns: int, windows: Intervals) -> float:
    """Return how much of the compile time of these fell into windows of a trace that begins at `base_ns`."""
    return us(_covered(_by_thread(rows, base_ns), *windows).sum())


def compile_overlap(profile: Profile) -> CompileOverlap | None:
    """Return how much of the compile time fell into the trace.

    None without compile data, and where the two have no clock in common: the trace's clock is not Unix time, or a
    compilation has no start.
    """
    trace, summary = profile.trace, profile.summary
    if summary is None:
        return None
    first, last = trace.window()
    is_timed = all(row.HasField("start_ns") and row.HasField("duration_ns") for row in summary.compilations)
    if trace.base_ns + first < EPOCH_FROM_NS or not is_timed:
        return None
    rows = profile.of(StepWindows).rows
    starts, ends = trace.ts[rows], trace.ts[rows] + trace.dur[rows]
    if not len(rows):
        starts, ends = np.array([first]), np.array([last])
    inside = _covered(_by_thread(summary.compilations, trace.base_ns), starts, ends)
    steps = [trace.names[trace.name[step]] for step, time in zip(rows, inside) if time > 0]
    window = " and ".join(steps) if len(steps) <= 2 else f"{steps[0]} and {len(steps) - 1} more steps"
    return CompileOverlap(us(inside.sum()), (window or "the profiled steps") if len(rows) else "this span")


def overlap_headline(profile: Profile) -> str:
    """Say how much of the compile time fell into what was profiled; "" where unknown."""
    overlap = profile.of(compile_overlap)
    if overlap is None:
        return ""
    inside = duration(overlap.inside_us) if overlap.inside_us else "None"
    return f"{inside} of the compile time falls into {overlap.window}."


def _by_thread(rows: Iterable[pb.Compilation], base_ns: int = 0) -> list[Intervals]:
    return [logged_times(group, base_ns) for group in grouped(rows, lambda row: row.thread).values()]


def _covered(threads: list[Intervals], starts: Int64s, ends: Int64s) -> Int64s:
    return sum((covered_ns(spans, starts, ends) for spans in threads), np.zeros(len(starts), np.int64))
