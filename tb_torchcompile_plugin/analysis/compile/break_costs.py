"""What does each graph break cost when the program runs, and how does a typical step pass through them?

`host_us` sums, over the calls, the time from the end of one graph execution to the start of the next one of the same
frame, without what was compiled meanwhile. It includes the guards and the overhead of the region that resumes, which
are also given apart. `gpu_idle_us` is how long no device of the process was busy in that time.
"""

from __future__ import annotations

from typing import Literal

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis.compile.recompile_moments import step_around
from tb_torchcompile_plugin.profile.compiled import regions
from tb_torchcompile_plugin.profile.compiled.regions import (
    Break,
    BreakLine,
    RegionCall,
    region_calls,
    resumes,
)
from tb_torchcompile_plugin.profile.gpu_work import busy, gpu_work
from tb_torchcompile_plugin.profile.intervals import Intervals
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import StepWindows
from tb_torchcompile_plugin.profile.units import share_percent, us
from tb_torchcompile_plugin.reader.arrays import grouped


class BreakInStep(msgspec.Struct, frozen=True):
    """The executions of one break inside one step."""

    step: str
    calls: int
    host_us: float
    gpu_idle_us: float | None
    share_percent: float | None  # of the step's wall time


class GraphBreakCost(msgspec.Struct, frozen=True):
    """One row per broken and resumed region."""

    compile_id: str
    resume_compile_id: str
    file: str
    line: int | None
    calls: int
    host_us: float
    resume_guard_us: float
    resume_overhead_us: float | None
    gpu_idle_us: float | None
    first_us: float  # start of one execution, from the span's first event
    last_us: float  # end of that execution
    steps: list[BreakInStep]

    @property
    def profiled_us(self) -> float:
        """The part of `host_us` inside steps; all of it where there are none."""
        return sum(step.host_us for step in self.steps) if self.steps else self.host_us


class Link(msgspec.Struct, frozen=True):
    """A graph execution of `compile_id`, or the break after it."""

    kind: Literal["graph", "break"]
    compile_id: str
    file: str
    line: int | None
    start_us: float  # from the span's first event
    duration_us: float


class BreakChain(msgspec.Struct, frozen=True):
    """One call of a frame: its graphs with the breaks between them."""

    compile_id: str
    step: str | None  # None for a frame that ran outside of all steps
    frame_us: float
    links: list[Link]


def graph_break_costs(profile: Profile) -> list[GraphBreakCost] | None:
    """Return the breaks, most expensive first; None where resumes cannot be distinguished from called frames."""
    resume_lines = profile.of(resumes)
    if resume_lines is None:
        return None
    work = profile.of(gpu_work)
    gpu = busy(profile.trace, work.index) if len(work.index) else None
    gaps = regions.every_break(profile.of(region_calls))
    by_ids = grouped(gaps, lambda gap: (gap.call.compile_id, gap.resumed.compile_id))
    rows = [_cost(profile, ids, gaps, gpu, resume_lines.place(*ids)) for ids, gaps in by_ids.items()]
    return sorted(rows, key=lambda row: -row.host_us)


def _cost(
    profile: Profile, ids: tuple[str, str], gaps: list[Break], gpu: Intervals | None, place: BreakLine
) -> GraphBreakCost:
    host = regions.host_ns(profile, gaps)
    idle = None if gpu is None else regions.host_ns(profile, gaps, gpu)
    first, _ = profile.trace.window()
    overhead = sum(gap.resumed.overhead_ns for gap in gaps)
    steps = profile.of(StepWindows)
    step_of_gap = steps.of(np.array([gap.start for gap in gaps], np.int64))
    in_steps = []
    for step, name in enumerate(steps.names):
        is_inside = step_of_gap == step
        step_ns = int(host[is_inside].sum())
        in_steps.append(
            BreakInStep(
                step=name,
                calls=int(is_inside.sum()),
                host_us=us(step_ns),
                gpu_idle_us=None if idle is None else us(idle[is_inside].sum()),
                share_percent=share_percent(step_ns, int(steps.ends[step] - steps.starts[step])),
            )
        )
    return GraphBreakCost(
        compile_id=ids[0],
        resume_compile_id=ids[1],
        file=place.file,
        line=place.line,
        calls=len(gaps),
        host_us=us(host.sum()),
        resume_guard_us=us(sum(gap.resumed.guard_ns for gap in gaps)),
        resume_overhead_us=us(overhead) if regions.marks_overhead(profile.trace) else None,
        gpu_idle_us=None if idle is None else us(idle.sum()),
        first_us=us(gaps[0].start - first),
        last_us=us(gaps[0].end - first),
        steps=in_steps,
    )


def break_chain(profile: Profile) -> BreakChain | None:
    """Return the frame with the most breaks, in its call of median cost: what a typical step passes through.

    None where no frame broke, or resumes cannot be distinguished from called frames.
    """
    if profile.of(resumes) is None:
        return None
    gaps_of = [(frame, list(regions.breaks(frame))) for frame in regions.frames(profile.of(region_calls))]
    most = max((len(gaps) for _, gaps in gaps_of), default=0)
    if not most:
        return None
    calls = [(frame, gaps) for frame, gaps in gaps_of if len(gaps) == most]
    calls.sort(key=lambda call: (sum(gap.end - gap.start for gap in call[1]), call[0].begin))
    frame, gaps = calls[(len(calls) - 1) // 2]
    return BreakChain(
        compile_id=frame.compile_id,
        step=step_around(profile, frame.start),
        frame_us=us(frame.end - frame.begin),
        links=_links(profile, frame, gaps),
    )


def _links(profile: Profile, frame: RegionCall, gaps: list[Break]) -> list[Link]:
    resume_lines, (first, _) = profile.of(resumes), profile.trace.window()
    assert resume_lines is not None
    links = [
        Link("graph", call.compile_id, "", None, us(start - first), us(end - start))
        for call in frame.chain()
        for start, end in call.graphs
    ]
    for gap in gaps:
        file, line = resume_lines.place(gap.call.compile_id, gap.resumed.compile_id)
        start_us, duration_us = us(gap.start - first), us(gap.end - gap.start)
        links.append(Link("break", gap.call.compile_id, file, line, start_us, duration_us))
    return sorted(links, key=lambda link: link.start_us)
