"""What torch.compile has to say about a line: graph breaks, recompiles and guards."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from tb_torchcompile_plugin.analysis.compilations.rows import compilations
from tb_torchcompile_plugin.analysis.graph_breaks.sites import graph_break_sites
from tb_torchcompile_plugin.analysis.recompiles.recompiles import Recompile, recompiles
from tb_torchcompile_plugin.analysis.source.places import Place
from tb_torchcompile_plugin.profile.profile import Profile


class LineBreak(msgspec.Struct, frozen=True):
    """A graph break on the line. `key`: of its row among the graph breaks. step_us: its price, None where unknown."""

    key: str
    reason: str
    step_us: float | None


class LineRecompile(msgspec.Struct, frozen=True):
    """A recompile whose guard torch made because of the line; of one that does not say so, the frame begins here."""

    compile_id: str
    epoch: int
    reason: str
    duration_s: float | None


class LineGuards(msgspec.Struct, frozen=True):
    """A frame that begins on the line, with what is checked before each of its calls."""

    compile_id: str
    epoch: int
    guards: int


class Marks(NamedTuple):
    breaks: list[LineBreak]
    recompiles: list[LineRecompile]
    guards: list[LineGuards]


def marks(profile: Profile) -> dict[Place, Marks]:
    """By line; {} without compile data, but for breaks that the trace tells of."""
    by_line: dict[Place, Marks] = {}
    for place, mark in (*_breaks(profile), *_recompiles(profile), *_guards(profile)):
        row = by_line.setdefault(place, Marks([], [], []))
        row[(LineBreak, LineRecompile, LineGuards).index(type(mark))].append(mark)  # type: ignore[arg-type]
    return by_line


def _breaks(profile: Profile) -> Iterator[tuple[Place, LineBreak]]:
    for site in profile.of(graph_break_sites):
        if site.file and site.line is not None:
            yield Place(site.file, site.line), LineBreak(site.key, site.reason, site.step_mean_us)


def _recompiles(profile: Profile) -> Iterator[tuple[Place, LineRecompile]]:
    for row in profile.data.of(recompiles) if profile.data else ():
        if place := _of_recompile(row):
            reason = row.reasons[0] if row.reasons else ""
            yield place, LineRecompile(row.compile_id, row.epoch, reason, row.duration_s)


def _of_recompile(row: Recompile) -> Place | None:
    """The line of the first guard that has one, else that of the frame."""
    places = [(guard.file, guard.line) for guard in row.guards] + [(row.file, row.line)]
    return next((Place(file, line) for file, line in places if file and line is not None), None)


def _guards(profile: Profile) -> Iterator[tuple[Place, LineGuards]]:
    for row in profile.data.of(compilations) if profile.data else ():
        if row.guards and row.file and row.line is not None:
            yield Place(row.file, row.line), LineGuards(row.compile_id, row.epoch, row.guards)
