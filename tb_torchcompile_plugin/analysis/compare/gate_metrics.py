"""What a condition can be about: one row of METRICS each, and nothing else knows their names."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from statistics import median
from typing import Literal, NamedTuple

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis.compare.jobs import job_step_ns
from tb_torchcompile_plugin.analysis.compile import compile_time as compiling
from tb_torchcompile_plugin.analysis.compile.graph_breaks import graph_break_sites
from tb_torchcompile_plugin.analysis.formatting import device_name, plural
from tb_torchcompile_plugin.analysis.runtime.kernels import kernel_table
from tb_torchcompile_plugin.analysis.runtime.memory import memory
from tb_torchcompile_plugin.analysis.runtime.step_breakdown import paced_breakdowns
from tb_torchcompile_plugin.compile_log.counts import COUNTS, CountedRow, CountName, counted, together
from tb_torchcompile_plugin.compile_log.record import direction_of, known_number
from tb_torchcompile_plugin.generated_code.artifacts import Frame
from tb_torchcompile_plugin.job.digest.make import claimed
from tb_torchcompile_plugin.job.job import TracedJob
from tb_torchcompile_plugin.profile.gpu.launches import kernel_launches
from tb_torchcompile_plugin.profile.gpu_work import device_names, gpu_work
from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import StepWindows, step_ns
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.torch_names.kernels import kind_of

# What a gate asks of a run, as it is measured, kept in a baseline file and compared. Integers: ns, bytes,
# counts.


MOST_SAMPLES = 64  # steps that are kept of a run
MOST_ITEMS = 500  # of a measure: those with the largest values
CPU = "CPU"  # the device of a run without a GPU
MOST_TEXT = 240  # characters of a name or a reason
_FOLDERS = 2  # parts of a path that are kept: a baseline is committed, and its home is nobody's business


class MeasuredItem(msgspec.Struct, frozen=True):
    """A part of a measure: a kernel, a break. why: torch's reason, "" for none. samples: by step, [] without. launches:
    of a kernel in a step, else 0."""

    what: str
    why: str = ""
    file: str = ""
    line: int | None = None
    value: int = 0
    samples: list[int] = []
    launches: int = 0

    @property
    def key(self) -> tuple[str, str, str]:
        """By which it is the same in another run: lines move, and so do folders."""
        return self.what, self.why, self.file.rpartition("/")[2]


class Measure(msgspec.Struct, frozen=True):
    """value: None where it is not known; `why_unknown` says why. samples: by step, of many steps some. needs_runs: what
    slows a whole run shows in no step of it, so that only several runs tell the noise."""

    value: int | None
    samples: list[int] = []
    items: list[MeasuredItem] = []
    why_unknown: str = ""
    needs_runs: bool = False


class MeasuredRun(msgspec.Struct, frozen=True):
    """One run, by the names of its measures. devices: names of its GPUs, [CPU] of a trace without any work on one,
    [] where nothing tells; torch: "" where nothing tells. ranks: that were recorded, of world_size."""

    name: str
    devices: list[str]
    torch: str
    ranks: int
    world_size: int
    measures: dict[str, Measure]


class RunSource(NamedTuple):
    """What a run is measured by: its spans and compile data, one of each rank. job: the ranks together, None for one.
    ranks: how many there are."""

    name: str
    profiles: list[Profile]
    data: list[CompileData]
    job: TracedJob | None
    ranks: int


def unknown(why: str) -> Measure:
    return Measure(None, why_unknown=why)


def why_damaged(recording: RunSource) -> str:
    """Why fewer things may be counted than there were, "" where all was read."""
    lost = sum(sum(data.summary.records.unreadable.values()) for data in recording.data)
    return f"{plural(lost, 'record')} of its compile data could not be read" if lost else ""


def of_samples(samples: list[int], items: list[MeasuredItem], *, needs_runs: bool = False) -> Measure:
    """By step: the median, which one slow step does not move."""
    return Measure(middle(samples), some(samples), largest(items), needs_runs=needs_runs)


def middle(samples: list[int]) -> int:
    return round(median(samples))


def some(samples: list[int]) -> list[int]:
    """All, or of very many evenly chosen ones."""
    if len(samples) <= MOST_SAMPLES:
        return samples
    return [samples[place] for place in np.linspace(0, len(samples) - 1, MOST_SAMPLES).round().astype(int)]


def largest(items: list[MeasuredItem]) -> list[MeasuredItem]:
    """As many as are kept."""
    return sorted(items, key=lambda item: (-item.value, item.key, item.line or 0))[:MOST_ITEMS]


def item_of(row: CountedRow) -> MeasuredItem:
    """Of what was counted."""
    return placed(row.what, row.why, row.file, row.line, row.number)


def placed(what: str, why: str, file: str, line: int | None, value: int) -> MeasuredItem:
    """An item with a path that tells nothing of where it lies, and texts that are not endless."""
    return MeasuredItem(what[:MOST_TEXT], why[:MOST_TEXT], short_path(file), line, value)


def short_path(file: str) -> str:
    """Its name and that of its folder."""
    return "/".join(file.replace("\\", "/").split("/")[-_FOLDERS:])


# Steps, kernels, memory and compile time of a run: what a clock or an allocator told, and what it is made
# of.


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


Unit = Literal["time", "bytes", "count"]


class GateMetric(NamedTuple):
    """noise: whether a change must be more than noise ("needed": where it is not known, nobody can tell; "known": where
    several runs tell it), or is exact. by_name: a pattern may choose among its items."""

    label: str
    unit: Unit
    noise: Literal["exact", "known", "needed"]
    measure: Callable[[RunSource], Measure]
    by_name: bool = False


def _count(name: CountName, recording: RunSource) -> Measure:
    """Of all ranks together: one that counts otherwise must show."""
    if len(recording.data) < recording.ranks:
        who = (
            f"{recording.ranks - len(recording.data)} of {recording.ranks} ranks have"
            if recording.data
            else "it has"
        )
        return unknown(f"{who} no compile data (an eager run has none)")
    if damaged := why_damaged(recording):
        return unknown(damaged)
    rows = [counted(data.summary, name) for data in recording.data]
    if None in rows:
        return unknown(COUNTS[name].why_not)
    items = [item_of(row) for row in together(chain.from_iterable(filter(None, rows)))]
    return Measure(sum(item.value for item in items), items=largest(items))


METRICS: dict[str, GateMetric] = {
    "step": GateMetric("Step time", "time", "needed", steps),
    "kernel": GateMetric("Kernel time of a step", "time", "needed", kernels, by_name=True),
    "memory": GateMetric("Peak memory", "bytes", "known", memory_peak),
    "compile": GateMetric("Compile time", "time", "needed", compile_time),
    **{
        name: GateMetric(kind.many[:1].upper() + kind.many[1:], "count", "exact", partial(_count, name))
        for name, kind in COUNTS.items()
    },
}


def recorded(recording: RunSource) -> MeasuredRun:
    """All that a gate may ask of a run."""
    return MeasuredRun(
        name=recording.name,
        devices=_devices(recording),
        torch=next((one.summary.environment.torch_version for one in recording.data), ""),
        ranks=recording.ranks,
        world_size=_world_size(recording),
        measures={name: metric.measure(recording) for name, metric in METRICS.items()},
    )


def _devices(recording: RunSource) -> list[str]:
    names = [name for profile in recording.profiles for name in device_names(profile.trace).values() if name]
    names = names or [name for one in recording.data for name in one.summary.environment.device_names]
    if (
        not names
        and recording.profiles
        and not any(len(one.of(gpu_work).index) for one in recording.profiles)
    ):
        return [CPU]
    return sorted(set(names))


def _world_size(recording: RunSource) -> int:
    """That of the ranks which are here, where nothing tells of more."""
    traced = [claimed(profile.trace, "world_size") for profile in recording.profiles]
    logged = [one.summary.environment.world_size for one in recording.data]
    return max((size for size in (*traced, *logged) if size), default=recording.ranks)
