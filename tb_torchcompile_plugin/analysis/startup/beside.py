"""The starts of a logdir side by side: which of them compiled the same frames, and whose caches held them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

import msgspec

from tb_torchcompile_plugin.analysis.compile_time.caches import time_saved_s
from tb_torchcompile_plugin.analysis.sheet import head
from tb_torchcompile_plugin.analysis.startup.lookups import looked_up, would_save_ns
from tb_torchcompile_plugin.analysis.startup.parts import compile_ns, parts_ns, window
from tb_torchcompile_plugin.compile_log.record import Direction, forward_compilations
from tb_torchcompile_plugin.compile_log.summary_pb2 import Compilation
from tb_torchcompile_plugin.profile.units import to_seconds
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.reader.memo import Memoized

Kind = Literal["cold", "warm", "bypassed", "mixed"]
_ALL_KINDS: dict[str, Kind] = {"hit": "warm", "miss": "cold", "bypass": "bypassed"}


class Start(NamedTuple):
    """One process of the logdir."""

    run: str
    worker: str
    rank: int | None
    data: CompileData

    @property
    def name(self) -> str:
        """In sentences."""
        return f"{self.run}, {self.worker if self.rank is None else f'rank {self.rank}'}"


@dataclass(frozen=True, eq=False)
class Starts(Memoized):
    """One process, and those that it is compared with: the ranks of its run first, then other runs."""

    mine: Start
    others: tuple[Start, ...]


class StartRow(msgspec.Struct, frozen=True):
    """A start-up of the logdir. kind: "cold" where all lookups missed, "warm" where all hit, "mixed" else; None without
    lookups. start_up_s: until the first steady step; None where nobody noted one. saved_s: as torch's hits say.
    common: frames that the process in view compiled, too; common_compile_s: how long they took here."""

    run: str
    worker: str
    rank: int | None
    kind: Kind | None
    start_up_s: Annotated[float | None, head("Until steady")]
    compile_s: Annotated[float, head("Compiling")]
    common_compile_s: Annotated[float | None, head("Of common frames")]
    common: Annotated[int, head("Common frames", hidden=True)]
    hits: int
    misses: int
    bypasses: Annotated[int, head(hidden=True)]
    saved_s: Annotated[float | None, head("Saved, says torch", hidden=True)]
    would_save_s: Annotated[float | None, head("Hits would save", hidden=True)]
    from_process: Annotated[bool, head("From the process on", hidden=True)]


class LookupPlace(NamedTuple):
    """A lookup in any process: of which frame, which version of it, and which of its graphs."""

    file: str
    line: int
    function: str
    version: int
    cache: str
    direction: Direction
    graph: int


Frame = tuple[str, int, str, int]  # file, line, function, and which version of it


def frames_of(data: CompileData) -> dict[Frame, Compilation]:
    """Versions of a function are counted in the order in which they were compiled."""
    numbers = defaultdict[tuple[str, int, str], int](int)
    rows: dict[Frame, Compilation] = {}
    for row in sorted(forward_compilations(data.summary).values(), key=lambda row: row.start_ns):
        frame = (row.file, row.line, row.function)
        key: Frame = (*frame, numbers[frame])
        rows[key] = row
        numbers[frame] += 1
    return rows


def frame_times_ns(data: CompileData) -> dict[Frame, int]:
    """With their backwards; of those that have a time."""
    spent = defaultdict[tuple[int, str], int](int)
    for row in data.summary.compilations:
        spent[row.key.epoch, row.key.compile_id] += row.duration_ns
    times = {frame: spent[row.key.epoch, row.key.compile_id] for frame, row in data.of(frames_of).items()}
    return {frame: ns for frame, ns in times.items() if ns}


def places_of(data: CompileData) -> dict[LookupPlace, int]:
    """Lookup → its place in `looked_up`."""
    frames = {(row.key.epoch, row.key.compile_id): frame for frame, row in data.of(frames_of).items()}
    return {
        LookupPlace(*frames[one.epoch, one.compile_id], one.cache, one.direction, one.graph or 0): place
        for place, (one, _) in enumerate(data.of(looked_up))
        if (one.epoch, one.compile_id) in frames
    }


def start_rows(starts: Starts) -> tuple[StartRow, ...]:
    """The process in view first."""
    return tuple(_row(starts.mine, one) for one in (starts.mine, *starts.others))


def _row(mine: Start, one: Start) -> StartRow:
    around = one.data.of(window)
    results = [lookup.result for lookup, _ in one.data.of(looked_up)]
    common = list(shared(mine.data, one.data))
    predicted = one.data.of(would_save_ns)
    return StartRow(
        run=one.run,
        worker=one.worker,
        rank=one.rank,
        kind=_kind(results),
        from_process=bool(around and around.from_process),
        start_up_s=to_seconds(sum(one.data.of(parts_ns).values())) if around and around.until_step else None,
        compile_s=to_seconds(one.data.of(compile_ns)),
        hits=results.count("hit"),
        misses=results.count("miss"),
        bypasses=results.count("bypass"),
        saved_s=one.data.of(time_saved_s),
        would_save_s=None if predicted is None else to_seconds(predicted),
        common=len(common),
        common_compile_s=to_seconds(sum(theirs for _, theirs in common)) if common else None,
    )


def _kind(results: list[str]) -> Kind | None:
    kinds = {_ALL_KINDS.get(result) for result in results} or {None}
    return kinds.pop() if len(kinds) == 1 else "mixed"


def shared(mine: CompileData, other: CompileData) -> Iterator[tuple[int, int]]:
    """The ns that each frame took in both, of those that both compiled."""
    theirs = other.of(frame_times_ns)
    yield from ((ns, theirs[frame]) for frame, ns in mine.of(frame_times_ns).items() if frame in theirs)


def have_same_keys(mine: CompileData, other: CompileData) -> bool:
    """Whether there are lookups of both, all with one key: what one stored is what the other one asked for."""
    ours, theirs = mine.of(places_of), other.of(places_of)
    common = [place for place in ours if place in theirs]
    return bool(common) and all(
        mine.of(looked_up)[ours[place]][0].key == other.of(looked_up)[theirs[place]][0].key
        for place in common
    )
