"""What was allocated and freed, when, and by whom? From the memory events of `profile_memory`.

The profiler writes one moment for each allocation and each free, with the totals after it. A free belongs to the last
allocation at its address; one without was allocated before recording began. Who allocated is the innermost operator
around the moment that is more than an allocation, and the compilation that owns it.
"""

from __future__ import annotations

import msgspec
import numpy as np

from tb_torchcompile_plugin.profile.columns import Mask, mask_of, values_at
from tb_torchcompile_plugin.profile.compiled.ownership import Ownership
from tb_torchcompile_plugin.profile.host.host_tree import HostTree, bounds_in, host_tree
from tb_torchcompile_plugin.profile.host.operator_calls import CPU_TYPES
from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.trace.kineto import Trace
from tb_torchcompile_plugin.reader.trace.nest import first_ancestor_where
from tb_torchcompile_plugin.torch_names.operators import only_allocates
from tb_torchcompile_plugin.torch_names.slices import CALL_CATS, is_step


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
