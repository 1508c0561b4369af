"""Two spans side by side: what got faster, what slower, what appeared and what vanished?

Everything is of an average profiled step, a → b; without steps, of the span. What was compiled is of the process.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Literal, NamedTuple

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis.compare.compilations import CompilationDifference, compare_compilations
from tb_torchcompile_plugin.analysis.compare.notes import notes
from tb_torchcompile_plugin.analysis.compare.pairs import Compared, InWords, Pair, in_words, numbers, pair
from tb_torchcompile_plugin.analysis.compare.sides import Side, as_a_whole
from tb_torchcompile_plugin.analysis.compile_time import compile_time
from tb_torchcompile_plugin.analysis.graph_breaks.costs import graph_break_costs
from tb_torchcompile_plugin.analysis.graph_breaks.sites import count_sites
from tb_torchcompile_plugin.analysis.recompiles.recompiles import recompiles
from tb_torchcompile_plugin.analysis.step_breakdown.parts import (
    Part,
    PartKind,
    StepBreakdown,
    paced_breakdowns,
    window_breakdown,
)
from tb_torchcompile_plugin.analysis.step_breakdown.step_times import StepTimes, noise_us, step_times
from tb_torchcompile_plugin.analysis.words import duration
from tb_torchcompile_plugin.profile.gpu.launches import kernel_launches
from tb_torchcompile_plugin.profile.gpu_work import busy, gpu_work
from tb_torchcompile_plugin.profile.intervals import covered_ns
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import StepWindows, paced_windows
from tb_torchcompile_plugin.profile.units import us
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.torch_names.kernels import CATEGORIES, Category


class StepTimeDifference(msgspec.Struct, frozen=True):
    """`noise_us`: how far apart the means of the same program's steps lie by chance, 19 times of 20; None where a side
    has fewer than two steps. `within_noise`: whether the difference is no larger than that."""

    a: StepTimes
    b: StepTimes
    delta_us: float
    noise_us: float | None
    within_noise: bool | None


FigureName = Literal[
    "step_us",
    "span_us",
    "gpu_busy_us",
    "gpu_busy_percent",
    "gpu_time_us",
    "launches",
    "graph_break_us",
    "graph_breaks",
    "recompiles",
    "compilations",
    "compile_s",
]
_Figures = dict[FigureName, float | None]
_LABELS: dict[FigureName, str] = {
    "step_us": "Step time",
    "span_us": "Whole span",
    "gpu_busy_us": "GPU busy",
    "gpu_busy_percent": "GPU busy, of that time",
    "gpu_time_us": "GPU time of kernels",
    "launches": "Launches",
    "graph_break_us": "Cost of graph breaks",
    "graph_breaks": "Graph breaks",
    "recompiles": "Recompiles",
    "compilations": "Compilations",
    "compile_s": "Compile time",
}


class Figure(msgspec.Struct, frozen=True):
    """One number of both sides; the name carries the unit. `words`: with their standard deviation for step times."""

    name: FigureName
    value: Pair
    words: InWords


class CategoryDifference(Compared, frozen=True):
    """GPU time and launches of a kernel category in an average step. The rows sum to `gpu_time_us`."""

    category: Category
    time_us: Pair
    launches: Pair


class PartDifference(msgspec.Struct, frozen=True):
    """One part of an average step (see `step_breakdown`), or of the whole span. The rows sum to the difference of the
    step times, or of `span_us`."""

    kind: PartKind
    part: Part
    time_us: Pair


class Comparison(msgspec.Struct, frozen=True):
    """`step_time` is None where a side has no steps; then the rows are of the whole spans. `figures`, `compilations`
    and `notes` are there in any case; the other lists are empty where a side recorded nothing for them."""

    step_time: StepTimeDifference | None
    figures: list[Figure]
    parts: list[PartDifference]
    kernel_categories: list[CategoryDifference]
    compilations: list[CompilationDifference]
    notes: list[str]


class _Run(NamedTuple):
    """What ran on one side. windows: its steps, or the span as one. categories: (ns, launches) by name, None without
    GPU events."""

    profile: Profile
    windows: list[StepBreakdown]
    categories: dict[Category, tuple[int, int]] | None

    def gpu(self, category: str | None = None) -> tuple[float, float] | tuple[None, None]:
        """µs and launches of an average window, of all categories or of one."""
        if self.categories is None:
            return None, None
        sums = [row for name, row in self.categories.items() if category in (None, name)]
        ns, launches = (sum(column) for column in zip((0, 0), *sums))
        return us(ns) / len(self.windows), launches / len(self.windows)


def compare(a: Side, b: Side) -> Comparison:
    """What differs between two spans, or of what was compiled where one of them has no trace."""
    whole = as_a_whole(a, b)
    ours, theirs = (_run(side.profile, whole) if side.profile else None for side in (a, b))
    step_time = _step_time(ours, theirs) if ours and theirs and not whole else None
    return Comparison(
        step_time=step_time,
        parts=_parts(ours.windows, theirs.windows) if ours and theirs else [],
        figures=list(_differences(_figures(a, ours, whole), _figures(b, theirs, whole), step_time)),
        kernel_categories=_categories(ours, theirs) if ours and theirs else [],
        compilations=compare_compilations(a.data, b.data),
        notes=notes(a, b),
    )


def _run(profile: Profile, whole: bool) -> _Run:
    span = profile.of(window_breakdown) if whole else None
    windows = profile.of(paced_breakdowns) if not whole else [span] if span else []
    return _Run(profile, windows, _by_category(profile, whole) if len(profile.of(gpu_work).index) else None)


def _by_category(profile: Profile, whole: bool) -> dict[Category, tuple[int, int]]:
    """ns and launches of all steps. As the launches tell it: a user's Triton kernel has no name of its own kind."""
    windows = profile.of(StepWindows)
    sums = np.zeros((2, len(CATEGORIES)), np.int64)
    for rows in profile.of(kernel_launches):
        if rows.device != "cpu":
            counted = whole | (windows.launching(profile.trace, rows.launch) >= 0)
            np.add.at(sums[0], rows.category[counted], rows.dur[counted])
            np.add.at(sums[1], rows.category[counted], 1)
    return {name: (ns, count) for name, ns, count in zip(CATEGORIES, *sums.tolist()) if count}


