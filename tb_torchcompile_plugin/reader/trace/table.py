"""Parts of one or several decoders → one table, sorted by (track, ts, -dur, file order), with nesting.

One column at a time is brought together, permuted and handed out, so memory does not grow with their number.
Names, categories, tracks and texts are numbered in sorted order: the table depends on the file alone.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from isal import isal_zlib

from tb_torchcompile_plugin.errors import visible
from tb_torchcompile_plugin.reader.trace.decode import DecodedPart
from tb_torchcompile_plugin.reader.trace.events import (
    COLLECTIVE_FIELDS,
    FLOATS,
    KIND_NAMES,
    MEMORY_FIELDS,
    RAW_BACKSLASHES,
    SLICE_FIELDS,
    TEXT_FIELDS,
    Array,
)
from tb_torchcompile_plugin.reader.trace.nest import nest
from tb_torchcompile_plugin.torch_names.kernels import without_descriptor
from tb_torchcompile_plugin.torch_names.slices import KERNEL, PYTHON_FUNCTION, current_cat

# In a file whose backslashes are raw, what JSON reads as one of these was a path such as `D:\new\tools`.
_ESCAPES = str.maketrans({"\b": r"\b", "\t": r"\t", "\n": r"\n", "\f": r"\f", "\r": r"\r"})
_DRIVE = re.compile(r"[A-Za-z]:[\\\b\t\n\f\r]")
_ROWS = 1 << 18  # rows that are permuted and written at once
_ALIGNED = 64  # bytes: each column begins at a multiple, as numpy allocates them, too
_DENSE = ("correlation", "external_id", "device", "stream", "sequence", "forward_thread")
_NAMES = {"external_id": "external"}  # of a column among the args
SPARSE = (
    *("registers", "shared_memory", "occupancy", "bytes", "kernel_num_gb", "kernel_flop", "python_module"),
    "graph_node",
    *COLLECTIVE_FIELDS,
    *TEXT_FIELDS,
)


class Track(NamedTuple):
    """One row of a timeline: a thread, or a stream of a device."""

    pid: int | str
    tid: int | str
    process_name: str = ""
    thread_name: str = ""


@dataclass(eq=False)
class Contents:
    """All of a table but its columns; JSON-able."""

    events: int = 0  # of any phase
    slices: int = 0
    phases: dict[str, int] = field(default_factory=dict)  # events by phase
    names: list[str] = field(default_factory=list)
    cats: list[str] = field(default_factory=list)
    tracks: list[Track] = field(default_factory=list)
    texts: dict[str, list[str]] = field(default_factory=dict)
    losses: dict[str, tuple[int, int]] = field(default_factory=dict)  # see `Decoder.lose`
    crossing: int = 0  # slices that outlast their parent
    file: tuple[int, int] = (0, 0)  # size and mtime_ns of what was read


def build(parts: Sequence[DecodedPart], sink: "Sink", check: Callable[[], None]) -> Contents:
    """Write every column to `sink`; return what the codes mean. Calls `check()` between columns (to be cancelled)."""
    builder = _Builder(parts, sink, check)
    contents = builder.contents
    luts = builder.number()
    track = builder.codes(luts["track"])
    ts = builder.gather("ts", np.int64)
    assert len(ts) == len(track) == contents.slices, "the parts' counts do not add up"
    order = _sort(track, ts, builder.gather("dur", np.int64), len(contents.tracks))
    bounds = np.searchsorted(track[order], np.arange(len(contents.tracks) + 1))
    builder.put("track_bounds", bounds)
    builder.put("track", track, order)
    del track
    builder.put("ts", ts, order)
    del ts
    builder.put("dur", builder.gather("dur", np.int64), order)
    builder.put("name", builder.codes(luts["name"]), order)
    builder.put("cat", builder.codes(luts["cat"]).astype(np.int16), order)
    builder.put("event", narrow(builder.gather("event", np.int32, builder.event_base)), order)
    builder.nest(bounds)
    positions = np.empty_like(order)
    positions[order] = np.arange(contents.slices, dtype=order.dtype)
    del order
    rows = {
        kind: positions[builder.gather(f"{name}.row", np.int32, builder.slice_base)]
        for kind, name in KIND_NAMES.items()
    }
    del positions
    builder.put_dense(rows)
    builder.put_sparse(rows)
    builder.put_instants(luts["track"])
    builder.put_chunks()
    return contents


class _Builder:
    """What the steps of `build` share: the parts, where each begins in the table, and where columns go."""

    def __init__(self, parts: Sequence[DecodedPart], sink: "Sink", check: Callable[[], None]) -> None:
        self._parts, self._sink, self._check = parts, sink, check
        self._vocabularies = list({id(part.vocabulary): part.vocabulary for part in parts}.values())
        self.slice_base = np.cumsum([0, *(part.slices for part in parts)], dtype=np.int64)
        self.event_base = np.cumsum([0, *(part.events for part in parts)], dtype=np.int64)
        self.contents = contents = Contents(int(self.event_base[-1]), int(self.slice_base[-1]))
        self._processes: dict[Any, str] = {}
        self._threads: dict[Any, str] = {}
        for part in parts:
            for name, pid, tid, value in part.meta:
                if name == "process_name":
                    self._processes[_as_id(pid)] = _as_text(value)
                elif name == "thread_name":
                    self._threads[_as_id(pid), _as_id(tid)] = _as_text(value)
            for phase, count in part.phases.items():
                contents.phases[phase] = contents.phases.get(phase, 0) + count
            for why, (count, offset) in part.losses.items():
                before, first = contents.losses.get(why, (0, offset))
                contents.losses[why] = (before + count, first)
        assert sum(contents.phases.values()) == contents.events, "the phases do not add up"

    def number(self) -> dict[str, dict[int, Array]]:
        """Return look-up tables from each vocabulary's codes to the numbers of names, categories and tracks."""
        used = {id(v): np.zeros(max(len(v.combos), 1), bool) for v in self._vocabularies}
        for part in self._parts:
            for name in ("code", "memory.code", "flow.code"):
                used[id(part.vocabulary)][part.load(name, np.int32)] = True
        combos = [(v, code) for v in self._vocabularies for code in np.flatnonzero(used[id(v)]).tolist()]
        names, cats, tracks = [], [], []
        is_raw = any(RAW_BACKSLASHES in why for why in self.contents.losses)
        for v, code in combos:
            _, cat, name, pid, tid = v.combos[code]
            if is_raw and isinstance(name, str) and (cat == PYTHON_FUNCTION or _DRIVE.match(name)):
                name = name.translate(_ESCAPES)
            name, cat = _as_text(name), current_cat(_as_text(cat), _as_text(name))
            names.append(without_descriptor(name) if cat == KERNEL else name)
            cats.append(cat)
            tracks.append((_as_id(pid), _as_id(tid)))
        luts: dict[str, dict[int, Array]] = {}
        distinct: dict[str, list[Any]] = {
            "name": sorted(set(names)),
            "cat": sorted(set(cats)),
            # numbers before texts: ids may be either
            "track": sorted(set(tracks), key=lambda ids: [(isinstance(part, str), part) for part in ids]),
        }
        for kind, values in (("name", names), ("cat", cats), ("track", tracks)):
            numbers = {value: number for number, value in enumerate(distinct[kind])}
            luts[kind] = {key: np.zeros(len(mask), np.int32) for key, mask in used.items()}
            for (v, code), value in zip(combos, values):
                luts[kind][id(v)][code] = numbers[value]
        self.contents.names, self.contents.cats = distinct["name"], distinct["cat"]
        self.contents.tracks = [
            Track(pid, tid, self._processes.get(pid, ""), self._threads.get((pid, tid), ""))
            for pid, tid in distinct["track"]
        ]
        return luts

    def gather(self, name: str, dtype: Any, bases: Array | None = None) -> Array:
        """Return a column of all parts. bases: what is added to the numbers of each, as int64."""
        columns = [part.load(name, dtype) for part in self._parts]
        if bases is None:
            return np.concatenate(columns, dtype=dtype)
        return np.concatenate([np.add(column, base, dtype=np.int64) for column, base in zip(columns, bases)])

    def codes(self, lut: Mapping[int, Array], name: str = "code") -> Array:
        """Return a column of codes of all parts, looked up by the vocabulary of each."""
        return np.concatenate([lut[id(part.vocabulary)][part.load(name, np.int32)] for part in self._parts])

    def put(self, name: str, values: Array, order: Array | None = None) -> None:
        """Write a column, permuted to `order`; in blocks, so that it is never in memory twice."""
        self._check()
        starts = range(0, len(values), _ROWS)
        if order is None:
            blocks = (values[at : at + _ROWS] for at in starts)
        else:
            blocks = (values[order[at : at + _ROWS]] for at in starts)
        self._sink.put(name, values.dtype, len(values), blocks)

    def nest(self, bounds: Array) -> None:
        """Write parent, depth and self time of all slices, from the times that are written."""
        count = self.contents.slices
        written = self._sink.columns()
        ts, dur = written["ts"], written["dur"]
        parent, depth, own = np.empty(count, np.int64), np.empty(count, np.int32), np.empty(count, np.int64)
        for start, end in zip(bounds[:-1].tolist(), bounds[1:].tolist()):
            self._check()
            above, depth[start:end], own[start:end], crossing = nest(
                np.array(ts[start:end]), np.array(dur[start:end])
            )
            parent[start:end] = np.where(above >= 0, above + start, -1)
            self.contents.crossing += crossing
        self.put("parent", narrow(parent))
        self.put("depth", depth)
        self.put("self_ns", own)

    def put_dense(self, rows: dict[int, Array]) -> None:
        """Write the ids that most slices have, -1 where one has none. rows: those of each kind of slice."""
        for column in _DENSE:
            name = _NAMES.get(column, column)
            parts = {
                kind: narrow(self.gather(f"{KIND_NAMES[kind]}.{name}", np.int64))
                for kind, fields in SLICE_FIELDS.items()
                if name in fields
            }
            dense = np.full(self.contents.slices, -1, np.result_type(np.int32, *parts.values()))
            for kind, part in parts.items():
                dense[rows[kind]] = part
            self.put(column, dense)

    def put_sparse(self, rows: dict[int, Array]) -> None:
        """Write the columns that few slices have: the rows of those that have a value, and the values."""
        for column in SPARSE:
            kinds = [kind for kind, fields in SLICE_FIELDS.items() if column in fields]
            if column in TEXT_FIELDS:
                values = self._texts(column, [KIND_NAMES[kind] for kind in kinds])
            else:
                dtype = FLOATS.get(column, np.int64)
                values = np.concatenate(
                    [self.gather(f"{KIND_NAMES[kind]}.{column}", dtype) for kind in kinds]
                )
            has_value = values >= 0
            row = np.concatenate([rows[kind] for kind in kinds])[has_value]
            order = np.argsort(row, kind="stable")
            self.put(f"{column}.row", narrow(row[order]))
            self.put(column, values[has_value][order])

    def _texts(self, column: str, kinds: list[str]) -> Array:
        """Return codes of interned texts, numbered over all vocabularies in the order of the normalised text."""
        used = {id(v): np.zeros(len(v.texts.get(column, [])) + 1, bool) for v in self._vocabularies}
        for part in self._parts:
            for kind in kinds:
                used[id(part.vocabulary)][part.load(f"{kind}.{column}", np.int32)] = True  # -1: the last
        texts = {id(v): v.texts.get(column, []) for v in self._vocabularies}
        wanted = {text for key, words in texts.items() for text, asked in zip(words, used[key]) if asked}
        normal = {text: _normal(text) for text in wanted}
        self.contents.texts[column] = sorted(set(normal.values()))
        numbers = {text: number for number, text in enumerate(self.contents.texts[column])}
        luts = {
            key: np.array(
                [*(numbers[normal[text]] if text in normal else -1 for text in words), -1], np.int32
            )
            for key, words in texts.items()
        }
        return np.concatenate([self.codes(luts, f"{kind}.{column}") for kind in kinds])

    def put_instants(self, track_luts: dict[int, Array]) -> None:
        """Write the moments of memory and the ends of arrows, by time."""
        for kind, fields in (("memory", MEMORY_FIELDS), ("flow", ("id",))):
            ts = self.gather(f"{kind}.ts", np.int64)
            order = np.argsort(ts, kind="stable")
            self.put(f"{kind}.ts", ts[order])
            self.put(f"{kind}.track", self.codes(track_luts, f"{kind}.code")[order])
            for name in fields:
                self.put(f"{kind}.{name}", self.gather(f"{kind}.{name}", np.int64)[order])
        # `order` is that of the flows now, which came last
        is_start = {
            id(v): np.array([combo[0] == "s" for combo in v.combos] or [False]) for v in self._vocabularies
        }
        self.put("flow.start", self.codes(is_start, "flow.code")[order])

    def put_chunks(self) -> None:
        """Write where the text of which events is in the file."""
        chunks = [
            (start, end, event + base)
            for part, base in zip(self._parts, self.event_base.tolist())
            for start, end, event in part.chunks
        ]
        table = np.array(chunks, np.int64).reshape(-1, 3)
        for index, name in enumerate(("start", "end", "event")):
            self.put(f"chunk.{name}", np.ascontiguousarray(table[:, index]))


