"""What got faster, what slower, what appeared and what vanished between two spans, and when is compiling worth it?

Everything is per average profiled step; without steps on a side, per span. What was compiled is per process. A table
has no rows where a side recorded none.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import Annotated

import msgspec

from tb_torchcompile_plugin.analysis import thresholds
from tb_torchcompile_plugin.analysis.causes.payback import payback_of
from tb_torchcompile_plugin.analysis.compare import pairs
from tb_torchcompile_plugin.analysis.compare.kernel_matching import (
    KernelDifference,
    match_kernels,
    step_launches,
)
from tb_torchcompile_plugin.analysis.compare.measures import LABELS, Figures, figures_of
from tb_torchcompile_plugin.analysis.compare.pairs import Compared, Figure, Pair
from tb_torchcompile_plugin.analysis.compare.sides import (
    Side,
    Sides,
    SpanName,
    compares_whole_spans,
    why_no_verdict,
)
from tb_torchcompile_plugin.analysis.compile.cache_keys import key_notes
from tb_torchcompile_plugin.analysis.compile.compilations import Compilation, compilations
from tb_torchcompile_plugin.analysis.formatting import column_head, device_name, duration, plural
from tb_torchcompile_plugin.analysis.runtime import step_breakdown as breakdown
from tb_torchcompile_plugin.analysis.runtime.kernel_rows import category_sums
from tb_torchcompile_plugin.analysis.runtime.memory import memory
from tb_torchcompile_plugin.analysis.runtime.modules import Module, modules
from tb_torchcompile_plugin.analysis.runtime.operators import OperatorKind, operators, step_operators
from tb_torchcompile_plugin.analysis.runtime.program import OTHER, differences, file_name
from tb_torchcompile_plugin.analysis.statistics import StepTimeDifference, StepTimes, step_time_difference
from tb_torchcompile_plugin.compile_log.record import Direction
from tb_torchcompile_plugin.profile import steps
from tb_torchcompile_plugin.profile.columns import us
from tb_torchcompile_plugin.profile.coverage import coverage
from tb_torchcompile_plugin.profile.gpu_work import gpu_work
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import StepWindows
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.torch_names.kernels import Category
from tb_torchcompile_plugin.torch_names.python_frames import wraps_module
from tb_torchcompile_plugin.torch_names.slices import without_key

_UNKNOWN = Pair(None, None, None)


class CategoryDifference(Compared, frozen=True):
    """GPU time and launches of a kernel category in an average step; the rows sum to `gpu_time_us`."""

    category: Category
    time_us: Pair
    launches: Pair


class PartDifference(msgspec.Struct, frozen=True):
    """One part of an average step or of the span; the rows sum to the difference of the step times or of `span_us`."""

    kind: breakdown.PartKind
    part: breakdown.Part
    time_us: Pair


class Compiled(msgspec.Struct, frozen=True):
    """A compilation on one side."""

    compile_id: Annotated[str, column_head(hidden=True)]
    epoch: int


class CompilationDifference(Compared, frozen=True):
    """The same function's n-th compilation on both sides."""

    function: str
    file: Annotated[str, column_head(hidden=True)]
    line: int | None
    direction: Direction
    baseline: Compiled | None  # None where a side has none
    candidate: Compiled | None
    both_ids: Annotated[str, column_head("Compile ids")]  # "0/0 → 1/0"
    duration_s: Pair
    graph_ops: Pair


class OperatorDifference(Compared, frozen=True):
    """Own time of an operator, label or CUDA call in an average step; 0 calls where it was not called."""

    name: Annotated[str, column_head("Operator")]
    kind: OperatorKind
    self_host_us: Pair
    self_device_us: Pair  # unknown where a side has no GPU events
    calls: Annotated[Pair, column_head(hidden=True)]


class ModuleDifference(Compared, frozen=True):
    """A module in an average step, or in the span; unknown where a side did not call it."""

    path: Annotated[str, column_head("Module")]  # the modules around it, outermost first
    host_us: Pair
    device_us: Annotated[Pair, column_head("GPU")]
    calls: Pair


def match_parts(a: Profile, b: Profile, whole: bool) -> list[PartDifference]:
    """Compare the parts of a step, largest change first."""
    times_a, times_b = (
        {(part.kind, part.part): part.time_us for part in _parts(side, whole)} for side in (a, b)
    )
    keys = dict.fromkeys((*times_a, *times_b)) if times_a and times_b else ()
    rows = [PartDifference(*key, pairs.pair(times_a.get(key, 0.0), times_b.get(key, 0.0))) for key in keys]
    return sorted(rows, key=lambda row: -abs(row.time_us.delta or 0.0))


