"""What was allocated, when, by whom, and what was alive when most was? From `profile_memory`.

The profiler writes one moment for each allocation and each free, with the totals after it. A free belongs to the
last allocation at its address; one without was allocated before recording began. Who allocated is the innermost
operator around the moment that is more than an allocation, and the compilation that owns it.
"""

from __future__ import annotations

import re

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis.columns import distinct
from tb_torchcompile_plugin.analysis.host_tree import HostTree, Mask
from tb_torchcompile_plugin.analysis.intervals import Int64s
from tb_torchcompile_plugin.analysis.kernels import Device
from tb_torchcompile_plugin.analysis.operator_calls import CPU_TYPES
from tb_torchcompile_plugin.analysis.profile import Profile
from tb_torchcompile_plugin.analysis.units import us
from tb_torchcompile_plugin.reader.kineto import Trace

_POINTS = 600  # stretches of time that a curve is drawn in, each with its extremes
_TOLD = 2000  # allocations that leave, the largest

# Operators that only allocate: whoever called them wanted the memory.
_ALLOCATORS = re.compile(
    r"aten::((new_)?(empty|zeros|ones|full)(_like|_strided|_permuted)?|resize_|to|_to_copy|clone)"
)


class Curve(msgspec.Struct, frozen=True):
    """Bytes after each moment that is told; every largest and smallest value of the run is among them."""

    time_us: list[float]  # from the span's first event
    allocated_bytes: list[int]
    reserved_bytes: list[int] | None  # of the caching allocator; None on the CPU, which has none


class MemoryUse(msgspec.Struct, frozen=True):
    """One device. `before_bytes`: what of the peak was allocated before recording began."""

    device: Device
    curve: Curve
    peak_bytes: int
    peak_us: float
    peak_reserved_bytes: int | None
    before_bytes: int
    first_bytes: int
    last_bytes: int
    allocations: int
    allocated_bytes: int
    freed_bytes: int


class MemoryOwner(msgspec.Struct, frozen=True):
    """What one operator, called by one compilation or eager, allocated on one device."""

    device: Device
    operator: str | None
    compile_id: str | None
    graph_key: str | None
    allocations: int
    allocated_bytes: int
    largest_bytes: int
    peak_bytes: int  # alive at the device's peak
    kept_bytes: int  # not freed until recording ended


class Allocation(msgspec.Struct, frozen=True):
    """`lifetime_us` is None where it was still alive when recording ended."""

    device: Device
    start_us: float
    size_bytes: int
    lifetime_us: float | None
    operator: str | None
    compile_id: str | None
    step: str | None
    at_peak: bool


class Memory(msgspec.Struct, frozen=True):
    """Without `profile_memory`, and where nothing was allocated, `devices` is empty: `recorded` tells which.

    `allocations` are the largest of `all_allocations`.
    """

    recorded: bool
    devices: list[MemoryUse]
    owners: list[MemoryOwner]
    allocations: list[Allocation]
    all_allocations: int


class _Moments(msgspec.Struct, frozen=True):
    """The memory events of a trace as columns by time. device: -1 for the CPU."""

    ts: Int64s
    device: Int64s
    size: Int64s  # negative: freed
    freed_by: Int64s  # of an allocation its free, -1: none
    operator: Int64s  # code of a name, -1 unknown
    owner: Int64s  # code of a compile id
    graph: Int64s  # code of a graph key


def memory(profile: Profile) -> Memory:
    """The memory of every device that was used, most first."""
    trace = profile.trace
    events = _moments(profile)
    recorded = bool(trace.metadata.get("profile_memory")) or len(events.ts) > 0
    peak = np.zeros(len(events.ts), bool)
    devices = [_device(trace, events, device, peak) for device in np.unique(events.device).tolist()]
    allocated = np.flatnonzero(events.size > 0)
    return Memory(
        recorded=recorded,
        devices=sorted(devices, key=lambda row: -row.peak_bytes),
        owners=_owners(profile, events, allocated, peak),
        allocations=_allocations(profile, events, allocated, peak),
        all_allocations=len(allocated),
    )


