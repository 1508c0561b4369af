"""Show what was allocated, when, by whom, and what was alive at the peak: of all that was recorded, or of a window."""

from itertools import pairwise
from typing import Annotated, NamedTuple

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis.formatting import (
    column_head,
    device_name,
    duration,
    percent,
    plural,
    significant,
    size,
)
from tb_torchcompile_plugin.profile.columns import (
    Int64s,
    Mask,
    distinct,
    groups_of_equal,
    mask_of,
    sums,
    us,
    values_at,
    within,
)
from tb_torchcompile_plugin.profile.compiled.ownership import Ownership
from tb_torchcompile_plugin.profile.gpu.launches import Device
from tb_torchcompile_plugin.profile.gpu_work import device_properties
from tb_torchcompile_plugin.profile.host.host_tree import (
    CPU_TYPES,
    DEVICE_TYPES,
    HostTree,
    bounds_in,
    host_tree,
)
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import StepWindows
from tb_torchcompile_plugin.reader.trace.kineto import Trace
from tb_torchcompile_plugin.reader.trace.nest import first_ancestor_where
from tb_torchcompile_plugin.torch_names.operators import only_allocates
from tb_torchcompile_plugin.torch_names.slices import CALL_CATS, graph_key, is_step, without_key


class Moments(msgspec.Struct, frozen=True):
    """The memory events of a trace as columns by time."""

    ts: Int64s
    device: Int64s  # -1 for the CPU
    size: Int64s  # negative: freed
    freed_by: Int64s  # of an allocation its free, -1: none
    operator: Int64s  # code of a name, -1 unknown
    owner: Int64s  # code of a compile id
    graph: Int64s  # code of a graph key


def memory_moments(profile: Profile) -> Moments:
    """Return every allocation and free with who asked for it."""
    trace, tree, ownership = profile.trace, profile.of(host_tree), profile.of(Ownership)
    recorded = trace.memory()
    device = np.where(np.isin(recorded["device_type"], CPU_TYPES), -1, recorded["device_id"])
    inside = _innermost(trace, tree, recorded["ts"], recorded["track"])
    # Operators that did not just allocate for their caller, and calls of compiled graphs.
    is_call = mask_of(trace.cats, CALL_CATS.__contains__)[trace.cat[tree.index]]
    wanting = mask_of(trace.names, lambda name: not only_allocates(name) and not is_step(name))
    operator = tree.nearest(inside, is_call & wanting[trace.name[tree.index]])
    rows = values_at(tree.index, inside)
    return Moments(
        ts=np.asarray(recorded["ts"]),
        device=device,
        size=np.asarray(recorded["memory_bytes"]),
        freed_by=_frees(device, recorded["address"], recorded["memory_bytes"]),
        operator=values_at(trace.name, values_at(tree.index, operator)),
        owner=ownership.compile_ids(rows),
        graph=ownership.graph_keys(rows),
    )


def _innermost(trace: Trace, tree: HostTree, ts: Int64s, track: Int64s) -> Int64s:
    """Return the position of the innermost host slice around each moment of a track, -1 where there is none."""
    row = np.full(len(ts), -1, np.int64)
    bounds = bounds_in(tree.index, trace)
    for code in np.unique(track):
        moments = np.flatnonzero(track == code)
        first, last = bounds[code : code + 2].tolist()
        start = trace.ts[tree.index[first:last]]
        position = first + np.searchsorted(start, ts[moments], side="right") - 1
        row[moments] = np.where(position >= first, position, -1)

    def holds(moments: Int64s, position: Int64s) -> Mask:
        slices = tree.index[position]
        return np.asarray(trace.ts[slices] + trace.dur[slices] >= ts[moments])

    return first_ancestor_where(tree.parent, row, holds)


def _frees(device: Int64s, address: Int64s, size: Int64s) -> Int64s:
    """Return for each allocation the next event at its address if that frees it; otherwise -1."""
    order = np.lexsort((address, device))  # stable: by time at each address
    now, after = order[:-1], order[1:]
    pair = (device[now] == device[after]) & (address[now] == address[after])
    pair &= (size[now] > 0) & (size[after] < 0)
    freed_by = np.full(len(size), -1, np.int64)
    freed_by[now[pair]] = after[pair]
    return freed_by


