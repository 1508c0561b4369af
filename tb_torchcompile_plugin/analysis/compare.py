"""Two spans side by side: what got faster, what slower, what appeared and what vanished?

Everything is of an average profiled step, a → b; without steps, of the span. What was compiled is of the process.
"""

from __future__ import annotations

from collections import defaultdict

import msgspec

from tb_torchcompile_plugin.analysis import compile_time
from tb_torchcompile_plugin.analysis.compare_compilations import CompilationDifference, compare_compilations
from tb_torchcompile_plugin.analysis.compare_notes import Side, notes
from tb_torchcompile_plugin.analysis.compare_operators import (
    MemoryDifference,
    ModuleDifference,
    OperatorDifference,
    compare_memory,
    compare_modules,
    compare_operators,
)
from tb_torchcompile_plugin.analysis.gpu_utilization import busy
from tb_torchcompile_plugin.analysis.graph_breaks import graph_breaks
from tb_torchcompile_plugin.analysis.kernel_matching import (
    KernelDifference,
    Step,
    match_kernels,
    step_launches,
)
from tb_torchcompile_plugin.analysis.pairs import Pair, pair
from tb_torchcompile_plugin.analysis.profile import Profile
from tb_torchcompile_plugin.analysis.recompiles import recompiles
from tb_torchcompile_plugin.analysis.step_breakdown import (
    PartKind,
    StepBreakdown,
    step_breakdowns,
    window_breakdown,
)
from tb_torchcompile_plugin.analysis.step_times import StepTimes, noise_us, step_times
from tb_torchcompile_plugin.analysis.units import us
from tb_torchcompile_plugin.summary_pb2 import CompileSummary


class StepTimeDifference(msgspec.Struct, frozen=True):
    """`noise_us`: how far apart the means of the same program's steps lie by chance, 19 times of 20; None where a side
    has fewer than two steps. `within_noise`: whether the difference is no larger than that."""

    a: StepTimes
    b: StepTimes
    delta_us: float
    noise_us: float | None
    within_noise: bool | None


class Figure(msgspec.Struct, frozen=True):
    """One number of both sides; the name carries the unit."""

    name: str
    value: Pair


class CategoryDifference(msgspec.Struct, frozen=True):
    """GPU time and launches of a kernel category in an average step. The rows sum to `gpu_time_us`."""

    category: str
    time_us: Pair
    launches: Pair


class PartDifference(msgspec.Struct, frozen=True):
    """One part of an average step (see `step_breakdown`), or of the whole span. The rows sum to the difference of the
    step times, or of `span_us`."""

    kind: PartKind
    part: str
    time_us: Pair


class Comparison(msgspec.Struct, frozen=True):
    """`step_time` is None where a side has no steps; then the rows are of the whole spans. `figures`, `compilations`
    and `notes` are there in any case; the other lists are empty where a side recorded nothing for them."""

    step_time: StepTimeDifference | None
    figures: list[Figure]
    parts: list[PartDifference]
    kernel_categories: list[CategoryDifference]
    kernels: list[KernelDifference]
    operators: list[OperatorDifference]
    modules: list[ModuleDifference]
    memory: list[MemoryDifference]
    compilations: list[CompilationDifference]
    notes: list[str]


def compare(a: Side, b: Side) -> Comparison:
    """What differs between two spans, or of what was compiled where one of them has no trace."""
    whole = not all(side.profile and side.profile.steps for side in (a, b))
    ours, theirs = _launches(a, whole), _launches(b, whole)
    ran = (a.profile, b.profile) if a.profile and b.profile else None
    on_gpu = (ours, theirs) if ours is not None and theirs is not None else None
    return Comparison(
        step_time=_step_time(*ran) if ran else None,
        parts=_parts(*(_windows(side, whole) for side in ran)) if ran else [],
        figures=_differences(_figures(a, ours, whole), _figures(b, theirs, whole)),
        kernel_categories=_categories(*on_gpu) if on_gpu else [],
        kernels=match_kernels(*on_gpu) if on_gpu else [],
        operators=compare_operators(*ran, whole=whole) if ran else [],
        modules=compare_modules(*ran, whole=whole) if ran else [],
        memory=compare_memory(*ran) if ran else [],
        compilations=compare_compilations(a.summary, b.summary),
        notes=notes(a, b),
    )


def _launches(side: Side, whole: bool) -> list[Step] | None:
    """None without GPU events."""
    if side.profile is None or not len(side.profile.work.index):
        return None
    return step_launches(side.profile, whole=whole)


