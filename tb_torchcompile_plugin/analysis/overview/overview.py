"""The first sentence of the tab: the result in numbers."""

from __future__ import annotations

import msgspec

from tb_torchcompile_plugin.analysis.compile_time import compile_time as ct
from tb_torchcompile_plugin.analysis.compiled_regions.coverage import Coverage, coverage
from tb_torchcompile_plugin.analysis.findings import thresholds
from tb_torchcompile_plugin.analysis.findings.findings import findings
from tb_torchcompile_plugin.analysis.overview.halves import compiled_sentence
from tb_torchcompile_plugin.analysis.overview.headline import distortion, headline
from tb_torchcompile_plugin.analysis.pays.pays import pays_sentence
from tb_torchcompile_plugin.analysis.what_if.scenario import priced
from tb_torchcompile_plugin.analysis.what_if.step_words import paced
from tb_torchcompile_plugin.analysis.what_if.words import sentence
from tb_torchcompile_plugin.analysis.words import duration, percent
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import profiled_steps

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