def _moments(profile: Profile) -> _Moments:
    trace, tree, told = profile.trace, profile.host_tree, profile.trace.memory()
    device = np.where(np.isin(told["device_type"], CPU_TYPES), -1, told["device_id"])
    inside = _innermost(trace, tree, told["ts"], told["track"])
    operator = tree.nearest(inside, _wanting(trace, tree))
    rows = np.where(inside >= 0, tree.index[inside], -1) if len(tree.index) else inside
    return _Moments(
        ts=np.asarray(told["ts"]),
        device=device,
        size=np.asarray(told["memory_bytes"]),
        freed_by=_frees(device, told["address"], told["memory_bytes"]),
        operator=np.where(operator >= 0, trace.name[tree.index[operator]], -1)
        if len(tree.index)
        else operator,
        owner=profile.ownership.compile_ids(rows),
        graph=profile.ownership.graph_keys(rows),
    )


def _innermost(trace: Trace, tree: HostTree, ts: Int64s, track: Int64s) -> Int64s:
    """The position of the innermost host slice around each moment of a track, -1 where there is none."""
    found = np.full(len(ts), -1, np.int64)
    start = trace.ts[tree.index]
    end = start + trace.dur[tree.index]
    bounds = np.searchsorted(tree.index, trace.track_bounds)
    for code in np.unique(track):
        here = np.flatnonzero(track == code)
        first = int(bounds[code])
        place = first + np.searchsorted(start[first : int(bounds[code + 1])], ts[here], side="right") - 1
        found[here] = np.where(place >= first, place, -1)
    while len(outside := np.flatnonzero((found >= 0) & (np.append(end, 0)[found] < ts))):
        found[outside] = tree.parent[found[outside]]
    return found


def _wanting(trace: Trace, tree: HostTree) -> Mask:
    """Operators that did not just allocate for their caller, and calls of compiled graphs."""
    cats = np.array([cat in ("cpu_op", "user_annotation") for cat in trace.cats], bool)
    wanting = [
        not _ALLOCATORS.fullmatch(name) and (not name.startswith("ProfilerStep#")) for name in trace.names
    ]
    found: Mask = cats[trace.cat[tree.index]] & np.array(wanting, bool)[trace.name[tree.index]]
    return found


def _frees(device: Int64s, address: Int64s, size: Int64s) -> Int64s:
    """For each allocation the next event at its address, if that frees it; else -1."""
    order = np.lexsort((address, device))  # stable: by time at each address
    now, after = order[:-1], order[1:]
    pair = (
        (device[now] == device[after])
        & (address[now] == address[after])
        & (size[now] > 0)
        & (size[after] < 0)
    )
    found = np.full(len(size), -1, np.int64)
    found[now[pair]] = after[pair]
    return found


def _device(trace: Trace, events: _Moments, device: int, peak: Mask) -> MemoryUse:
    """One device; marks in `peak` what was alive when most was."""
    told, here = trace.memory(), np.flatnonzero(events.device == device)
    size = events.size[here]
    total = told["total_allocated"][here]
    if (total < 0).any():
        total = np.cumsum(size)
    reserved = told["total_reserved"][here]
    top = int(np.argmax(total))
    alive = here[: top + 1]
    alive = alive[
        (events.size[alive] > 0) & ((events.freed_by[alive] < 0) | (events.freed_by[alive] > here[top]))
    ]
    peak[alive] = True
    first = trace.window()[0]
    has_reserved = bool((reserved > 0).any())
    return MemoryUse(
        device="cpu" if device < 0 else device,
        curve=_curve(events.ts[here] - first, total, reserved if has_reserved else None),
        peak_bytes=int(total[top]),
        peak_us=us(events.ts[here[top]] - first),
        peak_reserved_bytes=int(reserved.max()) if has_reserved else None,
        before_bytes=int(total[top] - events.size[alive].sum()),
        first_bytes=int(total[0] - size[0]),
        last_bytes=int(total[-1]),
        allocations=int((size > 0).sum()),
        allocated_bytes=int(size[size > 0].sum()),
        freed_bytes=-int(size[size < 0].sum()),
    )


