"""The lookups in compile caches: what each found, what it cost and saved, and what a hit would have saved.

A hit says how long making its entry had taken; of a miss the same time is known, for FX graphs from torch itself, for
AOTAutograd from its timed function. An entry of AOTAutograd holds its FX graphs: of both, only the outer one counts.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Annotated, Literal, TypeAlias, cast

import msgspec

from tb_torchcompile_plugin.analysis.compile_time.autotune import Autotune, autotune
from tb_torchcompile_plugin.analysis.compile_time.caches import CacheLookup, cache_lookups, in_order
from tb_torchcompile_plugin.analysis.sheet import head
from tb_torchcompile_plugin.analysis.words import plural
from tb_torchcompile_plugin.compile_log.record import Direction, Key, forward_compilations, key_of
from tb_torchcompile_plugin.compile_log.summary_pb2 import CacheResult, Compilation, PhaseSpan
from tb_torchcompile_plugin.profile.units import to_seconds
from tb_torchcompile_plugin.reader.compile_data import CompileData
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
