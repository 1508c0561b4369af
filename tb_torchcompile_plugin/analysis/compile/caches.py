"""What did the lookups in the compile caches find, what did hits save, and why did the others miss?"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

import msgspec

from tb_torchcompile_plugin.compile_log.record import Direction, direction_of, known_number, known_seconds
from tb_torchcompile_plugin.compile_log.summary_pb2 import CacheResult as CacheMessage
from tb_torchcompile_plugin.compile_log.summary_pb2 import Compilation, CompileSummary
from tb_torchcompile_plugin.compile_log.summary_pb2 import KeyDifference as DifferenceMessage
from tb_torchcompile_plugin.profile.units import to_seconds
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.torch_names.artifacts import cache_lookup
from tb_torchcompile_plugin.torch_names.caches import CODE, is_input, title_of

_Texts: TypeAlias = dict[tuple[int, str, str], Iterator[int]]

_PARTS_NAMED = 4  # in a sentence
_VALUE_CHARS = 40  # in a sentence


class CacheResult(msgspec.Struct, frozen=True):
    """One lookup. `graph`: which of its cache and direction within the compilation, from 0 (DDP makes several).

    `why`: why it missed or was bypassed, in words; None for a hit. `reason`: the same as torch says it.
    """

    cache: str
    result: str
    key: str
    direction: Direction
    graph: int | None
    why: str | None
    reason: str | None
    time_saved_s: float | None


class KeyDifference(msgspec.Struct, frozen=True):
    """A part of a key that is not as it was, by what it is and by torch's name. A value that is not known is None."""

    title: str
    part: str
    before: str | None
    now: str | None


class CacheLookup(CacheResult, frozen=True, kw_only=True):
    """A `CacheResult` with its compilation. `graphs`: how many lookups of its kind the compilation made.

    differences: from the nearest earlier key of this process, which is of compilation `nearest`.
    artifact: the id of its record's text.
    """

    compile_id: str
    epoch: int
    graphs: int
    nearest: str | None
    nearest_epoch: int | None
    differences: list[KeyDifference]
    artifact: int | None


def cache_results(row: Compilation) -> list[CacheResult]:
    """The lookups of one compilation, in order of time."""
    return [
        CacheResult(
            cache=lookup.cache,
            result=lookup.result,
            key=lookup.key,
            direction=direction_of(row.direction or lookup.direction),
            graph=known_number(lookup, "graph"),
            why=why(lookup),
            reason=lookup.reason if lookup.HasField("reason") else None,
            time_saved_s=known_seconds(lookup, "time_saved_ns"),
        )
        for lookup in row.cache
    ]


def in_order(data: CompileData) -> list[Compilation]:
    """The compilations as `cache_lookups` goes through them."""
    return sorted(data.summary.compilations, key=lambda row: (row.start_ns, row.key.epoch))


def cache_lookups(data: CompileData) -> list[CacheLookup]:
    """All lookups of a process, compilation by compilation."""
    texts = _texts(data.summary)
    compiled = data.of(in_order)
    lookups = [(row, *both) for row in compiled for both in zip(row.cache, cache_results(row), strict=True)]
    kinds = Counter(_kind(row, result) for row, _, result in lookups)
    return [
        _lookup(row, message, result, kinds[_kind(row, result)], texts) for row, message, result in lookups
    ]


def _kind(row: Compilation, result: CacheResult) -> tuple[int, str, str, Direction]:
    return row.key.epoch, row.key.compile_id, result.cache, result.direction


def _lookup(
    row: Compilation, message: CacheMessage, result: CacheResult, graphs: int, texts: _Texts
) -> CacheLookup:
    name = cache_lookup(result.cache, result.result)
    known = message.HasField("nearest")
    return CacheLookup(
        compile_id=row.key.compile_id,
        epoch=row.key.epoch,
        graphs=graphs,
        nearest=message.nearest.compile_id if known else None,
        nearest_epoch=message.nearest.epoch if known else None,
        differences=[_difference(difference) for difference in message.differences],
        artifact=next(texts.get((row.key.epoch, row.key.compile_id, name), iter(())), None),
        **msgspec.structs.asdict(result),
    )


def time_saved_s(data: CompileData) -> float | None:
    """By all hits. One of AOTAutograd's cache includes those of the FX graphs in it."""
    saved = [ns for row in data.summary.compilations for ns in saved_ns(row.cache)]
    return to_seconds(sum(saved)) if saved else None


