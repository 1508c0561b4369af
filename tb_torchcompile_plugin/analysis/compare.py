"""Two spans side by side: what got faster, what slower, what appeared and what vanished?

Everything is of an average profiled step, a → b; without steps, of the span.
"""

from __future__ import annotations

from collections import defaultdict

import msgspec

from tb_torchcompile_plugin.analysis import compile_time
from tb_torchcompile_plugin.analysis.graph_breaks import graph_breaks
from tb_torchcompile_plugin.analysis.kernel_matching import (
    KernelDifference,
    Step,
    match_kernels,
    step_launches,
)
from tb_torchcompile_plugin.analysis.profile import Profile
from tb_torchcompile_plugin.analysis.recompiles import recompiles
from tb_torchcompile_plugin.analysis.step_breakdown import PartKind, StepBreakdown, step_breakdowns
from tb_torchcompile_plugin.analysis.step_times import StepTimes, noise_us, step_times
from tb_torchcompile_plugin.analysis.units import us


class StepTimeDifference(msgspec.Struct, frozen=True):
    """`noise_us`: how far apart the means of the same program's steps lie by chance, 19 times of 20; None where a side
    has fewer than two steps. `within_noise`: whether the difference is no larger than that."""

    a: StepTimes
    b: StepTimes
    delta_us: float
    noise_us: float | None
    within_noise: bool | None


class Figure(msgspec.Struct, frozen=True):
    """One number of both sides, None where it is unknown; the name carries the unit."""

    name: str
    a: float | None
    b: float | None
    delta: float | None


class CategoryDifference(msgspec.Struct, frozen=True):
    """GPU time and launches of a kernel category in an average step. The rows sum to `gpu_time_us`."""

    category: str
    a_us: float
    b_us: float
    delta_us: float
    a_launches: float
    b_launches: float


class PartDifference(msgspec.Struct, frozen=True):
    """One part of an average step (see `step_breakdown`). The rows sum to the difference of the step times."""

    kind: PartKind
    part: str
    a_us: float
    b_us: float
    delta_us: float


class Comparison(msgspec.Struct, frozen=True):
    """`step_time` is None where a side has no steps; then the rows are of the whole spans."""

    step_time: StepTimeDifference | None
    figures: list[Figure]
    parts: list[PartDifference]
    kernel_categories: list[CategoryDifference]
    kernels: list[KernelDifference]


def compare(a: Profile, b: Profile) -> Comparison:
    """What differs between two spans."""
    launches = step_launches(a), step_launches(b)
    return Comparison(
        step_time=_step_time(a, b),
        parts=_parts(step_breakdowns(a), step_breakdowns(b)),
        figures=_differences(_figures(a, launches[0]), _figures(b, launches[1])),
        kernel_categories=_categories(*launches),
        kernels=match_kernels(*launches),
    )


def _step_time(a: Profile, b: Profile) -> StepTimeDifference | None:
    ours, theirs = (step_times([step.wall_us for step in side.steps]) for side in (a, b))
    if ours is None or theirs is None:
        return None
    delta, noise = theirs.mean_us - ours.mean_us, noise_us(ours, theirs)
    return StepTimeDifference(ours, theirs, delta, noise, None if noise is None else abs(delta) <= noise)


def _parts(a: list[StepBreakdown], b: list[StepBreakdown]) -> list[PartDifference]:
    """The largest change first; [] where a side has no steps."""
    if not a or not b:
        return []
    ours, theirs = _average(a), _average(b)
    rows = [
        PartDifference(*key, ours[key], theirs[key], theirs[key] - ours[key])
        for key in dict.fromkeys((*ours, *theirs))
    ]
    return sorted(rows, key=lambda row: -abs(row.delta_us))


def _average(steps: list[StepBreakdown]) -> defaultdict[tuple[PartKind, str], float]:
    sums: defaultdict[tuple[PartKind, str], float] = defaultdict(float)
    for step in steps:
        for part in step.parts:
            sums[part.kind, part.part] += part.time_us / len(steps)
    return sums


def _figures(profile: Profile, launches: list[Step]) -> dict[str, float | None]:
    first, last = profile.trace.window()
    steps = profile.steps
    wall = sum(step.wall_us for step in steps) / len(steps) if steps else us(last - first)
    busy = [step.gpu_busy_us for step in steps if step.gpu_busy_us is not None]
    gpu = sum(busy) / len(busy) if busy else None
    return {
        "step_us" if steps else "span_us": wall,
        "gpu_busy_us": gpu,
        "gpu_busy_percent": 100 * gpu / wall if gpu is not None and wall else None,
        "gpu_time_us": us(sum(one.ns for step in launches for one in step)) / len(launches),
        "launches": sum(map(len, launches)) / len(launches),
        **_breaks(profile),
        **_compile_figures(profile),
    }


def _breaks(profile: Profile) -> dict[str, float | None]:
    costs = profile.graph_break_costs
    if costs is None:
        return {"graph_break_us": None}
    return {"graph_break_us": sum(cost.host_us for cost in costs) / max(len(profile.steps), 1)}


def _compile_figures(profile: Profile) -> dict[str, float | None]:
    if profile.summary is None:
        return dict.fromkeys(("graph_breaks", "recompiles", "compilations", "compile_s"))
    return {
        "graph_breaks": len({(row.file, row.line) for row in graph_breaks(profile.summary)}),
        "recompiles": len(recompiles(profile.summary)),
        "compilations": len(profile.summary.compilations),
        "compile_s": compile_time.total_s(profile.summary),
    }


def _differences(a: dict[str, float | None], b: dict[str, float | None]) -> list[Figure]:
    names = dict.fromkeys((*a, *b))
    return [Figure(name, a.get(name), b.get(name), _delta(a.get(name), b.get(name))) for name in names]


def _delta(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else b - a


def _categories(a: list[Step], b: list[Step]) -> list[CategoryDifference]:
    """The largest change first."""
    ours, theirs = _by_category(a), _by_category(b)
    rows = []
    for category in dict.fromkeys((*ours, *theirs)):
        (ns, count), (other_ns, other_count) = ours[category], theirs[category]
        before, after = us(ns) / len(a), us(other_ns) / len(b)
        rows.append(
            CategoryDifference(category, before, after, after - before, count / len(a), other_count / len(b))
        )
    return sorted(rows, key=lambda row: -abs(row.delta_us))


def _by_category(steps: list[Step]) -> defaultdict[str, tuple[int, int]]:
    """category → (ns, launches) over all steps."""
    sums: defaultdict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for step in steps:
        for launch in step:
            ns, count = sums[launch.category]
            sums[launch.category] = ns + launch.ns, count + 1
    return sums
