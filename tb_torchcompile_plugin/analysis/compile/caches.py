"""What did the lookups in the compile caches find, what did hits save, and why did the others miss?"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from tb_torchcompile_plugin.analysis.formatting import plural
from tb_torchcompile_plugin.compile_log.record import (
    Direction,
    direction_of,
    key_of,
    optional_number,
    optional_seconds,
)
from tb_torchcompile_plugin.compile_log.summary_pb2 import CacheResult as CacheMessage
from tb_torchcompile_plugin.compile_log.summary_pb2 import Compilation
from tb_torchcompile_plugin.compile_log.summary_pb2 import KeyDifference as DifferenceMessage
from tb_torchcompile_plugin.profile.intervals import to_seconds
from tb_torchcompile_plugin.reader.arrays import grouped
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.torch_names.artifacts import cache_lookup
from tb_torchcompile_plugin.torch_names.caches import is_input, order_of, title_of

_MAX_PARTS = 4  # parts of a key named in one sentence
_MAX_VALUE_CHARS = 40  # longer values are left out of a sentence


class CacheResult(msgspec.Struct, frozen=True):
    """One lookup in a compile cache."""

    cache: str
    result: str
    key: str
    direction: Direction
    # Number among the lookups of this cache and direction in its compilation (DDP makes several).
    graph: int | None
    why: str | None  # reason for a miss or bypass, in words; None for a hit
    reason: str | None  # the same in torch's words
    time_saved_s: float | None


class KeyDifference(msgspec.Struct, frozen=True):
    """A part of a key that differs from an earlier key."""

    title: str
    part: str  # torch's name of the part
    before: str | None  # None where unknown
    now: str | None


class CacheLookup(CacheResult, frozen=True, kw_only=True):
    """A `CacheResult` with its compilation."""

    compile_id: str
    epoch: int
    graphs: int  # how many lookups of this cache and direction the compilation made
    nearest: str | None  # compilation with the nearest earlier key of this process
    nearest_epoch: int | None
    differences: list[KeyDifference]  # from that nearest key
    artifact: int | None  # id of the text that records the lookup


def compilations_in_order(data: CompileData) -> list[Compilation]:
    """Return the messages of all compilations in order of time."""
    return sorted(data.summary.compilations, key=lambda row: (row.start_ns, row.key.epoch))


def cache_lookups(data: CompileData) -> list[CacheLookup]:
    """Return all lookups of a process, compilation by compilation."""
    lookups = [
        (row, message, result)
        for row in data.of(compilations_in_order)
        for message, result in zip(row.cache, cache_results(row), strict=True)
    ]
    kinds = Counter(_kind(row, result) for row, _, result in lookups)
    texts = grouped(enumerate(data.summary.artifacts), lambda text: (key_of(text[1].key), text[1].name))
    unused_texts = {key: iter([number for number, _ in group]) for key, group in texts.items()}
    rows = []
    for row, message, result in lookups:
        has_nearest = message.HasField("nearest")
        text_key = key_of(row.key), cache_lookup(result.cache, result.result)
        rows.append(
            CacheLookup(
                compile_id=row.key.compile_id,
                epoch=row.key.epoch,
                graphs=kinds[_kind(row, result)],
                nearest=message.nearest.compile_id if has_nearest else None,
                nearest_epoch=message.nearest.epoch if has_nearest else None,
                differences=[_difference(difference) for difference in message.differences],
                artifact=next(unused_texts.get(text_key, iter(())), None),
                **msgspec.structs.asdict(result),
            )
        )
    return rows


def cache_results(row: Compilation) -> list[CacheResult]:
    """Return the lookups of one compilation, in order of time."""
    return [
        CacheResult(
            cache=lookup.cache,
            result=lookup.result,
            key=lookup.key,
            direction=direction_of(row.direction or lookup.direction),
            graph=optional_number(lookup, "graph"),
            why=_why(lookup),
            reason=lookup.reason if lookup.HasField("reason") else None,
            time_saved_s=optional_seconds(lookup, "time_saved_ns"),
        )
        for lookup in row.cache
    ]


def _kind(row: Compilation, result: CacheResult) -> tuple[int, str, str, Direction]:
    return row.key.epoch, row.key.compile_id, result.cache, result.direction


def time_saved_s(data: CompileData) -> float | None:
    """Return the time that all hits saved; None where no hit has one."""
    saved = [ns for row in data.summary.compilations for ns in saved_ns(row.cache)]
    return to_seconds(sum(saved)) if saved else None


def saved_ns(lookups: Iterable[CacheMessage]) -> list[int]:
    """Return the times that the lookups of one compilation saved.

    A hit of AOTAutograd's cache includes those of the FX graphs in it, so these count only without one.
    """
    timed = [lookup for lookup in lookups if lookup.HasField("time_saved_ns")]
    outer = [lookup for lookup in timed if lookup.cache == "aotautograd"]
    return [lookup.time_saved_ns for lookup in outer or timed]


def _why(lookup: CacheMessage) -> str | None:
    """Explain a miss or a bypass in a sentence; None for a hit."""
    if lookup.result == "hit":
        return None
    if lookup.result == "bypass":
        reason = f": {lookup.reason}" if lookup.reason else "; torch gives no reason"
        return f"The cache was not used{reason}"
    if lookup.reason == "guard_miss":
        return "An entry has this key, but its guards on symbolic shapes do not hold for these sizes"
    if not lookup.HasField("nearest") and lookup.first:
        graph = f"{direction_of(lookup.direction)} graph"
        return f"The first {graph} of this process, and the cache holds no entry with its key"
    if not lookup.HasField("nearest"):
        fx_graph = "; those of the FX graph it does tell" if lookup.cache == "aotautograd" else ""
        return f"The cache holds no entry with its key. torch does not tell the parts of this key{fx_graph}"
    epoch = lookup.nearest.epoch
    nearest = lookup.nearest.compile_id + (f" (after reset {epoch})" if epoch else "")
    if not lookup.differences:
        return f"The key is that of {nearest}, whose entry could not be used or was not stored yet"
    rows = sorted(map(_difference, lookup.differences), key=lambda row: order_of(row.part))
    return f"New key. Nearest is {nearest}, which differs in {listed(rows)}"


def listed(differences: Sequence[KeyDifference]) -> str:
    """List the first parts with their values where these are short, all inputs as one."""
    inputs = sum(is_input(row.part) for row in differences)
    phrases = []
    for row in differences:
        is_short = row.before and row.now and max(len(row.before), len(row.now)) <= _MAX_VALUE_CHARS
        values = f" ({row.before} → {row.now})" if is_short else ""
        phrases.append(plural(inputs, "input") if is_input(row.part) else row.title + values)
    phrases = list(dict.fromkeys(phrases))
    more = len(phrases) - _MAX_PARTS
    rest = f" and {plural(more, 'more part')}" if more > 0 else ""
    return ", ".join(phrases[:_MAX_PARTS]) + rest


def _difference(row: DifferenceMessage) -> KeyDifference:
    return difference(title_of(row.part), row.part, row.before, row.now)


def difference(title: str, part: str, before: str, now: str) -> KeyDifference:
    """Reduce two texts `Name(field=value, …)` to the fields that differ; keep other texts as they are."""
    fields_before, fields_now = _fields(before), _fields(now)
    if fields_before and fields_now:
        either = {**fields_before, **fields_now}
        names = [name for name in either if fields_before.get(name) != fields_now.get(name)]
        before, now = (
            ", ".join(f"{name}={fields[name]}" for name in names if name in fields)
            for fields in (fields_before, fields_now)
        )
    return KeyDifference(title, part, before or None, now or None)


def _fields(text: str) -> dict[str, str]:
    """Split `Name(field=value, …)` at the commas outside of all brackets; {} for any other text."""
    match = re.match(r"\w+\((.*)\)$", text, re.DOTALL)
    if not match:
        return {}
    depth, start, pieces = 0, 0, []
    for index, letter in enumerate(match[1]):
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            pieces.append(match[1][start:index])
            start = index + 1
    pairs = (piece.strip().partition("=") for piece in [*pieces, match[1][start:]])
    return {name: value for name, equals, value in pairs if equals}