def _sort(track: Array, ts: Array, dur: Array, tracks: int) -> Array:
    """Return the permutation to (track, ts, -dur, file order)."""
    order = np.argsort(track.astype(np.int16) if tracks < 2**15 else track, kind="stable").astype(
        np.int32 if len(ts) < 2**31 else np.int64
    )
    bounds = np.cumsum(np.bincount(track, minlength=tracks))
    for start, end in zip([0, *bounds[:-1].tolist()], bounds.tolist()):
        rows = order[start:end]
        starts = ts[rows]
        by_start = np.argsort(starts, kind="stable")
        starts = starts[by_start]
        same = starts[1:] == starts[:-1]
        if same.any():
            # only slices that start at the same time need to be compared by duration
            tied = np.flatnonzero(np.append(same, False) | np.append(False, same))
            group = rows[by_start[tied]]
            by_start[tied] = by_start[tied][np.lexsort((group, -dur[group], starts[tied]))]
        order[start:end] = rows[by_start]
    return order


def _as_text(value: Any) -> str:
    return visible(value) if isinstance(value, str) else "" if value is None else str(value)


_IDS_END = 1 << 63  # beyond all int64


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


_NARROW = np.iinfo(np.int32)


def narrow(values: Array) -> Array:
    """Return codes, ids or rows (-1: none) as int32, in half of the room, where all fit, otherwise as they are.

    Not for what is counted with: numbers of 32 bits overflow in silence.
    """
    fit = not len(values) or (values.min() >= _NARROW.min and values.max() <= _NARROW.max)
    return values.astype(np.int32, copy=False) if fit else values


