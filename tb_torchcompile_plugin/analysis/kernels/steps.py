"""Kernels and steps: what each category takes of each step, and what a step could gain from a faster kernel."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np
import numpy.typing as npt

from tb_torchcompile_plugin.profile.gpu.launches import Device, Launches, kernel_launches
from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import StepWindows, step_slices
from tb_torchcompile_plugin.profile.units import percent, us
from tb_torchcompile_plugin.reader.trace.kineto import Trace
from tb_torchcompile_plugin.torch_names.kernels import CATEGORIES, Category

Bools = npt.NDArray[np.bool_]


class StepCategory(msgspec.Struct, frozen=True):
    """What of a category's events ran inside the window of a step. `gpu_time_percent`: of the summed time of all GPU
    events there, None on the CPU; `launches` are the events that began there."""

    step: str
    device: Device
    category: Category
    launches: int
    time_us: float
    gpu_time_percent: float | None
    wall_time_percent: float | None


def step_categories(profile: Profile) -> list[StepCategory]:
    """One row a step, device and category that occurs in it; steps in order of time, most time first."""
    trace = profile.trace
    devices = [(launched, _by_time(trace, launched)) for launched in profile.of(kernel_launches)]
    return [
        row
        for step in profile.of(step_slices).tolist()
        for launched, by_time in devices
        for row in sorted(_categories(trace, launched, by_time, step), key=lambda row: -row.time_us)
    ]


def _by_time(trace: Trace, rows: Launches) -> tuple[Int64s, Int64s, Int64s]:
    """The places of the launches in order of time, when each begins, and when all up to it have ended."""
    order = np.argsort(trace.ts[rows.index], kind="stable")
    begins = trace.ts[rows.index[order]]
    return order, begins, np.maximum.accumulate(begins + rows.dur[order])


def _categories(
    trace: Trace, rows: Launches, by_time: tuple[Int64s, Int64s, Int64s], step: int
) -> Iterator[StepCategory]:
    start = int(trace.ts[step])
    end = start + int(trace.dur[step])
    order, begins, reach = by_time
    near = slice(*np.searchsorted(reach, [start], "right"), *np.searchsorted(begins, [end], "left"))
    here, begins = order[near], begins[near]
    inside = np.minimum(begins + rows.dur[here], end) - np.maximum(begins, start)
    here, begins, inside = here[inside > 0], begins[inside > 0], inside[inside > 0]
    time = np.bincount(rows.category[here], inside, len(CATEGORIES)).astype(np.int64)
    count = np.bincount(rows.category[here[begins >= start]], minlength=len(CATEGORIES))
    for code in np.flatnonzero(time).tolist():
        yield StepCategory(
            step=trace.names[trace.name[step]],
            device=rows.device,
            category=CATEGORIES[code],
            launches=int(count[code]),
            time_us=us(time[code]),
            gpu_time_percent=None if rows.device == "cpu" else percent(time[code], time.sum()),
            wall_time_percent=percent(time[code], end - start),
        )


def alone_ns(trace: Trace, rows: Launches, groups: list[Int64s], counted: Bools) -> Int64s:
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


def launched_in(profile: Profile, rows: Launches) -> Bools:
    """Which launches were made inside a step; all of them where there are no steps."""
    steps = profile.of(StepWindows)
    if not len(steps):
        return np.ones(len(rows.index), bool)
    return (rows.launch >= 0) & (steps.of(profile.trace.ts[rows.launch]) >= 0)
