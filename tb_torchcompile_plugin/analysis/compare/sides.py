"""The two sides of a comparison, and whose they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from tb_torchcompile_plugin.compile_log.summary_pb2 import CompileSummary
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import profiled_steps
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.reader.memo import Memoized


class SpanName(msgspec.Struct, frozen=True):
    """`span` and `trace_file` are empty for what a worker without a trace compiled."""

    run: str = ""
    worker: str = ""
    span: str = ""
    trace_file: str = ""


class Side(NamedTuple):
    """One side of a comparison: a span, and the compile data of its worker; None where there is none."""

    profile: Profile | None
    data: CompileData | None
    name: SpanName = SpanName()

    @property
    def summary(self) -> CompileSummary | None:
        return self.data.summary if self.data else None


@dataclass(frozen=True, eq=False)
class Sides(Memoized):
    """What questions about two spans are asked of."""

    a: Side
    b: Side


def side_of(about: Profile | CompileData, run: str = "", worker: str = "") -> Side:
    """A span, or what a worker without one compiled."""
    if isinstance(about, CompileData):
        return Side(None, about, SpanName(run, worker))
    span = about.span
    name = SpanName(run, worker, span.span, span.file.name) if span else SpanName(run, worker)
    return Side(about, about.data, name)


def as_a_whole(a: Side, b: Side) -> bool:
    """Whether the whole spans are compared: a step of one against all of the other would tell nothing."""
    return not all(side.profile and side.profile.of(profiled_steps) for side in (a, b))
