"""What was allocated, when, by whom, and what was alive when most was? Of all that was recorded, or of a stretch."""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis.formatting import device_name, duration, percent, significant, size
from tb_torchcompile_plugin.profile.columns import distinct, sums
from tb_torchcompile_plugin.profile.compiled.ownership import Ownership
from tb_torchcompile_plugin.profile.gpu.launches import Device
from tb_torchcompile_plugin.profile.gpu_work import device_property
from tb_torchcompile_plugin.profile.host.host_tree import Mask
from tb_torchcompile_plugin.profile.host.memory_moments import Moments, memory_moments
from tb_torchcompile_plugin.profile.host.operator_calls import DEVICE_TYPES
from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import StepWindows
from tb_torchcompile_plugin.profile.units import us
from tb_torchcompile_plugin.reader.trace.kineto import Trace
from tb_torchcompile_plugin.torch_names.slices import graph_key, without_key

_POINTS = 600  # stretches of time that a curve is drawn in, each with its extremes
_TOLD = 2000  # allocations that leave, the largest


class Curve(msgspec.Struct, frozen=True):
    """Bytes after each moment that is told; every largest and smallest value of the run is among them."""

    time_us: list[float]  # from the span's first event
    allocated_bytes: list[int]
    reserved_bytes: list[int] | None  # of the caching allocator; None on the CPU, which has none


class MemoryUse(msgspec.Struct, frozen=True):
    """One device. `before_bytes`: what of the peak was allocated before recording began. `capacity_bytes`: all that the
    device has, None where the trace does not tell."""

    device: Device
    capacity_bytes: int | None
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
    kept_bytes: int  # not freed until the end of the stretch


class Allocation(msgspec.Struct, frozen=True):
    """`lifetime_us` is None where no end was recorded."""

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

    headline: what the first device peaked at. `allocations` are the largest of `all_allocations`.
    """

    headline: str
    recorded: bool
    devices: list[MemoryUse]
    owners: list[MemoryOwner]
    allocations: list[Allocation]
    all_allocations: int


def memory(profile: Profile, window: tuple[int, int] | None = None) -> Memory:
    """The memory of every device that was used, most first; of all, or of [start, end) ns from the first event."""
    trace, events = profile.trace, profile.of(memory_moments)
    recorded = bool(trace.metadata.get("profile_memory")) or len(events.ts) > 0
    first = trace.window()[0]
    inside = np.ones(len(events.ts), bool)
    if window is not None:
        inside = (events.ts >= first + window[0]) & (events.ts < first + window[1])
    peak = np.zeros(len(events.ts), bool)
    used = np.unique(events.device[inside]).tolist()
    devices = sorted(
        (_device(trace, events, device, inside, peak) for device in used), key=lambda row: -row.peak_bytes
    )
    owners = _owners(profile, events, inside, peak)
    allocated = np.flatnonzero((events.size > 0) & inside)
    return Memory(
        headline=_headline(recorded, devices, owners, window is not None),
        recorded=recorded,
        devices=devices,
        owners=owners,
        allocations=_allocations(profile, events, allocated, peak),
        all_allocations=len(allocated),
    )


def _headline(recorded: bool, devices: list[MemoryUse], owners: list[MemoryOwner], stretch: bool) -> str:
    """ "GPU 0 peaked at 95.0 MB of 150 GB, 8.07 ms into the span; … Most of the rest is of aten::addmm: 7.34 MB." """
    if not recorded:
        return "Memory was not recorded."
    if not devices:
        return f"Nothing was allocated in this {'stretch' if stretch else 'span'}."
    most = devices[0]
    of = f" of {size(most.capacity_bytes)}" if most.capacity_bytes else ""
    said = f"{device_name(most.device)} peaked at {size(most.peak_bytes)}{of}, {duration(most.peak_us)} into the span"
    if most.before_bytes > 0:
        said += f"; {size(most.before_bytes)} of it was there before recording began"
    owner = next((row for row in owners if row.device == most.device and row.operator), None)
    if owner and owner.peak_bytes:
        of = "the rest" if most.before_bytes > 0 else "it"
        said += f". Most of {of} is of {_in_short(owner.operator or '')}: {size(owner.peak_bytes)}"
    return f"{said}."


def _in_short(operator: str) -> str:
    """The hash of a graph says nothing at a glance."""
    key = graph_key(operator)
    return f"compiled graph {key[:8]}…" if key else without_key(operator)


def _device(trace: Trace, events: Moments, device: int, inside: Mask, peak: Mask) -> MemoryUse:
    """One device; marks in `peak` what was alive when most was."""
    recorded, every = trace.memory(), np.flatnonzero(events.device == device)
    total = recorded["total_allocated"][every]
    if (total < 0).any():
        total = np.cumsum(events.size[every])
    here, total = every[inside[every]], total[inside[every]]
    size, reserved = events.size[here], recorded["total_reserved"][here]
    top = int(np.argmax(total))
    alive = every[every <= here[top]]
    alive = alive[
        (events.size[alive] > 0) & ((events.freed_by[alive] < 0) | (events.freed_by[alive] > here[top]))
    ]
    peak[alive] = True
    first = trace.window()[0]
    has_reserved = bool((reserved > 0).any())
    return MemoryUse(
        device="cpu" if device < 0 else device,
        capacity_bytes=capacities(trace).get(device),
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


def capacities(trace: Trace) -> dict[int, int]:
    """The memory of each device, as the trace's header tells it."""
    sizes = device_property(trace, "totalGlobalMem")
    return {device: size for device, size in sizes.items() if isinstance(size, int)}


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