def _parts(profile: Profile, whole: bool) -> Iterable[breakdown.StepPart]:
    """Return the parts, which sum to the length of the step or of the span."""
    if whole:
        span = profile.of(breakdown.window_breakdown)
        return span.parts if span else ()
    return (part for part in profile.of(breakdown.mean_parts) if part.kind != "profiler")


def match_categories(a: Profile, b: Profile, whole: bool) -> list[CategoryDifference]:
    """Compare kernel categories, largest change first."""
    numbers = []
    for side in (a, b):
        steps, sums = side.of(category_sums, whole=whole)
        numbers.append(
            {
                (name,): {"time_us": us(ns) / steps, "launches": launches / steps}
                for name, (ns, launches) in sums.items()
            }
        )
    rows = pairs.match(CategoryDifference, ["category"], numbers)
    return sorted(rows, key=lambda row: -abs(row.time_us.delta or 0.0))


def match_operators(a: Profile, b: Profile, whole: bool, on_gpu: bool) -> list[OperatorDifference]:
    """Compare operators by name, largest change of own host time first."""
    numbers = [_operator_numbers(side, whole) for side in (a, b)]
    rows = pairs.match(OperatorDifference, ["kind", "name"], numbers)
    if not on_gpu:
        rows = [msgspec.structs.replace(row, self_device_us=_UNKNOWN) for row in rows]
    return sorted(rows, key=lambda row: (-abs(row.self_host_us.delta or 0.0), row.name))


def _operator_numbers(profile: Profile, whole: bool) -> pairs.Numbers:
    """Return calls and own times of an average step, by names without the hash of a graph."""
    sums: defaultdict[tuple[OperatorKind, str], Counter[str]] = defaultdict(Counter)
    for row in profile.of(operators).rows if whole else profile.of(step_operators):
        times = {"self_host_us": row.self_host_us, "self_device_us": row.self_device_us or 0.0}
        sums[row.kind, without_key(row.name)].update(times, calls=row.calls)
    steps = _steps(profile, whole)
    return {key: {name: total / steps for name, total in row.items()} for key, row in sums.items()}


def _steps(profile: Profile, whole: bool) -> int:
    return 1 if whole else len(profile.of(StepWindows))


def match_modules(a: Profile, b: Profile, whole: bool) -> list[ModuleDifference]:
    """Compare modules by path, in the order of the tree; [] where a side did not record modules."""
    numbers = [
        {
            (path,): _module_numbers(rows, _steps(side, whole))
            for path, rows in _by_path(modules(side).modules).items()
        }
        for side in (a, b)
    ]
    return pairs.match(ModuleDifference, ["path"], numbers, missing=None) if all(numbers) else []


def _by_path(rows: Iterable[Module]) -> defaultdict[str, list[Module]]:
    """Group called modules by path, without torch.compile's wrapper: it would make all paths differ."""
    paths: list[str] = []
    rows_of: defaultdict[str, list[Module]] = defaultdict(list)
    for row in rows:
        above = paths[row.parent] if row.parent >= 0 else ""
        own = "" if wraps_module(row.name) else row.name
        paths.append("/".join(filter(None, (above, own))))
        if own and not row.in_graph:
            rows_of[paths[-1]].append(row)
    return rows_of


def _module_numbers(rows: list[Module], steps: int) -> dict[str, float | None]:
    device = [row.device_us for row in rows if row.device_us is not None]
    return {
        "host_us": sum(row.host_us or 0.0 for row in rows) / steps,
        "device_us": sum(device) / steps if device else None,
        "calls": sum(row.calls or 0 for row in rows) / steps,
    }


def match_memory(a: Profile, b: Profile) -> Iterator[Figure]:
    """Yield the peaks, in the whole span, of the devices that either side used."""
    uses_a, uses_b = ({row.device: row for row in side.of(memory).devices} for side in (a, b))
    for device in dict.fromkeys((*uses_a, *uses_b)):
        for name, label in (("peak_bytes", "Peak memory"), ("peak_reserved_bytes", "Peak reserved")):
            value = pairs.pair(*(getattr(side.get(device), name, None) for side in (uses_a, uses_b)))
            if value != _UNKNOWN:
                words = pairs.in_words(name, value)
                yield Figure(f"{device}_{name}", f"{label}, {device_name(device)}", *words, value)


_Function = tuple[str, str, Direction]