_MAX_POINTS = 600  # windows that a curve is drawn in, each with its extremes
_MAX_ALLOCATIONS = 2000  # listed, the largest


class Curve(msgspec.Struct, frozen=True):
    """Bytes after each moment that is drawn; the largest and smallest values are among them."""

    time_us: list[float]  # from the span's first event
    allocated_bytes: list[int]
    reserved_bytes: list[int] | None  # of the caching allocator; None on the CPU, which has none


class MemoryUse(msgspec.Struct, frozen=True):
    """The memory of one device."""

    device: Device
    note: str  # what was allocated and freed
    capacity_bytes: int | None  # all that the device has; None where the trace does not record it
    curve: Curve
    peak_bytes: int
    peak_us: float
    peak_reserved_bytes: int | None
    before_bytes: int  # part of the peak that was allocated before recording began
    first_bytes: int
    allocations: int
    allocated_bytes: int
    freed_bytes: int


class MemoryOwner(msgspec.Struct, frozen=True):
    """What one operator, called by one compilation or eager, allocated on one device."""

    operator: Annotated[str | None, column_head(grow=True)]
    device: Device
    compile_id: str | None
    graph_key: Annotated[str | None, column_head(hidden=True)]
    # alive at the device's peak
    peak_bytes: Annotated[int, column_head("At the peak", bar=True, total=True)]
    allocated_bytes: Annotated[int, column_head(total=True)]
    largest_bytes: int
    kept_bytes: Annotated[int, column_head(total=True)]  # not freed until the end of the window
    allocations: Annotated[int, column_head(total=True)]


class Allocation(msgspec.Struct, frozen=True):
    """One allocation."""

    operator: Annotated[str | None, column_head(grow=True)]
    device: Device
    compile_id: str | None
    size_bytes: Annotated[int, column_head(bar=True)]
    start_us: float
    lifetime_us: float | None  # None where no end was recorded
    step: str | None
    at_peak: bool


class Memory(msgspec.Struct, frozen=True):
    """The memory of all devices; empty where nothing was allocated."""

    headline: str  # what the first device peaked at
    recorded: bool  # whether `profile_memory` was on
    devices: list[MemoryUse]
    owners: Annotated[list[MemoryOwner], column_head("Owners of memory")]
    allocations: list[Allocation]  # the largest of `all_allocations`
    all_allocations: int


class HeldMemory(NamedTuple):
    """How much of a device's memory torch's allocator holds at most, in bytes: that fails to grow."""

    device: int
    held: int | None  # None where no memory was recorded
    capacity: int | None  # None where the header has none
    share_percent: float | None  # of the device's memory

    def sentence(self) -> str:
        """Return "Torch uses 12 GB of GPU 0, 8.0 % of its memory"."""
        if self.held is None:
            return f"GPU {self.device} has {_gb(self.capacity)}; profile_memory=True records how much of it is used"
        of_it = "" if self.share_percent is None else f", {percent(self.share_percent)} of its memory"
        return f"torch uses {_gb(self.held)} of GPU {self.device}{of_it}"


def memory(profile: Profile, window: tuple[int, int] | None = None) -> Memory:
    """Return the memory of all devices that were used, most first; window: [start, end) ns from the first event."""
    trace, events = profile.trace, profile.of(memory_moments)
    recorded = bool(trace.metadata.get("profile_memory")) or len(events.ts) > 0
    inside = np.ones(len(events.ts), bool)
    if window is not None:
        begin, end = (trace.window()[0] + edge for edge in window)
        inside = (events.ts >= begin) & (events.ts < end)
    at_peak = np.zeros(len(events.ts), bool)
    used = np.unique(events.device[inside]).tolist()
    devices = [_device(trace, events, device, inside, at_peak) for device in used]
    devices.sort(key=lambda row: -row.peak_bytes)
    owners = _owners(profile, events, inside, at_peak)
    allocated = np.flatnonzero((events.size > 0) & inside)
    return Memory(
        headline=_headline(recorded, devices, owners, "span" if window is None else "interval"),
        recorded=recorded,
        devices=devices,
        owners=owners,
        allocations=_allocations(profile, events, allocated, at_peak),
        all_allocations=len(allocated),
    )


