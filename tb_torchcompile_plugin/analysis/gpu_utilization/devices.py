"""How busy was each GPU, and with what? By device and by stream."""

from __future__ import annotations

import msgspec
import numpy as np

from tb_torchcompile_plugin.profile.gpu_work import GpuWork, busy, device_names, gpu_work, layers
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.units import share_percent, us
from tb_torchcompile_plugin.reader.trace.kineto import Trace


class Gpu(msgspec.Struct, frozen=True):
    """One device. `span_us` runs from its first GPU event's start to the last one's end."""

    device: int
    name: str | None
    span_us: float
    busy_us: float
    busy_percent: float | None
    idle_us: float
    compute_us: float
    exposed_communication_us: float
    exposed_memory_us: float


class Stream(msgspec.Struct, frozen=True):
    """One stream of a device, None where the trace does not tell; `busy_percent` is of the device's `span_us`."""

    device: int
    stream: int | None
    events: int
    busy_us: float
    busy_percent: float | None


def gpus(profile: Profile) -> list[Gpu]:
    """One row a device, [] without GPU events."""
    trace, work = profile.trace, profile.of(gpu_work)
    names = device_names(trace)
    return [
        _row(trace, work.where(work.device == device), int(device), names.get(int(device)))
        for device in np.unique(work.device)
    ]


def streams(profile: Profile) -> list[Stream]:
    """One row per stream that did something, by device, busiest first. Streams of one device may overlap."""
    trace, work = profile.trace, profile.of(gpu_work)
    rows = []
    for device in np.unique(work.device):
        index = work.index[work.device == device]
        ends = trace.ts[index] + trace.dur[index]
        span = int(ends.max() - trace.ts[index].min())
        for stream in np.unique(trace.stream[index]):
            mine = index[trace.stream[index] == stream]
            total = busy(trace, mine).total_ns
            known = int(stream) if stream >= 0 else None
            rows.append(Stream(int(device), known, len(mine), us(total), share_percent(total, span)))
    return sorted(rows, key=lambda row: (row.device, -row.busy_us))


def _row(trace: Trace, work: GpuWork, device: int, name: str | None) -> Gpu:
    did = layers(trace, work)
    span = int(did.memory.ends[-1] - did.memory.starts[0])
    compute, compute_or_communication, total = (layer.total_ns for layer in did)
    exposed_communication = compute_or_communication - compute
    exposed_memory = total - compute_or_communication
    idle = span - total
    assert compute + exposed_communication + exposed_memory + idle == span and idle >= 0
    return Gpu(
        device=device,
        name=name,
        span_us=us(span),
        busy_us=us(total),
        busy_percent=share_percent(total, span),
        idle_us=us(idle),
        compute_us=us(compute),
        exposed_communication_us=us(exposed_communication),
        exposed_memory_us=us(exposed_memory),
    )
