"""What is measured of a side of a comparison, and of a run for a gate?

A span has figures. A run, which may have several ranks, has measures as integers (ns, bytes) with samples by step and
items: steps, kernels, memory, compile time and counts. A baseline file keeps them.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from statistics import median
from typing import Literal, NamedTuple

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis.causes.break_costs import (
    break_sites,
    direct_of_span_us,
    direct_us,
    saved_us,
)
from tb_torchcompile_plugin.analysis.compare.sides import Side
from tb_torchcompile_plugin.analysis.compile import compile_time
from tb_torchcompile_plugin.analysis.compile.graph_breaks import count_sites
from tb_torchcompile_plugin.analysis.compile.recompiles import count_recompiles
from tb_torchcompile_plugin.analysis.formatting import device_name, plural
from tb_torchcompile_plugin.analysis.runtime.kernel_rows import category_sums
from tb_torchcompile_plugin.analysis.runtime.kernels import kernel_table
from tb_torchcompile_plugin.analysis.runtime.memory import memory
from tb_torchcompile_plugin.analysis.runtime.program import ProgramFacts, file_name
from tb_torchcompile_plugin.analysis.runtime.step_breakdown import mean_parts, window_breakdown
from tb_torchcompile_plugin.compile_log.counts import COUNTS, CountName, counted_rows, merge_equal_rows
from tb_torchcompile_plugin.compile_log.record import direction_of, optional_number
from tb_torchcompile_plugin.job.digest.make import recorded_number
from tb_torchcompile_plugin.job.job import Job
from tb_torchcompile_plugin.job.steps import job_step_ns, job_step_us
from tb_torchcompile_plugin.profile.columns import Int64s, covered_ns, us
from tb_torchcompile_plugin.profile.gpu.launches import kernel_launches
from tb_torchcompile_plugin.profile.gpu_work import busy, gpu_work
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import (
    StepWindows,
    has_gpu_records,
    launching,
    steady_steps,
    step_lengths,
    step_time,
)
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.torch_names.kernels import name_across_runs

# What is kept of a run, so that a baseline file stays below 200 kB.
MAX_SAMPLES = 64  # steps
MAX_ITEMS = 500  # of a measure: those with the largest values
_MAX_CHARS = 240  # of a name or a reason
_PATH_PARTS = 2  # of a file: a baseline is committed, and must not show where it was recorded

_NO_TRACE = "there is no trace"
_NO_STEPS = "no steps were marked: profile with a schedule, and call profiler.step()"

Figures = dict[str, float | None]  # by name, which carries the unit
Unit = Literal["time", "bytes", "count"]


class MeasuredItem(msgspec.Struct, frozen=True):
    """A part of a measure: a kernel, a break."""

    what: str = ""
    why: str = ""  # torch's reason, "" for none
    file: str = ""
    line: int | None = None
    value: int = 0
    samples: list[int] = []  # by step, [] without
    launches: int = 0  # of a kernel in a step

    @property
    def key(self) -> tuple[str, str, str]:
        """What identifies it in another run: lines and folders may differ."""
        return self.what, self.why, self.file.rpartition("/")[2]


class Measure(msgspec.Struct, frozen=True):
    """One metric of a run."""

    value: int | None = None  # None where unknown
    samples: list[int] = []  # by step; of many steps, some
    items: list[MeasuredItem] = []
    why_unknown: str = ""
    needs_runs: bool = False  # whether only several runs show the noise, as each is slow as a whole


class MeasuredRun(msgspec.Struct, frozen=True):
    """One run."""

    name: str = ""
    program: ProgramFacts = ProgramFacts()
    ranks: int = 0  # that were recorded
    world_size: int = 0
    measures: dict[str, Measure] = {}  # by metric


class RunSource(NamedTuple):
    """What a run is measured by."""

    name: str
    sides: Sequence[Side]  # one of each rank
    job: Job | None = None  # the ranks together, None for one

    @property
    def profiles(self) -> list[Profile]:
        """The spans of the ranks that have a trace."""
        return [side.profile for side in self.sides if side.profile]

    @property
    def data(self) -> list[CompileData]:
        """What was compiled, of the ranks that have compile data."""
        return [side.data for side in self.sides if side.data]


class GateMetric(NamedTuple):
    """How a metric is measured and judged."""

    label: str
    unit: Unit
    # exact: each change counts. needed: a change must be more than noise, and is inconclusive where that is unknown.
    # known: a change must be more than noise where several runs show it.
    noise: Literal["exact", "known", "needed"]
    measure: Callable[[RunSource], Measure]
    by_name: bool = False  # whether a pattern may choose among its items


def measure_run(source: RunSource) -> MeasuredRun:
    """Measure all that a gate may ask of a run."""
    sizes = [
        source.job.world_size if source.job else None,
        *(recorded_number(profile.trace, "world_size") for profile in source.profiles),
        *(data.summary.environment.world_size for data in source.data),
    ]
    return MeasuredRun(
        name=source.name,
        program=_program(source),
        ranks=len(source.sides),
        world_size=max((size for size in sizes if size), default=len(source.sides)),
        measures={name: metric.measure(source) for name, metric in METRICS.items()},
    )


def _program(source: RunSource) -> ProgramFacts:
    """Return what the first rank ran, on the devices of all."""
    known = [side.program for side in source.sides if side.profile or side.data]
    first, *others = known or [ProgramFacts()]
    devices = {device for rank in (first, *others) for device in rank.devices}
    torch, headers = first.torch, [rank.columns.header for rank in source.job.digests] if source.job else []
    if not source.profiles:  # what digests show
        devices |= {header.device_name for header in headers if header.device_name}
        torch = torch or next((header.torch_version for header in headers), "")
    script = file_name(first.script)
    return msgspec.structs.replace(first, devices=sorted(devices), script=script, torch=torch, compiled=None)


def rounded_median(samples: list[int]) -> int:
    """Return the median, which one slow step does not move."""
    return round(median(samples))


def thinned(samples: list[int], most: int = MAX_SAMPLES) -> list[int]:
    """Return the samples, or of very many some at even distances: the same steps of each item, so that they add up."""
    if len(samples) <= most:
        return samples
    indices = np.linspace(0, len(samples) - 1, most).round().astype(int)
    return [samples[index] for index in indices]


def _largest(items: list[MeasuredItem]) -> list[MeasuredItem]:
    return sorted(items, key=lambda item: (-item.value, item.key, item.line or 0))[:MAX_ITEMS]


def _item(what: str, why: str, file: str, line: int | None, value: int) -> MeasuredItem:
    """Return an item with the end of its path, and texts of limited length."""
    path = "/".join(file.replace("\\", "/").split("/")[-_PATH_PARTS:])
    return MeasuredItem(what[:_MAX_CHARS], why[:_MAX_CHARS], path, line, value)


def _steps(source: RunSource) -> Measure:
    """Measure steps on the slower clock, of a job on the slowest rank; items: what a step waits for."""
    slowest = max(source.profiles, key=lambda profile: profile.of(step_time).step_us, default=None)
    lengths, step_us = (
        (slowest.of(step_lengths).tolist(), slowest.of(step_time).step_us) if slowest else ([], None)
    )
    if source.job:
        lengths, step_us = source.job.of(job_step_ns), source.job.of(job_step_us) or step_us
    elif not slowest:
        return Measure(why_unknown=_NO_TRACE)
    if not lengths or step_us is None:
        return Measure(why_unknown=_NO_STEPS)
    return Measure(round(1000 * step_us), thinned(lengths), _largest([*_waits(slowest)] if slowest else []))


def _waits(profile: Profile) -> Iterator[MeasuredItem]:
    """Yield graph breaks by their cost, and why a GPU idles or, without one, what the host does."""
    for site in profile.of(break_sites):
        if site.saves_us:
            yield _item("graph break", site.reason, site.file, site.line, round(1000 * site.saves_us))
    for part in profile.of(mean_parts):
        if part.kind in ("idle", "host"):
            does = "the GPU idles" if part.kind == "idle" else "the host"
            yield MeasuredItem(f"{does}: {part.part.replace('_', ' ')}", value=round(1000 * part.time_us))


def _kernels(source: RunSource) -> Measure:
    """Measure kernels by names without inductor's running numbers; of a job the mean of its ranks.

    A core that others share is slow for all of a short run: for kernels on the CPU, one run does not show the noise.
    """
    if not source.profiles:
        return Measure(why_unknown=_NO_TRACE)
    count = min(len(profile.of(StepWindows)) for profile in source.profiles)
    if not count:
        return Measure(why_unknown=_NO_STEPS)
    by_kind = _by_kind(source.profiles, count)
    if not by_kind:
        return Measure(
            why_unknown="no kernel was recorded; on the CPU: TORCHINDUCTOR_CPP_ENABLE_KERNEL_PROFILE=1"
        )
    # The user's line of each kind, of the kernel that takes most time.
    rows = reversed(source.profiles[0].of(kernel_table).rows)
    lines = {
        name_across_runs(row.name): (row.lines[-1].file, row.lines[-1].line) for row in rows if row.lines
    }
    items, ranks = [], len(source.profiles)
    for kind, sums in by_kind.items():
        ns, launches = (sums // ranks).tolist()
        file, line = lines.get(kind, ("", None))
        item = _item(kind, "", file, line, rounded_median(ns))
        items.append(msgspec.structs.replace(item, samples=thinned(ns), launches=rounded_median(launches)))
    on_host = any(rows.device == "cpu" for profile in source.profiles for rows in profile.of(kernel_launches))
    whole: list[int] = (np.sum([*by_kind.values()], axis=0)[0] // ranks).tolist()
    return Measure(rounded_median(whole), thinned(whole), _largest(items), needs_runs=on_host)


def _by_kind(profiles: list[Profile], count: int) -> dict[str, Int64s]:
    """Return ns and launches (rows) of each kind by step (columns), summed over ranks."""
    by_kind: defaultdict[str, Int64s] = defaultdict(lambda: np.zeros((2, count), np.int64))
    for profile in profiles:
        windows, names = profile.of(StepWindows), profile.trace.names
        for rows in profile.of(kernel_launches):
            step = launching(windows.windows, profile.trace, rows.launch)
            inside = (step >= 0) & (step < count)
            for name in np.unique(rows.name[inside]).tolist():
                selected = inside & (rows.name == name)
                ns, launches = by_kind[name_across_runs(names[name])]
                np.add.at(ns, step[selected], rows.dur[selected])
                np.add.at(launches, step[selected], 1)
    return dict(by_kind)


def _memory_peak(source: RunSource) -> Measure:
    """Measure the peak of the device that needs most; of the GPUs where there are any."""
    if not source.profiles:
        return Measure(why_unknown=_NO_TRACE)
    devices = [row for profile in source.profiles for row in profile.of(memory).devices]
    devices = [row for row in devices if row.device != "cpu"] or devices
    if not devices:
        return Measure(why_unknown="memory was not recorded: profile with profile_memory=True")
    items = [MeasuredItem(device_name(row.device), value=row.peak_bytes) for row in devices]
    return Measure(max(item.value for item in items), items=_largest(items))


def _compile_time(source: RunSource) -> Measure:
    """Measure the rank that compiles longest; items: its compilations by function."""
    totals = [(total, data) for data in source.data if (total := data.of(compile_time.total_s)) is not None]
    if len(totals) < len(source.sides):
        why = "torch did not record how long compilations took" if source.data else "there is no compile data"
        return Measure(why_unknown=why)
    if damaged := _why_damaged(source):
        return Measure(why_unknown=damaged)
    total, longest = max(totals, key=lambda item: item[0])
    sums: defaultdict[tuple[str, str, str, int | None], int] = defaultdict(int)
    for row in longest.summary.compilations:
        key = (row.function, direction_of(row.direction), row.file, optional_number(row, "line"))
        sums[key] += row.duration_ns
    return Measure(round(1e9 * total), items=_largest([_item(*key, ns) for key, ns in sums.items() if ns]))


def _why_damaged(source: RunSource) -> str:
    """Return why fewer things may be counted than there were, "" where all was read."""
    lost = sum(sum(data.summary.records.unreadable.values()) for data in source.data)
    return f"{plural(lost, 'record')} of the compile data could not be read" if lost else ""


def _count(name: CountName, source: RunSource) -> Measure:
    """Count on all ranks together, so that one that differs shows."""
    missing = len(source.sides) - len(source.data)
    if missing > 0:
        which = f"{missing} of {len(source.sides)} ranks have" if source.data else "there is"
        return Measure(why_unknown=f"{which} no compile data, as is usual for an eager run")
    if damaged := _why_damaged(source):
        return Measure(why_unknown=damaged)
    rows = [counted_rows(data.summary, name) for data in source.data]
    if None in rows:
        return Measure(why_unknown=COUNTS[name].why_not)
    items = [_item(*row) for row in merge_equal_rows(chain.from_iterable(filter(None, rows)))]
    return Measure(sum(item.value for item in items), items=_largest(items))


METRICS: dict[str, GateMetric] = {
    "step": GateMetric("Step time", "time", "needed", _steps),
    "kernel": GateMetric("Kernel time per step", "time", "needed", _kernels, by_name=True),
    "memory": GateMetric("Peak memory", "bytes", "known", _memory_peak),
    "compile": GateMetric("Compile time", "time", "needed", _compile_time),
    **{
        name: GateMetric(kind.many[:1].upper() + kind.many[1:], "count", "exact", partial(_count, name))
        for name, kind in COUNTS.items()
    },
}
LABELS: dict[str, str] = {
    "step_us": "Step time",
    "span_us": "Whole span",
    "gpu_busy_us": "GPU busy",
    "gpu_busy_percent": "GPU busy percentage",
    "gpu_time_us": "GPU time of kernels",
    "launches": "Launches",
    "graph_break_us": "Cost of graph breaks",
    "graph_break_direct_us": "Direct cost of graph breaks",
    "graph_breaks": "Graph breaks",
    "recompiles": "Recompiles",
    "compilations": "Compilations",
    "compile_s": "Compile time",
} | {name: METRICS[name].label for name in COUNTS}
_COUNTED_ABOVE = ("breaks", "recompiles")  # of the counts, under the names of the other panels


def figures_of(side: Side, whole: bool) -> Figures:
    """Return the numbers of a span, in an average step or in the whole of it, and of what was compiled."""
    figures = _run_figures(side.profile, whole) if side.profile else {}
    if side.data is None:
        return figures | dict.fromkeys(("graph_breaks", "recompiles", "compilations", "compile_s"))
    return {
        **figures,
        "graph_breaks": side.data.of(count_sites),
        "recompiles": side.data.of(count_recompiles),
        "compilations": side.data.of(compile_time.count_compilations),
        "compile_s": side.data.of(compile_time.total_s),
        **{name: side.data.of(_count_of, name) for name in COUNTS if name not in _COUNTED_ABOVE},
    }


def _count_of(data: CompileData, name: CountName) -> int | None:
    """Return one of the counts that the gate checks; None where torch did not record it."""
    rows = counted_rows(data.summary, name)
    return None if rows is None else sum(row.number for row in rows)


def _run_figures(profile: Profile, whole: bool) -> Figures:
    busy_us, length_us = _busy_us(profile, whole), None
    if not whole:
        length_us = profile.of(step_time).step_us
    elif span := profile.of(window_breakdown):
        length_us = span.wall_us
    time, launches = None, None
    if len(profile.of(gpu_work).index):
        steps_, sums = profile.of(category_sums, whole=whole)
        ns, count = (sum(column) for column in zip((0, 0), *sums.values()))
        time, launches = us(ns) / steps_, count / steps_
    saved, times = profile.of(saved_us), max(len(profile.of(StepWindows)), 1) if whole else 1
    return {
        "span_us" if whole else "step_us": length_us,
        "gpu_busy_us": busy_us,
        "gpu_busy_percent": 100 * busy_us / length_us if busy_us is not None and length_us else None,
        "gpu_time_us": time,
        "launches": launches,
        "graph_break_us": None if saved is None else saved * times,
        "graph_break_direct_us": profile.of(direct_of_span_us if whole else direct_us),
    }


def _busy_us(profile: Profile, whole: bool) -> float | None:
    """Return how long some GPU was busy, in an average step or in the span."""
    index = profile.of(gpu_work).index
    if not profile.of(has_gpu_records):
        return None
    intervals = busy(profile.trace, index)
    if whole:
        return us(intervals.total_ns)
    steady = profile.of(steady_steps)
    return us(int(covered_ns(intervals, *steady.windows).sum())) / len(steady.rows) if steady else None
