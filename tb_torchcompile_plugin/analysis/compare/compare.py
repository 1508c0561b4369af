"""What got faster, what slower, what appeared and what vanished between two spans, and when is compiling worth it?

Everything is per average profiled step; without steps, per span. What was compiled is per process.
"""

from collections.abc import Iterator

import msgspec

from tb_torchcompile_plugin.analysis import thresholds
from tb_torchcompile_plugin.analysis.causes.break_costs import direct_of_span_us, direct_us, saved_us
from tb_torchcompile_plugin.analysis.causes.payback import payback_of
from tb_torchcompile_plugin.analysis.compare import pairs, tables
from tb_torchcompile_plugin.analysis.compare.kernel_matching import (
    KernelDifference,
    match_kernels,
    step_launches,
)
from tb_torchcompile_plugin.analysis.compare.sides import (
    Side,
    Sides,
    SpanName,
    compares_whole_spans,
    why_no_verdict,
)
from tb_torchcompile_plugin.analysis.compile import compile_time
from tb_torchcompile_plugin.analysis.compile.cache_keys import key_notes
from tb_torchcompile_plugin.analysis.compile.graph_breaks import count_sites
from tb_torchcompile_plugin.analysis.compile.recompiles import count_recompiles
from tb_torchcompile_plugin.analysis.formatting import duration, plural
from tb_torchcompile_plugin.analysis.runtime import step_breakdown as breakdown
from tb_torchcompile_plugin.analysis.runtime.kernel_rows import category_sums
from tb_torchcompile_plugin.analysis.runtime.program import OTHER, differences
from tb_torchcompile_plugin.analysis.statistics import StepTimeDifference, StepTimes, step_time_difference
from tb_torchcompile_plugin.compile_log.counts import COUNTS, CountName, counted_rows
from tb_torchcompile_plugin.profile import steps
from tb_torchcompile_plugin.profile.coverage import coverage
from tb_torchcompile_plugin.profile.gpu_work import busy, gpu_work
from tb_torchcompile_plugin.profile.intervals import covered_ns, us
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import StepWindows
from tb_torchcompile_plugin.reader.compile_data import CompileData

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


class Comparison(msgspec.Struct, frozen=True):
    """Two spans compared; lists are empty where a side recorded nothing for them."""

    baseline: SpanName
    candidate: SpanName
    verdict: str
    break_even: str  # when compiling is worth it, if one side is compiled and the other is not; otherwise ""
    step_time: StepTimeDifference | None  # None where a side has no steps; rows are of whole spans then
    figures: list[pairs.Figure]
    parts: list[tables.PartDifference]
    kernels: list[KernelDifference]
    operators: list[tables.OperatorDifference]
    modules: list[tables.ModuleDifference]
    kernel_categories: list[tables.CategoryDifference]
    compilations: list[tables.CompilationDifference]
    notes: list[str]


def compare(sides: Sides) -> Comparison:
    """Return what differs between two spans, or in what was compiled where one of them has no trace."""
    baseline, candidate = sides.baseline, sides.candidate
    a, b, whole = baseline.profile, candidate.profile, compares_whole_spans(baseline, candidate)
    on_gpu = all(side and len(side.of(gpu_work).index) for side in (a, b))
    step_time = None
    if a and b and not whole:
        step_time = step_time_difference(a.of(breakdown.steady_times), b.of(breakdown.steady_times))
    figures = [*_differences(_figures(baseline, whole), _figures(candidate, whole), step_time)]
    verdict, break_even = _verdict(sides, step_time, {figure.name: figure.value for figure in figures})
    return Comparison(
        baseline=baseline.name,
        candidate=candidate.name,
        verdict=verdict,
        break_even=break_even,
        step_time=step_time,
        figures=[*figures, *(tables.match_memory(a, b) if a and b else ())],
        parts=tables.match_parts(a, b, whole) if a and b else [],
        kernels=match_kernels(*(step_launches(side, whole=whole) for side in (a, b)))
        if a and b and on_gpu
        else [],
        operators=tables.match_operators(a, b, whole, on_gpu) if a and b else [],
        modules=tables.match_modules(a, b, whole) if a and b else [],
        kernel_categories=tables.match_categories(a, b, whole) if a and b and on_gpu else [],
        compilations=tables.match_compilations(baseline.data, candidate.data),
        notes=[*(_step_notes(a, b) if a and b and not whole else ()), *_notes(baseline, candidate)],
    )


def _figures(side: Side, whole: bool) -> _Figures:
    figures = _run_figures(side.profile, whole) if side.profile else {}
    if side.data is None:
        return figures | dict.fromkeys(("graph_breaks", "recompiles", "compilations", "compile_s"))
    return {
        **figures,
        "graph_breaks": side.data.of(count_sites),
        "recompiles": side.data.of(count_recompiles),
        "compilations": side.data.of(compile_time.count_compilations),
        "compile_s": side.data.of(compile_time.total_s),
        **{name: side.data.of(count, name) for name in COUNTS if name not in _COUNTED_ABOVE},
    }


