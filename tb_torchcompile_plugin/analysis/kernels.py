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
import numpy.typing as npt

from tb_torchcompile_plugin.analysis.columns import alike, distinct
from tb_torchcompile_plugin.analysis.generated_code import GeneratedCode
from tb_torchcompile_plugin.analysis.gpu_utilization import GpuWork
from tb_torchcompile_plugin.analysis.intervals import Int64s
from tb_torchcompile_plugin.analysis.ownership import Ownership
from tb_torchcompile_plugin.analysis.units import percent, us
from tb_torchcompile_plugin.kernel_names import CATEGORIES, category_of, is_anonymous
from tb_torchcompile_plugin.reader.kineto import Trace

Device = int | Literal["cpu"]

# Categories that the kind of event or inductor's own prefix makes certain.
_CERTAIN = [
    CATEGORIES.index(name)
    for name in CATEGORIES
    if name in ("memcpy", "memset")
    or (name.startswith("triton_") and name not in ("triton_other", "triton_user"))
]
_USERS = CATEGORIES.index("triton_user")


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
    launch: Int64s  # the call that launched it, -1 where the trace does not have it
    op: Int64s  # the host operator around that call, -1 unknown
    backward: npt.NDArray[np.bool_]  # launched by autograd's backward


def launches(
    trace: Trace, work: GpuWork, ownership: Ownership, code: GeneratedCode | None = None
) -> list[Launches]:
    """Every kernel, memcpy and memset with the compilation that launched it, one entry a device.

    code: what inductor generated. It tells whose a kernel is that was launched before the trace begins.
    """
    by_device = [
        _gpu(trace, work.where(work.device == device), ownership, code or GeneratedCode(None))
        for device in np.unique(work.device)
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
    answer = [
        kernel_row(trace, launched, places, ownership) for launched in rows for places in groups(launched)
    ]
    return sorted(answer, key=row_order)


def row_order(row: Kernel) -> tuple[float, str, str, str]:
    """Sorts rows of kernels: most time first."""
    return -row.time_us, row.name, row.compile_id or "", row.graph_key or ""


def row_key(row: Kernel) -> str:
    """What the tab's table of kernels knows a row by."""
    return f"kernels:{row.device},{row.name},{row.compile_id or ''},{row.graph_key or ''}"


def groups(rows: Launches) -> list[Int64s]:
    """The places in `rows` of the launches of each kernel row, in order of time as the trace has them."""
    places = np.arange(len(rows.name))
    return list(alike(places, rows.graph_key, rows.compile_id, rows.category, rows.name))


def kernel_row(trace: Trace, rows: Launches, places: Int64s, ownership: Ownership) -> Kernel:
    """The row of one of `groups`."""
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


def _gpu(trace: Trace, work: GpuWork, ownership: Ownership, code: GeneratedCode) -> Launches:
    call = trace.launch_of()[work.index]
    op = trace.op_of()[work.index]
    launch = np.where(call >= 0, call, op)
    parent = np.where(call >= 0, trace.parent[call], op)
    names = _names(trace, work.index, parent)
    compile_id, graph_key = ownership.compile_ids(launch), ownership.graph_keys(launch)
    _by_definition(trace, names, launch, compile_id, graph_key, ownership, code)
    return Launches(
        device=int(work.device[0]),
        index=work.index,
        name=names,
        category=_categories_of(trace, work, names, launch, code),
        compile_id=compile_id,
        graph_key=graph_key,
        dur=trace.dur[work.index],
        launch=launch,
        op=parent,
        backward=ownership.is_backward(launch),
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
        launch=index,
        op=index,
        backward=ownership.is_backward(index),
    )


def _names(trace: Trace, index: Int64s, parent: Int64s) -> Int64s:
    """The name of each kernel. Inductor's are all `triton_` without `unique_kernel_names`: their launch has it then."""
    names = trace.name[index].astype(np.int64)
    anonymous = [code for code in np.unique(names).tolist() if is_anonymous(trace.names[code])]
    told = [code for code, name in enumerate(trace.names) if name.startswith("triton_")] if anonymous else []
    caller = np.where(parent >= 0, trace.name[parent], -1)
    return np.where(np.isin(names, anonymous) & np.isin(caller, told), caller, names)


def _by_definition(
    trace: Trace,
    names: Int64s,
    launch: Int64s,
    compile_id: Int64s,
    graph_key: Int64s,
    ownership: Ownership,
    code: GeneratedCode,
) -> None:
    """Kernels launched before the trace begins: their graph is the only one that defines such a kernel."""
    for name in np.unique(names[launch < 0]).tolist():
        graph = code.defined_once.get(trace.names[name])
        if graph is not None:
            here = (names == name) & (launch < 0)
            compile_id[here] = ownership.code(graph.compile_id)
            graph_key[here] = ownership.code(graph.graph_key) if graph.graph_key else -1


def _categories_of(trace: Trace, work: GpuWork, names: Int64s, launch: Int64s, code: GeneratedCode) -> Int64s:
    category = np.array([CATEGORIES.index(name) for name in work.categories], np.int64)[work.category]
    renamed = names != trace.name[work.index]
    for name in np.unique(names[renamed]).tolist():
        category[renamed & (names == name)] = CATEGORIES.index(category_of(trace.names[name]))
    return _user_kernels(trace, work.index, launch, category, code.user_kernels)


def _user_kernels(
    trace: Trace, index: Int64s, launch: Int64s, category: Int64s, generated: set[str]
) -> Int64s:
    """A user's own Triton kernel has no name of its own kind: the generated code or one of its launches tells."""
    asked = np.flatnonzero(~np.isin(category, _CERTAIN) & (launch >= 0))
    calls = launch[asked]
    callers = trace.parent[calls]
    caller_names = np.where(callers >= 0, trace.name[callers], -1)
    told, _ = distinct(trace.name[index[asked]], trace.name[calls], caller_names, category[asked])
    users = {name for name in np.unique(trace.name[index]).tolist() if trace.names[name] in generated}
    for kernel, call, caller, code in told.T.tolist():
        caller_name = trace.names[caller] if caller >= 0 else ""
        if _is_users(trace.names[kernel], trace.names[call], caller_name, CATEGORIES[code]):
            users.add(kernel)
    mine = np.isin(trace.name[index], list(users)) & ~np.isin(category, _CERTAIN)
    return np.where(mine, _USERS, category)


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
