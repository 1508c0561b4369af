"""The first sentence of the tab: the result in numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from tb_torchcompile_plugin.analysis import thresholds
from tb_torchcompile_plugin.analysis.causes.findings import findings
from tb_torchcompile_plugin.analysis.causes.fix_words import sentence
from tb_torchcompile_plugin.analysis.causes.payback import pays_sentence
from tb_torchcompile_plugin.analysis.causes.scenario import priced, step_length
from tb_torchcompile_plugin.analysis.causes.what_if import why_nothing
from tb_torchcompile_plugin.analysis.compile import compile_time as ct
from tb_torchcompile_plugin.analysis.finding import Finding
from tb_torchcompile_plugin.analysis.formatting import duration, percent, plural, significant
from tb_torchcompile_plugin.analysis.runtime.compiled_regions import Coverage, coverage
from tb_torchcompile_plugin.analysis.runtime.compiling_steps import steps_that_compile
from tb_torchcompile_plugin.analysis.runtime.gpu_utilization import (
    Bound,
    Verdict,
    bound_unrecorded,
    gpus,
    utilization,
)
from tb_torchcompile_plugin.analysis.runtime.span_report import compiled_sentence
from tb_torchcompile_plugin.analysis.runtime.step_words import paced, slowed, told_by
from tb_torchcompile_plugin.profile.gpu_work import device_properties
from tb_torchcompile_plugin.profile.model.clock import StepPace, step_clock
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import profiled_steps, unrecorded_step_ns
from tb_torchcompile_plugin.profile.units import us
from tb_torchcompile_plugin.torch_names.slices import PYTHON_FUNCTION

# How long a step is, by which clock, and what to change first: one sentence wherever a run is summed up.
# The overview, GPU utilization and the first line of a report say it in the same words, and its verdict is
# the first finding's own.


_FILLED_PERCENT = 50.0
_SLOWED = 1.25  # a recorded step that takes so many times as long says less of the program


def headline(profile: Profile) -> str:
    """ "Step 99.0 ms on the GPU (mean of 3); the host needs 5.71 ms and runs ahead · GPU busy 98.7 % → …" """
    return step_sentence(profile, _verdict(profile))


def step_sentence(profile: Profile, verdict: str) -> str:
    """The same with another verdict, " → …" or ""."""
    return f"{_time(profile)} · {_busy(profile)}{verdict}."


def verdict_of(rows: Sequence[Finding]) -> str:
    """ " → " and what the first finding says; "" where that asks for no change."""
    first = first_change(rows)
    return f" → {first.title}" if first else ""


def first_change(rows: Sequence[Finding]) -> Finding | None:
    """The first finding, None where that asks for no change."""
    first = next(iter(rows), None)
    return first if first and first.asks_for_change else None


def distortion(profile: Profile) -> str:
    """By how much recording slowed the host; "" where it did not by much, or nobody noted it."""
    unrecorded = profile.of(_unrecorded)
    if unrecorded and _notes_are_the_hosts(profile, unrecorded):
        return ""
    said = slowed(profile, _SLOWED)
    advice = "; record without with_stack" if PYTHON_FUNCTION in profile.trace.cats else ""
    return f"{said}: host times are overstated{advice}." if said else ""


def _notes_are_the_hosts(profile: Profile, unrecorded: _Unrecorded) -> bool:
    """Whether what was noted is the time of a host that runs ahead of a GPU: a step cannot take as little."""
    noted = profile.data.of(unrecorded_step_ns) if profile.data else None
    return unrecorded.device is not None or (noted is not None and unrecorded.step_us > _SLOWED * us(noted))


def _time(profile: Profile) -> str:
    clock = profile.of(step_clock)
    if clock is None:
        first, last = profile.trace.window()
        return f"Span {duration(us(last - first))}"
    if unrecorded := profile.of(_unrecorded):
        return _unrecorded_time(profile, clock, unrecorded)
    step = f"Step {duration(clock.step / 1000)}{_whose(clock)}{_which(profile, clock)}"
    host = duration(clock.host / 1000)
    other = f"the host needs {host} and runs ahead" if _is_filled(profile, clock) else f"{host} on the host"
    return step + (f"; {other}" if clock.host_is_ahead else "")


class _Unrecorded(NamedTuple):
    """A step while nobody records (µs). device: of the GPU that sets its pace, None where the host does. paced: whether
    it is known what does."""

    step_us: float
    device: int | None
    paced: bool


def _unrecorded(profile: Profile) -> _Unrecorded | None:
    """As predictions are for it, or as it was noted where nothing is predicted; None where recording did not slow it
    by much, or nobody noted it."""
    noted = profile.data.of(unrecorded_step_ns) if profile.data else None
    if noted is None or not slowed(profile, _SLOWED):
        return None
    if profile.of(why_nothing):
        return _Unrecorded(us(noted), None, False)
    length = profile.of(step_length)
    return _Unrecorded(length.step_us, length.device, True)


def _unrecorded_time(profile: Profile, clock: StepPace, unrecorded: _Unrecorded) -> str:
    """ "Step 15.6 ms unrecorded, on the GPU (50.9 ms while recording, mean of 4)" """
    whose = _whose_unrecorded(profile, clock, unrecorded)
    recorded = ", ".join((f"{duration(clock.step / 1000)} while recording", *_step_notes(profile, clock)))
    return f"Step {duration(unrecorded.step_us)} unrecorded{whose} ({recorded})"


def _whose_unrecorded(profile: Profile, clock: StepPace, unrecorded: _Unrecorded) -> str:
    """Of a GPU only where it would have work most of the time."""
    device, longer = unrecorded.device, clock.step / 1000 / unrecorded.step_us
    if clock.gpu is None or not unrecorded.paced:
        return ""
    if device is None:
        return ", on the host"
    return f", {_on_gpu(device)}" if _has_work(profile, device, longer) else ""


def _on_gpu(device: int) -> str:
    return f"on GPU {device}" if device else "on the GPU"


def _is_filled(profile: Profile, clock: StepPace) -> bool:
    """Whether the GPU has work most of the time: else a longer step of its own is not because the host runs ahead."""
    return _has_work(profile, clock.device)


def _has_work(profile: Profile, device: int, longer: float = 1.0) -> bool:
    """longer: how many times as long the recorded time is as that which is asked about."""
    busy = [row.busy_percent for row in profile.of(gpus) if row.device == device]
    return any(percent is not None and longer * percent >= _FILLED_PERCENT for percent in busy)


def _whose(clock: StepPace) -> str:
    if clock.gpu is None:
        return ""
    return f" {_on_gpu(clock.device)}" if clock.host_is_ahead else " on the host"


def _which(profile: Profile, clock: StepPace) -> str:
    """ " (mean of 3)"; "" where there is nothing to tell."""
    parts = ", ".join(_step_notes(profile, clock))
    return f" ({parts})" if parts else ""


def _step_notes(profile: Profile, clock: StepPace) -> Iterator[str]:
    """What the number is of, how much of that is not steady, and what tells steps where the profiler did not mark
    them."""
    mean = f"mean of {clock.averaged}" if clock.averaged > 1 else ""
    compile_ = profile.of(steps_that_compile)
    unsteady = plural(compile_, "step compiles", "steps compile") if compile_ else ""
    return filter(None, (mean, unsteady, profile.of(told_by)))


def _busy(profile: Profile) -> str:
    rows = profile.of(gpus)
    if not rows:  # what a cut-off file does not hold may have happened all the same
        if profile.trace.notices:
            return "GPU time not known: see the warning"
        return "no GPU events" if device_properties(profile.trace) else "all of it on the CPU"
    busy = [row.busy_percent for row in rows if row.busy_percent is not None]
    if not busy:
        return f"{plural(len(rows), 'device')} did nothing that lasted"
    of = " while recording" if profile.of(_unrecorded) else ""
    if len(rows) == 1:
        return f"GPU busy {percent(busy[0])}{of}"
    return f"GPU busy {significant(min(busy))}–{significant(max(busy))} %{of} on {len(rows)} devices"


def _verdict(profile: Profile) -> str:
    """What the first finding says; where nothing is to be changed, what bounds the steps. None of a trace that was cut:
    what is missing may have been there."""
    if profile.trace.notices:
        return ""
    if verdict := verdict_of(profile.of(findings).findings):
        return verdict
    use = profile.of(utilization)
    return f" → {_bound(profile, use.verdict)} bound" if use else ""


def _bound(profile: Profile, recorded: Verdict) -> Bound:
    """What bounds the steps as they are unrecorded, where that is known."""
    clock, unrecorded = profile.of(step_clock), profile.of(_unrecorded)
    if clock is None or unrecorded is None:
        return recorded.bound
    return bound_unrecorded(recorded, 1000 * unrecorded.step_us / clock.step)


_CONSIDERED = 3


class Overview(msgspec.Struct, frozen=True):
    """step: the sentence about a step, also on GPU utilization and in a report. headline: with what was compiled.
    recording: by how much recording slowed the program, "" where it did not by much or nobody noted it.
    pays: whether compiling pays, "" where nothing was compiled. considered: what is not advised, each with its
    reason."""

    headline: str
    step: str
    recording: str
    coverage: Coverage
    considered: list[str]
    pays: str = ""


def overview(profile: Profile) -> Overview:
    """ "Step 22.4 ms on the host (mean of 3) · GPU busy 12.9 % → launch bound. Compile 8.1 s (2 compilations)." """
    step = profile.of(headline)
    return Overview(
        with_compile(profile, step),
        step,
        distortion(profile),
        profile.of(coverage),
        _considered(profile),
        profile.of(pays_sentence),
    )


def _considered(profile: Profile) -> list[str]:
    """What would not help yet; then, largest gain first, what would help little."""
    reasons = [row.title for row in profile.of(findings).findings if not row.advised]
    little = [
        row
        for row in profile.of(priced)
        if thresholds.considered_percent <= row.predicted.gain_percent < thresholds.gain_percent
    ]
    of = profile.of(paced)
    gains = [
        f"{sentence(row, of)}: worth {percent(row.predicted.gain_percent)} of {of.one}" for row in little
    ]
    return [*reasons, *gains][:_CONSIDERED]


def with_compile(profile: Profile, step: str) -> str:
    """The sentence about a step, and what was compiled."""
    return f"{step} {compiled_sentence(profile.data, _inside(profile))}"


def _inside(profile: Profile) -> str:
    """How much of the compile time fell into what was profiled; "" where that is unknown."""
    known, steps = profile.of(ct.compile_overlap), bool(profile.of(profiled_steps))
    if known is None:
        return ""
    spent, window = known.in_span_us, "this span"
    if steps and known.in_steps_us is not None:
        spent, window = known.in_steps_us, _names(known.steps)
    return f", {duration(spent)} of it inside {window}" if spent else f", none inside {window}"


def _names(steps: list[str]) -> str:
    if not steps:
        return "the profiled steps"
    return " and ".join(steps) if len(steps) <= 2 else f"{steps[0]} and {len(steps) - 1} more steps"
