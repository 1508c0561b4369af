"""Which compile ids are resume functions, and where did the graph break that they go on from?

The compile log tells. Without one, Python stacks in the trace do: dynamo calls a resume function
`torch_dynamo_resume_in_FUNCTION_at_LINE`, and its frame runs inside its region. With neither, nobody knows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tb_torchcompile_plugin.compile_log.record import known_number
from tb_torchcompile_plugin.compile_log.summary_pb2 import FORWARD, Compilation, CompileSummary
from tb_torchcompile_plugin.profile.compiled.ownership import Ownership
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.trace.kineto import Trace
from tb_torchcompile_plugin.torch_names.python_frames import RESUME, frame_of
from tb_torchcompile_plugin.torch_names.slices import PYTHON_FUNCTION


class BreakLine(NamedTuple):
    """Where a graph broke; "" and None where nobody told."""

    file: str
    line: int | None


class Resumes(NamedTuple):
    """`ids`: the compile ids whose code is a resume function. `breaks`: compile id → the break that ended its graph.
    `frames`: resume compile id → the line it goes on from, where only stacks told."""

    ids: frozenset[str]
    breaks: dict[str, BreakLine]
    frames: dict[str, BreakLine]

    def place(self, broken: str, resumed: str) -> BreakLine:
        return self.breaks.get(broken) or self.frames.get(resumed) or BreakLine("", None)


def resumes(profile: Profile) -> Resumes | None:
    """Which regions are resume functions; None where neither a compile log nor stacks tell."""
    trace, ownership, summary = profile.trace, profile.of(Ownership), profile.summary
    frames = _from_stacks(trace, ownership)
    if summary is None or not summary.compilations:
        stacks = len(trace.select(cat=PYTHON_FUNCTION)) > 0
        return Resumes(frozenset(frames), {}, frames) if stacks else None
    alive = _alive(trace, summary)
    ids = {compile_id for compile_id, row in alive.items() if row.function.startswith(RESUME)}
    breaks = {
        row.key.compile_id: BreakLine(row.file, known_number(row, "line"))
        for row in summary.graph_breaks
        if row.key.compile_id in alive and alive[row.key.compile_id].key.epoch == row.key.epoch
    }
    return Resumes(frozenset(ids), breaks, frames)


def _alive(trace: Trace, summary: CompileSummary) -> dict[str, Compilation]:
    """compile id → what it stood for in this trace: torch._dynamo.reset() gives ids out anew."""
    end = trace.base_ns + trace.window()[1]
    forward = [row for row in summary.compilations if row.direction == FORWARD and row.start_ns <= end]
    return {row.key.compile_id: row for row in sorted(forward, key=lambda row: row.key.epoch)}


def _from_stacks(trace: Trace, ownership: Ownership) -> dict[str, BreakLine]:
    """A resume function's frame runs directly inside its own region."""
    known = ((code, frame_of(name)) for code, name in enumerate(trace.names) if RESUME in name)
    resumed = {code: frame for code, frame in known if frame and frame.function.startswith(RESUME)}
    if not resumed:
        return {}
    stacks = trace.select(cat=PYTHON_FUNCTION)
    lines: dict[str, BreakLine] = {}
    regions = np.array([index for index, _ in ownership.regions], np.int64)
    ids = [ownership.names[code] for _, code in ownership.regions]
    for row in stacks[np.isin(trace.name[stacks], list(resumed))]:
        around = (trace.track[regions] == trace.track[row]) & (trace.ts[regions] <= trace.ts[row])
        around &= trace.ts[row] < trace.ts[regions] + trace.dur[regions]
        if around.any():
            frame = resumed[int(trace.name[row])]
            innermost = int(np.flatnonzero(around)[-1])  # regions are in order of time
            lines[ids[innermost]] = BreakLine(frame.file, frame.line)
    return lines
