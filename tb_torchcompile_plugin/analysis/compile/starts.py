"""Which processes of a logdir compiled the same, and with which results of their caches?"""

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple, TypeAlias

import msgspec

from tb_torchcompile_plugin.analysis.compile.cache_lookups import CacheLookup, cache_lookups, result_counts
from tb_torchcompile_plugin.analysis.compile.compile_time import compile_cost
from tb_torchcompile_plugin.analysis.compile.startup_parts import parts_ns, window
from tb_torchcompile_plugin.analysis.sheet import column_head
from tb_torchcompile_plugin.compile_log.record import Direction, Key, forward_compilations, key_of
from tb_torchcompile_plugin.compile_log.summary_pb2 import Compilation
from tb_torchcompile_plugin.profile.intervals import to_seconds
from tb_torchcompile_plugin.reader.arrays import grouped
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.reader.memo import Memoized

Kind = Literal["cold", "warm", "bypassed", "mixed"]
FrameVersion: TypeAlias = tuple[str, int, str, int]  # file, line, function, and which version of it

_KIND_OF: dict[str, Kind] = {"hit": "warm", "miss": "cold", "bypass": "bypassed"}


class StartRow(msgspec.Struct, frozen=True):
    """A start-up of the logdir."""

    run: str
    worker: str
    rank: int | None
    kind: Kind | None  # "cold": all lookups missed, "warm": all hit, None: no lookups
    # None where the first steady step was not recorded.
    start_up_s: Annotated[float | None, column_head("Until steady")]
    compile_s: Annotated[float, column_head("Compile time")]
    common_compile_s: Annotated[float | None, column_head("Of common frames")]  # time that these took here
    # Frames that the process in view compiled, too.
    common: Annotated[int, column_head("Common frames", hidden=True)]
    hits: int
    misses: int
    saved_s: Annotated[float | None, column_head("Saved, says torch", hidden=True)]


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


def frame_times_ns(data: CompileData) -> dict[FrameVersion, int]:
    """Return the compile time of each frame with its backwards, where known."""
    spent = Counter[Key]()
    for row in data.summary.compilations:
        spent[key_of(row.key)] += row.duration_ns
    times = {frame: spent[key_of(row.key)] for frame, row in data.of(versioned_frames).items()}
    return {frame: ns for frame, ns in times.items() if ns}


def lookups_by_id(data: CompileData) -> dict[LookupId, CacheLookup]:
    """Identify the lookups that torch recorded one by one."""
    frames = {key_of(row.key): frame for frame, row in data.of(versioned_frames).items()}
    return {
        LookupId(*frame, lookup.cache, lookup.direction, lookup.graph or 0): lookup
        for lookup in data.of(cache_lookups)
        if (frame := frames.get((lookup.epoch, lookup.compile_id)))
    }


def start_rows(starts: Starts) -> tuple[StartRow, ...]:
    """Return the process in view, then those that it is compared with."""
    rows = []
    for start in (starts.own, *starts.others):
        data = start.data
        start_window = data.of(window)
        has_end = start_window is not None and start_window.until_step
        results, cost = data.of(result_counts), data.of(compile_cost)
        kinds = {_KIND_OF.get(result) for result in results} or {None}
        common = common_frame_times(starts.own.data, data)
        rows.append(
            StartRow(
                run=start.run,
                worker=start.worker,
                rank=start.rank,
                kind=kinds.pop() if len(kinds) == 1 else "mixed",
                start_up_s=to_seconds(sum(data.of(parts_ns).values())) if has_end else None,
                compile_s=cost.blocked_s if cost else 0.0,
                hits=results["hit"],
                misses=results["miss"],
                saved_s=cost.saved_s if cost else None,
                common=len(common),
                common_compile_s=to_seconds(sum(ns for _, ns in common)) if common else None,
            )
        )
    return tuple(rows)


def common_frame_times(own: CompileData, other: CompileData) -> list[tuple[int, int]]:
    """Return the times (ns) that each frame took in both processes, of those that both compiled."""
    other_times = other.of(frame_times_ns)
    return [(ns, other_times[frame]) for frame, ns in own.of(frame_times_ns).items() if frame in other_times]


def have_same_keys(own: CompileData, other: CompileData) -> bool:
    """Return whether both made some of the same lookups, all with the same keys."""
    ids, other_ids = own.of(lookups_by_id), other.of(lookups_by_id)
    common = ids.keys() & other_ids.keys()
    return bool(common) and all(ids[name].cache_key == other_ids[name].cache_key for name in common)
