"""Kernels and steps: what each category takes of each step, and what a step could gain from a faster kernel."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np

from tb_torchcompile_plugin.profile.columns import Mask
from tb_torchcompile_plugin.profile.gpu.launches import Device, Launches, kernel_launches
from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import StepWindows, step_ns
from tb_torchcompile_plugin.profile.units import share_percent, us
from tb_torchcompile_plugin.reader.trace.kineto import Trace
from tb_torchcompile_plugin.torch_names.kernels import CATEGORIES, Category


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
        for row in _categories(name, device, time[step], count[step], int(length[step]))
    ]


def _by_step(rows: Launches, step: Int64s, steps: int) -> tuple[Int64s, Int64s]:
    """Time (ns) and number of the launches of each step (row) and category (column)."""
    time, count = np.zeros((2, steps, len(CATEGORIES)), np.int64)
    mine = step >= 0
    np.add.at(time, (step[mine], rows.category[mine]), rows.dur[mine])
    np.add.at(count, (step[mine], rows.category[mine]), 1)
    return time, count


def _categories(
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
