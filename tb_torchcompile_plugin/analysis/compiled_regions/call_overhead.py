"""What do calls of compiled code cost beside the graphs that they run: guards and wrappers against useful work?

Of the calls that begin in the profiled steps; where there are none, of all calls in the span.
"""

from __future__ import annotations

from typing import Literal

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis.compiled_regions.compiled_regions import calls_inside
from tb_torchcompile_plugin.analysis.words import duration, percent, plural, significant
from tb_torchcompile_plugin.profile.compiled.ownership import Ownership
from tb_torchcompile_plugin.profile.compiled.regions import every, marks_graphs, marks_overhead, region_calls
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import StepWindows
from tb_torchcompile_plugin.profile.units import share_percent as share
from tb_torchcompile_plugin.profile.units import us
from tb_torchcompile_plugin.reader.trace.kineto import Trace


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


def call_overhead(profile: Profile) -> CallOverhead | None:
    """None where no compiled region ran."""
    trace, calls = profile.trace, profile.of(region_calls)
    if not calls:
        return None
    steps = profile.of(StepWindows)
    first, last = trace.window()
    window = steps.total_ns if len(steps) else last - first
    in_steps = calls_inside(steps, sorted(every(calls), key=lambda call: call.start))
    marked = marks_graphs(trace) or all(call.graphs for call in in_steps)
    guards, overhead = sum(call.guard_ns for call in in_steps), sum(call.overhead_ns for call in in_steps)
    graphs = sum(call.graph_ns for call in in_steps)
    backward = _backward_ns(trace, steps, profile.of(Ownership))
    return CallOverhead(
        window="steps" if len(steps) else "span",
        steps=len(steps),
        window_us=us(window),
        calls=len(in_steps),
        guard_us=us(guards),
        overhead_us=us(overhead) if marks_overhead(trace) else None,
        graph_us=us(graphs) if marked else None,
        backward_us=us(backward),
        guard_percent=share(guards, window),
        overhead_percent=share(overhead, window) if marks_overhead(trace) else None,
        beside_percent=share(guards + overhead, guards + overhead + graphs + backward) if marked else None,
    )


def _backward_ns(trace: Trace, steps: StepWindows, ownership: Ownership) -> int:
    rows = np.array([row for row, _ in ownership.backwards], np.int64)
    inside = steps.of(trace.ts[rows]) >= 0 if len(steps) else np.ones(len(rows), bool)
    return int(trace.dur[rows[inside]].sum())


def headline(profile: Profile) -> str:
    """ "Guards and wrappers take 275 µs a step, 4.56 % of it: …" """
    cost = profile.of(call_overhead)
    if cost is None:
        return "No compiled region ran inside this span."
    each = cost.steps or 1
    beside = cost.guard_us + (cost.overhead_us or 0)
    what, parts = "Guards", ""
    if cost.overhead_us is not None:
        what = "Guards and wrappers"
        parts = f": guards {duration(cost.guard_us / each)}, wrappers {duration(cost.overhead_us / each)}"
    calls = cost.calls / each
    often = plural(int(calls), "call") if calls.is_integer() else f"{significant(calls)} calls"
    share = f", {percent(100 * beside / cost.window_us)} of it" if cost.window_us else ""
    return (
        f"{what} take {duration(beside / each)} {'a step' if cost.steps else 'in this span'}"
        f"{share}{parts}, for {often}. {_useful(cost, each)}"
    )


def _useful(cost: CallOverhead, each: int) -> str:
    if cost.graph_us is None or cost.beside_percent is None:
        return "The trace does not mark all of their graphs."
    backward = f" and backward for {duration(cost.backward_us / each)}" if cost.backward_us else ""
    share = percent(cost.beside_percent)
    graphs = duration(cost.graph_us / each)
    return f"Their graphs run for {graphs}{backward}; {share} of all this is overhead of the calls."
