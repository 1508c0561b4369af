"""Lookups in the compile caches: what each found, and of a miss, which parts of its key are new.

torch tells a key part by part, each with a hash of its own. The parts of a miss are compared with those of the
earlier lookups of the same process; the nearest one says what changed. Runs inside training: standard library and
protobuf only.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from tb_torchcompile_plugin.compile_log import prose
from tb_torchcompile_plugin.compile_log.compile_rows import text_of
from tb_torchcompile_plugin.compile_log.summary_pb2 import CacheResult, CompileKey, Direction, KeyDifference
from tb_torchcompile_plugin.torch_names import caches as cache_keys

_REMEMBERED = 32  # lookups that a miss is compared with
_VALUE_CHARS = 600  # longer ones are dumps
_VALUES = 20  # differences that are stored with their values


@dataclass(slots=True)
class _Lookup:
    """settings: the same object wherever they are the same; they are most of a key's parts."""

    compile_key: CompileKey
    key: str
    settings: frozenset[str]
    parts: dict[str, str]  # name → "hash value"
    items: frozenset[tuple[str, str]]  # of `parts`, to be compared with many others


class CacheLookups:
    """The lookups of one process, in order. source: keep values, which may quote the user's code."""

    def __init__(self, *, source: bool) -> None:
        self._source = source
        self._known: dict[tuple[str, int], deque[_Lookup]] = defaultdict(lambda: deque(maxlen=_REMEMBERED))
        self._settings: dict[frozenset[str], frozenset[str]] = {}
        self._counts: Counter[tuple[int, str, str, int]] = Counter()

    def row(
        self, cache: str, result: str, details: dict[str, Any], key: CompileKey, direction: Direction
    ) -> CacheResult:
        """One lookup from its record. Rows of one compile id are numbered as its graphs are."""
        row = cache_row(cache, result, details, source=self._source)
        kind = (key.epoch, key.compile_id, cache, int(direction))
        row.direction, row.graph = direction, self._counts[kind]
        self._counts[kind] += 1
        known = self._known[cache, direction]
        row.first = not known
        lookup = self._lookup(details, key)
        row.parts_told = bool(lookup.settings or lookup.parts)
        if result == "miss":
            self._compare(row, lookup, known)
        if result != "bypass":
            known.append(lookup)
        return row

    def _lookup(self, details: dict[str, Any], key: CompileKey) -> _Lookup:
        settings, parts = [], {}
        for line in details.get("components") or ():
            if cache_keys.is_setting(line):
                settings.append(line)
            elif part := cache_keys.part_of(line):
                value = "" if part.name == cache_keys.CODE or len(part.value) > _VALUE_CHARS else part.value
                parts[part.name] = f"{part.hash} {value}"
        same = frozenset(settings)
        settings_of = self._settings.setdefault(same, same)
        return _Lookup(key, text_of(details.get("key")), settings_of, parts, frozenset(parts.items()))

    def _compare(self, row: CacheResult, lookup: _Lookup, known: deque[_Lookup]) -> None:
        nearest = next((other for other in reversed(known) if other.key == lookup.key), None)
        if nearest is None and row.parts_told:
            comparable = [other for other in reversed(known) if other.parts]
            nearest = min(comparable, key=lambda other: _distance(other, lookup), default=None)
        if nearest is None:
            return
        row.nearest.CopyFrom(nearest.compile_key)
        before, now = _differences(nearest, lookup)
        for number, name in enumerate({**before, **now}):
            with_values = self._source and number < _VALUES
            row.differences.append(
                KeyDifference(
                    part=name,
                    before=_value(before.get(name)) if with_values else "",
                    now=_value(now.get(name)) if with_values else "",
                )
            )


def _value(part: str | None) -> str:
    return "" if part is None else part.partition(" ")[2]


def _distance(one: _Lookup, other: _Lookup) -> int:
    return _apart(one.settings, other.settings) + len(one.items ^ other.items)


@lru_cache(maxsize=64)
def _apart(one: frozenset[str], other: frozenset[str]) -> int:
    """A process has few sets of settings, and compares them for each miss."""
    return len(one ^ other)


def _differences(one: _Lookup, other: _Lookup) -> tuple[dict[str, str], dict[str, str]]:
    """The parts of each that the other one has not."""
    if one.key == other.key:
        return {}, {}
    before, now = dict(one.items - other.items), dict(other.items - one.items)
    if one.settings is not other.settings:
        before.update(_named(one.settings - other.settings))
        now.update(_named(other.settings - one.settings))
    order = {name: place for place, name in enumerate({**one.parts, **other.parts})}

    def place(item: tuple[str, str]) -> tuple[int, str]:
        return order.get(item[0], len(order)), item[0]

    return dict(sorted(before.items(), key=place)), dict(sorted(now.items(), key=place))


def _named(settings: frozenset[str]) -> dict[str, str]:
    parts = (cache_keys.part_of(line) for line in settings)
    return {part.name: f"{part.hash} {part.value[:_VALUE_CHARS]}" for part in parts if part}


def cache_row(cache: str, result: str, details: dict[str, Any], *, source: bool) -> CacheResult:
    """What the record itself says. A bypass says why, in words that may quote the graph."""
    row = CacheResult(cache=cache, result=result, key=text_of(details.get("key")))
    if reason := text_of(details.get("cache_bypass_reason")):
        row.reason = reason if source else prose.WITHHELD
    elif result == "miss" and (status := text_of(details.get("cache_status_detailed"))):
        row.reason = status
    if details.get("time_saved_ns") is not None:
        row.time_saved_ns = int(details["time_saved_ns"])
    elif details.get("time_saved_ms") is not None:
        row.time_saved_ns = round(float(details["time_saved_ms"]) * 1_000_000)
    if details.get("time_taken_ns") is not None:
        row.time_taken_ns = int(details["time_taken_ns"])
    return row