@dataclass(frozen=True)
class Place:
    """Where a column is in the file of all columns."""

    dtype: str
    count: int  # of values
    offset: int  # bytes


class Sink:
    """Where finished columns go: into memory or, one after the other, into a file that is mapped afterwards.

    One file and one map for all: each map keeps a file open, and a process may open as few as 1,024.
    """

    def __init__(self, path: Path | None = None) -> None:
        """path: of the file, which is replaced; None: columns go to memory. Raises OSError."""
        self.path = path
        if path is not None:
            path.write_bytes(b"")
        self._arrays: dict[str, Array] = {}
        self.places: dict[str, Place] = {}
        self.checksum = 0  # CRC-32 of the file

    def put(self, name: str, dtype: np.dtype[Any], count: int, blocks: Iterable[Array]) -> None:
        """Take over a column of `count` values, block by block."""
        if self.path is None:
            self._arrays[name] = np.concatenate([np.zeros(0, dtype), *blocks])
            return
        with self.path.open("ab") as file:
            padding = np.zeros(-file.tell() % _ALIGNED, np.uint8)
            self.places[name] = Place(dtype.str, count, file.tell() + len(padding))
            for block in (padding, *blocks):
                data = np.ascontiguousarray(block).data
                self.checksum = isal_zlib.crc32(data, self.checksum)
                file.write(data)

    def columns(self) -> dict[str, Array]:
        """Return what was taken over until now."""
        return self._arrays if self.path is None else load_columns(self.path, self.places)


def load_columns(path: Path, places: Mapping[str, Place]) -> dict[str, Array]:
    """Return the columns of a file that a `Sink` wrote, as read-only views of one map. Raises OSError, ValueError."""
    # as a plain array: those of the class memmap take six times as long to give a single element
    whole = np.asarray(np.memmap(path, np.uint8, mode="r"))
    columns = {}
    for name, place in places.items():
        dtype = np.dtype(place.dtype)
        columns[name] = whole[place.offset : place.offset + place.count * dtype.itemsize].view(dtype)
        if len(columns[name]) != place.count:
            raise ValueError(f"column {name} is cut off")
    return columns
