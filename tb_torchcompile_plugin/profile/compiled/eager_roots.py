"""Which host operators ran eager? Those that start outside of everything that torch.compile made.

Compiled are regions, the lookups before them, backward graphs with the autograd nodes that call them, calls of
packages, and compiling.
Of nested eager operators the outermost counts; compiled code that runs inside it is no part of its time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from tb_torchcompile_plugin.profile.columns import Cover, Mask, by_track, host_slices, package_calls
from tb_torchcompile_plugin.profile.compiled.regions import RegionCall, every, marks_graphs, region_calls
from tb_torchcompile_plugin.profile.gpu_work import gpu_work
from tb_torchcompile_plugin.profile.intervals import Int64s, Intervals, covered_ns, subtract, union, within
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import StepWindows
from tb_torchcompile_plugin.reader.trace.kineto import Trace
from tb_torchcompile_plugin.torch_names import slices
from tb_torchcompile_plugin.torch_names.operators import node


class Roots(NamedTuple):
    """Outermost eager operators, one entry each: row in the trace, time (ns) from start to end, how much of that is not
    compiled code, and the summed time of the GPU events launched in it."""

    row: Int64s
    start: Int64s
    end: Int64s
    host_ns: Int64s
    device_ns: Int64s

    def where(self, mask: Mask) -> Roots:
        return Roots(*(column[mask] for column in self))


class EagerRoots:
    """`outside`: eager operators outside of compiled regions. `in_regions`: those in a region between its graphs, which
    run where a graph breaks; they are part of its price. `running`: when any thread ran one of `outside`, less the
    time that compiled code took inside it."""

    def __init__(self, profile: Profile) -> None:
        self._trace = trace = profile.trace
        work = profile.of(gpu_work)
        launch = trace.launch_of()[work.index]
        self._launches = np.where(launch >= 0, launch, trace.op_of()[work.index])
        self._gpu_ns = trace.dur[work.index]
        regions, parts = host_slices(trace, slices.is_region), host_slices(trace, _parts_of(trace.names))
        made, ops = np.zeros((2, len(trace)), bool)
        made[regions] = made[parts] = made[package_calls(trace)] = True
        ops[trace.select(cat=slices.OPERATOR)] = ops[launch[launch >= 0]] = True
        ops, made = np.flatnonzero(ops & ~made), np.flatnonzero(made)
        compiled, graphs = Cover(trace, made), Cover(trace, parts)
        broken = Cover(trace, _known_regions(trace, profile.of(region_calls)))
        self.outside, self.running = self._roots(ops[~compiled.holds(ops)], compiled)
        inside = ops[broken.holds(ops)]
        self.in_regions, _ = self._roots(inside[~graphs.holds(inside)], graphs)

    def launched_ns(self, steps: StepWindows) -> int:
        """Summed time of all GPU events launched in the steps, or in all of the span where there are none."""
        known = self._launches >= 0
        inside = steps.launching(self._trace, self._launches) >= 0 if len(steps) else known
        return int(self._gpu_ns[inside].sum())

    def _roots(self, ops: Int64s, compiled: Cover) -> tuple[Roots, Intervals]:
        launches = np.flatnonzero((self._launches >= 0) & ~compiled.holds(self._launches))
        tracks = self._trace.track[self._launches[launches]]
        parts = [
            self._on_track(mine, compiled.on(track), launches[tracks == track])
            for track, mine in by_track(self._trace, ops)
        ]
        roots = [_joined([row[0][at] for row in parts]) for at in range(len(Roots._fields))]
        running = union(*(_joined([row[1][at] for row in parts]) for at in (0, 1)))
        return Roots(*roots), running

    def _on_track(self, ops: Int64s, compiled: Intervals, launches: Int64s) -> tuple[Roots, Intervals]:
        """ops: of one thread, in order of time. launches: which GPU events it launched outside of compiled code."""
        start, reach = self._trace.ts[ops], np.maximum.accumulate(self._trace.ts[ops] + self._trace.dur[ops])
        first = np.flatnonzero(np.concatenate(([True], start[1:] >= reach[:-1])))
        begin, end = start[first], reach[np.append(first[1:], len(ops)) - 1]
        own = subtract(union(begin, end), compiled)
        place = within(Intervals(begin, end), self._trace.ts[self._launches[launches]])
        device = np.zeros(len(first), np.int64)
        np.add.at(device, place[place >= 0], self._gpu_ns[launches[place >= 0]])
        return Roots(ops[first], begin, end, covered_ns(own, begin, end), device), own


def _parts_of(names: list[str]) -> Callable[[str], bool]:
    """Which names are of compiled code, of what calls it, and of compiling."""
    compiled = {name for name, at_work in zip(names, slices.compiling(names), strict=True) if at_work}
    return lambda name: (
        name in compiled or name in (*slices.LOOKUPS, *slices.WRAPPERS) or slices.is_graph(node(name))
    )


def _joined(columns: list[Int64s]) -> Int64s:
    return np.concatenate(columns) if columns else np.zeros(0, np.int64)


def _known_regions(trace: Trace, calls: list[RegionCall]) -> Int64s:
    """The regions whose graphs the trace marks: in others nothing tells a graph from what runs beside it."""
    marked = marks_graphs(trace)
    return np.array([call.index for call in every(calls) if marked or call.graphs], np.int64)
