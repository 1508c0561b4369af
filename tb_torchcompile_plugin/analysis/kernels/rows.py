"""Which kernels ran, of which category, and how long? One row for each kernel and graph."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np

from tb_torchcompile_plugin.profile.compiled.ownership import Ownership
from tb_torchcompile_plugin.profile.gpu.launches import Device, Launches, groups, kernel_launches
from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.units import percent, us
from tb_torchcompile_plugin.torch_names.kernels import CATEGORIES, Category


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
    """One row per (device, name, compile id, graph key)."""

    device: Device
    name: str
    category: Category
    launches: int
    time_us: float
    mean_us: float
    min_us: float
    max_us: float
    compile_id: str | None
    graph_key: str | None


def kernel_categories(profile: Profile) -> list[KernelCategory]:
    """One row per device and category that occurs, most time first."""
    first, last = profile.trace.window()
    answer = [row for launched in profile.of(kernel_launches) for row in _categories(launched, last - first)]
    return sorted(answer, key=lambda row: (str(row.device), -row.time_us))


def kernels(profile: Profile) -> list[Kernel]:
    """One row per device, name, compile id and graph key, most time first."""
    answer = [
        kernel_row(profile, launched, places)
        for launched in profile.of(kernel_launches)
        for places in groups(launched)
    ]
    return sorted(answer, key=row_order)


def row_order(row: Kernel) -> tuple[float, str, str, str]:
    """Sorts rows of kernels: most time first."""
    return -row.time_us, row.name, row.compile_id or "", row.graph_key or ""


def row_key(row: Kernel) -> str:
    """What the tab's table of kernels knows a row by."""
    return f"kernels:{row.device},{row.name},{row.compile_id or ''},{row.graph_key or ''}"


def kernel_row(profile: Profile, rows: Launches, places: Int64s) -> Kernel:
    """The row of one of `groups`."""
    trace, ownership = profile.trace, profile.of(Ownership)
    dur, one = rows.dur[places], places[0]
    total = int(dur.sum())
    return Kernel(
        device=rows.device,
        name=trace.names[rows.name[one]],
        category=CATEGORIES[rows.category[one]],
        launches=len(places),
        time_us=us(total),
        mean_us=total / (1000 * len(places)),
        min_us=us(dur.min()),
        max_us=us(dur.max()),
        compile_id=ownership.name(int(rows.compile_id[one])),
        graph_key=ownership.name(int(rows.graph_key[one])),
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
            gpu_time_percent=None if rows.device == "cpu" else percent(time, whole),
            wall_time_percent=percent(time, wall_ns),
        )
