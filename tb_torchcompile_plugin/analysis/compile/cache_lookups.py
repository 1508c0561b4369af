"""The lookups in compile caches: what each found, what it cost and saved, and what a hit would have saved.

A hit says how long making its entry had taken; of a miss the same time is known, for FX graphs from torch itself, for
AOTAutograd from its timed function. An entry of AOTAutograd holds its FX graphs: of both, only the outer one counts.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple, TypeAlias, cast

import msgspec

from tb_torchcompile_plugin.analysis.compile.autotune import Autotune, autotune
from tb_torchcompile_plugin.analysis.compile.caches import CacheLookup, cache_lookups, in_order, time_saved_s
from tb_torchcompile_plugin.analysis.compile.startup_parts import compile_ns, parts_ns, window
from tb_torchcompile_plugin.analysis.formatting import plural
from tb_torchcompile_plugin.analysis.sheet import head
from tb_torchcompile_plugin.compile_log.record import Direction, Key, forward_compilations, key_of
from tb_torchcompile_plugin.compile_log.summary_pb2 import CacheResult, Compilation, PhaseSpan
from tb_torchcompile_plugin.profile.units import to_seconds
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.reader.memo import Memoized
from tb_torchcompile_plugin.torch_names.artifacts import title_of_cache
from tb_torchcompile_plugin.torch_names.records import AOT_COMPILE, FX_COMPILES, REMOTE_CACHES

_AOT, _FX = "aotautograd", "fx_graph"
_Miss: TypeAlias = tuple[int, CacheResult]  # with its place among all lookups


Result = Literal["hit", "miss", "bypass"]


class StartLookup(msgspec.Struct, frozen=True):
    """One lookup, or several alike of one compilation (`lookups`). spent_s: what making the entry took after a miss;
    saved_s: what torch says that a hit saved; both None where nothing tells. why: of a miss or bypass, in words.

    differs: the first part of the key that is not as in `than`, another run or rank of the logdir with this frame.
    """

    cache: str
    result: Result
    compile_id: str
    epoch: int
    direction: Annotated[Direction | None, head(hidden=True)]
    function: str
    file: str
    line: int | None
    graph: Annotated[int | None, head(hidden=True)]
    lookups: Annotated[int, head(hidden=True)]
    spent_s: Annotated[float | None, head("To make")]
    saved_s: Annotated[float | None, head("Saved, says torch")]
    why: Annotated[str | None, head(hidden=True)]
    differs: Annotated[str | None, head("What differs", grow=True)] = None
    than: Annotated[str | None, head("From", grow=True)] = None


def start_lookups(data: CompileData) -> tuple[StartLookup, ...]:
    """In order of time; then those of which torch only counts."""
    frames = forward_compilations(data.summary)
    rows = [_row(one, frames, spent) for one, spent in data.of(looked_up)]
    counted = [row for frame in frames.values() for row in _remote(frame)]
    return (*rows, *counted, *_tuned(data, frames))


def looked_up(data: CompileData) -> list[tuple[CacheLookup, int | None]]:
    """Each lookup, and for a miss the ns that making its entry took, None where nothing tells."""
    spent = data.of(_spent_ns)
    return [(one, spent.get(place)) for place, one in enumerate(data.of(cache_lookups))]


def would_save_ns(data: CompileData) -> int | None:
    """What hits instead of all misses would skip, at most: a hit has to load its entry. None where there was no miss
    whose time is known."""
    known = [ns for frame in data.of(misses_ns).values() for ns in frame if ns is not None]
    return sum(known) if known else None


def misses_ns(data: CompileData) -> dict[Key, list[int | None]]:
    """Compilation → ns of each outermost miss."""
    outer, inner = defaultdict[Key, list[int | None]](list), defaultdict[Key, list[int | None]](list)
    for one, spent in data.of(looked_up):
        if one.result == "miss":
            (outer if one.cache == _AOT else inner)[one.epoch, one.compile_id].append(spent)
    return {key: outer.get(key) or inner[key] for key in {**outer, **inner}}


# -- what a miss took ---------------------------------------------------------------------------------------------


def _spent_ns(data: CompileData) -> dict[int, int]:
    """By the place of a lookup in `cache_lookups`."""
    spans = defaultdict[Key, list[PhaseSpan]](list)
    for span in data.summary.spans:
        if span.name == AOT_COMPILE or span.name in FX_COMPILES:
            spans[key_of(span.key)].append(span)
    misses = defaultdict[Key, list[_Miss]](list)
    lookups = [(key_of(one.key), row) for one in data.of(in_order) for row in one.cache]
    for place, (key, row) in enumerate(lookups):
        if row.result == "miss":
            misses[key].append((place, row))
    return dict(pair for key, rows in misses.items() for pair in _spent_of(rows, spans[key]))


def _spent_of(misses: list[_Miss], spans: list[PhaseSpan]) -> Iterator[tuple[int, int]]:
    """Lookups and timed functions of one compilation, each in order of time."""
    graphs = [(place, row) for place, row in misses if row.cache == _FX]
    made = [span.duration_ns for span in spans if span.name in FX_COMPILES]
    taken = [row.time_taken_ns if row.HasField("time_taken_ns") else None for _, row in graphs]
    if None in taken and len(made) == len(graphs):
        taken = [span if ns is None else ns for ns, span in zip(taken, made)]
    yield from ((place, ns) for (place, _), ns in zip(graphs, taken) if ns is not None)
    outer = [place for place, row in misses if row.cache == _AOT]
    whole = [span.duration_ns for span in spans if span.name == AOT_COMPILE]
    if len(whole) == len(outer):
        # An entry is stored once its backward is compiled, too.
        later = [ns for (_, row), ns in zip(graphs, taken) if row.direction and ns is not None]
        extra = sum(later) if _is_lazy(spans) else 0
        yield from ((place, ns + extra * (place == outer[0])) for place, ns in zip(outer, whole))


def _is_lazy(spans: list[PhaseSpan]) -> bool:
    """Whether a graph was compiled behind AOTAutograd's own work: its backward, when that first ran."""
    ends = [span.start_ns + span.duration_ns for span in spans if span.name == AOT_COMPILE]
    return bool(ends) and any(span.start_ns >= max(ends) for span in spans if span.name in FX_COMPILES)


