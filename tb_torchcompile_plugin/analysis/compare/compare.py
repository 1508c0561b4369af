"""What got faster, what slower, what appeared and what vanished between two spans, and when is compiling worth it?

Everything is per average profiled step; without steps, per span. What was compiled is per process.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Annotated, NamedTuple

import msgspec

from tb_torchcompile_plugin.analysis import thresholds
from tb_torchcompile_plugin.analysis.causes.break_costs import direct_of_span_us, direct_us, saved_us
from tb_torchcompile_plugin.analysis.causes.payback import payback_of
from tb_torchcompile_plugin.analysis.compare import pairs
from tb_torchcompile_plugin.analysis.compare.sides import (
    Side,
    Sides,
    SpanName,
    compares_whole_spans,
    why_no_verdict,
)
from tb_torchcompile_plugin.analysis.compile import compile_time
from tb_torchcompile_plugin.analysis.compile.cache_keys import key_notes
from tb_torchcompile_plugin.analysis.compile.compilations import Compilation, compilations
from tb_torchcompile_plugin.analysis.compile.graph_breaks import count_sites
from tb_torchcompile_plugin.analysis.compile.recompiles import count_recompiles
from tb_torchcompile_plugin.analysis.formatting import duration, plural
from tb_torchcompile_plugin.analysis.runtime import step_breakdown as breakdown
from tb_torchcompile_plugin.analysis.runtime.kernel_rows import CategorySums, category_sums
from tb_torchcompile_plugin.analysis.runtime.program import OTHER, differences, file_name
from tb_torchcompile_plugin.analysis.sheet import column_head
from tb_torchcompile_plugin.analysis.statistics import StepTimeDifference, StepTimes, step_time_difference
from tb_torchcompile_plugin.compile_log.counts import COUNTS, counted_rows
from tb_torchcompile_plugin.compile_log.record import Direction
from tb_torchcompile_plugin.profile import steps
from tb_torchcompile_plugin.profile.coverage import coverage
from tb_torchcompile_plugin.profile.gpu_work import busy, gpu_work
from tb_torchcompile_plugin.profile.intervals import covered_ns, us
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import StepWindows
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.torch_names.kernels import Category

_LABELS: dict[str, str] = {
    "step_us": "Step time",
    "span_us": "Whole span",
    "gpu_busy_us": "GPU busy",
    "gpu_busy_percent": "GPU busy percentage",
    "gpu_time_us": "GPU time of kernels",
    "launches": "Launches",
    "graph_break_us": "Cost of graph breaks",
    "graph_break_direct_us": "Direct cost of graph breaks",
    "graph_breaks": "Graph breaks",
    "recompiles": "Recompiles",
    "compilations": "Compilations",
    "compile_s": "Compile time",
} | {name: kind.many.capitalize() for name, kind in COUNTS.items()}
_COUNTED_ABOVE = ("breaks", "recompiles")  # of the counts, under the names of the other panels
_Figures = dict[str, float | None]


class CategoryDifference(pairs.Compared, frozen=True):
    """GPU time and launches of a kernel category in an average step; the rows sum to `gpu_time_us`."""

    category: Category
    time_us: pairs.Pair
    launches: pairs.Pair


class PartDifference(msgspec.Struct, frozen=True):
    """One part of an average step or of the span; the rows sum to the difference of the step times or of `span_us`."""

    kind: breakdown.PartKind
    part: breakdown.Part
    time_us: pairs.Pair


class Compiled(msgspec.Struct, frozen=True):
    """A compilation on one side."""

    compile_id: Annotated[str, column_head(hidden=True)]
    epoch: int


class CompilationDifference(pairs.Compared, frozen=True):
    """The same function's n-th compilation on both sides."""

    function: str
    file: Annotated[str, column_head(hidden=True)]
    line: int | None
    direction: Direction
    baseline: Compiled | None  # None where a side has none
    candidate: Compiled | None
    both_ids: Annotated[str, column_head("Compile ids")]  # "0/0 → 1/0"
    duration_s: pairs.Pair
    graph_ops: pairs.Pair


class Comparison(msgspec.Struct, frozen=True):
    """Two spans; lists are empty where a side recorded nothing for them."""

    step_time: StepTimeDifference | None  # None where a side has no steps; rows are of whole spans then
    figures: list[pairs.Figure]
    parts: list[PartDifference]
    kernel_categories: list[CategoryDifference]
    compilations: list[CompilationDifference]
    notes: list[str]


