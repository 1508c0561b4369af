"""What got faster, what slower, what appeared and what vanished between two spans, and when is compiling worth it?

Everything is per average profiled step; without steps, per span. What was compiled is per process.
"""

from collections.abc import Iterator

import msgspec

from tb_torchcompile_plugin.analysis import thresholds
from tb_torchcompile_plugin.analysis.causes.payback import payback_of
from tb_torchcompile_plugin.analysis.compare import pairs, tables
from tb_torchcompile_plugin.analysis.compare.kernel_matching import (
    KernelDifference,
    match_kernels,
    step_launches,
)
from tb_torchcompile_plugin.analysis.compare.measures import LABELS, Figures, figures_of
from tb_torchcompile_plugin.analysis.compare.sides import (
    Side,
    Sides,
    SpanName,
    compares_whole_spans,
    why_no_verdict,
)
from tb_torchcompile_plugin.analysis.compile.cache_keys import key_notes
from tb_torchcompile_plugin.analysis.formatting import duration, plural
from tb_torchcompile_plugin.analysis.runtime import step_breakdown as breakdown
from tb_torchcompile_plugin.analysis.runtime.program import OTHER, differences
from tb_torchcompile_plugin.analysis.statistics import StepTimeDifference, StepTimes, step_time_difference
from tb_torchcompile_plugin.profile import steps
from tb_torchcompile_plugin.profile.coverage import coverage
from tb_torchcompile_plugin.profile.gpu.launches import gpu_work
from tb_torchcompile_plugin.profile.profile import Profile


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
    figures = [*_differences(figures_of(baseline, whole), figures_of(candidate, whole), step_time)]
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


def _differences(a: Figures, b: Figures, times: StepTimeDifference | None) -> Iterator[pairs.Figure]:
    for name in dict.fromkeys((*a, *b)):
        value = pairs.pair(a.get(name), b.get(name))
        if value.baseline is None and value.candidate is None:
            continue
        text_a, text_b, change = pairs.in_words(name, value)
        if name == "step_us" and times:
            text_a, text_b = text_a + _deviation(times.baseline), text_b + _deviation(times.candidate)
        yield pairs.Figure(name, LABELS[name], text_a, text_b, change, value)


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
            f"The steps of the {known} are unprofiled. Those of the {other} are profiled and therefore slower."
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
        yield f"is incomplete: {lost.sentence}"


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


def _step_notes(a: Profile, b: Profile) -> Iterator[str]:
    """Yield which steps compile: "1 step of the candidate compiles (7.10 s). It is excluded."."""
    for name, profile in (("baseline", a), ("candidate", b)):
        side = profile.of(breakdown.compiling)
        if side.steps:
            compile_ = plural(side.steps, f"step of the {name} compiles", f"steps of the {name} compile")
            rest = (
                f"{'It is' if side.steps == 1 else 'They are'} excluded."
                if len(side.others_us)
                else "No other step was profiled."
            )
            yield f"{compile_} ({duration(side.compile_us)}). {rest}"
