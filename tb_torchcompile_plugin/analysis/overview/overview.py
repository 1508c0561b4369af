"""The first sentence of the tab: the result in numbers."""

from __future__ import annotations

import statistics

import msgspec

from tb_torchcompile_plugin.analysis.compile_time import compile_time as ct
from tb_torchcompile_plugin.analysis.gpu_utilization.devices import gpus
from tb_torchcompile_plugin.analysis.gpu_utilization.step_utilization import utilization
from tb_torchcompile_plugin.analysis.words import duration, percent, plural, seconds, significant
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import profiled_steps
from tb_torchcompile_plugin.profile.units import us
from tb_torchcompile_plugin.reader.compile_data import CompileData


class Overview(msgspec.Struct, frozen=True):
    headline: str


def overview(profile: Profile) -> Overview:
    """ "Step 22.4 ms (median of 3) · GPU busy 12.9 % → launch bound. Compile 8.1 s (2 compilations)." """
    use = profile.of(utilization)
    bound = f" → {use.verdict.bound} bound" if use else ""
    compiled = _compiled(profile.data, _inside(profile))
    return Overview(f"{_time(profile)} · {_gpu(profile)}{bound}. {compiled}")


def compile_headline(data: CompileData) -> str:
    """The part of it that compile data alone tells."""
    return _compiled(data, "")


def _time(profile: Profile) -> str:
    walls = [step.wall_us for step in profile.of(profiled_steps)]
    first, last = profile.trace.window()
    if not walls:
        return f"Span {duration(us(last - first))}"
    return f"Step {duration(statistics.median(walls))}" + (
        f" (median of {len(walls)})" if len(walls) > 1 else ""
    )


def _gpu(profile: Profile) -> str:
    rows = profile.of(gpus)
    if not rows:  # what a cut-off file does not hold may have happened all the same
        return "GPU time not known: see the warning" if profile.trace.notices else "no GPU events"
    busy = [row.busy_percent for row in rows if row.busy_percent is not None]
    if not busy:
        return f"{plural(len(rows), 'device')} did nothing that lasted"
    if len(rows) == 1:
        return f"GPU busy {percent(busy[0])}"
    return f"GPU busy {significant(min(busy))}–{significant(max(busy))} % on {len(rows)} devices"


def _compiled(data: CompileData | None, inside: str) -> str:
    if data is None:
        return "No compile data."
    number = ct.count_compilations(data.summary.compilations)
    if number == 0:
        return "Nothing was compiled."
    return f"Compile {seconds(data.of(ct.total_s))} ({plural(number, 'compilation')}){inside}."


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