_Parts = dict[tuple[breakdown.PartKind, breakdown.Part], float]


class _Run(NamedTuple):
    """What ran on one side, in an average step or in the whole span."""

    profile: Profile
    length_us: float | None  # None where nothing ran
    parts: _Parts  # µs; they sum to that
    gpu: CategorySums | None  # None without GPU events


def compare(a: Side, b: Side) -> Comparison:
    """Return what differs between two spans, or in what was compiled where one of them has no trace."""
    whole = compares_whole_spans(a, b)
    run_a, run_b = (_run(side.profile, whole) if side.profile else None for side in (a, b))
    step_time, parts, categories = None, [], []
    if run_a and run_b:
        parts, categories = _parts(run_a.parts, run_b.parts), _categories(run_a, run_b)
        if not whole:
            times_a, times_b = (run.profile.of(breakdown.steady_times) for run in (run_a, run_b))
            step_time = step_time_difference(times_a, times_b)
    return Comparison(
        step_time=step_time,
        parts=parts,
        figures=list(_differences(_figures(a, run_a, whole), _figures(b, run_b, whole), step_time)),
        kernel_categories=categories,
        compilations=_compilations(a.data, b.data),
        notes=[*_step_notes(run_a, run_b, whole), *_notes(a, b)],
    )


def _run(profile: Profile, whole: bool) -> _Run:
    if whole:
        span = profile.of(breakdown.window_breakdown)
        length = span.wall_us if span else None
        rows: Sequence[breakdown.StepPart] = span.parts if span else []
    else:
        length, rows = profile.of(steps.step_time).step_us, profile.of(breakdown.mean_parts)
    parts: _Parts = {(part.kind, part.part): part.time_us for part in rows if part.kind != "profiler"}
    on_gpu = len(profile.of(gpu_work).index)
    return _Run(profile, length, parts, category_sums(profile, whole=whole) if on_gpu else None)


def _parts(a: _Parts, b: _Parts) -> list[PartDifference]:
    """Return the parts of a step, largest change first; [] where nothing ran on a side."""
    if not a or not b:
        return []
    keys = dict.fromkeys((*a, *b))
    rows = [PartDifference(*key, pairs.pair(a.get(key, 0.0), b.get(key, 0.0))) for key in keys]
    return sorted(rows, key=lambda row: -abs(row.time_us.delta or 0.0))


def _categories(a: _Run, b: _Run) -> list[CategoryDifference]:
    """Return the categories, largest change first; [] where a side has no GPU events."""
    if a.gpu is None or b.gpu is None:
        return []
    numbers = [
        {
            (name,): {"time_us": us(ns) / side.steps, "launches": launches / side.steps}
            for name, (ns, launches) in side.sums.items()
        }
        for side in (a.gpu, b.gpu)
    ]
    rows = pairs.match(CategoryDifference, ["category"], numbers)
    return sorted(rows, key=lambda row: -abs(row.time_us.delta or 0.0))


def _figures(side: Side, run: _Run | None, whole: bool) -> _Figures:
    figures = _run_figures(run, whole) if run else {}
    if side.data is None:
        return figures | dict.fromkeys(("graph_breaks", "recompiles", "compilations", "compile_s"))
    return {
        **figures,
        "graph_breaks": side.data.of(count_sites),
        "recompiles": side.data.of(count_recompiles),
        "compilations": side.data.of(compile_time.count_compilations),
        "compile_s": side.data.of(compile_time.total_s),
        **side.data.of(_other_counts),
    }


def _other_counts(data: CompileData) -> _Figures:
    """Return the other counts that the gate checks; None where torch did not record one."""
    counts: _Figures = {}
    for name in COUNTS:
        if name not in _COUNTED_ABOVE:
            rows = counted_rows(data.summary, name)
            counts[name] = None if rows is None else sum(row.number for row in rows)
    return counts


def _run_figures(run: _Run, whole: bool) -> _Figures:
    wall, busy_us = run.length_us, _busy_us(run.profile, whole)
    time, launches = None, None
    if run.gpu is not None:
        ns, count = (sum(column) for column in zip((0, 0), *run.gpu.sums.values()))
        time, launches = us(ns) / run.gpu.steps, count / run.gpu.steps
    saved, times = run.profile.of(saved_us), max(len(run.profile.of(StepWindows)), 1) if whole else 1
    return {
        "span_us" if whole else "step_us": wall,
        "gpu_busy_us": busy_us,
        "gpu_busy_percent": 100 * busy_us / wall if busy_us is not None and wall else None,
        "gpu_time_us": time,
        "launches": launches,
        "graph_break_us": None if saved is None else saved * times,
        "graph_break_direct_us": run.profile.of(direct_of_span_us if whole else direct_us),
    }