def _headline(recorded: bool, devices: list[MemoryUse], owners: list[MemoryOwner], where: str) -> str:
    """Return "GPU 0 peaked at 95.0 MB of 150 GB, 8.07 ms into the span. … aten::addmm allocated most …"."""
    if not recorded:
        return "Memory was not recorded."
    if not devices:
        return f"Nothing was allocated in this {where}."
    most = devices[0]
    of = f" of {size(most.capacity_bytes)}" if most.capacity_bytes else ""
    text = f"{device_name(most.device)} peaked at {size(most.peak_bytes)}{of}, {duration(most.peak_us)} into the span"
    if most.before_bytes > 0:
        text += f". {size(most.before_bytes)} of that was allocated before the recording began"
    owner = next((row for row in owners if row.device == most.device and row.operator), None)
    if owner and owner.operator and owner.peak_bytes:
        key = graph_key(owner.operator)
        operator = f"Compiled graph {key[:8]}…" if key else without_key(owner.operator)
        rest = "the rest" if most.before_bytes > 0 else "it"
        text += f". {operator} allocated most of {rest}: {size(owner.peak_bytes)}"
    return f"{text}."


def _device(trace: Trace, events: Moments, device: int, inside: Mask, at_peak: Mask) -> MemoryUse:
    """Return the memory of one device; mark in `at_peak` what was alive when most was."""
    recorded, every = trace.memory(), np.flatnonzero(events.device == device)
    total = recorded["total_allocated"][every]
    if (total < 0).any():
        total = np.cumsum(events.size[every])
    chosen, total = every[inside[every]], total[inside[every]]
    sizes, reserved = events.size[chosen], recorded["total_reserved"][chosen]
    top = int(np.argmax(total))
    freed_by = events.freed_by[every]
    is_alive = (every <= chosen[top]) & (events.size[every] > 0) & ((freed_by < 0) | (freed_by > chosen[top]))
    alive = every[is_alive]
    at_peak[alive] = True
    time = events.ts[chosen] - trace.window()[0]
    has_reserved = bool((reserved > 0).any())
    counts = {
        "allocations": int((sizes > 0).sum()),
        "allocated_bytes": int(sizes[sizes > 0].sum()),
        "freed_bytes": -int(sizes[sizes < 0].sum()),
    }
    drawn = _extremes(time, [total, reserved] if has_reserved else [total])
    reserved_bytes = reserved[drawn].tolist() if has_reserved else None
    return MemoryUse(
        device="cpu" if device < 0 else device,
        capacity_bytes=_capacities(trace).get(device),
        curve=Curve([us(at) for at in time[drawn].tolist()], total[drawn].tolist(), reserved_bytes),
        peak_bytes=int(total[top]),
        peak_us=us(time[top]),
        peak_reserved_bytes=int(reserved.max()) if has_reserved else None,
        before_bytes=int(total[top] - events.size[alive].sum()),
        first_bytes=int(total[0] - sizes[0]),
        **counts,
        note=_note(counts, int(reserved.max())),
    )


def _note(counts: dict[str, int], reserved: int) -> str:
    """Return "37 allocations of 1.20 GB in all, 900 MB freed, 2.00 GB reserved at most (line)."."""
    amounts = f"{plural(counts['allocations'], 'allocation')} of {size(counts['allocated_bytes'])} in all"
    at_most = f", {size(reserved)} reserved at most (line)" if reserved > 0 else ""
    return f"{amounts}, {size(counts['freed_bytes'])} freed{at_most}."


def _capacities(trace: Trace) -> dict[int, int]:
    sizes = ((row.get("id"), row.get("totalGlobalMem")) for row in device_properties(trace))
    return {device: size for device, size in sizes if isinstance(device, int) and isinstance(size, int)}


