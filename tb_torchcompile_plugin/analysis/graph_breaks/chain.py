"""One step as a chain: the graphs of one frame with the breaks between them.

The frame with the most breaks, in its call of median cost: what a typical step goes through.
"""

from __future__ import annotations

from typing import Literal

import msgspec
import numpy as np

from tb_torchcompile_plugin.profile.compiled.regions import (
    RegionCall,
    Resumes,
    breaks,
    frames,
    region_calls,
    resumes,
)
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import StepWindows
from tb_torchcompile_plugin.profile.units import us


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