def _busy_us(profile: Profile, whole: bool) -> float | None:
    """Return how long some GPU was busy, in an average step or in the span."""
    index = profile.of(gpu_work).index
    if not profile.of(steps.has_gpu_records):
        return None
    intervals = busy(profile.trace, index)
    if whole:
        return us(intervals.total_ns)
    steady = profile.of(steps.steady_steps)
    return us(int(covered_ns(intervals, *steady.windows).sum())) / len(steady.rows) if steady else None


def _differences(a: _Figures, b: _Figures, times: StepTimeDifference | None) -> Iterator[pairs.Figure]:
    for name in dict.fromkeys((*a, *b)):
        value = pairs.pair(a.get(name), b.get(name))
        if value.baseline is None and value.candidate is None:
            continue
        text_a, text_b, change = pairs.in_words(name, value)
        if name == "step_us" and times:
            text_a, text_b = text_a + _deviation(times.baseline), text_b + _deviation(times.candidate)
        yield pairs.Figure(name, _LABELS[name], text_a, text_b, change, value)


def _deviation(times: StepTimes) -> str:
    return "" if times.deviation_us is None else f" ± {duration(times.deviation_us)}"


_Function = tuple[str, str, Direction]


def _compilations(a: CompileData | None, b: CompileData | None) -> list[CompilationDifference]:
    """Compare compilations by function, in their order; [] where a side has no compile data.

    Ids do not match where the code in between changed. A function is identified by its name and that of its file: the
    same program may be in another folder. A file that only one side has may be the other's under a new name, so there
    the function's name is all.
    """
    if a is None or b is None:
        return []
    files_a, files_b = ({file_name(row.file) for row in data.summary.compilations} for data in (a, b))
    rows_a, rows_b = (_numbered(data, files_a & files_b) for data in (a, b))
    return [_compilation(rows_a.get(key), rows_b.get(key)) for key in dict.fromkeys((*rows_a, *rows_b))]


def _numbered(data: CompileData, files: set[str]) -> dict[tuple[_Function, int], Compilation]:
    """Return the compilations by function and how often it had been compiled before; by file if in `files`."""
    before: Counter[_Function] = Counter()
    numbered: dict[tuple[_Function, int], Compilation] = {}
    for row in data.of(compilations):
        file = file_name(row.file)
        function = row.function, file if file in files else "", row.direction
        numbered[function, before[function]] = row
        before[function] += 1
    return numbered


def _compilation(a: Compilation | None, b: Compilation | None) -> CompilationDifference:
    either = b or a
    assert either is not None
    fields = pairs.numbers(
        duration_s=pairs.pair(a.duration_s if a else None, b.duration_s if b else None),
        graph_ops=pairs.pair(a.graph_ops if a else None, b.graph_ops if b else None),
    )
    if not (a and b):
        fields["outcome"] = "vanished" if a else "appeared"
    sides = [Compiled(row.compile_id, row.epoch) if row else None for row in (a, b)]
    return CompilationDifference(
        function=either.function,
        file=either.file,
        line=either.line,
        direction=either.direction,
        baseline=sides[0],
        candidate=sides[1],
        both_ids=" → ".join(side.compile_id if side else "–" for side in sides),
        **fields,
    )


def _notes(a: Side, b: Side) -> list[str]:
    """Return what a reader of the tables must know: what cannot be compared, and what else differs."""
    lines = key_notes(a.data, b.data)
    for name, side in (("baseline", a), ("candidate", b)):
        lines += [f"The {name} {text}" for text in _run_notes(side.profile)]
        if side.data is None:
            lines.append(
                f"The {name} has no compile data, as is usual for an eager run: its graph breaks, recompiles and "
                "compile time are unknown."
            )
    return [*lines, *_environment_notes(a, b)]


