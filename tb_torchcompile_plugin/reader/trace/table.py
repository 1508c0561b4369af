"""Parts of one or several decoders → one table, sorted by (track, ts, -dur, file order), with nesting.

One column at a time is brought together, permuted and handed out, so memory does not grow with their number.
Names, categories, tracks and texts are numbered in sorted order: the table depends on the file alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tb_torchcompile_plugin.errors import visible
from tb_torchcompile_plugin.reader.trace.codes import (
    COLLECTIVE_FIELDS,
    FLOATS,
    KIND_NAMES,
    MEMORY_FIELDS,
    SLICE_FIELDS,
    TEXT_FIELDS,
    Array,
    Combo,
)
from tb_torchcompile_plugin.reader.trace.decode import Piece
from tb_torchcompile_plugin.reader.trace.nest import nest
from tb_torchcompile_plugin.reader.trace.serial import Sink, narrow
from tb_torchcompile_plugin.torch_names.kernels import without_descriptor
from tb_torchcompile_plugin.torch_names.slices import KERNEL

_ROWS = 1 << 18  # rows that are permuted and written at once
_DENSE = (
    *("correlation", "external_id", "device", "stream", "sequence", "forward_thread"),
    *("python_id", "python_parent"),
)
_NAMES = {"external_id": "external"}  # of a column among the args
SPARSE = (
    *("registers", "shared_memory", "occupancy", "bytes", "kernel_num_gb", "kernel_flop", "python_module"),
    *COLLECTIVE_FIELDS,
    *TEXT_FIELDS,
)


@dataclass
class Contents:
    """All of a table but its columns; JSON-able."""

    events: int = 0
    slices: int = 0
    phases: dict[str, int] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)
    cats: list[str] = field(default_factory=list)
    tracks: list[tuple[Any, Any, Any, Any]] = field(default_factory=list)
    texts: dict[str, list[str]] = field(default_factory=dict)
    losses: dict[str, tuple[int, int]] = field(default_factory=dict)
    crossing: int = 0
    file: tuple[int, int] = (0, 0)  # size and mtime_ns of what was read


def build(pieces: Sequence[Piece], sink: Sink, check: Callable[[], None]) -> Contents:
    """Write every column to `sink`; return what the codes mean. Calls `check()` between columns (to be cancelled)."""
    return _Builder(pieces, sink, check).build()


class _Builder:
    def __init__(self, pieces: Sequence[Piece], sink: Sink, check: Callable[[], None]) -> None:
        self._pieces, self._sink, self._check = pieces, sink, check
        self._contents = Contents()
        self._slice_base = _bases([piece.part.slices for piece in pieces])
        self._event_base = _bases([piece.part.events for piece in pieces])
        self._vocabularies = list({id(piece.vocabulary): piece.vocabulary for piece in pieces}.values())

    def build(self) -> Contents:
        contents = self._contents
        contents.events, contents.slices = int(self._event_base[-1]), int(self._slice_base[-1])
        self._add_up()
        luts = self._number()
        track = self._codes(luts["track"])
        ts = self._gather("ts", np.int64)
        assert len(ts) == len(track) == contents.slices, "the parts' counts do not add up"
        self._order = _sort(track, ts, self._gather("dur", np.int64), len(contents.tracks))
        bounds = np.searchsorted(track[self._order], np.arange(len(contents.tracks) + 1))
        self._whole("track_bounds", bounds, np.int64)
        self._put("track", np.int32, track)
        del track
        self._put("ts", np.int64, ts)
        del ts
        self._put("dur", np.int64, self._gather("dur", np.int64))
        self._put("name", np.int32, self._codes(luts["name"]))
        self._put("cat", np.int16, self._codes(luts["cat"]))
        event = narrow(self._gather("event", np.int32, self._event_base, np.int64))
        self._put("event", event.dtype, event)
        del event
        self._nest(bounds)
        self._positions = np.empty_like(self._order)
        self._positions[self._order] = np.arange(contents.slices, dtype=self._order.dtype)
        del self._order
        self._args()
        self._instants(luts)
        self._chunks()
        return contents

    def _add_up(self) -> None:
        for piece in self._pieces:
            for phase, count in piece.part.phases.items():
                self._contents.phases[phase] = self._contents.phases.get(phase, 0) + count
            for why, (count, offset) in piece.part.losses.items():
                before, first = self._contents.losses.get(why, (0, offset))
                self._contents.losses[why] = (before + count, first)
        assert sum(self._contents.phases.values()) == self._contents.events, "the phases do not add up"

    def _number(self) -> dict[str, dict[int, Array]]:
        """Return look-up tables from each vocabulary's codes to the numbers of names, categories and tracks."""
        used = self._used_combos()
        values_of: dict[str, list[Any]] = {}
        combos = [(v, code) for v in self._vocabularies for code in used[id(v)]]
        keys: dict[str, Callable[[Combo], Any]] = {
            "name": _name,
            "cat": lambda combo: _as_text(combo[1]),
            "track": lambda combo: (_as_id(combo[3]), _as_id(combo[4])),
        }
        luts: dict[str, dict[int, Array]] = {}
        for kind, key in keys.items():
            values = [key(v.combos[code]) for v, code in combos]
            numbers = _numbered(set(values))
            luts[kind] = {id(v): np.zeros(max(len(v.combos), 1), np.int32) for v in self._vocabularies}
            for (v, code), value in zip(combos, values):
                luts[kind][id(v)][code] = numbers[value]
            values_of[kind] = list(numbers)
        processes, threads = self._labels()
        tracks = [(p, t, processes.get(p, ""), threads.get((p, t), "")) for p, t in values_of["track"]]
        self._contents.names, self._contents.cats = values_of["name"], values_of["cat"]
        self._contents.tracks = tracks
        return luts

    def _labels(self) -> tuple[dict[Any, str], dict[Any, str]]:
        processes: dict[Any, str] = {}
        threads: dict[Any, str] = {}
        for piece in self._pieces:
            for name, pid, tid, value in piece.part.meta:
                if name == "process_name":
                    processes[_as_id(pid)] = _as_text(value)
                elif name == "thread_name":
                    threads[_as_id(pid), _as_id(tid)] = _as_text(value)
        return processes, threads

    def _used_combos(self) -> dict[int, list[int]]:
        seen = {id(v): np.zeros(max(len(v.combos), 1), bool) for v in self._vocabularies}
        for piece in self._pieces:
            for name in ("code", "memory.code", "flow.code"):
                seen[id(piece.vocabulary)][piece.load(name, np.int32)] = True
        return {key: np.flatnonzero(mask).tolist() for key, mask in seen.items()}

    def _gather(self, name: str, dtype: Any, bases: Array | None = None, wide: Any = None) -> Array:
        wide = wide or dtype
        parts = [piece.load(name, dtype) for piece in self._pieces]
        if bases is not None:
            parts = [part + wide(base) for part, base in zip(parts, bases)]
        return np.concatenate(parts, dtype=wide) if parts else np.zeros(0, wide)

    def _codes(self, lut: Mapping[int, Array], name: str = "code") -> Array:
        parts = [lut[id(piece.vocabulary)][piece.load(name, np.int32)] for piece in self._pieces]
        return np.concatenate(parts) if parts else np.zeros(0, np.int32)

    def _put(self, name: str, dtype: Any, values: Array) -> None:
        self._check()
        self._sink.put(name, dtype, len(self._order), (values[rows] for rows in _blocks(self._order)))

    def _whole(self, name: str, values: Array, dtype: Any) -> None:
        self._check()
        self._sink.put(name, dtype, len(values), _blocks(values))

    def _narrow(self, name: str, values: Array) -> None:
        values = narrow(values)
        self._whole(name, values, values.dtype)

    def _nest(self, bounds: Array) -> None:
        count = self._contents.slices
        columns = self._sink.columns()
        ts, dur = columns["ts"], columns["dur"]
        parent, depth, own = np.empty(count, np.int64), np.empty(count, np.int32), np.empty(count, np.int64)
        for start, end in zip(bounds[:-1].tolist(), bounds[1:].tolist()):
            self._check()
            above, depth[start:end], own[start:end], crossing = nest(
                np.array(ts[start:end]), np.array(dur[start:end])
            )
            parent[start:end] = np.where(above >= 0, above + start, -1)
            self._contents.crossing += crossing
        self._narrow("parent", parent)
        self._whole("depth", depth, np.int32)
        self._whole("self_ns", own, np.int64)

    def _args(self) -> None:
        rows = {
            kind: self._positions[self._gather(f"{name}.row", np.int32, self._slice_base, np.int64)]
            for kind, name in KIND_NAMES.items()
        }
        for column in _DENSE:
            name = _NAMES.get(column, column)
            parts = {
                kind: narrow(self._gather(f"{KIND_NAMES[kind]}.{name}", np.int64))
                for kind, fields in SLICE_FIELDS.items()
                if name in fields
            }
            dense = np.full(self._contents.slices, -1, np.result_type(np.int32, *parts.values()))
            for kind, part in parts.items():
                dense[rows[kind]] = part
            self._whole(column, dense, dense.dtype)
        for column in SPARSE:
            self._sparse(column, rows)

    def _sparse(self, column: str, rows: dict[int, Array]) -> None:
        kinds = [kind for kind, fields in SLICE_FIELDS.items() if column in fields]
        if column in TEXT_FIELDS:
            parts = self._texts(column, [KIND_NAMES[kind] for kind in kinds])
        else:
            dtype = FLOATS.get(column, np.int64)
            parts = [self._gather(f"{KIND_NAMES[kind]}.{column}", dtype) for kind in kinds]
        values = np.concatenate(parts)
        has_value = values >= 0
        row = np.concatenate([rows[kind] for kind in kinds])[has_value]
        order = np.argsort(row, kind="stable")
        self._narrow(f"{column}.row", row[order])
        self._whole(column, values[has_value][order], values.dtype)

    def _texts(self, column: str, kinds: list[str]) -> list[Array]:
        """Codes of interned texts, by kind, numbered over all vocabularies in the order of the normalised text."""
        used = {id(v): np.zeros(len(v.texts.get(column, [])) + 1, bool) for v in self._vocabularies}
        for piece in self._pieces:
            for kind in kinds:
                used[id(piece.vocabulary)][piece.load(f"{kind}.{column}", np.int32)] = True  # -1: the last
        texts = {id(v): v.texts.get(column, []) for v in self._vocabularies}
        wanted = {text for key, words in texts.items() for text, asked in zip(words, used[key]) if asked}
        normal = {text: _normal(text) for text in wanted}
        numbers = _numbered(set(normal.values()))
        luts = {
            key: np.array(
                [*(numbers[normal[text]] if text in normal else -1 for text in words), -1], np.int32
            )
            for key, words in texts.items()
        }
        self._contents.texts[column] = list(numbers)
        return [self._codes(luts, f"{kind}.{column}") for kind in kinds]

    def _instants(self, luts: dict[str, dict[int, Array]]) -> None:
        for kind, fields in (("memory", MEMORY_FIELDS), ("flow", ("id",))):
            ts = self._gather(f"{kind}.ts", np.int64)
            order = np.argsort(ts, kind="stable")
            self._whole(f"{kind}.ts", ts[order], np.int64)
            self._whole(f"{kind}.track", self._codes(luts["track"], f"{kind}.code")[order], np.int32)
            for name in fields:
                self._whole(f"{kind}.{name}", self._gather(f"{kind}.{name}", np.int64)[order], np.int64)
        # `order` is that of the flows now, which came last
        is_start = {
            id(v): np.array([combo[0] == "s" for combo in v.combos] or [False]) for v in self._vocabularies
        }
        self._whole("flow.start", self._codes(is_start, "flow.code").astype(bool)[order], np.bool_)

    def _chunks(self) -> None:
        parts = [np.zeros((0, 3), np.int64)]
        for piece, base in zip(self._pieces, self._event_base):
            chunks = np.array(piece.part.chunks, np.int64).reshape(-1, 3)
            chunks[:, 2] += base
            parts.append(chunks)
        table = np.concatenate(parts)
        for index, name in enumerate(("chunk.start", "chunk.end", "chunk.event")):
            self._whole(name, np.ascontiguousarray(table[:, index]), np.int64)


