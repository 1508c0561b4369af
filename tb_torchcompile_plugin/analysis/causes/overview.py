"""The first sentence of the tab: how long a step is, what bounds it, and what to change first."""

from collections.abc import Sequence

import msgspec

from tb_torchcompile_plugin.analysis import thresholds
from tb_torchcompile_plugin.analysis.causes.findings import findings
from tb_torchcompile_plugin.analysis.causes.overview_counts import Count, counts
from tb_torchcompile_plugin.analysis.causes.payback import payback_sentence
from tb_torchcompile_plugin.analysis.causes.registry import words_of
from tb_torchcompile_plugin.analysis.causes.scenario import predicted_fixes
from tb_torchcompile_plugin.analysis.compile import compile_time as ct
from tb_torchcompile_plugin.analysis.finding import Finding
from tb_torchcompile_plugin.analysis.formatting import duration, percent, plural, significant
from tb_torchcompile_plugin.analysis.runtime.compiled_regions import CompiledShare, coverage
from tb_torchcompile_plugin.analysis.runtime.gpu_utilization import Bound, utilization
from tb_torchcompile_plugin.analysis.runtime.span_report import compiled_sentence
from tb_torchcompile_plugin.analysis.runtime.step_breakdown import compiling
from tb_torchcompile_plugin.analysis.runtime.step_picture import how_steps_were_found, time_unit
from tb_torchcompile_plugin.profile.coverage import coverage as recording_coverage
from tb_torchcompile_plugin.profile.gpu_work import device_properties, gpu_work
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import StepWindows, step_time
from tb_torchcompile_plugin.reader.compile_data import CompileData

_MAX_CONSIDERED = 3
_BOUND: dict[Bound, str] = {
    "compute": "GPU-bound",
    "copy": "GPU-bound",
    "communication": "Communication-bound",
    "input": "Input-bound",
    "compile": "Compile-bound",
    "launch": "Host-bound",
}


class Overview(msgspec.Struct, frozen=True):
    """The sentences of the overview."""

    headline: str  # `step`, and what was compiled
    step: str  # also in a report
    counts: list[Count]
    coverage: CompiledShare | None  # None without a trace
    considered: list[str]  # what is not advised, each with its reason
    payback: str = ""  # whether compiling is worth it, "" where nothing was compiled


def overview(about: Profile | CompileData) -> Overview:
    """Return the sentences about a span, or about what a worker compiled."""
    if isinstance(about, CompileData):
        sentence = f"{'' if about.has_trace else 'No trace was read. '}{about.of(compiled_sentence)}"
        return Overview(sentence, sentence, list(counts(about)), None, [])
    step, of = about.of(headline), about.of(time_unit)
    # What would not help yet; then, largest gain first, what would help little.
    reasons = [row.title for row in about.of(findings).findings if not row.advised]
    gains = [
        f"{words_of(row, of).title}: worth {percent(row.predicted.gain_percent)} of {of.one}"
        for row in about.of(predicted_fixes)
        if thresholds.considered_percent <= row.predicted.gain_percent < thresholds.gain_percent
    ]
    basis = Count(_capitalized(about.of(_basis)), "step", "steps", "The steps of the sentence above")
    return Overview(
        headline=headline_with_compile(about, step),
        step=step,
        counts=[row for row in (basis, *counts(about)) if row.text],
        coverage=about.of(coverage),
        considered=[*reasons, *gains][:_MAX_CONSIDERED],
        payback="" if about.trace.is_cut_off else about.of(payback_sentence),
    )


def headline(profile: Profile) -> str:
    """Return "GPU-bound: 99.0 ms per step, GPU busy 98.7 %. …"; in front what is missing, if it is much."""
    if not len(profile.trace):
        return "No events were read."
    covered = profile.of(recording_coverage)
    if (lost := covered.worst()) and covered.level == "insufficient":
        return f"{lost.sentence} {step_sentence(profile)}"
    if profile.trace.is_cut_off:  # what is missing may have been there
        return step_sentence(profile)
    first = first_change(profile.of(findings).findings)
    return step_sentence(profile, first.title if first else "")


def step_sentence(profile: Profile, *verdicts: str) -> str:
    """Return the sentence about a step, and these verdicts where they are not ""."""
    bound = profile.of(_bound)
    step = f"{f'{bound}: ' if bound else ''}{profile.of(_time)}, {profile.of(_busy)}"
    return " ".join(f"{text}." for text in (step, *verdicts) if text)


def first_change(rows: Sequence[Finding]) -> Finding | None:
    """Return the first finding, None where that asks for no change."""
    return rows[0] if rows and rows[0].asks_for_change else None


def headline_with_compile(profile: Profile, step: str) -> str:
    """Return the sentence about a step, what it is the mean of, and what was compiled."""
    basis = profile.of(_basis)
    step = f"{step} {_capitalized(basis)}." if basis else step
    overlap = profile.of(ct.compile_overlap)
    if overlap is None:
        return f"{step} {compiled_sentence(profile.data, '')}"
    spent = f"including {duration(overlap.inside_us)}" if overlap.inside_us else "none"
    return f"{step} {compiled_sentence(profile.data, f', {spent} inside {overlap.window}')}"


def _capitalized(text: str) -> str:
    return text[:1].upper() + text[1:]


def _bound(profile: Profile) -> str:
    """Return what bounds a step; "" where no GPU worked, or where that may be what is missing."""
    use, device = profile.of(utilization), profile.of(step_time).device
    is_partial = profile.trace.is_cut_off or profile.of(recording_coverage).level == "insufficient"
    if use is None or is_partial or not len(profile.of(gpu_work).index):
        return ""
    bound = _BOUND[use.verdict.bound]
    return f"Bound by GPU {device}" if device and bound == "GPU-bound" else bound


def _time(profile: Profile) -> str:
    step = profile.of(step_time)
    return f"{duration(step.step_us)} {'per step' if step.steps else 'in this span'}"


def _basis(profile: Profile) -> str:
    """Return "mean of 3 steps, 71.0 ms while profiling"; "" without steps."""
    step = profile.of(step_time)
    if not step.steps:
        return ""
    number, kind = (
        (step.unprofiled_steps, "unprofiled step") if step.unprofiled_steps else (step.steps, "step")
    )
    mean = f"{'mean of ' if number > 1 else ''}{plural(number, kind)}"
    if step.unprofiled_steps:
        mean += f", {duration(step.profiled_us)} while profiling"
    compiles = profile.of(compiling).steps
    without = f"without {plural(compiles, 'step that compiles', 'steps that compile')}" if compiles else ""
    if compiles == len(profile.of(StepWindows)):  # none is left out
        without = "it compiles" if compiles == 1 else "all of them compile"
    return ", ".join(filter(None, (mean, without, profile.of(how_steps_were_found))))


def _busy(profile: Profile) -> str:
    use = profile.of(utilization)
    if use is None:  # a file that was cut off may lack GPU events that happened
        if profile.of(recording_coverage).level != "complete":
            return "GPU time unknown"
        return "no GPU events" if device_properties(profile.trace) else "all on the CPU"
    busy = [row.busy_percent for row in use.means if row.busy_percent is not None]
    if not busy:
        return f"no measurable work on {plural(len(use.means), 'GPU')}"
    least = "at least " if profile.trace.is_cut_off else ""
    if len(busy) == 1:
        return f"GPU busy {least}{percent(busy[0])}"
    return f"{len(busy)} GPUs busy {least}{significant(min(busy))}–{significant(max(busy))} %"