def _run_notes(profile: Profile | None) -> Iterator[str]:
    if profile is None:
        yield "has no trace: only what was compiled is compared."
        return
    if not profile.of(steps.profiled_steps):
        yield (
            "has no profiled steps because its profiler had no schedule: whole spans are compared, "
            "and the noise is unknown."
        )
    elif len(profile.of(steps.profiled_steps)) == 1:
        yield "has one profiled step, so the noise is unknown."
    if (gpu := profile.of(steps.bottleneck)) is not None:
        yield (
            f"is GPU-bound: its steps are measured on GPU {gpu.device}, each from its first kernel to the first "
            "kernel of the next step."
        )
    if not len(profile.of(gpu_work).index):
        yield "has no GPU events: GPU time and kernels are not compared."
    if lost := profile.of(coverage).worst():
        yield f"is incomplete: {lost.sentence}"


def _environment_notes(a: Side, b: Side) -> Iterator[str]:
    for kind, text in differences(a.program, b.program):
        if kind not in OTHER:
            yield text
    times = [side.profile.of(steps.step_time) for side in (a, b) if side.profile]
    slowed = [time.profiled_us > thresholds.SLOWED_BY_PROFILER * time.step_us for time in times]
    if len(times) == 2 and any(slowed) and not all(time.unprofiled_steps for time in times):
        known, other = ("baseline", "candidate") if times[0].unprofiled_steps else ("candidate", "baseline")
        yield (
            f"The steps of the {known} are unprofiled. Those of the {other} are profiled and therefore slower."
        )


class CompareReport(msgspec.Struct, frozen=True):
    """Two spans compared; the numbers in the verdict are those of `comparison`."""

    baseline: SpanName
    candidate: SpanName
    verdict: str
    break_even: str  # when compiling is worth it, if one side is compiled and the other is not; otherwise ""
    comparison: Comparison


def compare_report(sides: Sides) -> CompareReport:
    """Return what differs between two spans, in numbers and in a sentence."""
    comparison = compare(sides.baseline, sides.candidate)
    verdict, even = _verdict(comparison, sides)
    return CompareReport(sides.baseline.name, sides.candidate.name, verdict, even, comparison)


def _verdict(comparison: Comparison, sides: Sides) -> tuple[str, str]:
    """Return which side is faster, and when compiling is worth it."""
    baseline, candidate = sides.baseline, sides.candidate
    if why := why_no_verdict(baseline.program, candidate.program):
        return why, ""
    if not comparison.step_time or not baseline.profile or not candidate.profile:
        return _of_spans({figure.name: figure.value for figure in comparison.figures}), ""
    return step_time_sentence(comparison.step_time), payback_of(candidate.profile, baseline.profile)


def step_time_sentence(times: StepTimeDifference, step: str = "the mean step") -> str:
    """Say which side is faster, and whether that is more than noise."""
    mean = pairs.pair(times.baseline.mean_us, times.candidate.mean_us)
    change = f"{step} takes {pairs.change_of(mean)}"
    steps = f"{times.baseline.steps} and {plural(times.candidate.steps, 'step')}"
    if times.noise_us is None:
        return f"{change[0].upper()}{change[1:]}. With a single step on one side, the noise is unknown."
    if times.within_noise:
        return f"No clear difference: {change}, within the noise of {steps} (± {duration(times.noise_us)})."
    return (
        f"The candidate is {pairs.outcome(mean)}: {change}, more than the noise of {steps} "
        f"(± {duration(times.noise_us)})."
    )


def _of_spans(figures: dict[str, pairs.Pair]) -> str:
    """Compare sides without steps, or without a trace."""
    if (times := figures.get("span_us")) and times.delta is not None:
        return f"The whole span takes {pairs.change_of(times)}. Without steps on both sides, the noise is unknown."
    compile_s = figures.get("compile_s")
    if compile_s is None or compile_s.baseline is None or compile_s.candidate is None:
        return "The two runs recorded nothing that can be compared."
    times = pairs.pair(1e6 * compile_s.baseline, 1e6 * compile_s.candidate)
    return f"Compiling takes {pairs.change_of(times)}."


def _step_notes(a: _Run | None, b: _Run | None, whole: bool) -> Iterator[str]:
    """Yield which steps compile: "1 step of the candidate compiles (7.10 s). It is excluded."."""
    for name, run in (("baseline", a), ("candidate", b)):
        if not a or not b or not run or whole:
            return
        side = run.profile.of(breakdown.compiling)
        if side.steps:
            compile_ = plural(side.steps, f"step of the {name} compiles", f"steps of the {name} compile")
            rest = (
                f"{'It is' if side.steps == 1 else 'They are'} excluded."
                if len(side.others_us)
                else "No other step was profiled."
            )
            yield f"{compile_} ({duration(side.compile_us)}). {rest}"