def saved_ns(lookups: Iterable[CacheMessage]) -> list[int]:
    """By those lookups of one compilation that tell, each stretch of work once."""
    known = [lookup for lookup in lookups if lookup.HasField("time_saved_ns")]
    whole = [lookup for lookup in known if lookup.cache == "aotautograd"]
    return [lookup.time_saved_ns for lookup in whole or known]


def _texts(summary: CompileSummary) -> _Texts:
    """The ids of texts by compile id and name, in the order in which they were written."""
    numbers: dict[tuple[int, str, str], list[int]] = defaultdict(list)
    for number, artifact in enumerate(summary.artifacts):
        numbers[artifact.key.epoch, artifact.key.compile_id, artifact.name].append(number)
    return {key: iter(rows_of) for key, rows_of in numbers.items()}


# -- in words -----------------------------------------------------------------------------------------------------


def why(lookup: CacheMessage) -> str | None:
    """A sentence for the user; None for a hit."""
    if lookup.result == "hit":
        return None
    if lookup.result == "bypass":
        return "The cache was not used" + (
            f": {lookup.reason}" if lookup.reason else "; torch gives no reason"
        )
    if lookup.reason == "guard_miss":
        return "An entry has this key, but its guards on symbolic shapes do not hold for these sizes"
    if not lookup.HasField("nearest"):
        return _without_comparison(lookup)
    if not lookup.differences:
        return f"The key is that of {_name(lookup)}, whose entry could not be used or was not stored yet"
    return f"New key. Nearest is {_name(lookup)}, which differs in {_listed(lookup.differences)}"


def _without_comparison(lookup: CacheMessage) -> str:
    if lookup.first:
        what = f"{direction_of(lookup.direction)} graph"
        return f"The first {what} of this process, and the cache holds no entry with its key"
    apart = "; those of the FX graph it does tell" if lookup.cache == "aotautograd" else ""
    return f"The cache holds no entry with its key. torch does not tell the parts of this key{apart}"


def _name(lookup: CacheMessage) -> str:
    epoch = lookup.nearest.epoch
    return lookup.nearest.compile_id + (f" (after reset {epoch})" if epoch else "")


def _listed(differences: Sequence[DifferenceMessage]) -> str:
    """The code of the graph first, then how many inputs, then the others with their values."""
    inputs = sum(is_input(row.part) for row in differences)
    phrases = [_phrase(row) for row in differences if not is_input(row.part)]
    if inputs:
        phrases.insert(0, f"{inputs} input{'s' if inputs > 1 else ''}")
    phrases = sorted(dict.fromkeys(phrases), key=lambda phrase: phrase != title_of(CODE))
    more = len(phrases) - _PARTS_NAMED
    rest = f" and {more} more part{'s' if more > 1 else ''}" if more > 0 else ""
    return ", ".join(phrases[:_PARTS_NAMED]) + rest


def _phrase(row: DifferenceMessage) -> str:
    short = row.before and row.now and max(len(row.before), len(row.now)) <= _VALUE_CHARS
    return title_of(row.part) + (f" ({row.before} → {row.now})" if short else "")


def _difference(row: DifferenceMessage) -> KeyDifference:
    before, now = _changed(row.before, row.now)
    return KeyDifference(title_of(row.part), row.part, before or None, now or None)


def _changed(before: str, now: str) -> tuple[str, str]:
    """Of two `Name(field=value, …)` the fields that differ; other texts as they are."""
    ours, theirs = _fields(before), _fields(now)
    if not ours or not theirs:
        return before, now
    names = [name for name in {**ours, **theirs} if ours.get(name) != theirs.get(name)]

    def text(fields: dict[str, str]) -> str:
        return ", ".join(f"{name}={fields[name]}" for name in names if name in fields)

    return text(ours), text(theirs)


def _fields(text: str) -> dict[str, str]:
    match = re.match(r"\w+\((.*)\)$", text, re.DOTALL)
    if not match:
        return {}
    depth, start, pieces = 0, 0, []
    for place, letter in enumerate(match[1]):
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            pieces.append(match[1][start:place])
            start = place + 1
    pairs = (piece.strip().partition("=") for piece in [*pieces, match[1][start:]])
    return {name: value for name, sign, value in pairs if sign}