def count(data: CompileData, name: CountName) -> int | None:
    """Return one of the counts that the gate checks; None where torch did not record it."""
    rows = counted_rows(data.summary, name)
    return None if rows is None else sum(row.number for row in rows)


def _run_figures(profile: Profile, whole: bool) -> _Figures:
    """Return what ran in an average step or in the whole span."""
    busy_us, length_us = _busy_us(profile, whole), None
    if not whole:
        length_us = profile.of(steps.step_time).step_us
    elif span := profile.of(breakdown.window_breakdown):
        length_us = span.wall_us
    time, launches = None, None
    if len(profile.of(gpu_work).index):
        steps_, sums = profile.of(category_sums, whole=whole)
        ns, count = (sum(column) for column in zip((0, 0), *sums.values()))
        time, launches = us(ns) / steps_, count / steps_
    saved, times = profile.of(saved_us), max(len(profile.of(StepWindows)), 1) if whole else 1
    return {
        "span_us" if whole else "step_us": length_us,
        "gpu_busy_us": busy_us,
        "gpu_busy_percent": 100 * busy_us / length_us if busy_us is not None and length_us else None,
        "gpu_time_us": time,
        "launches": launches,
        "graph_break_us": None if saved is None else saved * times,
        "graph_break_direct_us": profile.of(direct_of_span_us if whole else direct_us),
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
    lines += [text for kind, text in differences(a.program, b.program) if kind not in OTHER]
    times = [side.profile.of(steps.step_time) for side in (a, b) if side.profile]
    slowed = [time.profiled_us > thresholds.SLOWED_BY_PROFILER * time.step_us for time in times]
    if len(times) == 2 and any(slowed) and not all(time.unprofiled_steps for time in times):
        known, other = ("baseline", "candidate") if times[0].unprofiled_steps else ("candidate", "baseline")
        lines.append(
            f"The steps of the {known} are unprofiled, those of the {other} are profiled and therefore slower."
        )
    return lines


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
        yield f"is not complete: {lost.sentence}"


def _verdict(
    sides: Sides, step_time: StepTimeDifference | None, figures: dict[str, pairs.Pair]
) -> tuple[str, str]:
    """Return which side is faster, and when compiling is worth it."""
    baseline, candidate = sides.baseline, sides.candidate
    if why := why_no_verdict(baseline.program, candidate.program):
        return why, ""
    if not step_time or not baseline.profile or not candidate.profile:
        return _of_spans(figures), ""
    return step_time_sentence(step_time), payback_of(candidate.profile, baseline.profile)


def step_time_sentence(times: StepTimeDifference, step: str = "the mean step") -> str:
    """Say which side is faster, and whether that is more than noise."""
    mean = pairs.pair(times.baseline.mean_us, times.candidate.mean_us)
    change = f"{step} takes {pairs.change_of(mean)}"
    steps = f"{times.baseline.steps} and {plural(times.candidate.steps, 'step')}"
    if times.noise_us is None:
        return f"{change[0].upper()}{change[1:]}; with a single step on one side, the noise is unknown."
    if times.within_noise:
        return f"No clear difference: {change}, within the noise of {steps} (± {duration(times.noise_us)})."
    return (
        f"The candidate is {pairs.outcome(mean)}: {change}, more than the noise of {steps} "
        f"(± {duration(times.noise_us)})."
    )


def _of_spans(figures: dict[str, pairs.Pair]) -> str:
    """Compare sides without steps, or without a trace."""
    if (times := figures.get("span_us")) and times.delta is not None:
        return f"The whole span takes {pairs.change_of(times)}; without steps on both sides, the noise is unknown."
    compile_s = figures.get("compile_s")
    if compile_s is None or compile_s.baseline is None or compile_s.candidate is None:
        return "The two runs recorded nothing that can be compared."
    times = pairs.pair(1e6 * compile_s.baseline, 1e6 * compile_s.candidate)
    return f"Compiling takes {pairs.change_of(times)}."


def _step_notes(a: Profile, b: Profile) -> Iterator[str]:
    """Yield which steps compile: "1 step of the candidate compiles (7.10 s): left out."."""
    for name, profile in (("baseline", a), ("candidate", b)):
        side = profile.of(breakdown.compiling)
        if side.steps:
            compile_ = plural(side.steps, f"step of the {name} compiles", f"steps of the {name} compile")
            rest = "left out" if len(side.others_us) else "all it has"
            yield f"{compile_} ({duration(side.compile_us)}): {rest}."
