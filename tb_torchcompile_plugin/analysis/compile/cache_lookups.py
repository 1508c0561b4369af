"""What did each lookup in the compile caches cost and save, and which processes of the logdir looked up the same?

A hit records how long making its entry had taken; for a miss the same time is known, for FX graphs from torch itself,
for AOTAutograd from its timed function. An entry of AOTAutograd holds its FX graphs: only the outer one counts.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias, cast

import msgspec

from tb_torchcompile_plugin.analysis.compile.autotune import autotune
from tb_torchcompile_plugin.analysis.compile.caches import (
    CacheLookup,
    cache_lookups,
    compilations_in_order,
    time_saved_s,
)
from tb_torchcompile_plugin.analysis.compile.compile_time import total_s
from tb_torchcompile_plugin.analysis.compile.startup_parts import parts_ns, window
from tb_torchcompile_plugin.analysis.formatting import plural
from tb_torchcompile_plugin.analysis.sheet import column_head
from tb_torchcompile_plugin.compile_log.record import Direction, Key, forward_compilations, key_of
from tb_torchcompile_plugin.compile_log.summary_pb2 import CacheResult, Compilation, CompileKey, PhaseSpan
from tb_torchcompile_plugin.profile.intervals import to_seconds
from tb_torchcompile_plugin.reader.arrays import grouped
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.reader.memo import Memoized
from tb_torchcompile_plugin.torch_names.artifacts import title_of_cache
from tb_torchcompile_plugin.torch_names.records import AOT_COMPILE, FX_COMPILES, REMOTE_CACHES

Result = Literal["hit", "miss", "bypass"]
Kind = Literal["cold", "warm", "bypassed", "mixed"]
FrameVersion: TypeAlias = tuple[str, int, str, int]  # file, line, function, and which version of it
_NumberedLookup: TypeAlias = tuple[int, CacheResult]  # its index among all lookups, and the lookup

_AOT, FX = "aotautograd", "fx_graph"
_KIND_OF: dict[str, Kind] = {"hit": "warm", "miss": "cold", "bypass": "bypassed"}


class StartLookup(msgspec.Struct, frozen=True, kw_only=True):
    """One lookup, or several alike of one compilation."""

    cache: str
    result: Result
    compile_id: str
    epoch: int
    direction: Annotated[Direction | None, column_head(hidden=True)] = None
    function: str
    file: str
    line: int | None
    graph: Annotated[int | None, column_head(hidden=True)] = None
    lookups: Annotated[int, column_head(hidden=True)] = 1  # how many
    # Time to make the entry after a miss; None where unknown.
    spent_s: Annotated[float | None, column_head("To make")]
    saved_s: Annotated[float | None, column_head("Saved, says torch")] = None
    why: Annotated[str | None, column_head(hidden=True)]  # reason for a miss or bypass, in words
    # The first part of the key that differs from the key of this frame in `than`, another run or rank of the logdir.
    differs: Annotated[str | None, column_head("What differs", grow=True)] = None
    than: Annotated[str | None, column_head("From", grow=True)] = None


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
    bypasses: Annotated[int, column_head(hidden=True)]
    saved_s: Annotated[float | None, column_head("Saved, says torch", hidden=True)]
    would_save_s: Annotated[float | None, column_head("Hits would save", hidden=True)]
    from_process: Annotated[bool, column_head("From the process on", hidden=True)]


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
    direction: Direction
    graph: int


def start_lookups(data: CompileData) -> tuple[StartLookup, ...]:
    """Return the lookups in order of time, then those of which torch records only a number."""
    frames = forward_compilations(data.summary)
    rows = []
    for lookup, spent in data.of(timed_lookups):
        key = CompileKey(epoch=lookup.epoch, compile_id=lookup.compile_id)
        frame = frames.get(key_of(key)) or Compilation(key=key)
        times = {"spent_s": None if spent is None else to_seconds(spent), "saved_s": lookup.time_saved_s}
        fields = {"direction": lookup.direction, "graph": lookup.graph, "why": lookup.why, **times}
        rows.append(_row(frame, title_of_cache(lookup.cache), lookup.result, **fields))
    return (*rows, *_counted_lookups(data, frames))


def _row(frame: Compilation, cache: str, result: str, **fields: Any) -> StartLookup:
    return StartLookup(
        cache=cache,
        result=cast(Result, result),
        compile_id=frame.key.compile_id,
        epoch=frame.key.epoch,
        function=frame.function,
        file=frame.file,
        line=frame.line or None,
        **fields,
    )


def _counted_lookups(data: CompileData, frames: dict[Key, Compilation]) -> Iterator[StartLookup]:
    """Yield the lookups of which torch records only a number: those of remote caches, then those of the autotuner."""
    counts: list[tuple[Compilation, str, str, int, float | None]] = []
    for frame in frames.values():
        for (field, title), result in product(REMOTE_CACHES.items(), ("hit", "miss")):
            text = frame.metrics.get(f"{field}_{result}_count", "")
            # Up to 18 digits fit into 64 bits.
            if text.isdecimal() and len(text) < 19 and int(text):
                counts.append((frame, title, result, int(text), None))
    cached = [row for row in data.of(autotune) if row.cache in ("hit", "miss")]
    groups = grouped(cached, lambda row: (row.epoch, row.compile_id, row.cache or ""))
    for (epoch, compile_id, result), rows in groups.items():
        if (epoch, compile_id) in frames:
            times = [row.time_s for row in rows if row.time_s is not None]
            time_s = sum(times) if times else None
            counts.append((frames[epoch, compile_id], "autotune cache", result, len(rows), time_s))
    for frame, cache, result, number, spent in counts:
        why = f"torch counts {plural(number, 'lookup')} and does not say more" if spent is None else None
        spent_s = spent if result == "miss" else None
        yield _row(frame, cache, result, lookups=number, spent_s=spent_s, why=why)


def timed_lookups(data: CompileData) -> list[tuple[CacheLookup, int | None]]:
    """Pair each lookup with the time (ns) that making its entry took; None for a hit and where unknown."""
    spent = data.of(_spent_ns)
    return [(lookup, spent.get(number)) for number, lookup in enumerate(data.of(cache_lookups))]


def would_save_ns(data: CompileData) -> int | None:
    """Return the most that hits instead of all misses could skip (a hit has to load its entry).

    None without a miss whose time is known.
    """
    times = [ns for misses in data.of(misses_ns).values() for ns in misses if ns is not None]
    return sum(times) if times else None


def misses_ns(data: CompileData) -> dict[Key, list[int | None]]:
    """Map each compilation to the times (ns) of its outermost misses."""
    misses = [row for row in data.of(timed_lookups) if row[0].result == "miss"]
    times = {}
    for key, group in grouped(misses, lambda row: (row[0].epoch, row[0].compile_id)).items():
        outer = [spent for lookup, spent in group if lookup.cache == _AOT]
        times[key] = outer or [spent for _, spent in group]
    return times


def _spent_ns(data: CompileData) -> dict[int, int]:
    """Map misses to the time (ns) that making the entry took, by their index in `cache_lookups`."""
    timed = (span for span in data.summary.spans if span.name == AOT_COMPILE or span.name in FX_COMPILES)
    spans = grouped(timed, lambda span: key_of(span.key))
    lookups = [(key_of(row.key), lookup) for row in data.of(compilations_in_order) for lookup in row.cache]
    misses = [(number, *row) for number, row in enumerate(lookups) if row[1].result == "miss"]
    spent: dict[int, int] = {}
    for key, group in grouped(misses, lambda miss: miss[1]).items():
        spent.update(_spent_by_compilation([(number, row) for number, _, row in group], spans.get(key, [])))
    return spent


def _spent_by_compilation(misses: list[_NumberedLookup], spans: list[PhaseSpan]) -> dict[int, int]:
    """Match the misses of one compilation with its timed functions; both are in order of time."""
    graphs = [(number, row) for number, row in misses if row.cache == FX]
    fx_spans = [span for span in spans if span.name in FX_COMPILES]
    taken = [row.time_taken_ns if row.HasField("time_taken_ns") else None for _, row in graphs]
    if len(fx_spans) == len(graphs):
        taken = [span.duration_ns if ns is None else ns for ns, span in zip(taken, fx_spans)]
    spent = {number: ns for (number, _), ns in zip(graphs, taken) if ns is not None}
    outer = [number for number, row in misses if row.cache == _AOT]
    aot_spans = [span for span in spans if span.name == AOT_COMPILE]
    if not outer or len(aot_spans) != len(outer):
        return spent
    spent.update((number, span.duration_ns) for number, span in zip(outer, aot_spans))
    aot_end = max(span.start_ns + span.duration_ns for span in aot_spans)
    # A graph behind AOTAutograd's own work is its backward, compiled when that first ran. The entry is stored then.
    if any(span.start_ns >= aot_end for span in fx_spans):
        spent[outer[0]] += sum(ns for (_, row), ns in zip(graphs, taken) if row.direction and ns is not None)
    return spent


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
    left, other_left = list(own.of(versioned_frames)), list(other.of(versioned_frames))
    matches: dict[FrameVersion, FrameVersion] = {}
    for identity in (_exactly, _by_function, _by_file_name)[: 3 if anywhere else 2]:
        groups = grouped(other_left, identity)
        matches |= {frame: groups[key].pop(0) for frame in left if groups.get(key := identity(frame))}
        taken = set(matches.values())
        left = [frame for frame in left if frame not in matches]
        other_left = [frame for frame in other_left if frame not in taken]
    return matches


def _exactly(frame: FrameVersion) -> tuple[object, ...]:
    return frame


def _by_function(frame: FrameVersion) -> tuple[object, ...]:
    return frame[0], frame[2]


def _by_file_name(frame: FrameVersion) -> tuple[object, ...]:
    return re.split(r"[/\\]", frame[0])[-1], frame[2]


def frame_times_ns(data: CompileData) -> dict[FrameVersion, int]:
    """Return the compile time of each frame with its backwards, where known."""
    spent = Counter[Key]()
    for row in data.summary.compilations:
        spent[key_of(row.key)] += row.duration_ns
    times = {frame: spent[key_of(row.key)] for frame, row in data.of(versioned_frames).items()}
    return {frame: ns for frame, ns in times.items() if ns}


def lookup_numbers(data: CompileData) -> dict[LookupId, int]:
    """Map each lookup to its index in `timed_lookups`."""
    frames = {key_of(row.key): frame for frame, row in data.of(versioned_frames).items()}
    numbers = {}
    for number, (lookup, _) in enumerate(data.of(timed_lookups)):
        if frame := frames.get((lookup.epoch, lookup.compile_id)):
            numbers[LookupId(*frame, lookup.cache, lookup.direction, lookup.graph or 0)] = number
    return numbers


def start_rows(starts: Starts) -> tuple[StartRow, ...]:
    """Return the process in view, then those that it is compared with."""
    rows = []
    for start in (starts.own, *starts.others):
        data = start.data
        start_window = data.of(window)
        has_end = start_window is not None and start_window.until_step
        results = [lookup.result for lookup, _ in data.of(timed_lookups)]
        kinds = {_KIND_OF.get(result) for result in results} or {None}
        common = common_frame_times(starts.own.data, data)
        would_save = data.of(would_save_ns)
        rows.append(
            StartRow(
                run=start.run,
                worker=start.worker,
                rank=start.rank,
                kind=kinds.pop() if len(kinds) == 1 else "mixed",
                from_process=start_window is not None and start_window.from_process,
                start_up_s=to_seconds(sum(data.of(parts_ns).values())) if has_end else None,
                compile_s=data.of(total_s) or 0.0,
                hits=results.count("hit"),
                misses=results.count("miss"),
                bypasses=results.count("bypass"),
                saved_s=data.of(time_saved_s),
                would_save_s=None if would_save is None else to_seconds(would_save),
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
    numbers, other_numbers = own.of(lookup_numbers), other.of(lookup_numbers)
    rows, other_rows = own.of(timed_lookups), other.of(timed_lookups)
    common = numbers.keys() & other_numbers.keys()
    return bool(common) and all(
        rows[numbers[lookup]][0].key == other_rows[other_numbers[lookup]][0].key for lookup in common
    )
