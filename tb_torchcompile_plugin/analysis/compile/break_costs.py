"""What does each graph break cost when the program runs?

`host_us` sums, over the calls, the time from the end of one graph execution to the start of the next one of the same
frame, less what was compiled meanwhile. It holds the guards and the overhead of the region that resumes, which are
given apart. `gpu_idle_us` is how long no device of the process did anything in that time.
"""

from __future__ import annotations

from typing import Literal

import msgspec
import numpy as np

from tb_torchcompile_plugin.profile.compiled import regions
from tb_torchcompile_plugin.profile.compiled.regions import (
    BreakLine,
    RegionCall,
    Resumes,
    breaks,
    frames,
    region_calls,
    resumes,
)
from tb_torchcompile_plugin.profile.gpu_work import busy, gpu_work
from tb_torchcompile_plugin.profile.intervals import Int64s, Intervals
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import StepWindows
from tb_torchcompile_plugin.profile.units import share_percent, us
from tb_torchcompile_plugin.reader.arrays import grouped


class BreakInStep(msgspec.Struct, frozen=True):
    """The executions of one break inside one step; `share_percent` is of the step's wall time."""

    step: str
    calls: int
    host_us: float
    gpu_idle_us: float | None
    share_percent: float | None


class GraphBreakCost(msgspec.Struct, frozen=True):
    """One row per broken and resumed region. `first_us` … `last_us`: one execution, from the span's first event."""

    compile_id: str
    resume_compile_id: str
    file: str
    line: int | None
    calls: int
    host_us: float
    resume_guard_us: float
    resume_overhead_us: float | None
    gpu_idle_us: float | None
    first_us: float
    last_us: float
    steps: list[BreakInStep]

    @property
    def profiled_us(self) -> float:
        """Of `host_us` what the steps hold; all of it where there are none."""
        return sum(step.host_us for step in self.steps) if self.steps else self.host_us


def graph_break_costs(profile: Profile) -> list[GraphBreakCost] | None:
    """Most expensive first; None where nothing tells resumes from called frames."""
    trace, work, known = profile.trace, profile.of(gpu_work), profile.of(resumes)
    if known is None:
        return None
    gpu = busy(trace, work.index) if len(work.index) else None
    gaps = regions.every_break(profile.of(regions.region_calls))
    executed = grouped(gaps, lambda gap: (gap.call.compile_id, gap.resumed.compile_id))
    steps = profile.of(StepWindows)
    rows = [_row(profile, ids, gap, gpu, steps, known.place(*ids)) for ids, gap in executed.items()]
    return sorted(rows, key=lambda row: -row.host_us)


def _row(
    profile: Profile,
    ids: tuple[str, str],
    gaps: list[regions.Break],
    gpu: Intervals | None,
    steps: StepWindows,
    place: BreakLine,
) -> GraphBreakCost:
    starts = np.array([one.start for one in gaps], np.int64)
    host = regions.host_ns(profile, gaps)
    idle = None if gpu is None else regions.host_ns(profile, gaps, gpu)
    trace = profile.trace
    first, overhead = trace.window()[0], sum(one.resumed.overhead_ns for one in gaps)
    return GraphBreakCost(
        compile_id=ids[0],
        resume_compile_id=ids[1],
        file=place.file,
        line=place.line,
        calls=len(gaps),
        host_us=us(host.sum()),
        resume_guard_us=us(sum(one.resumed.guard_ns for one in gaps)),
        resume_overhead_us=us(overhead) if regions.marks_overhead(trace) else None,
        gpu_idle_us=None if idle is None else us(idle.sum()),
        first_us=us(starts[0] - first),
        last_us=us(gaps[0].end - first),
        steps=_in_steps(steps, starts, host, idle),
    )


def _in_steps(steps: StepWindows, starts: Int64s, host: Int64s, idle: Int64s | None) -> list[BreakInStep]:
    of = steps.of(starts)
    rows = []
    for step, name in enumerate(steps.names):
        here = of == step
        host_ns = int(host[here].sum())
        rows.append(
            BreakInStep(
                step=name,
                calls=int(here.sum()),
                host_us=us(host_ns),
                gpu_idle_us=None if idle is None else us(idle[here].sum()),
                share_percent=share_percent(host_ns, int(steps.ends[step] - steps.starts[step])),
            )
        )
    return rows


# One step as a chain: the graphs of one frame with the breaks between them. The frame with the most breaks,
# in its call of median cost: what a typical step goes through.


class Link(msgspec.Struct, frozen=True):
    """A graph execution of `compile_id`, or the break after it. `start_us` counts from the span's first event."""

    kind: Literal["graph", "break"]
    compile_id: str
    file: str
    line: int | None
    start_us: float
    duration_us: float


class BreakChain(msgspec.Struct, frozen=True):
    """`step` is null for a frame that ran outside of all steps."""

    compile_id: str
    step: str | None
    frame_us: float
    links: list[Link]


def break_chain(profile: Profile) -> BreakChain | None:
    """None where no frame broke, or nothing tells resumes from called frames."""
    known = profile.of(resumes)
    if known is None:
        return None
    broken = [(frame, list(breaks(frame))) for frame in frames(profile.of(region_calls))]
    most = max((len(gaps) for _, gaps in broken), default=0)
    if not most:
        return None
    worst = sorted(
        (
            (sum(gap.end - gap.start for gap in gaps), frame.begin, frame)
            for frame, gaps in broken
            if len(gaps) == most
        ),
        key=lambda row: row[:2],
    )
    frame = worst[(len(worst) - 1) // 2][2]
    first = profile.trace.window()[0]
    return BreakChain(
        frame.compile_id, _step(profile, frame), us(frame.end - frame.begin), _links(frame, known, first)
    )


def _links(frame: RegionCall, known: Resumes, first: int) -> list[Link]:
    links = [
        Link("graph", call.compile_id, "", None, us(start - first), us(end - start))
        for call in frame.chain()
        for start, end in call.graphs
    ]
    for gap in breaks(frame):
        place = known.place(gap.call.compile_id, gap.resumed.compile_id)
        links.append(
            Link(
                "break",
                gap.call.compile_id,
                place.file,
                place.line,
                us(gap.start - first),
                us(gap.end - gap.start),
            )
        )
    return sorted(links, key=lambda link: link.start_us)


def _step(profile: Profile, frame: RegionCall) -> str | None:
    steps = profile.of(StepWindows)
    step = int(steps.of(np.array([frame.start]))[0])
    return steps.names[step] if step >= 0 else None
