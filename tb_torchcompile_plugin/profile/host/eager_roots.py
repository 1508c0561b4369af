"""Which host operators ran eager? Those that start outside of everything that torch.compile made.

Compiled are regions, the lookups before them, backward graphs with the autograd nodes that call them, calls of
packages, and compiling. Of nested eager operators the outermost counts; compiled code that runs inside it is no part
of its time.
"""

from itertools import compress
from typing import NamedTuple

import numpy as np

from tb_torchcompile_plugin.profile import columns
from tb_torchcompile_plugin.profile.columns import Cover, Mask, by_track, host_slices, package_calls, sums
from tb_torchcompile_plugin.profile.compiled.regions import all_calls, marks_graphs, region_calls
from tb_torchcompile_plugin.profile.gpu.launches import gpu_work
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import StepWindows, launching, profiled_time
from tb_torchcompile_plugin.torch_names import slices
from tb_torchcompile_plugin.torch_names.operators import node_name


class Roots(NamedTuple):
    """Outermost eager operators as columns."""

    row: columns.Int64s
    start: columns.Int64s  # ns
    end: columns.Int64s
    host_ns: columns.Int64s  # how much of that is not compiled code
    device_ns: columns.Int64s  # summed time of the GPU events launched in it

    def where(self, mask: Mask) -> "Roots":
        """Return some of them."""
        return Roots(*(column[mask] for column in self))


class EagerRoots:
    """The eager operators of a profile.

    `outside` are outside of compiled regions. `in_regions` are in a region between its graphs: they run where a graph
    breaks and are part of its cost. `running` is when any thread ran one of `outside`, without compiled code in it.
    """

    def __init__(self, profile: Profile) -> None:
        self._trace = trace = profile.trace
        work = profile.of(gpu_work)
        launch = trace.launch_of()[work.index]
        self._launches = np.where(launch >= 0, launch, trace.op_of()[work.index])
        self._gpu_ns = trace.dur[work.index]
        regions = host_slices(trace, slices.is_region)
        # Compiled code, what calls it, and compiling.
        compiling = compress(trace.names, slices.are_compiling(trace.names))
        called = {*compiling, *slices.LOOKUPS, *slices.WRAPPERS}
        parts = host_slices(trace, lambda name: name in called or slices.is_graph(node_name(name)))
        is_compiled, is_op = np.zeros((2, len(trace)), bool)
        is_compiled[regions] = is_compiled[parts] = is_compiled[package_calls(trace)] = True
        is_op[trace.select(cat=slices.OPERATOR)] = is_op[launch[launch >= 0]] = True
        ops = np.flatnonzero(is_op & ~is_compiled)
        compiled, graphs = Cover(trace, np.flatnonzero(is_compiled)), Cover(trace, parts)
        # Regions whose graphs the trace marks: in others nothing separates a graph from what runs next to it.
        marked = marks_graphs(trace)
        marked_regions = [call.index for call in all_calls(profile.of(region_calls)) if marked or call.graphs]
        broken = Cover(trace, np.array(marked_regions, np.int64))
        self.outside, self.running = self._roots(ops[~compiled.holds(ops)], compiled)
        inside = ops[broken.holds(ops)]
        self.in_regions, _ = self._roots(inside[~graphs.holds(inside)], graphs)

    def launched_ns(self, steps: StepWindows) -> int:
        """Return the summed time of all GPU events launched in the steps, or in the span where there are none."""
        is_known = self._launches >= 0
        inside = launching(steps.windows, self._trace, self._launches) >= 0 if len(steps) else is_known
        return int(self._gpu_ns[inside].sum())

    def _roots(self, ops: columns.Int64s, compiled: Cover) -> tuple[Roots, columns.Intervals]:
        """Return the outermost of these operators, and when they ran outside of compiled code."""
        launches = np.flatnonzero((self._launches >= 0) & ~compiled.holds(self._launches))
        tracks = self._trace.track[self._launches[launches]]
        empty = np.zeros(0, np.int64)
        roots, running = [Roots(*[empty] * len(Roots._fields))], [columns.Intervals(empty, empty)]
        for track, rows in by_track(self._trace, ops):  # rows in order of time
            start = self._trace.ts[rows]
            reach = np.maximum.accumulate(start + self._trace.dur[rows])
            first = np.flatnonzero(np.append(True, start[1:] >= reach[:-1]))
            begin, end = start[first], reach[np.append(first[1:], len(rows)) - 1]
            own = columns.subtract(columns.union(begin, end), compiled.on(track))
            launched = launches[tracks == track]
            root = columns.within(columns.Intervals(begin, end), self._trace.ts[self._launches[launched]])
            device = sums(root, self._gpu_ns[launched], len(first))
            roots.append(Roots(rows[first], begin, end, columns.covered_ns(own, begin, end), device))
            running.append(own)
        return Roots(*map(np.concatenate, zip(*roots))), columns.joined(*running)


def lookups_in_vain(profile: Profile) -> int:
    """Return how often dynamo looked a frame up in its cache and no compiled region followed: torch has given it up.

    0 where something was compiled meanwhile, for that follows a lookup, too, and without marked steps, as outside of
    them frames are called for the first time.
    """
    trace, steps = profile.trace, profile.of(profiled_time)
    if not len(profile.of(StepWindows)) or len(host_slices(trace, slices.is_compilation)):
        return 0
    calls = (host_slices(trace, named) for named in (slices.LOOKUPS.__contains__, slices.is_region))
    lookups, regions = (int((columns.within(steps, trace.ts[rows]) >= 0).sum()) for rows in calls)
    return max(lookups - regions, 0)
