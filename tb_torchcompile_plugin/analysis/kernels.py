"""Which kernels ran, of which category, and which compilation launched them?

GPU work by device; on the CPU inductor's C++ kernels, where torch was told to name them. The categories of a
device sum to its summed GPU event time exactly, and so do its kernel rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis.gpu_utilization import GpuWork
from tb_torchcompile_plugin.analysis.intervals import Int64s
from tb_torchcompile_plugin.analysis.ownership import Ownership
from tb_torchcompile_plugin.analysis.units import percent, us
from tb_torchcompile_plugin.kernel_names import CATEGORIES, category_of
from tb_torchcompile_plugin.reader.kineto import Trace

Device = int | Literal["cpu"]

# Categories that the kind of event or inductor's own prefix makes certain.
_CERTAIN = [
    CATEGORIES.index(name)
    for name in CATEGORIES
    if name in ("memcpy", "memset")
    or (name.startswith("triton_") and name not in ("triton_other", "triton_user"))
]


class KernelCategory(msgspec.Struct, frozen=True):
    """`gpu_time_percent` is of the device's summed GPU event time, None on the CPU; wall is the whole span."""

    device: Device
    category: str
    launches: int
    distinct_kernels: int
    time_us: float
    gpu_time_percent: float | None
    wall_time_percent: float | None


class Kernel(msgspec.Struct, frozen=True):
    """One row per (device, name, compile id, graph key)."""

    device: Device
    name: str
    category: str
    launches: int
    time_us: float
    mean_us: float
    min_us: float
    max_us: float
    compile_id: str | None
    graph_key: str | None


class Launches(msgspec.Struct, frozen=True):
    """The kernels of one device as parallel columns; categories are codes into `kernel_names.CATEGORIES`."""

    device: Device
    index: Int64s
    name: Int64s
    category: Int64s
    compile_id: Int64s  # code into ownership.names, -1 unknown
    graph_key: Int64s
    dur: Int64s


def launches(trace: Trace, work: GpuWork, ownership: Ownership) -> list[Launches]:
    """Every kernel, memcpy and memset with the compilation that launched it, one entry a device."""
    by_device = [
        _gpu(trace, work.where(work.device == device), ownership) for device in np.unique(work.device)
    ]
    cpu = _cpu(trace, ownership)
    return [*by_device, *([cpu] if len(cpu.index) else [])]


def kernel_categories(trace: Trace, rows: list[Launches]) -> list[KernelCategory]:
    """One row per device and category that occurs, most time first."""
    first, last = trace.window()
    answer = [row for launched in rows for row in _categories(launched, last - first)]
    return sorted(answer, key=lambda row: (str(row.device), -row.time_us))


def kernels(trace: Trace, rows: list[Launches], ownership: Ownership) -> list[Kernel]:
    """One row per device, name, compile id and graph key, most time first."""
    answer = [row for launched in rows for row in _kernels(trace, launched, ownership)]
    return sorted(answer, key=lambda row: (-row.time_us, row.name, row.compile_id or "", row.graph_key or ""))


def _gpu(trace: Trace, work: GpuWork, ownership: Ownership) -> Launches:
    call = trace.launch_of()[work.index]
    launch = np.where(call >= 0, call, trace.op_of()[work.index])
    names = trace.name[work.index].astype(np.int64)
    category = np.array([CATEGORIES.index(name) for name in work.categories], np.int64)[work.category]
    return Launches(
        device=int(work.device[0]),
        index=work.index,
        name=names,
        category=_user_kernels(trace, work.index, launch, category),
        compile_id=ownership.compile_ids(launch),
        graph_key=ownership.graph_keys(launch),
        dur=trace.dur[work.index],
    )


def _cpu(trace: Trace, ownership: Ownership) -> Launches:
    codes = [code for code, name in enumerate(trace.names) if category_of(name, "cpu_op") == "cpp"]
    host = trace.select(cat=("cpu_op",))
    index = host[np.isin(trace.name[host], codes)]
    return Launches(
        device="cpu",
        index=index,
        name=trace.name[index].astype(np.int64),
        category=np.full(len(index), CATEGORIES.index("cpp"), np.int64),
        compile_id=ownership.compile_ids(index),
        graph_key=ownership.graph_keys(index),
        dur=trace.dur[index],
    )


def _user_kernels(trace: Trace, index: Int64s, launch: Int64s, category: Int64s) -> Int64s:
    """A user's own Triton kernel has no name of its own kind: one of its launches tells. See `_is_users`."""
    asked = np.flatnonzero(~np.isin(category, _CERTAIN) & (launch >= 0))
    calls = launch[asked]
    callers = trace.parent[calls]
    caller_names = np.where(callers >= 0, trace.name[callers], -1)
    told = np.stack([trace.name[index[asked]], trace.name[calls], caller_names, category[asked]])
    users = set()
    for kernel, call, caller, code in _distinct(told).T.tolist():
        caller_name = trace.names[caller] if caller >= 0 else ""
        if _is_users(trace.names[kernel], trace.names[call], caller_name, CATEGORIES[code]):
            users.add(kernel)
    mine = np.isin(trace.name[index], list(users)) & ~np.isin(category, _CERTAIN)
    return np.where(mine, CATEGORIES.index("triton_user"), category)


def _distinct(columns: Int64s) -> Int64s:
    """Its distinct columns. `np.unique` takes three times as long."""
    ordered = columns[:, np.lexsort(columns)]
    first = np.ones(ordered.shape[1], bool)
    first[1:] = (ordered[:, 1:] != ordered[:, :-1]).any(axis=0)
    return ordered[:, first]


def _is_users(kernel: str, call: str, caller: str, category: str) -> bool:
    """Compiled: inductor calls it `NAME_0` where the GPU calls it `NAME`. Eager: Triton launches it through the driver,
    under a plain name that no library's naming rule knows."""
    if re.fullmatch(re.escape(kernel) + r"_\d+", caller):
        return True
    if category not in ("other", "triton_other") or not call.startswith("cuLaunchKernel"):
        return False
    plain = re.fullmatch(r"[A-Za-z]\w*", kernel) is not None
    return plain and not (category == "triton_other" and caller == kernel)


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


def _kernels(trace: Trace, rows: Launches, ownership: Ownership) -> Iterator[Kernel]:
    order = np.lexsort((rows.graph_key, rows.compile_id, rows.category, rows.name))
    keys = np.stack([rows.name, rows.category, rows.compile_id, rows.graph_key])[:, order]
    starts = np.flatnonzero(np.concatenate(([True], (keys[:, 1:] != keys[:, :-1]).any(axis=0))))
    dur = rows.dur[order]
    counts = np.diff(np.append(starts, len(dur)))
    totals = np.add.reduceat(dur, starts)
    lows, highs = np.minimum.reduceat(dur, starts), np.maximum.reduceat(dur, starts)
    for start, count, total, low, high in zip(starts, counts, totals, lows, highs):
        name, category, compile_id, graph_key = (int(value) for value in keys[:, start])
        yield Kernel(
            device=rows.device,
            name=trace.names[name],
            category=CATEGORIES[category],
            launches=int(count),
            time_us=us(total),
            mean_us=int(total) / (1000 * int(count)),
            min_us=us(low),
            max_us=us(high),
            compile_id=ownership.name(compile_id),
            graph_key=ownership.name(graph_key),
        )