def _extremes(ts: Int64s, curves: list[Int64s]) -> Int64s:
    """Return which moments to draw: of each of `_MAX_POINTS` windows the first, the last, and each curve's extremes."""
    if len(ts) <= 4 * _MAX_POINTS:
        return np.arange(len(ts))
    edges = np.linspace(int(ts[0]), int(ts[-1]) + 1, _MAX_POINTS + 1).astype(np.int64)
    windows = list(pairwise(np.unique(np.searchsorted(ts, edges)).tolist()))
    kept = {edge for first, last in windows for edge in (first, last - 1)}
    for curve in curves:
        for find in (np.argmin, np.argmax):
            kept |= {first + int(find(curve[first:last])) for first, last in windows}
    return np.array(sorted(kept))


def _owners(profile: Profile, events: Moments, inside: Mask, at_peak: Mask) -> list[MemoryOwner]:
    """Return the owners of what was allocated inside, or was alive at the peak."""
    allocated = np.flatnonzero((events.size > 0) & (inside | at_peak))
    columns = events.device, events.operator, events.owner, events.graph
    keys, owner_of = distinct(*(column[allocated] for column in columns))
    size, freed = events.size[allocated], events.freed_by[allocated]
    new = np.where(inside[allocated], size, 0)
    count = keys.shape[1]
    largest = np.zeros(count, np.int64)
    np.maximum.at(largest, owner_of, new)
    figures = (  # in the order of the fields
        sums(owner_of, np.where(at_peak[allocated], size, 0), count),
        sums(owner_of, new, count),
        largest,
        sums(owner_of, np.where((freed < 0) | ~inside[freed], new, 0), count),
        sums(owner_of, (new > 0).astype(np.int64), count),
    )
    name = profile.of(Ownership).name
    rows = [
        MemoryOwner(
            _name(profile.trace.names, operator),
            "cpu" if device < 0 else device,
            name(owner),
            name(graph),
            *numbers,
        )
        for device, operator, owner, graph, *numbers in np.vstack([keys, *figures]).T.tolist()
    ]
    return sorted(rows, key=lambda row: (-row.peak_bytes, -row.allocated_bytes, row.operator or ""))


def _allocations(profile: Profile, events: Moments, allocated: Int64s, at_peak: Mask) -> list[Allocation]:
    rows = allocated[np.argsort(-events.size[allocated], kind="stable")[:_MAX_ALLOCATIONS]]
    first, steps = profile.trace.window()[0], profile.of(StepWindows)
    return [
        Allocation(
            device="cpu" if events.device[row] < 0 else int(events.device[row]),
            start_us=us(events.ts[row] - first),
            size_bytes=int(events.size[row]),
            lifetime_us=us(events.ts[free] - events.ts[row]) if (free := events.freed_by[row]) >= 0 else None,
            operator=_name(profile.trace.names, int(events.operator[row])),
            compile_id=profile.of(Ownership).name(int(events.owner[row])),
            step=_name(steps.names, step),
            at_peak=bool(at_peak[row]),
        )
        for row, step in zip(rows.tolist(), within(steps.windows, events.ts[rows]).tolist())
    ]


def _name(names: list[str], code: int) -> str | None:
    return names[code] if code >= 0 else None


def held_memory(profile: Profile) -> list[HeldMemory]:
    """Return one row per device whose memory was recorded; where none was, per device in the header."""
    events, capacities = profile.trace.memory(), _capacities(profile.trace)
    most_held: dict[int, int] = {}
    for same in groups_of_equal(
        np.flatnonzero(np.isin(events["device_type"], DEVICE_TYPES)), events["device_id"]
    ):
        sizes = (int(events[column][same].max()) for column in ("total_reserved", "total_allocated"))
        most_held[int(events["device_id"][same[0]])] = max(sizes)
    rows = []
    for device in most_held or sorted(capacities):
        held, capacity = most_held.get(device), capacities.get(device)
        share = 100 * held / capacity if held is not None and capacity else None
        rows.append(HeldMemory(device, held, capacity, share))
    return rows


def _gb(size: int | None) -> str:
    return f"{significant((size or 0) / 1e9)} GB"
