"""What do calls of compiled code cost beside the graphs that they run: guards and wrappers against useful work?

Of the calls that begin in the profiled steps; where there are none, of all calls in the span.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Literal

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis.compiled_regions.compiled_regions import graph_us
from tb_torchcompile_plugin.profile.compiled.ownership import Ownership
from tb_torchcompile_plugin.profile.compiled.regions import (
    RegionCall,
    every,
    marks_graphs,
    marks_overhead,
    region_calls,
)
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import StepWindows
from tb_torchcompile_plugin.profile.units import percent, us
from tb_torchcompile_plugin.reader.trace.kineto import Trace


class RegionOverhead(msgspec.Struct, frozen=True):
    """The calls of one compile id inside the window. The times are sums over them, None where the trace lacks marks."""

    compile_id: str
    calls: int
    guard_us: float
    overhead_us: float | None
    graph_us: float | None


class CallOverhead(msgspec.Struct, frozen=True):
    """`window`: the profiled steps, or the span without any; `steps` counts them. `guard_percent` and
    `overhead_percent` are shares of the window; `beside_percent` is guards and overhead as a share of guards, overhead
    and graphs, forward and backward. None is what the trace does not mark."""

    window: Literal["steps", "span"]
    steps: int
    window_us: float
    calls: int
    guard_us: float
    overhead_us: float | None
    graph_us: float | None
    backward_us: float
    guard_percent: float | None
    overhead_percent: float | None
    beside_percent: float | None
    regions: list[RegionOverhead]


def call_overhead(profile: Profile) -> CallOverhead | None:
    """None where no compiled region ran. Rows in order of first call."""
    trace, calls = profile.trace, profile.of(region_calls)
    if not calls:
        return None
    steps = profile.of(StepWindows)
    first, last = trace.window()
    window = steps.total_ns if len(steps) else last - first
    in_steps = _inside(steps, sorted(every(calls), key=lambda call: call.start))
    marked = marks_graphs(trace) or all(call.graphs for call in in_steps)
    guards, overhead = sum(call.guard_ns for call in in_steps), sum(call.overhead_ns for call in in_steps)
    graphs, backward = (
        sum(call.graph_ns for call in in_steps),
        _backward_ns(trace, steps, profile.of(Ownership)),
    )
    return CallOverhead(
        window="steps" if len(steps) else "span",
        steps=len(steps),
        window_us=us(window),
        calls=len(in_steps),
        guard_us=us(guards),
        overhead_us=us(overhead) if marks_overhead(trace) else None,
        graph_us=us(graphs) if marked else None,
        backward_us=us(backward),
        guard_percent=percent(guards, window),
        overhead_percent=percent(overhead, window) if marks_overhead(trace) else None,
        beside_percent=percent(guards + overhead, guards + overhead + graphs + backward) if marked else None,
        regions=_by_region(trace, in_steps),
    )


def _inside(steps: StepWindows, calls: list[RegionCall]) -> list[RegionCall]:
    if not len(steps):
        return calls
    of = steps.of(np.array([call.begin for call in calls], np.int64))
    return [call for call, step in zip(calls, of) if step >= 0]


def _backward_ns(trace: Trace, steps: StepWindows, ownership: Ownership) -> int:
    rows = np.array([row for row, _ in ownership.backwards], np.int64)
    inside = steps.of(trace.ts[rows]) >= 0 if len(steps) else np.ones(len(rows), bool)
    return int(trace.dur[rows[inside]].sum())


def _by_region(trace: Trace, calls: list[RegionCall]) -> list[RegionOverhead]:
    by_id: dict[str, list[RegionCall]] = defaultdict(list)
    for call in calls:
        by_id[call.compile_id].append(call)
    return [
        RegionOverhead(
            compile_id=compile_id,
            calls=len(of_region),
            guard_us=us(sum(call.guard_ns for call in of_region)),
            overhead_us=us(sum(call.overhead_ns for call in of_region)) if marks_overhead(trace) else None,
            graph_us=graph_us(trace, of_region),
        )
        for compile_id, of_region in by_id.items()
    ]