def _curve(ts: Int64s, total: Int64s, reserved: Int64s | None) -> Curve:
    kept = _extremes(ts, [total] if reserved is None else [total, reserved])
    return Curve(
        [us(at) for at in ts[kept].tolist()],
        total[kept].tolist(),
        None if reserved is None else reserved[kept].tolist(),
    )


def _extremes(ts: Int64s, curves: list[Int64s]) -> Int64s:
    """Which moments to draw: of each of `_POINTS` stretches of time the first, the last, and each curve's extremes."""
    if len(ts) <= 4 * _POINTS:
        return np.arange(len(ts))
    edges = np.linspace(int(ts[0]), int(ts[-1]) + 1, _POINTS + 1).astype(np.int64)
    bounds = np.unique(np.searchsorted(ts, edges))
    kept = [bounds[:-1], bounds[1:] - 1]
    for curve in curves:
        for find in (np.argmin, np.argmax):
            pieces = zip(bounds[:-1].tolist(), bounds[1:].tolist())
            kept.append(np.array([first + find(curve[first:last]) for first, last in pieces], np.int64))
    return np.unique(np.concatenate(kept))


def _owners(profile: Profile, events: _Moments, allocated: Int64s, peak: Mask) -> list[MemoryOwner]:
    columns = (events.device, events.operator, events.owner, events.graph)
    keys, which = distinct(*(column[allocated] for column in columns))
    size = events.size[allocated]
    sums = np.zeros((4, keys.shape[1]), np.int64)
    largest = np.zeros(keys.shape[1], np.int64)
    parts = (
        np.ones_like(size),
        size,
        np.where(peak[allocated], size, 0),
        np.where(events.freed_by[allocated] < 0, size, 0),
    )
    for total, part in zip(sums, parts):
        np.add.at(total, which.reshape(-1), part)
    np.maximum.at(largest, which.reshape(-1), size)
    rows = [
        MemoryOwner(
            device="cpu" if device < 0 else device,
            operator=_name(profile.trace.names, operator),
            compile_id=profile.ownership.name(owner),
            graph_key=profile.ownership.name(graph),
            allocations=count,
            allocated_bytes=summed,
            largest_bytes=most,
            peak_bytes=at_peak,
            kept_bytes=left,
        )
        for (device, operator, owner, graph), (count, summed, at_peak, left), most in zip(
            keys.T.tolist(), sums.T.tolist(), largest.tolist()
        )
    ]
    return sorted(rows, key=lambda row: (-row.peak_bytes, -row.allocated_bytes, row.operator or ""))


def _name(names: list[str], code: int) -> str | None:
    return names[code] if code >= 0 else None


def _allocations(profile: Profile, events: _Moments, allocated: Int64s, peak: Mask) -> list[Allocation]:
    trace = profile.trace
    told = allocated[np.argsort(-events.size[allocated], kind="stable")[:_TOLD]]
    first = trace.window()[0]
    steps = profile.step_slices
    at = np.searchsorted(trace.ts[steps], events.ts[told], side="right") - 1
    inside = (at >= 0) & (events.ts[told] < np.append(trace.ts[steps] + trace.dur[steps], 0)[at])
    names = [trace.names[code] for code in trace.name[steps]]
    return [
        Allocation(
            device="cpu" if events.device[row] < 0 else int(events.device[row]),
            start_us=us(events.ts[row] - first),
            size_bytes=int(events.size[row]),
            lifetime_us=us(events.ts[free] - events.ts[row]) if (free := events.freed_by[row]) >= 0 else None,
            operator=_name(trace.names, int(events.operator[row])),
            compile_id=profile.ownership.name(int(events.owner[row])),
            step=names[step] if known else None,
            at_peak=bool(peak[row]),
        )
        for row, step, known in zip(told.tolist(), at.tolist(), inside.tolist())
    ]
