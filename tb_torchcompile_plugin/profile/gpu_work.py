"""How busy was each GPU, and with what?

GPU work is `ph=X` with cat kernel, gpu_memcpy or gpu_memset and nothing else. Busy time is the union of its intervals
on a device, in integer nanoseconds, and compute + exposed communication + exposed memory + idle = span.
"""

from typing import NamedTuple

import msgspec
import numpy as np

from tb_torchcompile_plugin.profile.columns import (
    Int64s,
    Intervals,
    Mask,
    distinct,
    groups_of_equal,
    mask_of,
    union,
)
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.trace.kineto import Trace
from tb_torchcompile_plugin.torch_names.kernels import category_of
from tb_torchcompile_plugin.torch_names.slices import GPU_CATS

_MEMORY = ("memcpy", "memset")


class GpuWork(msgspec.Struct, frozen=True):
    """The GPU events of a trace as columns."""

    index: Int64s  # rows of the trace
    device: Int64s
    category: Int64s  # into `categories`
    categories: tuple[str, ...]

    def where(self, mask: Mask | Int64s) -> "GpuWork":
        """Return the events of a mask, or at indices."""
        return GpuWork(self.index[mask], self.device[mask], self.category[mask], self.categories)

    def of(self, category: str) -> "GpuWork":
        """Return the events of one category."""
        return self.where(mask_of(self.categories, category.__eq__)[self.category])


def gpu_work(profile: Profile) -> GpuWork:
    """Return the GPU events; where args do not name the device, it is the pid."""
    trace = profile.trace
    index = np.setdiff1d(trace.select(cat=GPU_CATS), trace.implausible(), assume_unique=True)
    kinds, kind = distinct(trace.name[index], trace.cat[index])
    names = [category_of(trace.names[name], trace.cats[cat]) for name, cat in kinds.T.tolist()]
    categories = tuple(sorted(set(names)))
    codes = np.array([categories.index(name) for name in names], np.int64)
    device = trace.device[index].astype(np.int64)
    pids = np.array([track.pid if isinstance(track.pid, int) else -1 for track in trace.tracks], np.int64)
    device = np.where(device >= 0, device, pids[trace.track[index]] if len(pids) else -1)
    return GpuWork(index, device, codes[kind], categories)


def busy(trace: Trace, index: Int64s) -> Intervals:
    """Return the time in which any of these slices ran."""
    starts = trace.ts[index]
    return union(starts, starts + trace.dur[index])


def busy_until(stream: Int64s, end: Int64s, free: Int64s | None = None) -> Int64s:
    """Return when the earlier work of its stream had ended, for work in the order of its launches or of time.

    free: by stream when it was done with all before; in the far past by default.
    """
    until = np.full(len(end), np.iinfo(np.int64).min) if free is None else free[stream]
    for rows in groups_of_equal(np.arange(len(end)), stream):
        until[rows[1:]] = np.maximum(np.maximum.accumulate(end[rows])[:-1], until[rows[1:]])
    return until


def device_names(trace: Trace) -> dict[int, str]:
    """Return the names of the devices by the trace's header."""
    names = ((row.get("id"), row.get("name")) for row in device_properties(trace))
    return {device: str(name) for device, name in names if isinstance(device, int) and name is not None}


def device_properties(trace: Trace) -> list[dict[str, object]]:
    """Return what the trace's header holds about each device; [] where it holds nothing."""
    rows = trace.metadata.get("deviceProperties")
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


class Layers(NamedTuple):
    """What one device did; each layer includes those before it. What it adds to the one before is *exposed*."""

    compute: Intervals
    communication: Intervals
    memory: Intervals


def layers(trace: Trace, work: GpuWork) -> Layers:
    """Return the layers of the one device whose `work` this is."""
    memory = mask_of(work.categories, _MEMORY.__contains__)[work.category]
    communication = mask_of(work.categories, "communication".__eq__)[work.category]
    return Layers(
        busy(trace, work.index[~memory & ~communication]),
        busy(trace, work.index[~memory]),
        busy(trace, work.index),
    )
