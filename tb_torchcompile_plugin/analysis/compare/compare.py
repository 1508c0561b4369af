"""Two spans side by side: what got faster, what slower, what appeared and what vanished?

Everything is of an average profiled step, a → b; without steps, of the span. What was compiled is of the process.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Literal, NamedTuple

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis.compare.pairs import (
    Compared,
    InWords,
    Pair,
    Side,
    as_a_whole,
    change_percent,
    in_words,
    numbers,
    pair,
)
from tb_torchcompile_plugin.analysis.compile import compile_time
from tb_torchcompile_plugin.analysis.compile.compilations import Compilation, compilations
from tb_torchcompile_plugin.analysis.compile.graph_breaks import count_sites, graph_break_costs
from tb_torchcompile_plugin.analysis.compile.recompiles import recompiles
from tb_torchcompile_plugin.analysis.formatting import duration
from tb_torchcompile_plugin.analysis.runtime.gpu_utilization import gpus
from tb_torchcompile_plugin.analysis.runtime.step_breakdown import (
    Part,
    PartKind,
    StepBreakdown,
    StepTimes,
    noise_us,
    paced_breakdowns,
    step_times,
    window_breakdown,
)
from tb_torchcompile_plugin.analysis.runtime.step_words import slowed
from tb_torchcompile_plugin.compile_log.record import Direction
from tb_torchcompile_plugin.compile_log.summary_pb2 import CompileSummary
from tb_torchcompile_plugin.profile.gpu.launches import kernel_launches
from tb_torchcompile_plugin.profile.gpu_work import busy, gpu_work
from tb_torchcompile_plugin.profile.intervals import covered_ns
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import (
    StepWindows,
    pace,
    paced_windows,
    profiled_steps,
    unrecorded_step_ns,
)
from tb_torchcompile_plugin.profile.units import us
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.torch_names.kernels import CATEGORIES, Category

# Which compilation of one run is which of another? Ids do not tell where the code in between changed. A
# function is known by its name and that of its file: the same program may lie in another folder. A file
# that only one side has may be the other's under a new name, so there the function's name is all.


class Compiled(msgspec.Struct, frozen=True):
    """One side of a row."""

    compile_id: str
    epoch: int
    graph_ops: int | None


class CompilationDifference(Compared, frozen=True):
    """The same function's n-th compilation on both sides; None where a side has none. `compile_ids`: "0/0 → 1/0"."""

    function: str
    file: str
    line: int | None
    direction: Direction
    a: Compiled | None
    b: Compiled | None
    compile_ids: str
    duration_s: Pair
    graph_ops: Pair


_Function = tuple[str, str, Direction]
_Key = tuple[_Function, int]


def compare_compilations(a: CompileData | None, b: CompileData | None) -> list[CompilationDifference]:
    """In the order in which they were compiled; [] where a side has no compile data."""
    if a is None or b is None:
        return []
    shared = _files(a) & _files(b)
    ours, theirs = _numbered(a, shared), _numbered(b, shared)
    return [_difference(ours.get(key), theirs.get(key)) for key in dict.fromkeys((*ours, *theirs))]


def _files(data: CompileData) -> set[str]:
    return {_name_of(row.file) for row in data.summary.compilations}


def _name_of(path: str) -> str:
    return re.split(r"[/\\]", path)[-1]


def _numbered(data: CompileData, files: set[str]) -> dict[_Key, Compilation]:
    """By function, its file if it is one of `files`, direction, and how often it had been compiled before."""
    before: Counter[_Function] = Counter()
    numbered: dict[_Key, Compilation] = {}
    for row in data.of(compilations):
        file = _name_of(row.file)
        function = row.function, file if file in files else "", row.direction
        numbered[function, before[function]] = row
        before[function] += 1
    return numbered


def _difference(a: Compilation | None, b: Compilation | None) -> CompilationDifference:
    either = b or a
    assert either is not None
    known = numbers(
        duration_s=pair(a.duration_s if a else None, b.duration_s if b else None),
        graph_ops=pair(a.graph_ops if a else None, b.graph_ops if b else None),
    )
    if not (a and b):
        known["outcome"] = "vanished" if a else "appeared"
    return CompilationDifference(
        function=either.function,
        file=either.file,
        line=either.line,
        direction=either.direction,
        a=_compiled(a),
        b=_compiled(b),
        compile_ids=" → ".join(row.compile_id if row else "–" for row in (a, b)),
        **known,
    )


def _compiled(row: Compilation | None) -> Compiled | None:
    return Compiled(row.compile_id, row.epoch, row.graph_ops) if row else None


# What of two spans can be compared, what cannot, and what besides the program differs between them?


_SLOWED = 1.1  # times as long: from there on recorded steps tell less than those that were not


def notes(a: Side, b: Side) -> list[str]:
    """Sentences, each about one thing that a reader of the tables must know."""
    lines = []
    for name, side in (("A", a), ("B", b)):
        lines += [f"{name} {what}" for what in (*_run_notes(side.profile), *_compile_notes(side.summary))]
    return [*lines, *_environment_differences(a, b)]


def _run_notes(profile: Profile | None) -> Iterator[str]:
    if profile is None:
        yield "has no trace: only what was compiled is compared."
        return
    if not profile.of(profiled_steps):
        yield (
            "has no profiled steps, as its profiler had no schedule: whole spans are compared, "
            "and nobody knows how much they vary."
        )
    elif len(profile.of(profiled_steps)) == 1:
        yield "has one profiled step: nobody knows how much its steps vary."
    if (gpu := profile.of(pace)) is not None:
        yield (
            f"has a host that runs ahead: its steps are those of GPU {gpu.device}, "
            "each from the first work that it launched to that of the next."
        )
    if not len(profile.of(gpu_work).index):
        yield "has no GPU events: GPU time and kernels are not compared."
    if profile.trace.notices:
        yield "has a trace that is not complete: what is missing counts as not done."


def _compile_notes(summary: CompileSummary | None) -> Iterator[str]:
    if summary is None:
        yield (
            "has no compile data (an eager run has none): its graph breaks, recompiles and compile time are unknown."
        )


def _environment_differences(a: Side, b: Side) -> Iterator[str]:
    versions = [side.summary.environment.torch_version if side.summary else "" for side in (a, b)]
    if all(versions) and versions[0] != versions[1]:
        yield f"A ran on torch {versions[0]}, B on torch {versions[1]}."
    devices = [_devices(side.profile) if side.profile else "" for side in (a, b)]
    if all(devices) and devices[0] != devices[1]:
        yield f"A ran on {devices[0]}, B on {devices[1]}: times of different devices."
    yield from _unrecorded(a, b)


def _unrecorded(a: Side, b: Side) -> Iterator[str]:
    """Recording slows some programs more than others: then the recorded steps do not tell which is faster. The notes
    are the host's, and say nothing where it runs ahead."""
    profiles = [side.profile for side in (a, b) if side.profile and side.profile.of(pace) is None]
    noted = [one.data.of(unrecorded_step_ns) if one.data else None for one in profiles]
    if len(profiles) < 2 or None in noted or not any(slowed(one, _SLOWED) for one in profiles):
        return
    of_a, of_b = ((ns or 0) / 1000 for ns in noted)
    change = change_percent(pair(of_a, of_b))
    yield (
        f"While nobody records a step of B takes {duration(of_b)}, one of A {duration(of_a)}{change}: recording slows "
        "them, and all else here is of recorded steps."
    )


def _devices(profile: Profile) -> str:
    names = [row.name for row in profile.of(gpus) if row.name]
    return ", ".join(dict.fromkeys(names))


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