def _bases(counts: Iterable[int]) -> Array:
    return np.cumsum([0, *counts], dtype=np.int64)


def _blocks(values: Array) -> Iterator[Array]:
    return (values[at : at + _ROWS] for at in range(0, len(values), _ROWS))


def _sort(track: Array, ts: Array, dur: Array, tracks: int) -> Array:
    """The permutation to (track, ts, -dur, file order)."""
    order = np.argsort(track.astype(np.int16) if tracks < 2**15 else track, kind="stable").astype(
        np.int32 if len(ts) < 2**31 else np.int64
    )
    bounds = np.cumsum(np.bincount(track, minlength=tracks))
    start = 0
    for end in bounds.tolist():
        rows = order[start:end]
        order[start:end] = rows[_sort_track(ts[rows], dur, rows)]
        start = end
    return order


def _sort_track(ts: Array, dur: Array, rows: Array) -> Array:
    order = np.argsort(ts, kind="stable")
    ts = ts[order]
    same = ts[1:] == ts[:-1]
    if same.any():
        # only slices that start at the same time need to be compared by duration
        tied = np.zeros(len(ts), bool)
        tied[1:] |= same
        tied[:-1] |= same
        at = np.flatnonzero(tied)
        group = order[at]
        order[at] = group[np.lexsort((rows[group], -dur[rows[group]], ts[at]))]
    return order


def _numbered(values: set[Any]) -> dict[Any, int]:
    return {value: number for number, value in enumerate(sorted(values, key=_sort_key))}


def _sort_key(value: Any) -> Any:
    return tuple(map(_sort_key, value)) if isinstance(value, tuple) else (isinstance(value, str), value)


def _name(combo: Combo) -> str:
    _, cat, name, _, _ = combo
    return without_descriptor(_as_text(name)) if cat == KERNEL else _as_text(name)


def _as_text(value: Any) -> str:
    return visible(value) if isinstance(value, str) else "" if value is None else str(value)


_IDS_END = 1 << 63


def _as_id(value: Any) -> int | str:
    """Return a number that columns can hold, otherwise a text."""
    is_whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    return int(value) if is_whole and abs(value) < _IDS_END else _as_text(value)


def _normal(text: bytes) -> str:
    try:
        value = json.loads(text)
    except ValueError:
        return text.decode("utf-8", "replace")
    return value if isinstance(value, str) else json.dumps(value)