def _step_time(a: _Run, b: _Run) -> StepTimeDifference | None:
    ours, theirs = (step_times([step.wall_us for step in side.windows]) for side in (a, b))
    return step_time_difference(ours, theirs) if ours and theirs else None


def step_time_difference(a: StepTimes, b: StepTimes) -> StepTimeDifference:
    """Whether it is more than noise, too."""
    delta, noise = b.mean_us - a.mean_us, noise_us(a, b)
    return StepTimeDifference(a, b, delta, noise, None if noise is None else abs(delta) <= noise)


def _parts(a: list[StepBreakdown], b: list[StepBreakdown]) -> list[PartDifference]:
    """The largest change first; [] where nothing ran on a side."""
    if not a or not b:
        return []
    ours, theirs = _average(a), _average(b)
    rows = [PartDifference(*key, pair(ours[key], theirs[key])) for key in dict.fromkeys((*ours, *theirs))]
    return sorted(rows, key=lambda row: -abs(row.time_us.delta or 0.0))


def _average(steps: list[StepBreakdown]) -> defaultdict[tuple[PartKind, Part], float]:
    sums: defaultdict[tuple[PartKind, Part], float] = defaultdict(float)
    for step in steps:
        for part in step.parts:
            sums[part.kind, part.part] += part.time_us / len(steps)
    return sums


def _categories(a: _Run, b: _Run) -> list[CategoryDifference]:
    """The largest change first; [] where a side has no GPU events."""
    if a.categories is None or b.categories is None:
        return []
    rows = []
    for category in dict.fromkeys((*a.categories, *b.categories)):
        times, launches = zip(a.gpu(category), b.gpu(category))
        known = numbers(time_us=pair(*times), launches=pair(*launches))
        rows.append(CategoryDifference(category=category, **known))
    return sorted(rows, key=lambda row: -abs(row.time_us.delta or 0.0))


def _figures(side: Side, run: _Run | None, whole: bool) -> _Figures:
    return {**(_run_figures(run, whole) if run else {}), **_compile_figures(side.data)}


def _run_figures(run: _Run, whole: bool) -> _Figures:
    """A run without anything in it has no windows."""
    count = len(run.windows)
    wall = sum(window.wall_us for window in run.windows) / count if count else None
    gpu = _busy_us(run.profile, whole)
    time, launches = run.gpu()
    breaks = _break_us(run.profile, whole)
    return {
        "span_us" if whole else "step_us": wall,
        "gpu_busy_us": gpu,
        "gpu_busy_percent": 100 * gpu / wall if gpu is not None and wall else None,
        "gpu_time_us": time,
        "launches": launches,
        "graph_break_us": breaks / count if count and breaks is not None else None,
    }


def _break_us(profile: Profile, whole: bool) -> float | None:
    """What graph breaks cost the host in all steps, or in the span; None where nothing tells what is one."""
    if (costs := profile.of(graph_break_costs)) is None:
        return None
    return sum(cost.host_us if whole else cost.profiled_us for cost in costs)


def _busy_us(profile: Profile, whole: bool) -> float | None:
    """How long some GPU was busy, in an average step or in all."""
    if not len(profile.of(gpu_work).index):
        return None
    if whole:
        return us(busy(profile.trace, profile.of(gpu_work).index).total_ns)
    steps = profile.of(paced_windows)
    ran = covered_ns(busy(profile.trace, profile.of(gpu_work).index), *steps)
    return us(ran.sum()) / len(ran)


def _compile_figures(data: CompileData | None) -> _Figures:
    if data is None:
        return dict.fromkeys(("graph_breaks", "recompiles", "compilations", "compile_s"))
    return {
        "graph_breaks": data.of(count_sites),
        "recompiles": len(data.of(recompiles)),
        "compilations": compile_time.count_compilations(data.summary.compilations),
        "compile_s": data.of(compile_time.total_s),
    }


def _differences(a: _Figures, b: _Figures, times: StepTimeDifference | None) -> Iterator[Figure]:
    for name in dict.fromkeys((*a, *b)):
        value = pair(a.get(name), b.get(name))
        a_text, b_text, change = in_words(name, value)
        if name == "step_us" and times:
            a_text, b_text = a_text + _deviation(times.a), b_text + _deviation(times.b)
        yield Figure(name, value, InWords(_LABELS[name], a_text, b_text, change))


def _deviation(times: StepTimes) -> str:
    return "" if times.deviation_us is None else f" ± {duration(times.deviation_us)}"
