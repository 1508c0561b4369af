"""How busy was each GPU, and with what?

GPU work is `ph=X` with cat kernel, gpu_memcpy or gpu_memset and nothing else. Busy time is the union of its
intervals on a device, in integer nanoseconds, and compute + exposed communication + exposed memory + idle = span.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from tb_torchcompile_plugin.profile.columns import distinct, mask_of
from tb_torchcompile_plugin.profile.intervals import Int64s, Intervals, union
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.trace.kineto import Trace
from tb_torchcompile_plugin.torch_names.kernels import category_of
from tb_torchcompile_plugin.torch_names.slices import GPU_CATS

_MEMORY = ("memcpy", "memset")


class GpuWork(msgspec.Struct, frozen=True):
    """The GPU events of a trace: indices into its slices, with device and category code of each."""

    index: Int64s
    device: Int64s
    category: Int64s  # into `categories`
    categories: tuple[str, ...]

    def where(self, mask: npt.NDArray[np.bool_] | Int64s) -> GpuWork:
        """mask: or places."""
        return GpuWork(self.index[mask], self.device[mask], self.category[mask], self.categories)

    def of(self, category: str) -> GpuWork:
        """Those of one category."""
        return self.where(np.array([name == category for name in self.categories] or [False])[self.category])


def gpu_work(profile: Profile) -> GpuWork:
    """The GPU events with their categories by name; a device that args do not tell is the pid."""
    trace = profile.trace
    index = trace.select(cat=GPU_CATS)
    kinds, place = distinct(trace.name[index], trace.cat[index])
    names = [category_of(trace.names[name], trace.cats[cat]) for name, cat in kinds.T.tolist()]
    categories = tuple(sorted(set(names)))
    codes = np.array([categories.index(name) for name in names], np.int64)
    return GpuWork(index, _devices(trace, index), codes[place], categories)


def _devices(trace: Trace, index: Int64s) -> Int64s:
    device = trace.device[index].astype(np.int64)
    pids = np.array([track.pid if isinstance(track.pid, int) else -1 for track in trace.tracks], np.int64)
    return np.where(device >= 0, device, pids[trace.track[index]] if len(pids) else -1)


def busy(trace: Trace, index: Int64s) -> Intervals:
    """The time in which any of these slices ran."""
    starts = trace.ts[index]
    return union(starts, starts + trace.dur[index])


def device_names(trace: Trace) -> dict[int, str]:
    """The names of the devices, as the trace's header tells them."""
    names = device_property(trace, "name")
    return {device: str(name) for device, name in names.items() if name is not None}


def device_property(trace: Trace, name: str) -> dict[int, object]:
    """One property by device; None where the header does not tell it."""
    values = ((row.get("id"), row.get(name)) for row in device_properties(trace))
    return {device: value for device, value in values if isinstance(device, int)}


def device_properties(trace: Trace) -> list[dict[str, object]]:
    """What the trace's header tells of each device; [] where it tells nothing."""
    rows = trace.metadata.get("deviceProperties")
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


class Layers(NamedTuple):
    """What one device did, each layer with those before it: compute, then communication, then memory (all of it)."""

    compute: Intervals
    communication: Intervals
    memory: Intervals


def layers(trace: Trace, work: GpuWork) -> Layers:
    """The layers of the one device whose `work` this is. What a layer adds to the one before is *exposed*."""
    memory = mask_of(work.categories, _MEMORY.__contains__)[work.category]
    communication = mask_of(work.categories, "communication".__eq__)[work.category]
    return Layers(
        busy(trace, work.index[~memory & ~communication]),
        busy(trace, work.index[~memory]),
        busy(trace, work.index),
    )
