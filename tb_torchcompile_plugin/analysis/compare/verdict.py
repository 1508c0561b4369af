"""Two spans, named and compared, with the verdict in a sentence: what the tab and `tb-torchcompile compare` tell."""

from __future__ import annotations

import msgspec

from tb_torchcompile_plugin.analysis.compare.compare import (
    Comparison,
    FigureName,
    StepTimeDifference,
    compare,
)
from tb_torchcompile_plugin.analysis.compare.pairs import Pair, Sides, SpanName, change_of, pair
from tb_torchcompile_plugin.analysis.compare.tables import ComparedTables, compare_tables
from tb_torchcompile_plugin.analysis.formatting import duration, plural
from tb_torchcompile_plugin.analysis.runtime.step_breakdown import compiling
from tb_torchcompile_plugin.profile.profile import Profile


class CompareReport(msgspec.Struct, frozen=True):
    """`verdict` is a few sentences; the numbers in it are those of `comparison`."""

    a: SpanName
    b: SpanName
    verdict: str
    comparison: Comparison


class FullReport(CompareReport, frozen=True):
    """All that there is to say about two spans."""

    tables: ComparedTables


def compare_report(sides: Sides) -> CompareReport:
    """What differs between two spans, in numbers and in a sentence."""
    comparison = compare(sides.a, sides.b)
    return CompareReport(sides.a.name, sides.b.name, _verdict(comparison, sides), comparison)


def full_report(sides: Sides) -> FullReport:
    """The same, and row by row."""
    report = sides.of(compare_report)
    return FullReport(report.a, report.b, report.verdict, report.comparison, sides.of(compare_tables))


def _verdict(comparison: Comparison, sides: Sides) -> str:
    figures = {figure.name: figure.value for figure in comparison.figures}
    sentences = [of_steps(comparison.step_time) if comparison.step_time else _of_spans(figures)]
    if (busy := figures.get("gpu_busy_us")) and busy.delta is not None:
        sentences.append(f"The GPUs are busy for {change_of(busy)} of it.")
    if comparison.step_time and sides.a.profile and sides.b.profile:
        sentences.append(compiling_words(sides.a.profile, sides.b.profile))
    return " ".join(filter(None, sentences))


def of_steps(times: StepTimeDifference, step: str = "the mean step") -> str:
    """Which side is faster, and whether that is more than noise."""
    means = Pair(times.a.mean_us, times.b.mean_us, times.delta_us)
    change = f"{step} takes {change_of(means)}"
    steps = f"{times.a.steps} and {plural(times.b.steps, 'step')}"
    if times.noise_us is None:
        return f"{change[0].upper()}{change[1:]}; with one step on a side nobody knows the noise."
    if times.within_noise:
        return f"No clear difference: {change}, within the noise of {steps} (± {duration(times.noise_us)})."
    word = "faster" if times.delta_us < 0 else "slower"
    return f"B is {word}: {change}, more than the noise of {steps} (± {duration(times.noise_us)})."


def _of_spans(figures: dict[FigureName, Pair]) -> str:
    """What can be said where a side has no steps, or no trace at all."""
    if (times := figures.get("span_us")) and times.delta is not None:
        return f"The whole span takes {change_of(times)}; without steps on both sides nobody knows the noise."
    compiled = figures["compile_s"]
    if compiled.a is None or compiled.b is None:
        return "Nothing was recorded on both sides that could be compared."
    return f"Compiling takes {change_of(pair(1e6 * compiled.a, 1e6 * compiled.b))}."


def compiling_words(a: Profile, b: Profile) -> str:
    """ "1 step of B compiles, for 7.10 s: the others take 12.3 ms instead of 12.1 ms in the mean."; "" without one."""
    sides = {"A": a.of(compiling), "B": b.of(compiling)}
    lines = [
        f"{plural(one.steps, f'step of {name} compiles', f'steps of {name} compile')}, for {duration(one.compile_us)}"
        for name, one in sides.items()
        if one.steps
    ]
    if not lines:
        return ""
    said = " and ".join(lines)
    ours, theirs = (one.others_us for one in sides.values())
    if not len(ours) or not len(theirs):
        return f"{said}: no others are left to compare."
    means = Pair(float(ours.mean()), float(theirs.mean()), float(theirs.mean() - ours.mean()))
    return f"{said}: the others take {change_of(means)} in the mean."
