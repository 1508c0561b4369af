"""Steps, kernels, memory and compile time of a run: what a clock or an allocator told, and what it is made of."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from tb_torchcompile_plugin.analysis.compare.gate.measures import (
    MOST_TEXT,
    Measure,
    MeasuredItem,
    RunSource,
    largest,
    middle,
    of_samples,
    placed,
    short_path,
    some,
    unknown,
    why_damaged,
)
from tb_torchcompile_plugin.analysis.compare.jobs import job_step_ns
from tb_torchcompile_plugin.analysis.compile_time import compile_time as compiling
from tb_torchcompile_plugin.analysis.graph_breaks.sites import graph_break_sites
from tb_torchcompile_plugin.analysis.kernels.kernels import kernel_table
from tb_torchcompile_plugin.analysis.memory.memory import memory
from tb_torchcompile_plugin.analysis.step_breakdown.parts import paced_breakdowns
from tb_torchcompile_plugin.analysis.words import device_name
from tb_torchcompile_plugin.compile_log.record import direction_of, known_number
from tb_torchcompile_plugin.generated_code.artifacts import Frame
from tb_torchcompile_plugin.profile.gpu.launches import kernel_launches
from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import StepWindows, step_ns
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.torch_names.kernels import kind_of

_NO_TRACE = "it has no trace"
_NO_STEPS = "no steps were marked: profile with a schedule, and call profiler.step()"


def steps(recording: RunSource) -> Measure:
    """By the clock that sets the pace; of a job the longest among its ranks. Items: what a step waits for."""
    if not recording.profiles:
        return unknown(_NO_TRACE)
    slowest = max(recording.profiles, key=lambda profile: float(profile.of(step_ns).sum()))
    lengths = recording.job.of(job_step_ns) if recording.job else slowest.of(step_ns).tolist()
    return of_samples(lengths, [*_breaks(slowest), *_waits(slowest)]) if lengths else unknown(_NO_STEPS)


def _breaks(profile: Profile) -> Iterator[MeasuredItem]:
    for site in profile.of(graph_break_sites):
        if site.step_mean_us:
            yield placed("graph break", site.reason, site.file, site.line, round(1000 * site.step_mean_us))


def _waits(profile: Profile) -> Iterator[MeasuredItem]:
    """What no kernel does: the causes for which a GPU idles or, without one, what the host does."""
    rows = profile.of(paced_breakdowns)
    sums: defaultdict[str, float] = defaultdict(float)
    for part in (part for row in rows for part in row.parts if part.kind != "gpu"):
        does = "the GPU idles" if part.kind == "idle" else "the host"
        sums[f"{does}: {part.part.replace('_', ' ')}"] += 1000 * part.time_us / len(rows)
    return (MeasuredItem(what, value=round(ns)) for what, ns in sums.items())


def kernels(recording: RunSource) -> Measure:
    """What a step launches, by names without inductor's running numbers; of a job the mean of its ranks. A core that
    others share is slow for all of a short run: of kernels on the CPU one run does not tell the noise."""
    if not recording.profiles:
        return unknown(_NO_TRACE)
    count = min(len(profile.of(StepWindows)) for profile in recording.profiles)
    if not count:
        return unknown(_NO_STEPS)
    by_kind = _by_kind(recording.profiles, count)
    if not by_kind:
        return unknown("no kernel was recorded; on the CPU: TORCHINDUCTOR_CPP_ENABLE_KERNEL_PROFILE=1")
    lines, ranks = recording.profiles[0].of(kernel_lines), len(recording.profiles)
    items = [_kernel(kind, table // ranks, lines.get(kind)) for kind, table in by_kind.items()]
    on_host = any(rows.device == "cpu" for one in recording.profiles for rows in one.of(kernel_launches))
    whole = np.sum([*by_kind.values()], axis=0)[0] // ranks
    return of_samples(whole.tolist(), items, needs_runs=on_host)


def _kernel(kind: str, table: Int64s, line: Frame | None) -> MeasuredItem:
    ns, launches = table.tolist()
    file = short_path(line.file) if line else ""
    return MeasuredItem(
        kind[:MOST_TEXT],
        file=file,
        line=line.line if line else None,
        value=middle(ns),
        samples=some(ns),
        launches=middle(launches),
    )


def _by_kind(profiles: list[Profile], count: int) -> dict[str, Int64s]:
    """ns and launches (rows) of each kind by step (columns), summed over ranks."""
    sums: defaultdict[str, Int64s] = defaultdict(lambda: np.zeros((2, count), np.int64))
    for profile in profiles:
        windows, names = profile.of(StepWindows), profile.trace.names
        for rows in profile.of(kernel_launches):
            step = windows.launching(profile.trace, rows.launch)
            inside = (step >= 0) & (step < count)
            for name in np.unique(rows.name[inside]).tolist():
                mine = inside & (rows.name == name)
                ns, launches = sums[kind_of(names[name])]
                np.add.at(ns, step[mine], rows.dur[mine])
                np.add.at(launches, step[mine], 1)
    return dict(sums)


def kernel_lines(profile: Profile) -> dict[str, Frame]:
    """The user's line of each kind, of the kernel that takes most time."""
    rows = [row for row in profile.of(kernel_table).rows if row.lines]
    return {kind_of(row.name): row.lines[-1] for row in reversed(rows)}


def memory_peak(recording: RunSource) -> Measure:
    """Of the device that needs most; of the GPUs where there are any."""
    if not recording.profiles:
        return unknown(_NO_TRACE)
    devices = [row for profile in recording.profiles for row in profile.of(memory).devices]
    devices = [row for row in devices if row.device != "cpu"] or devices
    if not devices:
        return unknown("memory was not recorded: profile with profile_memory=True")
    items = [MeasuredItem(device_name(row.device), value=row.peak_bytes) for row in devices]
    return Measure(max(item.value for item in items), items=largest(items))


def compile_time(recording: RunSource) -> Measure:
    """Of the rank that needs longest; its compilations by function."""
    totals = [(total, data) for data in recording.data if (total := data.of(compiling.total_s)) is not None]
    if len(totals) < max(recording.ranks, 1):
        return unknown(
            "torch did not say how long compilations took" if recording.data else "it has no compile data"
        )
    if damaged := why_damaged(recording):
        return unknown(damaged)
    total, data = max(totals, key=lambda one: one[0])
    return Measure(round(1e9 * total), items=largest([*_compilations(data)]))


def _compilations(data: CompileData) -> Iterator[MeasuredItem]:
    sums: defaultdict[tuple[str, str, str, int | None], int] = defaultdict(int)
    for row in data.summary.compilations:
        sums[row.function, direction_of(row.direction), row.file, known_number(row, "line")] += (
            row.duration_ns
        )
    return (placed(*key, ns) for key, ns in sums.items() if ns)
