"""Which kernels ran, of which category, and how long? One row for each kernel and graph."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2s
from typing import NamedTuple

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis.runtime.kernel_code import LaunchConfig
from tb_torchcompile_plugin.analysis.runtime.roofline import Achieved
from tb_torchcompile_plugin.compile_log.record import Direction
from tb_torchcompile_plugin.generated_code.artifacts import Frame
from tb_torchcompile_plugin.generated_code.generated_code import LinesFrom
from tb_torchcompile_plugin.profile.columns import Mask
from tb_torchcompile_plugin.profile.compiled.ownership import Ownership
from tb_torchcompile_plugin.profile.gpu.launches import Device, Launches, kernel_launches
from tb_torchcompile_plugin.profile.gpu_work import gpu_work
from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import StepWindows, step_ns
from tb_torchcompile_plugin.profile.units import share_percent, us
from tb_torchcompile_plugin.reader.trace.kineto import Trace
from tb_torchcompile_plugin.torch_names.kernels import CATEGORIES, Category, is_anonymous, is_triton

_NAME, _GRAPH = 100, 12  # characters of a key


class KernelCategory(msgspec.Struct, frozen=True):
    """`gpu_time_percent` is of the device's summed GPU event time, None on the CPU; wall is the whole span."""

    device: Device
    category: Category
    launches: int
    distinct_kernels: int
    time_us: float
    gpu_time_percent: float | None
    wall_time_percent: float | None


class Kernel(msgspec.Struct, frozen=True):
    """One row per (device, name, compile id, graph key), with all that is known of it. `key` tells it from the others.

    share_percent: of the device's summed time; wall_percent: of the span, where work side by side counts twice.
    lines: the user's lines that it computes, `source_lines` the same as "file:line"; lines_from: None where there are
    none. aten_ops: fused operators. output_code_file, artifact, code_line: where inductor defined it. config: the
    launch configuration that took most time, of `configs`. achieved: see `roofline.Achieved`. alone_us: time of its
    launches in the steps in which nothing else ran on the device. `twice_as_fast_percent`: half of that, of the wall
    time of the steps, or of what they launched if that takes longer: what a step gains at most from a kernel that
    takes half its time.
    """

    key: str
    device: Device
    name: str
    category: Category
    launches: int
    time_us: float
    mean_us: float
    min_us: float
    max_us: float
    share_percent: float
    wall_percent: float | None
    compile_id: str | None
    graph_key: str | None
    direction: Direction | None
    aten_ops: list[str]
    source_lines: list[str]
    lines: list[Frame]
    lines_from: LinesFrom | None
    output_code_file: str | None
    artifact: int | None
    code_line: int | None
    modules: list[str]
    config: LaunchConfig | None
    configs: int
    bandwidth_gb_s: float | None
    bandwidth_percent: float | None
    achieved: Achieved
    alone_us: float | None
    twice_as_fast_percent: float | None


class KernelName(NamedTuple):
    """What tells a row of kernels from the others."""

    device: Device
    name: str
    compile_id: str | None
    graph_key: str | None

    @property
    def key(self) -> str:
        """Short enough for an address: names of templates have a thousand characters."""
        name, graph = brief(self.name), (self.graph_key or "")[:_GRAPH]
        return f"{self.device},{name},{self.compile_id or ''},{graph}"


def brief(name: str) -> str:
    """A name that fits into a key: of a long one its begin, and what tells it from others with the same."""
    return name if len(name) <= _NAME else f"{name[:40]}~{blake2s(name.encode(), digest_size=5).hexdigest()}"


def kernel_categories(profile: Profile) -> list[KernelCategory]:
    """One row per device and category that occurs, most time first."""
    first, last = profile.trace.window()
    answer = [row for launched in profile.of(kernel_launches) for row in _categories(launched, last - first)]
    return sorted(answer, key=lambda row: (str(row.device), -row.time_us))


def distinct_kernels(profile: Profile) -> int:
    """How many there are by device and name: a name has one row for each graph that launches it."""
    return sum(len(np.unique(launched.name)) for launched in profile.of(kernel_launches))


def kernel_name(profile: Profile, rows: Launches, places: Int64s) -> KernelName:
    """Of one of `groups`."""
    ownership, one = profile.of(Ownership), places[0]
    return KernelName(
        rows.device,
        profile.trace.names[rows.name[one]],
        ownership.name(int(rows.compile_id[one])),
        ownership.name(int(rows.graph_key[one])),
    )


def _categories(rows: Launches, wall_ns: int) -> Iterator[KernelCategory]:
    whole = int(rows.dur.sum())
    for code in np.unique(rows.category):
        here = rows.category == code
        time = int(rows.dur[here].sum())
        yield KernelCategory(
            device=rows.device,
            category=CATEGORIES[code],
            launches=int(here.sum()),
            distinct_kernels=len(np.unique(rows.name[here])),
            time_us=us(time),
            gpu_time_percent=None if rows.device == "cpu" else share_percent(time, whole),
            wall_time_percent=share_percent(time, wall_ns),
        )


