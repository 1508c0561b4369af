"""Which frames and which cache lookups of two processes are the same?"""

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from tb_torchcompile_plugin.analysis.compile.cache_lookups import CacheLookup, cache_lookups
from tb_torchcompile_plugin.compile_log.record import Direction, forward_compilations, key_of
from tb_torchcompile_plugin.compile_log.summary_pb2 import Compilation
from tb_torchcompile_plugin.reader.arrays import grouped
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.reader.memo import Memoized

FrameVersion: TypeAlias = tuple[str, int, str, int]  # file, line, function, and which version of it


class Start(NamedTuple):
    """One process of the logdir."""

    run: str
    worker: str
    rank: int | None
    data: CompileData

    @property
    def name(self) -> str:
        """Its name in sentences."""
        return f"{self.run}, {self.worker if self.rank is None else f'rank {self.rank}'}"


@dataclass(frozen=True, eq=False)
class Starts(Memoized):
    """One process, and those that it is compared with: the ranks of its run first, then other runs."""

    own: Start
    others: tuple[Start, ...]


class LookupId(NamedTuple):
    """Identifies a lookup across processes: by its frame, which version of it, and which of its graphs."""

    file: str
    line: int
    function: str
    version: int
    cache: str
    direction: Direction | None
    graph: int


def versioned_frames(data: CompileData) -> dict[FrameVersion, Compilation]:
    """Identify each compilation by its function and how many of its versions were compiled before."""
    versions = Counter[tuple[str, int, str]]()
    rows: dict[FrameVersion, Compilation] = {}
    for row in sorted(forward_compilations(data.summary).values(), key=lambda row: row.start_ns):
        function = (row.file, row.line, row.function)
        frame: FrameVersion = (*function, versions[function])
        rows[frame] = row
        versions[function] += 1
    return rows


def matched_frames(
    own: CompileData, other: CompileData, *, anywhere: bool = False
) -> dict[FrameVersion, FrameVersion]:
    """Match the frames of two processes: by file, line and function, then in their order without the line.

    anywhere: and then by the file's name alone, as the same program may be in another folder.
    """
    identities: list[Callable[[FrameVersion], tuple[object, ...]]] = [
        lambda frame: frame,
        lambda frame: (frame[0], frame[2]),
    ]
    if anywhere:
        identities.append(lambda frame: (re.split(r"[/\\]", frame[0])[-1], frame[2]))
    left, other_left = list(own.of(versioned_frames)), list(other.of(versioned_frames))
    matches: dict[FrameVersion, FrameVersion] = {}
    for identity in identities:
        groups = grouped(other_left, identity)
        matches |= {frame: groups[key].pop(0) for frame in left if groups.get(key := identity(frame))}
        taken = set(matches.values())
        left = [frame for frame in left if frame not in matches]
        other_left = [frame for frame in other_left if frame not in taken]
    return matches


def lookups_by_id(data: CompileData) -> dict[LookupId, CacheLookup]:
    """Identify the lookups that torch recorded one by one."""
    frames = {key_of(row.key): frame for frame, row in data.of(versioned_frames).items()}
    return {
        LookupId(*frame, lookup.cache, lookup.direction, lookup.graph or 0): lookup
        for lookup in data.of(cache_lookups)
        if (frame := frames.get((lookup.epoch, lookup.compile_id)))
    }