def match_compilations(a: CompileData | None, b: CompileData | None) -> list[CompilationDifference]:
    """Compare compilations by function, in their order; [] where a side has no compile data.

    Ids do not match where the code in between changed. A function is identified by its name and that of its file: the
    same program may be in another folder. A file that only one side has may be the other's under a new name, so there
    the function's name is all.
    """
    if a is None or b is None:
        return []
    files_a, files_b = ({file_name(row.file) for row in data.summary.compilations} for data in (a, b))
    rows_a, rows_b = (_numbered(data, files_a & files_b) for data in (a, b))
    return [_compilation(rows_a.get(key), rows_b.get(key)) for key in dict.fromkeys((*rows_a, *rows_b))]


def _numbered(data: CompileData, files: set[str]) -> dict[tuple[_Function, int], Compilation]:
    """Return the compilations by function and how often it had been compiled before; by file if in `files`."""
    before: Counter[_Function] = Counter()
    numbered: dict[tuple[_Function, int], Compilation] = {}
    for row in data.of(compilations):
        file = file_name(row.file)
        function = row.function, file if file in files else "", row.direction
        numbered[function, before[function]] = row
        before[function] += 1
    return numbered


def _compilation(a: Compilation | None, b: Compilation | None) -> CompilationDifference:
    either = b or a
    assert either is not None
    fields = pairs.numbers(
        duration_s=pairs.pair(a.duration_s if a else None, b.duration_s if b else None),
        graph_ops=pairs.pair(a.graph_ops if a else None, b.graph_ops if b else None),
    )
    if not (a and b):
        fields["outcome"] = "vanished" if a else "appeared"
    sides = [Compiled(row.compile_id, row.epoch) if row else None for row in (a, b)]
    return CompilationDifference(
        function=either.function,
        file=either.file,
        line=either.line,
        direction=either.direction,
        baseline=sides[0],
        candidate=sides[1],
        both_ids=" → ".join(side.compile_id if side else "–" for side in sides),
        **fields,
    )


class Comparison(msgspec.Struct, frozen=True):
    """Two spans compared; lists are empty where a side recorded nothing for them."""

    baseline: SpanName
    candidate: SpanName
    verdict: str
    break_even: str  # when compiling is worth it, if one side is compiled and the other is not; otherwise ""
    step_time: StepTimeDifference | None  # None where a side has no steps; rows are of whole spans then
    figures: list[pairs.Figure]
    parts: list[PartDifference]
    kernels: list[KernelDifference]
    operators: list[OperatorDifference]
    modules: list[ModuleDifference]
    kernel_categories: list[CategoryDifference]
    compilations: list[CompilationDifference]
    notes: list[str]


def compare(sides: Sides) -> Comparison:
    """Return what differs between two spans, or in what was compiled where one of them has no trace."""
    baseline, candidate = sides.baseline, sides.candidate
    a, b, whole = baseline.profile, candidate.profile, compares_whole_spans(baseline, candidate)
    on_gpu = all(side and len(side.of(gpu_work).index) for side in (a, b))
    step_time = None
    if a and b and not whole:
        step_time = step_time_difference(a.of(breakdown.steady_times), b.of(breakdown.steady_times))
    figures = [*_differences(figures_of(baseline, whole), figures_of(candidate, whole), step_time)]
    verdict, break_even = _verdict(sides, step_time, {figure.name: figure.value for figure in figures})
    return Comparison(
        baseline=baseline.name,
        candidate=candidate.name,
        verdict=verdict,
        break_even=break_even,
        step_time=step_time,
        figures=[*figures, *(match_memory(a, b) if a and b else ())],
        parts=match_parts(a, b, whole) if a and b else [],
        kernels=match_kernels(*(step_launches(side, whole=whole) for side in (a, b)))
        if a and b and on_gpu
        else [],
        operators=match_operators(a, b, whole, on_gpu) if a and b else [],
        modules=match_modules(a, b, whole) if a and b else [],
        kernel_categories=match_categories(a, b, whole) if a and b and on_gpu else [],
        compilations=match_compilations(baseline.data, candidate.data),
        notes=[*(_step_notes(a, b) if a and b and not whole else ()), *_notes(baseline, candidate)],
    )


def _differences(a: Figures, b: Figures, times: StepTimeDifference | None) -> Iterator[pairs.Figure]:
    for name in dict.fromkeys((*a, *b)):
        value = pairs.pair(a.get(name), b.get(name))
        if value.baseline is None and value.candidate is None:
            continue
        text_a, text_b, change = pairs.in_words(name, value)
        if name == "step_us" and times:
            text_a, text_b = text_a + _deviation(times.baseline), text_b + _deviation(times.candidate)
        yield pairs.Figure(name, LABELS[name], text_a, text_b, change, value)