def _owners(profile: Profile, events: Moments, inside: Mask, peak: Mask) -> list[MemoryOwner]:
    """Of what was allocated inside, or was alive at the peak."""
    allocated = np.flatnonzero((events.size > 0) & (inside | peak))
    keys, which = distinct(
        *(column[allocated] for column in (events.device, events.operator, events.owner, events.graph))
    )
    size, freed = events.size[allocated], events.freed_by[allocated]
    new = np.where(inside[allocated], size, 0)
    count = keys.shape[1]
    largest = np.zeros(count, np.int64)
    np.maximum.at(largest, which, new)
    figures = (  # in the order of the fields
        sums(which, (new > 0).astype(np.int64), count),
        sums(which, new, count),
        largest,
        sums(which, np.where(peak[allocated], size, 0), count),
        sums(which, np.where((freed < 0) | ~inside[freed], new, 0), count),
    )
    owned = profile.of(Ownership)
    rows = [
        MemoryOwner(
            "cpu" if device < 0 else device,
            _name(profile.trace.names, operator),
            owned.name(owner),
            owned.name(graph),
            *numbers,
        )
        for (device, operator, owner, graph), numbers in zip(
            keys.T.tolist(), np.stack(figures, axis=1).tolist()
        )
    ]
    return sorted(rows, key=lambda row: (-row.peak_bytes, -row.allocated_bytes, row.operator or ""))


def _name(names: list[str], code: int) -> str | None:
    return names[code] if code >= 0 else None


def _allocations(profile: Profile, events: Moments, allocated: Int64s, peak: Mask) -> list[Allocation]:
    trace = profile.trace
    largest = allocated[np.argsort(-events.size[allocated], kind="stable")[:_TOLD]]
    first = trace.window()[0]
    steps = profile.of(StepWindows)
    return [
        Allocation(
            device="cpu" if events.device[row] < 0 else int(events.device[row]),
            start_us=us(events.ts[row] - first),
            size_bytes=int(events.size[row]),
            lifetime_us=us(events.ts[free] - events.ts[row]) if (free := events.freed_by[row]) >= 0 else None,
            operator=_name(trace.names, int(events.operator[row])),
            compile_id=profile.of(Ownership).name(int(events.owner[row])),
            step=_name(steps.names, step),
            at_peak=bool(peak[row]),
        )
        for row, step in zip(largest.tolist(), steps.of(events.ts[largest]).tolist())
    ]


# How much of each device's memory does torch hold at most? What its allocator keeps counts: that fails to
# grow.


class HeldMemory(NamedTuple):
    """In bytes. held: None where no memory was recorded. capacity: None where the header does not tell."""

    device: int
    held: int | None
    capacity: int | None

    @property
    def share_percent(self) -> float | None:
        return 100 * self.held / self.capacity if self.held is not None and self.capacity else None

    def sentence(self) -> str:
        """ "torch holds 12 GB of GPU 0, 8.0 % of its memory" """
        if self.held is None:
            return f"GPU {self.device} has {_gb(self.capacity)}; profile_memory=True records how much of it is held"
        of_it = "" if self.share_percent is None else f", {percent(self.share_percent)} of its memory"
        return f"torch holds {_gb(self.held)} of GPU {self.device}{of_it}"


def held_memory(profile: Profile) -> list[HeldMemory]:
    """By device, of those whose memory was recorded; where none was, of those that the header tells."""
    events, sizes = profile.trace.memory(), capacities(profile.trace)
    on_gpus = np.isin(events["device_type"], DEVICE_TYPES)
    devices = np.unique(events["device_id"][on_gpus]).tolist()
    if not devices:
        return [HeldMemory(device, None, size) for device, size in sorted(sizes.items())]
    mine = {device: on_gpus & (events["device_id"] == device) for device in devices}
    most = {
        device: max(int(events[column][rows].max()) for column in ("total_reserved", "total_allocated"))
        for device, rows in mine.items()
    }
    return [HeldMemory(device, most[device], sizes.get(device)) for device in devices]


def _gb(size: int | None) -> str:
    return f"{significant((size or 0) / 1e9)} GB"
