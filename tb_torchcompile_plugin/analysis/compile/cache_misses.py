"""Why a lookup missed where another process has the same frame: the first part of its key that is not the same.

torch tells the parts of a key with a hash each. Of the graph's code it tells the hash alone; the graphs of both
processes then say which line differs.
"""

from __future__ import annotations

import json
from itertools import zip_longest
from typing import NamedTuple

from tb_torchcompile_plugin.analysis.compile.cache_lookups import (
    LookupPlace,
    Start,
    Starts,
    looked_up,
    places_of,
)
from tb_torchcompile_plugin.analysis.compile.caches import CacheLookup
from tb_torchcompile_plugin.analysis.formatting import at_line, plural
from tb_torchcompile_plugin.errors import UserError
from tb_torchcompile_plugin.reader.compile_data import CompileData, read_payload
from tb_torchcompile_plugin.torch_names.artifacts import KEY_SETTINGS, NO_PLACE, NODE_PLACE, is_aot_graph
from tb_torchcompile_plugin.torch_names.caches import CODE, KeyPart, part_of, title_of

_CACHE_FOLDER = "TORCHINDUCTOR_CACHE_DIR"
_FX_CACHE = "fx_graph"
_LAST = 1 << 30  # behind what differs in any number of parts
FIRST = "not the key: it was compiled here first"
_CHARS = 60  # of a value in a sentence


class KeyDiffers(NamedTuple):
    """In words, and in which other process. same_run: another rank, for one. avoidable: the other one had an entry by
    then, and had it been the same in both, this would have been a hit."""

    what: str
    than: str
    same_run: bool
    avoidable: bool


def differences(starts: Starts) -> dict[int, KeyDiffers]:
    """By the place of a miss in `looked_up`: how it differs from the nearest process that looked up the same."""
    mine = starts.mine.data
    rows = mine.of(looked_up)
    rows_of: dict[int, KeyDiffers] = {}
    for place, number in mine.of(places_of).items():
        if rows[number][0].result == "miss" and (known := _nearest(starts, place, rows[number][0])):
            rows_of[number] = known
    return rows_of


def _nearest(starts: Starts, place: LookupPlace, lookup: CacheLookup) -> KeyDiffers | None:
    """Of processes whose key is the same the first one that says why; else of those that differ in the fewest parts."""
    near: list[tuple[int, KeyDiffers]] = []
    for other in starts.others:
        number = other.data.of(places_of).get(place)
        if number is None:
            continue
        theirs = other.data.of(looked_up)[number][0]
        place_of = (other.name, other.run == starts.mine.run, _had_entry(starts.mine, other, theirs.result))
        if theirs.key == lookup.key:
            what = _same_key(starts.mine, other, theirs.result)
            near.append((_LAST if what == FIRST else 0, KeyDiffers(what, *place_of)))
        elif parts := _differing(starts.mine.data, other.data, place):
            what = _in_words(parts, starts.mine.data, other.data, place)
            near.append((len(parts), KeyDiffers(what, *place_of)))
    return min(near, key=lambda pair: pair[0])[1] if near else None


def _had_entry(mine: Start, other: Start, result: str) -> bool:
    here, there = mine.data.summary.environment, other.data.summary.environment
    if result == "hit":
        return bool(there.recording_start_ns < here.written_ns)
    return bool(there.written_ns <= here.recording_start_ns)


def _same_key(mine: Start, other: Start, result: str) -> str:
    """Then it lies in where the entry was looked for, or in who compiled first."""
    here, there = mine.data.summary.environment, other.data.summary.environment
    if here.written_ns <= there.recording_start_ns:
        return FIRST
    folders = here.variables.get(_CACHE_FOLDER), there.variables.get(_CACHE_FOLDER)
    if folders[0] != folders[1]:
        return f"not the key: {_CACHE_FOLDER} is {folders[0] or 'not set'} here, and {folders[1] or 'not set'} there"
    if here.hostname != there.hostname:
        return f"not the key: this is host {here.hostname}, and that one {there.hostname}"
    if result == "miss" and here.recording_start_ns <= there.written_ns:
        return "not the key: both compiled it at the same time"
    return "not the key: the entry was removed, or could not be used"


