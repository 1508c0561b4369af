"""What are the two sides of a comparison, and may one of them be called faster?"""

from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from tb_torchcompile_plugin.analysis.runtime.program import (
    OTHER,
    ProgramFacts,
    differences,
    program,
    program_of_data,
)
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import profiled_steps
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.reader.memo import Memoized


class SpanName(msgspec.Struct, frozen=True):
    """Which span a side is; `span` and `trace_file` are empty for a worker without a trace."""

    run: str = ""
    worker: str = ""
    span: str = ""
    trace_file: str = ""


class Side(NamedTuple):
    """One side of a comparison."""

    profile: Profile | None  # a span; None without a trace
    data: CompileData | None  # of its worker
    name: SpanName = SpanName()

    @property
    def program(self) -> ProgramFacts:
        """What ran."""
        if self.profile:
            return self.profile.of(program)
        return self.data.of(program_of_data) if self.data else ProgramFacts()


@dataclass(frozen=True, eq=False)
class Sides(Memoized):
    """The two spans that questions are asked of."""

    baseline: Side
    candidate: Side


def make_side(about: Profile | CompileData, run: str = "", worker: str = "") -> Side:
    """Return a span, or what a worker without one compiled, as a side."""
    if isinstance(about, CompileData):
        return Side(None, about, SpanName(run, worker))
    span = about.span
    name = SpanName(run, worker, span.span, span.file.name) if span else SpanName(run, worker)
    return Side(about, about.data, name)


def why_no_verdict(a: ProgramFacts, b: ProgramFacts) -> str:
    """Return why neither of two runs is called faster; "" where they run the same program."""
    kind, why = next(((kind, text) for kind, text in differences(a, b) if kind in OTHER), (None, ""))
    return f"Not comparable: the two runs {OTHER[kind]}. {why}" if kind else ""


def compares_whole_spans(a: Side, b: Side) -> bool:
    """Return whether to compare whole spans: a step of one side and all of the other do not compare."""
    return not all(side.profile and side.profile.of(profiled_steps) for side in (a, b))