def _step_time(a: Profile, b: Profile) -> StepTimeDifference | None:
    ours, theirs = (step_times([step.wall_us for step in side.steps]) for side in (a, b))
    if ours is None or theirs is None:
        return None
    delta, noise = theirs.mean_us - ours.mean_us, noise_us(ours, theirs)
    return StepTimeDifference(ours, theirs, delta, noise, None if noise is None else abs(delta) <= noise)


def _parts(a: list[StepBreakdown], b: list[StepBreakdown]) -> list[PartDifference]:
    """The largest change first; [] where nothing ran on a side."""
    if not a or not b:
        return []
    ours, theirs = _average(a), _average(b)
    rows = [PartDifference(*key, pair(ours[key], theirs[key])) for key in dict.fromkeys((*ours, *theirs))]
    return sorted(rows, key=lambda row: -abs(row.time_us.delta or 0.0))


def _windows(profile: Profile, whole: bool) -> list[StepBreakdown]:
    if not whole:
        return step_breakdowns(profile)
    span = window_breakdown(profile)
    return [span] if span else []


def _average(steps: list[StepBreakdown]) -> defaultdict[tuple[PartKind, str], float]:
    sums: defaultdict[tuple[PartKind, str], float] = defaultdict(float)
    for step in steps:
        for part in step.parts:
            sums[part.kind, part.part] += part.time_us / len(steps)
    return sums


def _figures(side: Side, launches: list[Step] | None, whole: bool) -> dict[str, float | None]:
    return {
        **(_times(side.profile, whole) if side.profile else {}),
        "gpu_time_us": us(sum(one.ns for step in launches for one in step)) / len(launches)
        if launches
        else None,
        "launches": sum(map(len, launches)) / len(launches) if launches else None,
        "graph_break_us": _break_us(side.profile, whole) if side.profile else None,
        **_compile_figures(side.summary),
    }


def _times(profile: Profile, whole: bool) -> dict[str, float | None]:
    wall, gpu = _of_span(profile) if whole else _of_step(profile)
    return {
        "span_us" if whole else "step_us": wall,
        "gpu_busy_us": gpu,
        "gpu_busy_percent": 100 * gpu / wall if gpu is not None and wall else None,
    }


def _of_step(profile: Profile) -> tuple[float | None, float | None]:
    """Wall time, and how much of it some GPU was busy."""
    count = len(profile.steps)
    inside = [step.gpu_busy_us for step in profile.steps if step.gpu_busy_us is not None]
    return sum(step.wall_us for step in profile.steps) / count, sum(inside) / count if inside else None


def _of_span(profile: Profile) -> tuple[float | None, float | None]:
    span, work = window_breakdown(profile), profile.work.index
    return span.wall_us if span else None, us(busy(profile.trace, work).total_ns) if len(work) else None


def _break_us(profile: Profile, whole: bool) -> float | None:
    costs = profile.graph_break_costs
    return (
        None if costs is None else sum(cost.host_us for cost in costs) / (1 if whole else len(profile.steps))
    )


def _compile_figures(summary: CompileSummary | None) -> dict[str, float | None]:
    if summary is None:
        return dict.fromkeys(("graph_breaks", "recompiles", "compilations", "compile_s"))
    return {
        "graph_breaks": len({(row.file, row.line) for row in graph_breaks(summary)}),
        "recompiles": len(recompiles(summary)),
        "compilations": len(summary.compilations),
        "compile_s": compile_time.total_s(summary),
    }


def _differences(a: dict[str, float | None], b: dict[str, float | None]) -> list[Figure]:
    return [Figure(name, pair(a.get(name), b.get(name))) for name in dict.fromkeys((*a, *b))]


def _categories(a: list[Step], b: list[Step]) -> list[CategoryDifference]:
    """The largest change first."""
    ours, theirs = _by_category(a), _by_category(b)
    rows = []
    for category in dict.fromkeys((*ours, *theirs)):
        (before_ns, before), (after_ns, after) = ours[category], theirs[category]
        time = pair(us(before_ns) / len(a), us(after_ns) / len(b))
        rows.append(CategoryDifference(category, time, pair(before / len(a), after / len(b))))
    return sorted(rows, key=lambda row: -abs(row.time_us.delta or 0.0))


def _by_category(steps: list[Step]) -> defaultdict[str, tuple[int, int]]:
    """category → (ns, launches) over all steps."""
    sums: defaultdict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for step in steps:
        for launch in step:
            ns, count = sums[launch.category]
            sums[launch.category] = ns + launch.ns, count + 1
    return sums