# -- rows ---------------------------------------------------------------------------------------------------------


def _row(one: CacheLookup, frames: dict[Key, Compilation], spent: int | None) -> StartLookup:
    frame = frames.get((one.epoch, one.compile_id)) or Compilation()
    return StartLookup(
        compile_id=one.compile_id,
        epoch=one.epoch,
        direction=one.direction,
        function=frame.function,
        file=frame.file,
        line=frame.line or None,
        cache=title_of_cache(one.cache),
        graph=one.graph,
        result=cast(Result, one.result),
        lookups=1,
        spent_s=None if spent is None else to_seconds(spent),
        saved_s=one.time_saved_s,
        why=one.why,
    )


def _remote(frame: Compilation) -> Iterator[StartLookup]:
    """torch counts them by compilation."""
    for field, title in REMOTE_CACHES.items():
        for result in ("hit", "miss"):
            if number := _number(frame, f"{field}_{result}_count"):
                yield _counted(frame, title, result, number, None)


def _number(frame: Compilation, field: str) -> int:
    text = frame.metrics.get(field, "")
    return int(text) if text.isdecimal() and len(text) < 19 else 0  # what fits into 64 bits


def _tuned(data: CompileData, frames: dict[Key, Compilation]) -> Iterator[StartLookup]:
    """What torch's cache of autotuned configurations held."""
    rows = [row for row in data.of(autotune) if row.cache in ("hit", "miss")]
    kinds = Counter((row.epoch, row.compile_id, row.cache or "") for row in rows)
    for (epoch, compile_id, result), number in kinds.items():
        if frame := frames.get((epoch, compile_id)):
            mine = [
                row for row in rows if (row.epoch, row.compile_id, row.cache) == (epoch, compile_id, result)
            ]
            yield _counted(frame, "autotune cache", result, number, _tuning_s(mine))


def _tuning_s(rows: list[Autotune]) -> float | None:
    known = [row.time_s for row in rows if row.time_s is not None]
    return sum(known) if known else None


def _counted(frame: Compilation, cache: str, result: str, number: int, spent: float | None) -> StartLookup:
    return StartLookup(
        compile_id=frame.key.compile_id,
        epoch=frame.key.epoch,
        direction=None,
        function=frame.function,
        file=frame.file,
        line=frame.line or None,
        cache=cache,
        graph=None,
        result=cast(Result, result),
        lookups=number,
        spent_s=spent if result == "miss" else None,
        saved_s=None,
        why=f"torch counts {plural(number, 'lookup')} and does not say more" if spent is None else None,
    )


# The starts of a logdir side by side: which of them compiled the same frames, and whose caches held them.


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
    return tuple(_comparison_row(starts.mine, one) for one in (starts.mine, *starts.others))


def _comparison_row(mine: Start, one: Start) -> StartRow:
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
