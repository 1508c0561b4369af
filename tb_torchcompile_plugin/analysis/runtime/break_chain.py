"""What does a typical call of a broken frame pass through? Its graphs with the breaks between them."""

from typing import Literal

import msgspec

from tb_torchcompile_plugin.profile.compiled import regions
from tb_torchcompile_plugin.profile.compiled.regions import region_calls, resumes
from tb_torchcompile_plugin.profile.intervals import us
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import step_around


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


def break_chain(profile: Profile) -> BreakChain | None:
    """Return the frame with the most breaks, in its call of median cost: what a typical step passes through.

    None where no frame broke, or resumes cannot be distinguished from called frames.
    """
    resume_lines = profile.of(resumes)
    if resume_lines is None:
        return None
    gaps_of = [(frame, list(regions.breaks(frame))) for frame in regions.frames(profile.of(region_calls))]
    most = max((len(gaps) for _, gaps in gaps_of), default=0)
    if not most:
        return None
    calls = [(frame, gaps) for frame, gaps in gaps_of if len(gaps) == most]
    calls.sort(key=lambda call: (sum(gap.end - gap.start for gap in call[1]), call[0].begin))
    frame, gaps = calls[(len(calls) - 1) // 2]
    first, _ = profile.trace.window()
    links = [
        Link("graph", call.compile_id, "", None, us(start - first), us(end - start))
        for call in frame.chain()
        for start, end in call.graphs
    ]
    for gap in gaps:
        file, line = resume_lines.place(gap.call.compile_id, gap.resumed.compile_id)
        start_us, duration_us = us(gap.start - first), us(gap.end - gap.start)
        links.append(Link("break", gap.call.compile_id, file, line, start_us, duration_us))
    return BreakChain(
        compile_id=frame.compile_id,
        step=step_around(profile, frame.start),
        frame_us=us(frame.end - frame.begin),
        links=sorted(links, key=lambda link: link.start_us),
    )
