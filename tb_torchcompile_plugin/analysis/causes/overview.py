"""The first sentence of the tab: how long a step is, by which clock, and what to change first."""

from collections.abc import Sequence

import msgspec

from tb_torchcompile_plugin.analysis import thresholds
from tb_torchcompile_plugin.analysis.causes.findings import findings
from tb_torchcompile_plugin.analysis.causes.payback import payback_sentence
from tb_torchcompile_plugin.analysis.causes.registry import words_of
from tb_torchcompile_plugin.analysis.causes.scenario import predicted_fixes
from tb_torchcompile_plugin.analysis.compile import compile_time as ct
from tb_torchcompile_plugin.analysis.finding import Finding
from tb_torchcompile_plugin.analysis.formatting import duration, percent, plural, significant
from tb_torchcompile_plugin.analysis.runtime.compiled_regions import CompiledShare, coverage
from tb_torchcompile_plugin.analysis.runtime.gpu_utilization import utilization
from tb_torchcompile_plugin.analysis.runtime.span_report import compiled_sentence
from tb_torchcompile_plugin.analysis.runtime.step_breakdown import compiling
from tb_torchcompile_plugin.analysis.runtime.step_picture import how_steps_were_found, time_unit
from tb_torchcompile_plugin.profile.coverage import coverage as recording_coverage
from tb_torchcompile_plugin.profile.gpu_work import device_properties, gpu_work
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import StepWindows, step_time

_MAX_CONSIDERED = 3


class Overview(msgspec.Struct, frozen=True):
    """The sentences of the overview."""

    headline: str  # `step`, and what was compiled
    step: str  # also on GPU utilization and in a report
    coverage: CompiledShare
    considered: list[str]  # what is not advised, each with its reason
    payback: str = ""  # whether compiling is worth it, "" where nothing was compiled


def overview(profile: Profile) -> Overview:
    """Return the sentences about a span."""
    step, of = profile.of(headline), profile.of(time_unit)
    # What would not help yet; then, largest gain first, what would help little.
    reasons = [row.title for row in profile.of(findings).findings if not row.advised]
    gains = [
        f"{words_of(row, of).title}: worth {percent(row.predicted.gain_percent)} of {of.one}"
        for row in profile.of(predicted_fixes)
        if thresholds.considered_percent <= row.predicted.gain_percent < thresholds.gain_percent
    ]
    return Overview(
        headline=headline_with_compile(profile, step),
        step=step,
        coverage=profile.of(coverage),
        considered=[*reasons, *gains][:_MAX_CONSIDERED],
        payback="" if profile.trace.is_cut_off else profile.of(payback_sentence),
    )


def headline(profile: Profile) -> str:
    """Return "Step 99.0 ms on the GPU (mean of 3) · GPU busy 98.7 % → …"; in front what is missing, if it is much."""
    if not len(profile.trace):
        return "No events were read."
    covered = profile.of(recording_coverage)
    if (lost := covered.worst()) and covered.level == "insufficient":
        return f"{lost.sentence} {step_sentence(profile, '')}"
    if profile.trace.is_cut_off:  # what is missing may have been there
        return step_sentence(profile, "")
    first, use = first_change(profile.of(findings).findings), profile.of(utilization)
    verdict = first.title if first else ""
    if not verdict and use:  # nothing is to be changed: what bounds the steps
        verdict = f"{use.verdict.bound} bound"
    return step_sentence(profile, verdict)


def step_sentence(profile: Profile, verdict: str) -> str:
    """Return the sentence about a step, with this verdict unless it is ""."""
    return f"{_time(profile)} · {_busy(profile)}{f' → {verdict}' if verdict else ''}."


def first_change(rows: Sequence[Finding]) -> Finding | None:
    """Return the first finding, None where that asks for no change."""
    return rows[0] if rows and rows[0].asks_for_change else None


def headline_with_compile(profile: Profile, step: str) -> str:
    """Return the sentence about a step, and what was compiled."""
    overlap = profile.of(ct.compile_overlap)
    if overlap is None:
        return f"{step} {compiled_sentence(profile.data, '')}"
    spent = f"{duration(overlap.inside_us)} of it" if overlap.inside_us else "none"
    inside = f", {spent} inside {overlap.window}"
    return f"{step} {compiled_sentence(profile.data, inside)}"


def _time(profile: Profile) -> str:
    step = profile.of(step_time)
    if not step.steps:
        return f"Span {duration(step.step_us)}"
    compiles = profile.of(compiling).steps
    without = f"without {plural(compiles, 'step that compiles', 'steps that compile')}" if compiles else ""
    if compiles == len(profile.of(StepWindows)):  # none is left out
        without = "it compiles" if compiles == 1 else "all of them compile"
    mean = f"mean of {step.steps}" if step.steps > 1 else ""
    if step.unprofiled_steps:
        mean = f"mean of {step.unprofiled_steps}, {duration(step.profiled_us)} while profiling"
    details = ", ".join(filter(None, (mean, without, profile.of(how_steps_were_found))))
    limit = "the host" if step.device is None else f"GPU {step.device}" if step.device else "the GPU"
    where = f" on {limit}" if len(profile.of(gpu_work).index) else ""
    return f"Step {duration(step.step_us)}{where}{f' ({details})' if details else ''}"


def _busy(profile: Profile) -> str:
    use = profile.of(utilization)
    if use is None:  # a file that was cut off may lack GPU events that happened
        if profile.of(recording_coverage).level != "complete":
            return "GPU time not known: see the warning"
        return "no GPU events" if device_properties(profile.trace) else "all of it on the CPU"
    busy = [row.busy_percent for row in use.means if row.busy_percent is not None]
    if not busy:
        return f"{plural(len(use.means), 'device')} did nothing that lasted"
    least = "at least " if profile.trace.is_cut_off else ""
    if len(busy) == 1:
        return f"GPU busy {least}{percent(busy[0])}"
    return f"GPU busy {least}{significant(min(busy))}–{significant(max(busy))} % on {len(busy)} devices"