class UnnamedTriton(NamedTuple):
    """Time of kernels called `triton_`, and the part of it whose launch has a name."""

    all_ns: int
    named_ns: int


def unnamed_triton(profile: Profile) -> UnnamedTriton:
    """What torch was told not to name."""
    codes = [code for code, name in enumerate(profile.trace.names) if is_anonymous(name)]
    unnamed = named = 0
    for rows in profile.of(kernel_launches):
        mine = np.isin(profile.trace.name[rows.index], codes)
        unnamed += int(rows.dur[mine].sum())
        named += int(rows.dur[mine & ~np.isin(rows.name, codes)].sum())
    return UnnamedTriton(unnamed, named)


# Kernels and steps: what each category takes of each step, and what a step could gain from a faster kernel.


class StepCategory(msgspec.Struct, frozen=True):
    """A category's events that a step launched, whenever they ran. `gpu_time_percent`: of the summed time of all GPU
    events that it launched, None on the CPU; `wall_time_percent`: of the step, by the clock that sets the pace."""

    step: str
    device: Device
    category: Category
    launches: int
    time_us: float
    gpu_time_percent: float | None
    wall_time_percent: float | None


def step_categories(profile: Profile) -> list[StepCategory]:
    """One row a step, device and category that it launched; steps in order of time, most time first."""
    steps, length = profile.of(StepWindows), profile.of(step_ns)
    launched = [
        (rows.device, *_by_step(rows, steps.launching(profile.trace, rows.launch), len(steps)))
        for rows in profile.of(kernel_launches)
    ]
    return [
        row
        for step, name in enumerate(steps.names)
        for device, time, count in launched
        for row in _step_categories(name, device, time[step], count[step], int(length[step]))
    ]


def _by_step(rows: Launches, step: Int64s, steps: int) -> tuple[Int64s, Int64s]:
    """Time (ns) and number of the launches of each step (row) and category (column)."""
    time, count = np.zeros((2, steps, len(CATEGORIES)), np.int64)
    mine = step >= 0
    np.add.at(time, (step[mine], rows.category[mine]), rows.dur[mine])
    np.add.at(count, (step[mine], rows.category[mine]), 1)
    return time, count


def _step_categories(
    name: str, device: Device, time: Int64s, count: Int64s, length: int
) -> Iterator[StepCategory]:
    """Most time first."""
    for code in sorted(np.flatnonzero(count).tolist(), key=lambda code: -time[code]):
        yield StepCategory(
            step=name,
            device=device,
            category=CATEGORIES[code],
            launches=int(count[code]),
            time_us=us(time[code]),
            gpu_time_percent=None if device == "cpu" else share_percent(time[code], time.sum()),
            wall_time_percent=share_percent(time[code], length),
        )


def alone_ns(trace: Trace, rows: Launches, groups: list[Int64s], counted: Mask) -> Int64s:
    """For each group of launches: the time in which it and nothing else ran on the device, of launches that count.

    The device's busy time without them is shorter by exactly this.
    """
    nobody = len(groups)
    owner = np.full(len(rows.index), nobody, np.int64)
    for number, places in enumerate(groups):
        owner[places] = number
    owner[~counted] = nobody
    starts = trace.ts[rows.index]
    times = np.concatenate([starts, starts + rows.dur])
    order = np.argsort(times, kind="stable")
    sign = np.concatenate([np.ones(len(owner), np.int64), -np.ones(len(owner), np.int64)])[order]
    which = np.concatenate([owner, owner])[order]
    running, total, squares = (np.cumsum(sign * weight)[:-1] for weight in (1, which, which * which))
    length = np.diff(times[order])
    # Numbers are all the same where their squares sum to no more than their mean asks for.
    single = (running > 0) & (running * squares == total * total) & (length > 0)
    return np.bincount(total[single] // running[single], length[single], nobody + 1)[:-1].astype(np.int64)


def launched_in(profile: Profile, rows: Launches) -> Mask:
    """Which launches were made inside a step; all of them where there are no steps."""
    steps = profile.of(StepWindows)
    if not len(steps):
        return np.ones(len(rows.index), bool)
    return steps.launching(profile.trace, rows.launch) >= 0


# Is it worth to look at kernels one by one?


# Generated code that mostly moves data: templates multiply matrices.
MOVERS = tuple(name for name in CATEGORIES if is_triton(name) and name != "triton_template")
_CODES = [CATEGORIES.index(name) for name in MOVERS]


def one_dominates(profile: Profile, share_percent: float) -> bool:
    """Whether one kernel that mostly moves data takes such a share of the summed GPU event time."""
    whole = int(profile.trace.dur[profile.of(gpu_work).index].sum())
    for rows in profile.of(kernel_launches):
        mine = np.isin(rows.category, _CODES)
        if 100 * np.bincount(rows.name[mine], rows.dur[mine], 1).max() >= share_percent * max(whole, 1):
            return True
    return False