def _deviation(times: StepTimes) -> str:
    return "" if times.deviation_us is None else f" ± {duration(times.deviation_us)}"


def _notes(a: Side, b: Side) -> list[str]:
    """Return what a reader of the tables must know: what cannot be compared, and what else differs."""
    lines = key_notes(a.data, b.data)
    for name, side in (("baseline", a), ("candidate", b)):
        lines += [f"The {name} {text}" for text in _run_notes(side.profile)]
        if side.data is None:
            lines.append(
                f"The {name} has no compile data, as is usual for an eager run: its graph breaks, recompiles and "
                "compile time are unknown."
            )
    lines += [text for kind, text in differences(a.program, b.program) if kind not in OTHER]
    times = [side.profile.of(steps.step_time) for side in (a, b) if side.profile]
    slowed = [time.profiled_us > thresholds.SLOWED_BY_PROFILER * time.step_us for time in times]
    if len(times) == 2 and any(slowed) and not all(time.unprofiled_steps for time in times):
        known, other = ("baseline", "candidate") if times[0].unprofiled_steps else ("candidate", "baseline")
        lines.append(
            f"The steps of the {known} are unprofiled. Those of the {other} are profiled and therefore slower."
        )
    return lines


def _run_notes(profile: Profile | None) -> Iterator[str]:
    if profile is None:
        yield "has no trace: only what was compiled is compared."
        return
    if not profile.of(steps.profiled_steps):
        yield (
            "has no profiled steps because its profiler had no schedule: whole spans are compared, "
            "and the noise is unknown."
        )
    elif len(profile.of(steps.profiled_steps)) == 1:
        yield "has one profiled step, so the noise is unknown."
    if (gpu := profile.of(steps.bottleneck)) is not None:
        yield (
            f"is GPU-bound: its steps are measured on GPU {gpu.device}, each from its first kernel to the first "
            "kernel of the next step."
        )
    if not len(profile.of(gpu_work).index):
        yield "has no GPU events: GPU time and kernels are not compared."
    if lost := profile.of(coverage).worst():
        yield f"is incomplete: {lost.sentence}"


def _verdict(
    sides: Sides, step_time: StepTimeDifference | None, figures: dict[str, pairs.Pair]
) -> tuple[str, str]:
    """Return which side is faster, and when compiling is worth it."""
    baseline, candidate = sides.baseline, sides.candidate
    if why := why_no_verdict(baseline.program, candidate.program):
        return why, ""
    if not step_time or not baseline.profile or not candidate.profile:
        return _of_spans(figures), ""
    return step_time_sentence(step_time), payback_of(candidate.profile, baseline.profile)


def step_time_sentence(times: StepTimeDifference, step: str = "the mean step") -> str:
    """Say which side is faster, and whether that is more than noise."""
    mean = pairs.pair(times.baseline.mean_us, times.candidate.mean_us)
    change = f"{step} takes {pairs.change_of(mean)}"
    steps = f"{times.baseline.steps} and {plural(times.candidate.steps, 'step')}"
    if times.noise_us is None:
        return f"{change[0].upper()}{change[1:]}. With a single step on one side, the noise is unknown."
    if times.within_noise:
        return f"No clear difference: {change}, within the noise of {steps} (± {duration(times.noise_us)})."
    return (
        f"The candidate is {pairs.outcome(mean)}: {change}, more than the noise of {steps} "
        f"(± {duration(times.noise_us)})."
    )


def _of_spans(figures: dict[str, pairs.Pair]) -> str:
    """Compare sides without steps, or without a trace."""
    if (times := figures.get("span_us")) and times.delta is not None:
        return f"The whole span takes {pairs.change_of(times)}. Without steps on both sides, the noise is unknown."
    compile_s = figures.get("compile_s")
    if compile_s is None or compile_s.baseline is None or compile_s.candidate is None:
        return "The two runs recorded nothing that can be compared."
    times = pairs.pair(1e6 * compile_s.baseline, 1e6 * compile_s.candidate)
    return f"Compiling takes {pairs.change_of(times)}."


def _step_notes(a: Profile, b: Profile) -> Iterator[str]:
    """Yield which steps compile: "1 step of the candidate compiles (7.10 s). It is excluded."."""
    for name, profile in (("baseline", a), ("candidate", b)):
        side = profile.of(breakdown.compiling)
        if side.steps:
            compile_ = plural(side.steps, f"step of the {name} compiles", f"steps of the {name} compile")
            rest = (
                f"{'It is' if side.steps == 1 else 'They are'} excluded."
                if len(side.others_us)
                else "No other step was profiled."
            )
            yield f"{compile_} ({duration(side.compile_us)}). {rest}"
