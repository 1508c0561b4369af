"""The first sentence of the tab: how long a step is, by which clock, and what to change first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from tb_torchcompile_plugin.analysis import thresholds
from tb_torchcompile_plugin.analysis.causes.findings import findings
from tb_torchcompile_plugin.analysis.causes.fix_words import words_of
from tb_torchcompile_plugin.analysis.causes.payback import payback_sentence
from tb_torchcompile_plugin.analysis.causes.scenario import predicted_fixes, step_length
from tb_torchcompile_plugin.analysis.causes.what_if import why_nothing
from tb_torchcompile_plugin.analysis.compile import compile_time as ct
from tb_torchcompile_plugin.analysis.finding import Finding
from tb_torchcompile_plugin.analysis.formatting import duration, percent, plural, significant
from tb_torchcompile_plugin.analysis.runtime.compiled_regions import Coverage, coverage
from tb_torchcompile_plugin.analysis.runtime.gpu_utilization import gpus, unprofiled_bound, utilization
from tb_torchcompile_plugin.analysis.runtime.span_report import compiled_sentence
from tb_torchcompile_plugin.analysis.runtime.step_breakdown import steps_that_compile
from tb_torchcompile_plugin.analysis.runtime.step_picture import (
    how_steps_were_found,
    profiling_slowdown,
    time_unit,
)
from tb_torchcompile_plugin.profile.gpu_work import device_properties
from tb_torchcompile_plugin.profile.intervals import us
from tb_torchcompile_plugin.profile.model.clock import RecordedStepLength, step_clock
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import profiled_steps, unprofiled_step_ns
from tb_torchcompile_plugin.torch_names.slices import PYTHON_FUNCTION

# Chosen by eye on the recordings.
_FILLED_PERCENT = 50.0  # GPU busy, from which on a longer GPU step is because the host runs ahead
_MAX_CONSIDERED = 3  # things that were considered, in the overview


class Overview(msgspec.Struct, frozen=True):
    """The sentences of the overview."""

    headline: str  # `step`, and what was compiled
    step: str  # also on GPU utilization and in a report
    recording: str  # by how much profiling slowed the program, "" where it did not by much or this is unknown
    coverage: Coverage
    considered: list[str]  # what is not advised, each with its reason
    pays: str = ""  # whether compiling is worth it, "" where nothing was compiled


def overview(profile: Profile) -> Overview:
    """Return the sentences about a span."""
    step, of = profile.of(headline), profile.of(time_unit)
    # What would not help yet; then, largest gain first, what would help little.
    reasons = [row.title for row in profile.of(findings).findings if not row.advised]
    gains = [
        f"{words_of(row, of).what}: worth {percent(row.predicted.gain_percent)} of {of.one}"
        for row in profile.of(predicted_fixes)
        if thresholds.considered_percent <= row.predicted.gain_percent < thresholds.gain_percent
    ]
    return Overview(
        headline=headline_with_compile(profile, step),
        step=step,
        recording=distortion(profile),
        coverage=profile.of(coverage),
        considered=[*reasons, *gains][:_MAX_CONSIDERED],
        pays=profile.of(payback_sentence),
    )


def headline(profile: Profile) -> str:
    """Return "Step 99.0 ms on the GPU (mean of 3); the host needs 5.71 ms and runs ahead · GPU busy 98.7 % → …"."""
    if profile.trace.notices:  # what is missing may have been there
        return step_sentence(profile, "")
    first = first_change(profile.of(findings).findings)
    verdict = first.title if first else ""
    use, clock, unprofiled = profile.of(utilization), profile.of(step_clock), profile.of(_unprofiled)
    if not verdict and use:  # nothing is to be changed: what bounds the steps
        bound = use.verdict.bound
        if clock and unprofiled:
            bound = unprofiled_bound(use.verdict, 1000 * unprofiled.step_us / clock.step)
        verdict = f"{bound} bound"
    return step_sentence(profile, verdict)


def step_sentence(profile: Profile, verdict: str) -> str:
    """Return the sentence about a step, with this verdict unless it is ""."""
    return f"{_time(profile)} · {_busy(profile)}{f' → {verdict}' if verdict else ''}."


def first_change(rows: Sequence[Finding]) -> Finding | None:
    """Return the first finding, None where that asks for no change."""
    return rows[0] if rows and rows[0].asks_for_change else None


def headline_with_compile(profile: Profile, step: str) -> str:
    """Return the sentence about a step, and what was compiled."""
    overlap, steps = profile.of(ct.compile_overlap), profile.of(profiled_steps)
    if overlap is None:
        return f"{step} {compiled_sentence(profile.data, '')}"
    spent, window = overlap.in_span_us, "this span"
    if steps and overlap.in_steps_us is not None:
        spent, names = overlap.in_steps_us, overlap.steps
        window = " and ".join(names) if len(names) <= 2 else f"{names[0]} and {len(names) - 1} more steps"
        window = window or "the profiled steps"
    inside = f", {duration(spent)} of it inside {window}" if spent else f", none inside {window}"
    return f"{step} {compiled_sentence(profile.data, inside)}"


def distortion(profile: Profile) -> str:
    """Return by how much profiling slowed the host; "" where it did not by much, or where this is unknown."""
    if unprofiled := profile.of(_unprofiled):
        # What was noted is the time of a host that runs ahead of a GPU, where a step cannot take as little.
        limit = thresholds.SLOWED_BY_PROFILER * unprofiled.noted_us
        if unprofiled.device is not None or unprofiled.step_us > limit:
            return ""
    text = profiling_slowdown(profile, thresholds.SLOWED_BY_PROFILER)
    advice = "; record without with_stack" if PYTHON_FUNCTION in profile.trace.cats else ""
    return f"{text}: host times are overstated{advice}." if text else ""


def _time(profile: Profile) -> str:
    clock = profile.of(step_clock)
    if clock is None:
        first, last = profile.trace.window()
        return f"Span {duration(us(last - first))}"
    recorded, compiling = duration(clock.step / 1000), profile.of(steps_that_compile)
    mean = f"mean of {clock.averaged}" if clock.averaged > 1 else ""
    unsteady = plural(compiling, "step compiles", "steps compile") if compiling else ""
    notes = list(filter(None, (mean, unsteady, profile.of(how_steps_were_found))))
    if unprofiled := profile.of(_unprofiled):
        whose = _whose_unprofiled(profile, clock, unprofiled)
        details = ", ".join((f"{recorded} while recording", *notes))
        return f"Step {duration(unprofiled.step_us)} unrecorded{whose} ({details})"
    details = f" ({', '.join(notes)})" if notes else ""
    if clock.gpu is None:
        return f"Step {recorded}{details}"
    if not clock.host_is_ahead:
        return f"Step {recorded} on the host{details}"
    host = duration(clock.host / 1000)
    # Where the GPU mostly has no work, its longer step is not because the host runs ahead.
    is_filled = _has_work(profile, clock.device)
    other = f"the host needs {host} and runs ahead" if is_filled else f"{host} on the host"
    return f"Step {recorded} {_on_gpu(clock.device)}{details}; {other}"


class _Unprofiled(NamedTuple):
    """An unprofiled step."""

    step_us: float
    noted_us: float  # as the host measured it
    device: int | None  # the GPU that is the bottleneck, None where the host is
    paced: bool  # whether the bottleneck is known


def _unprofiled(profile: Profile) -> _Unprofiled | None:
    """Return the step that predictions are for; None where profiling did not slow it by much, or this is unknown."""
    ns = profile.data.of(unprofiled_step_ns) if profile.data else None
    if ns is None or not profiling_slowdown(profile, thresholds.SLOWED_BY_PROFILER):
        return None
    if profile.of(why_nothing):
        return _Unprofiled(us(ns), us(ns), None, False)
    length = profile.of(step_length)
    return _Unprofiled(length.step_us, us(ns), length.device, True)


def _whose_unprofiled(profile: Profile, clock: RecordedStepLength, unprofiled: _Unprofiled) -> str:
    """Return the bottleneck; a GPU only where it would have work most of the time."""
    device, longer = unprofiled.device, clock.step / 1000 / unprofiled.step_us
    if clock.gpu is None or not unprofiled.paced:
        return ""
    if device is None:
        return ", on the host"
    return f", {_on_gpu(device)}" if _has_work(profile, device, longer) else ""


def _on_gpu(device: int) -> str:
    return f"on GPU {device}" if device else "on the GPU"


def _has_work(profile: Profile, device: int, longer: float = 1.0) -> bool:
    """Whether the GPU has work most of a step that takes `longer` times as long while profiled."""
    shares = [row.busy_percent for row in profile.of(gpus) if row.device == device]
    return any(share is not None and longer * share >= _FILLED_PERCENT for share in shares)


def _busy(profile: Profile) -> str:
    rows = profile.of(gpus)
    if not rows:  # a file that was cut off may lack GPU events that happened
        if profile.trace.notices:
            return "GPU time not known: see the warning"
        return "no GPU events" if device_properties(profile.trace) else "all of it on the CPU"
    busy = [row.busy_percent for row in rows if row.busy_percent is not None]
    if not busy:
        return f"{plural(len(rows), 'device')} did nothing that lasted"
    of = " while recording" if profile.of(_unprofiled) else ""
    if len(rows) == 1:
        return f"GPU busy {percent(busy[0])}{of}"
    return f"GPU busy {significant(min(busy))}–{significant(max(busy))} %{of} on {len(rows)} devices"
