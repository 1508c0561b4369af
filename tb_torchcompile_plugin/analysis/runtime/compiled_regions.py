"""What was compiled, how often did it run, and where did its host and GPU time go: graphs, guards, wrappers, breaks?

A region nested in another (a resume function, a called frame) is not counted in the outer one. Backward is apart. The
table has one row per compilation, joined to the region that ran it. What ran without a compilation of its own has a
row, too: everything where there is no compile data, and a backward graph that was compiled with its forward.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Annotated, Any

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis.compile.compilations import (
    Compilation,
    OtherArtifacts,
    Status,
    compilations,
    nested_regions,
    other_artifacts,
    status_headline,
)
from tb_torchcompile_plugin.analysis.compile.recompiles import shared_modules
from tb_torchcompile_plugin.analysis.formatting import column_head, count_per_step, duration, percent
from tb_torchcompile_plugin.analysis.runtime.cuda_graphs import batch_sizes, requested_graphs
from tb_torchcompile_plugin.profile.columns import (
    Cover,
    covered_ns,
    host_slices,
    share_percent,
    subtract,
    union,
    us,
    within,
)
from tb_torchcompile_plugin.profile.compiled import regions
from tb_torchcompile_plugin.profile.compiled.ownership import Ownership
from tb_torchcompile_plugin.profile.gpu.launches import kernel_launches
from tb_torchcompile_plugin.profile.gpu_work import busy, gpu_work
from tb_torchcompile_plugin.profile.host.eager_roots import EagerRoots
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import StepWindows, profiled_time
from tb_torchcompile_plugin.reader.arrays import grouped
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.torch_names.python_frames import readable_function
from tb_torchcompile_plugin.torch_names.slices import BACKWARD_GRAPH


class CompilationRow(msgspec.Struct, frozen=True, kw_only=True):
    """A compilation, and what a call of it took in the span."""

    key: str
    compile_id: str
    epoch: int
    status: Status | None = None  # None where only the trace shows it
    direction: Annotated[str, column_head(hidden=True)]  # "backward 2 of 2" where DDP split the graph
    function: Annotated[str, column_head(grow=True)] = ""
    file: str = ""
    line: int | None = None
    duration_s: Annotated[float | None, column_head("Compile time", bar=True, total=True)] = None
    calls: int | None = None  # None where the span did not run it
    guard_us_per_call: Annotated[float | None, column_head("Guards per call")] = None
    host_us_per_call: float | None = None  # without nested regions
    gpu_us_per_call: float | None = None
    overhead_us_per_call: Annotated[float | None, column_head("Wrapper per call", hidden=True)] = None
    graph_us_per_call: Annotated[float | None, column_head("Graph per call", hidden=True)] = None
    graph_ops: Annotated[int | None, column_head("Operations", hidden=True)] = None
    breaks: Annotated[int | None, column_head("Graph breaks", hidden=True)] = None
    guards: Annotated[int | None, column_head(hidden=True)] = None
    attempts: Annotated[int | None, column_head(hidden=True)] = None
    slices: str = ""  # what the timeline is searched for


class CompilationTable(msgspec.Struct, frozen=True):
    """All compilations of a process. uses_cuda_graphs: whether any was to run as a CUDA graph."""

    sentences: tuple[str, ...]
    compilations: tuple[CompilationRow, ...]
    others: tuple[OtherArtifacts, ...]
    uses_cuda_graphs: bool


class CompiledRegion(msgspec.Struct, frozen=True):
    """One compile id that ran. Backward graphs are apart, but `gpu_us` includes them."""

    compile_id: str
    epoch: int  # this and the next three: of the latest compilation of this id, None without a log
    compilation: str | None  # its key
    function: str | None
    guards: int | None
    calls: int
    cpu_us: float
    guard_us: float  # the cache lookups before the calls
    overhead_us: float | None  # pregraph and prologue; None where the trace does not mark them
    graph_us: float | None  # graph executions; None where the trace does not mark them
    backward_calls: int
    backward_cpu_us: float
    gpu_us: float | None  # the GPU events that it launched; None without GPU
    backward_gpu_us: float | None


class CompiledShare(msgspec.Struct, frozen=True):
    """How much of the profiled steps (of the span without any) runs compiled, without what graph breaks leave eager."""

    gpu_percent: float | None  # of the GPU time launched there; None where no GPU worked
    host_percent: float | None  # of the time: any thread runs a compiled region or its backward
    empty_compilations: int | None  # whose graph holds no operator; None without compile data


def compiled_regions(profile: Profile) -> list[CompiledRegion]:
    """Return one row per compile id, in order of first call."""
    compiled = profile.data.of(compilations) if profile.data else []
    latest = {row.compile_id: row for row in compiled if row.direction == "forward"}
    calls = sorted(regions.all_calls(profile.of(regions.region_calls)), key=lambda call: call.start)
    by_id = grouped(calls, lambda call: call.compile_id)
    return [_region(profile, *row, latest.get(row[0])) for row in by_id.items()]


def _region(
    profile: Profile, compile_id: str, calls: list[regions.RegionCall], compilation: Compilation | None
) -> CompiledRegion:
    trace, owners = profile.trace, profile.of(Ownership)
    backwards = [int(trace.dur[row]) for row, code in owners.backwards if owners.names[code] == compile_id]
    guards, graphs = sum(call.guard_ns for call in calls), sum(call.graph_ns for call in calls)
    overhead = sum(call.overhead_ns for call in calls)
    marks_graphs = regions.marks_graphs(trace) or any(call.graphs for call in calls)
    gpu_ns = profile.of(_gpu_ns)
    return CompiledRegion(
        compile_id=compile_id,
        epoch=compilation.epoch if compilation else 0,
        compilation=compilation.key if compilation else None,
        function=compilation.function if compilation else None,
        guards=compilation.guards if compilation else None,
        calls=len(calls),
        cpu_us=us(sum(call.own_ns for call in calls)),
        guard_us=us(guards),
        overhead_us=us(overhead) if regions.marks_overhead(trace) else None,
        graph_us=us(graphs) if marks_graphs else None,
        backward_calls=len(backwards),
        backward_cpu_us=us(sum(backwards)),
        gpu_us=us(gpu_ns[0][compile_id]) if gpu_ns else None,
        backward_gpu_us=us(gpu_ns[1][compile_id]) if gpu_ns else None,
    )


def _gpu_ns(profile: Profile) -> tuple[Counter[str], Counter[str]] | None:
    """Return by compile id the time of its GPU events, and of those launched in a backward graph; None without GPU."""
    trace, names = profile.trace, profile.of(Ownership).names
    devices = [rows for rows in profile.of(kernel_launches) if rows.device != "cpu"]
    backwards = Cover(trace, host_slices(trace, BACKWARD_GRAPH.__eq__))
    total, backward = Counter[str](), Counter[str]()
    for rows in devices:
        launch = trace.launch_of()[rows.index]
        is_backward = backwards.holds(np.where(launch >= 0, launch, trace.op_of()[rows.index]))
        for code in np.unique(rows.compile_id[rows.compile_id >= 0]):
            selected = rows.compile_id == code
            total[names[code]] += int(rows.dur[selected].sum())
            backward[names[code]] += int(rows.dur[selected & is_backward].sum())
    return (total, backward) if devices else None


def coverage(profile: Profile) -> CompiledShare:
    """Return which share of the steps torch.compile covers."""
    rows = profile.data.of(compilations) if profile.data else None
    trace, roots, windows = profile.trace, profile.of(EagerRoots), profile.of(profiled_time)
    launched = roots.launched_ns(profile.of(StepWindows))
    eager = sum(
        int(part.device_ns[within(windows, part.start) >= 0].sum())
        for part in (roots.outside, roots.in_regions)
    )
    ownership = profile.of(Ownership)
    slices = np.array([row for row, _ in (*ownership.regions, *ownership.backwards)], np.int64)
    broken = union(roots.in_regions.start, roots.in_regions.end)
    covered = covered_ns(subtract(busy(trace, slices), broken), *windows)
    has_gpu = len(profile.of(gpu_work).index) > 0
    return CompiledShare(
        gpu_percent=share_percent(launched - eager, launched) if has_gpu else None,
        host_percent=share_percent(int(covered.sum()), windows.total_ns),
        empty_compilations=None if rows is None else [row.graph_ops for row in rows].count(0),
    )


def headline(profile: Profile) -> str:
    """Return "Guards and wrappers take 275 µs per step, 4.56 % of the profiled steps: guards …, wrappers …. …".

    Of the calls that begin in a step; without steps, of all.
    """
    trace, windows = profile.trace, profile.of(profiled_time)
    calls = list(regions.all_calls(profile.of(regions.region_calls)))
    if not calls:
        return "No compiled region ran in this span."
    begin = np.array([call.begin for call in calls], np.int64)
    calls = [call for call, step in zip(calls, within(windows, begin)) if step >= 0]
    steps = len(profile.of(StepWindows))
    whole, each = ("the profiled steps", "per step") if steps else ("the span", "in this span")
    guards, overhead, graphs = (
        sum(getattr(call, part) for call in calls) for part in ("guard_ns", "overhead_ns", "graph_ns")
    )
    rows = np.array([row for row, _ in profile.of(Ownership).backwards], np.int64)
    backward = int(trace.dur[rows[within(windows, trace.ts[rows]) >= 0]].sum())

    def per_step(ns: int) -> str:
        return duration(us(ns) / (steps or 1))

    what, parts = "Guards", ""
    if regions.marks_overhead(trace):
        what = "Guards and wrappers"
        parts = f" ({per_step(guards)} in guards, {per_step(overhead)} in wrappers)"
    taken = guards + overhead
    share = f", {percent(100 * taken / windows.total_ns)} of {whole}" if windows.total_ns else ""
    ran = "How long the graphs ran is unknown because the trace does not mark all of them."
    is_marked = regions.marks_graphs(trace) or all(call.graphs for call in calls)
    if is_marked and (all_ns := taken + graphs + backward):
        backwards = f" and their backward graphs for {per_step(backward)}" if backward else ""
        adds = percent(100 * taken / all_ns)
        ran = f"The graphs ran for {per_step(graphs)}{backwards}. Calling them adds {adds} overhead."
    times, in_steps = count_per_step(len(calls) / (steps or 1), each)
    called = f"{times} {'call' if times == '1' else 'calls'}{f' {in_steps}' if in_steps != each else ''}"
    return f"{what} of {called} take {per_step(taken)} {each}{parts}{share}. {ran}"


def compilation_table(about: Profile | CompileData) -> CompilationTable:
    """Return what was compiled, and how a span ran it."""
    profile = about if isinstance(about, Profile) else None
    data = about if isinstance(about, CompileData) else about.data
    ran = profile.of(compiled_regions) if profile else []
    sentences = [data.of(status_headline), *data.of(shared_modules), *data.of(nested_regions)] if data else []
    if profile:
        sentences.append(profile.of(headline))
    return CompilationTable(
        sentences=tuple(sentences),
        compilations=tuple(_rows(data.of(compilations) if data else [], ran)),
        others=tuple(data.of(other_artifacts)) if data else (),
        uses_cuda_graphs=bool(profile and (profile.of(requested_graphs) or profile.of(batch_sizes))),
    )


_SHARED = [name for name in CompilationRow.__struct_fields__ if name in Compilation.__struct_fields__]


def _rows(compiled: list[Compilation], ran: list[CompiledRegion]) -> Iterator[CompilationRow]:
    """Yield the compilations in order of time, then what ran without one."""
    others = {fields["key"]: fields for region in ran for fields in _calls(region)}
    for row in compiled:
        fields = {"slices": row.compile_id, **others.pop(row.key, {})}
        fields |= {name: getattr(row, name) for name in _SHARED}
        if row.parts > 1:
            fields["direction"] = f"{row.direction} {row.part + 1} of {row.parts}"
        if row.direction == "backward":
            fields["breaks"] = None
        fields["function"] = readable_function(row.function)
        yield CompilationRow(**fields)
    yield from (CompilationRow(**fields) for fields in others.values())


def _calls(region: CompiledRegion) -> Iterator[dict[str, Any]]:
    """Yield the fields of a row for the forward calls of a region, and for those of its backward."""
    gpu_us = None if region.gpu_us is None else region.gpu_us - (region.backward_gpu_us or 0)
    parts = {"guard": region.guard_us, "overhead": region.overhead_us, "graph": region.graph_us}
    forward = {**parts, "host": region.cpu_us, "gpu": gpu_us}
    backward = {"host": region.backward_cpu_us, "gpu": region.backward_gpu_us}
    for direction, calls, totals in (
        ("forward", region.calls, forward),
        ("backward", region.backward_calls, backward),
    ):
        key = f"{region.compile_id},{region.epoch},{direction}"
        if calls:
            yield {
                "key": region.compilation or key if direction == "forward" else key,
                "compile_id": region.compile_id,
                "epoch": region.epoch,
                "direction": direction,
                "function": readable_function(region.function or ""),
                "calls": calls,
                "slices": f"Region: {region.compile_id}",
                **{f"{name}_us_per_call": us / calls for name, us in totals.items() if us is not None},
            }
