"""Which of two spans is faster, in a sentence that the tab and `tb-torchcompile compare` show?"""

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
    """Two spans compared; the numbers in the verdict are those of `comparison`."""

    a: SpanName
    b: SpanName
    verdict: str
    comparison: Comparison


class FullReport(CompareReport, frozen=True):
    """The comparison with all its tables."""

    tables: ComparedTables


def compare_report(sides: Sides) -> CompareReport:
    """Return what differs between two spans, in numbers and in a sentence."""
    comparison = compare(sides.a, sides.b)
    return CompareReport(sides.a.name, sides.b.name, _verdict(comparison, sides), comparison)


def full_report(sides: Sides) -> FullReport:
    """Return what differs between two spans, row by row, too."""
    report = sides.of(compare_report)
    return FullReport(report.a, report.b, report.verdict, report.comparison, sides.of(compare_tables))


def _verdict(comparison: Comparison, sides: Sides) -> str:
    figures = {figure.name: figure.value for figure in comparison.figures}
    sentences = [step_time_sentence(comparison.step_time) if comparison.step_time else _of_spans(figures)]
    if (busy := figures.get("gpu_busy_us")) and busy.delta is not None:
        sentences.append(f"The GPUs are busy for {change_of(busy)} of it.")
    if comparison.step_time and sides.a.profile and sides.b.profile:
        sentences.append(_compiling_words(sides.a.profile, sides.b.profile))
    return " ".join(filter(None, sentences))


def step_time_sentence(times: StepTimeDifference, step: str = "the mean step") -> str:
    """Say which side is faster, and whether that is more than noise."""
    change = f"{step} takes {change_of(Pair(times.a.mean_us, times.b.mean_us, times.delta_us))}"
    steps = f"{times.a.steps} and {plural(times.b.steps, 'step')}"
    if times.noise_us is None:
        return f"{change[0].upper()}{change[1:]}; with one step on a side nobody knows the noise."
    if times.within_noise:
        return f"No clear difference: {change}, within the noise of {steps} (± {duration(times.noise_us)})."
    word = "faster" if times.delta_us < 0 else "slower"
    return f"B is {word}: {change}, more than the noise of {steps} (± {duration(times.noise_us)})."


def _of_spans(figures: dict[FigureName, Pair]) -> str:
    """Compare sides without steps, or without a trace."""
    if (times := figures.get("span_us")) and times.delta is not None:
        return f"The whole span takes {change_of(times)}; without steps on both sides nobody knows the noise."
    compile_s = figures["compile_s"]
    if compile_s.a is None or compile_s.b is None:
        return "Nothing was recorded on both sides that could be compared."
    return f"Compiling takes {change_of(pair(1e6 * compile_s.a, 1e6 * compile_s.b))}."


def _compiling_words(a: Profile, b: Profile) -> str:
    """Return "1 step of B compiles, for 7.10 s: the others take 12.3 ms instead of 12.1 ms in the mean.", or ""."""
    sides = {"A": a.of(compiling), "B": b.of(compiling)}
    words = " and ".join(
        f"{plural(side.steps, f'step of {name} compiles', f'steps of {name} compile')}, for {duration(side.compile_us)}"
        for name, side in sides.items()
        if side.steps
    )
    if not words:
        return ""
    others_a, others_b = (side.others_us for side in sides.values())
    if not len(others_a) or not len(others_b):
        return f"{words}: no others are left to compare."
    return f"{words}: the others take {change_of(pair(float(others_a.mean()), float(others_b.mean())))} in the mean."
