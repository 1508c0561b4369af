"""Ranks that each compile the same: what sharing it would save, and what this torch offers for that."""

from __future__ import annotations

from collections.abc import Iterator

from tb_torchcompile_plugin.analysis.startup.beside import Frame, Start, Starts, frames_of, places_of
from tb_torchcompile_plugin.analysis.startup.lookups import looked_up, misses_ns
from tb_torchcompile_plugin.analysis.words import duration, listed, plural
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.torch_names.caches import (
    CACHING_PRECOMPILE,
    COMPILE_ON_ONE_RANK,
    IS_OFF,
    is_on,
    offers,
)

_SHARE = (
    "Compile once and share it: save_cache_artifacts on one rank, load_cache_artifacts on the others before they "
    "compile"
)


def one_rank_says(starts: Starts) -> Iterator[str]:
    """What is switched on or off; and where ranks of the run in view missed for the same frames, what to do."""
    mine = starts.mine.data
    yield from _settings(mine)
    ranks = sorted(
        (one for one in (starts.mine, *starts.others) if one.run == starts.mine.run and one.rank is not None),
        key=lambda one: one.rank or 0,
    )
    missed = {one: one.data.of(missed_frames) for one in ranks}
    frames = set.intersection(*(set(rows) for rows in missed.values())) if len(ranks) > 1 else set()
    spent = sorted(sum(missed[one][frame] for frame in frames) for one in ranks)
    if not frames or not spent[-1]:
        return
    what = (
        f"Ranks {listed([one.rank or 0 for one in ranks])} each compiled the same {plural(len(frames), 'frame')}, "
        f"which took the slowest {duration(spent[-1] / 1000)}"
    )
    yield f"{what}. {_advice(ranks, frames)}."


def _settings(data: CompileData) -> Iterator[str]:
    settings = data.summary.environment.settings
    yield from (text for name, text in IS_OFF.items() if is_on(settings, name) is _is_bad_when_on(name))
    if is_on(settings, *COMPILE_ON_ONE_RANK):
        yield "compile_on_one_rank is on: graphs do not depend on the rank that compiled them."
    if is_on(settings, *CACHING_PRECOMPILE):
        yield "caching_precompile is on: what Dynamo made is kept, too."


def _is_bad_when_on(name: str) -> bool:
    """Whether a setting is worth a word when it is on, as `force_disable_caches`, or when it is off."""
    return "disable" in name


def _advice(ranks: list[Start], frames: set[Frame]) -> str:
    settings = ranks[0].data.summary.environment.settings
    if _keys(ranks, frames) == 1:
        return f"Their keys are the same. {_SHARE}"
    if offers(settings, *COMPILE_ON_ONE_RANK) and not is_on(settings, *COMPILE_ON_ONE_RANK):
        return (
            "Their keys differ, so that none can use what another one compiled; compile_on_one_rank takes the "
            f"rank out of graphs ({next(name for name in COMPILE_ON_ONE_RANK if name in settings)} = True)"
        )
    return "Their keys differ, so that none can use what another one compiled"


def _keys(ranks: list[Start], frames: set[Frame]) -> int:
    """The most keys that one lookup has among ranks."""
    keys: dict[object, set[str]] = {}
    for one in ranks:
        rows = one.data.of(looked_up)
        for place, number in one.data.of(places_of).items():
            if place[:4] in frames:
                keys.setdefault(place, set()).add(rows[number][0].key)
    return max(map(len, keys.values()), default=0)


def missed_frames(data: CompileData) -> dict[Frame, int]:
    """Frame → ns that its misses took; of frames of which a lookup missed."""
    misses = data.of(misses_ns)
    return {
        frame: sum(ns or 0 for ns in misses[row.key.epoch, row.key.compile_id])
        for frame, row in data.of(frames_of).items()
        if (row.key.epoch, row.key.compile_id) in misses
    }