def _differing(
    mine: CompileData, other: CompileData, place: LookupPlace
) -> list[tuple[str, KeyPart | None, KeyPart | None]]:
    """Parts that are not the same, the code of the graph first. AOTAutograd's keys have none; those of the FX graph
    inside, which they come from, stand for them."""
    where = place._replace(cache=_FX_CACHE)
    ours, theirs = (_parts(data, where) for data in (mine, other))
    if not ours or not theirs:
        return []
    names = [name for name in {**ours, **theirs} if _hash(ours.get(name)) != _hash(theirs.get(name))]
    names.sort(key=lambda name: name == CODE, reverse=True)
    return [(name, ours.get(name), theirs.get(name)) for name in names]


def _hash(part: KeyPart | None) -> str | None:
    return None if part is None else part.hash


def _parts(data: CompileData, place: LookupPlace) -> dict[str, KeyPart]:
    number = data.of(places_of).get(place)
    artifact = None if number is None else data.of(looked_up)[number][0].artifact
    return {} if artifact is None else data.of(key_parts, artifact)


def key_parts(data: CompileData, artifact: int) -> dict[str, KeyPart]:
    """Name → part of the key whose record this artifact is; {} where the record does not tell. Settings are a text of
    their own, kept before the first record that has them."""
    record = data.summary.artifacts[artifact]
    settings = [
        number
        for number, one in enumerate(data.summary.artifacts[:artifact])
        if one.name == KEY_SETTINGS and one.key == record.key
    ]
    lines = [*_lines(data, artifact), *(_lines(data, settings[-1]) if settings else [])]
    parts = [part_of(line) for line in lines]
    return {part.name: part for part in parts if part}


def _lines(data: CompileData, artifact: int) -> list[str]:
    try:
        decoded = json.loads(read_payload(data, artifact))
    except (UserError, ValueError):
        return []
    lines = decoded.get("components") if isinstance(decoded, dict) else decoded
    return [line for line in lines if isinstance(line, str)] if isinstance(lines, list) else []


# -- in words -----------------------------------------------------------------------------------------------------


def _in_words(
    parts: list[tuple[str, KeyPart | None, KeyPart | None]],
    mine: CompileData,
    other: CompileData,
    place: LookupPlace,
) -> str:
    name, ours, theirs = parts[0]
    more = f", and {plural(len(parts) - 1, 'more part')} of the key" if len(parts) > 1 else ""
    if name == CODE:
        at, quoted = _code_line(mine, other, place)
        return f"{title_of(name)}{at}{more}{quoted}"
    values = f" is {_value(ours)} here, and {_value(theirs)} there"
    return f"{title_of(name)}{values if _value(ours) or _value(theirs) else ''}{more}"


def _value(part: KeyPart | None) -> str:
    if part is None:
        return "not there"
    return part.value if len(part.value) <= _CHARS else f"{part.value[:_CHARS]}…"


def _code_line(mine: CompileData, other: CompileData, place: LookupPlace) -> tuple[str, str]:
    """The first line of the program whose operators differ, and these."""
    ours, theirs = (_graph(data, place) for data in (mine, other))
    if not ours or not theirs:
        return "", ""
    at = ""
    for (line, where), (another, _) in zip_longest(ours, theirs, fillvalue=("", "")):
        at = where or at
        if line != another:
            quoted = f"{line or 'nothing'} here, {another or 'nothing'} there"
            # as torch quotes code: it stays out of files without code
            return f" at {at}" if at else "", f"  # {quoted}"
    return "", ""


def _graph(data: CompileData, place: LookupPlace) -> list[tuple[str, str]]:
    """The operators of a graph as AOTAutograd hands it to inductor, each with the line of the program."""
    number = data.of(places_of).get(place._replace(cache=_FX_CACHE))
    if number is None:
        return []
    one = data.of(looked_up)[number][0]
    texts = [
        place_of
        for place_of, artifact in enumerate(data.summary.artifacts)
        if (artifact.key.epoch, artifact.key.compile_id) == (one.epoch, one.compile_id)
        and is_aot_graph(artifact.name, backward=one.direction == "backward")
    ]
    try:
        return _operators(read_payload(data, texts[place.graph])) if len(texts) > place.graph else []
    except UserError:
        return []


def _operators(graph: str) -> list[tuple[str, str]]:
    rows, at = [], ""
    for line in graph.splitlines():
        if place := NODE_PLACE.match(line):
            at = at_line(place[1], int(place[2]))
        elif NO_PLACE.match(line):
            at = ""
        elif " = " in (text := line.partition(";")[0].strip()) or text.startswith("return "):
            rows.append((text, at))
    return rows
