"""Events to columns: a `Decoder` takes batches of events and gives out `DecodedPart`s, bundles of small numpy arrays.

Strings become `codes` at once. Events as torch's own writer lays them out are read by their `layout`, all others by a
JSON decoder; the result is the same.
"""

import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import compress, islice
from typing import Any

import msgspec
import numpy as np

from tb_torchcompile_plugin.errors import UserError
from tb_torchcompile_plugin.reader.memo import Memo
from tb_torchcompile_plugin.reader.trace.events import (
    ARGS_FIELDS,
    EXACT_FROM,
    FLOW,
    KIND_NAMES,
    LAST_SLICE_KIND,
    MEMORY,
    META,
    Array,
    Combo,
    Dictionaries,
    Event,
    MetaArgs,
    combo_of,
    decode_events,
    event_from_text,
    exact_ns,
    numbers,
    real,
    sound_object,
    whole,
)
from tb_torchcompile_plugin.reader.trace.layout import EventBatch, Layout
from tb_torchcompile_plugin.reader.trace.source import open_source

_MOMENTS = {MEMORY: "memory", FLOW: "flow"}


@dataclass
class Vocabulary:
    """What the codes of one decoder mean."""

    combos: list[Combo] = field(default_factory=list)
    texts: dict[str, list[bytes]] = field(default_factory=dict)

    def learn(self, part: "DecodedPart") -> None:
        """Add the codes that the decoder created for this part."""
        self.combos.extend(part.vocabulary.combos)
        for name, words in part.vocabulary.texts.items():
            self.texts.setdefault(name, []).extend(words)
        part.vocabulary = self


@dataclass(frozen=True)
class StoredArray:
    """A column of a part that a worker process left in a file."""

    path: str
    offset: int
    count: int
    dtype: str

    def load(self) -> Array:
        """Read it."""
        return np.fromfile(self.path, self.dtype, self.count, offset=self.offset)


@dataclass
class DecodedPart:
    """The columns of a stretch of the file.

    columns: name → array. `code ts dur event` have one row per slice; `gpu.row` … and `gpu.FIELD` (kinds:
    `KIND_NAMES`) one row per slice of that kind, `row` counting slices of this part;
    `memory.*` and `flow.*` one row per such event. `event` counts events of this part.
    chunks: (start, end, first event) of each run of text that was decoded in one go, in bytes.
    vocabulary: what the decoder has learnt since its last part, in the order of the codes.
    """

    events: int = 0
    slices: int = 0
    phases: dict[str, int] = field(default_factory=dict)
    columns: dict[str, Array] = field(default_factory=dict)
    chunks: list[tuple[int, int, int]] = field(default_factory=list)
    meta: list[tuple[Any, Any, Any, Any]] = field(default_factory=list)
    losses: dict[str, tuple[int, int]] = field(default_factory=dict)
    vocabulary: Vocabulary = field(default_factory=Vocabulary)

    def load(self, name: str, dtype: Any) -> Array:
        """Return a column of the part; an empty one where it has none of that name."""
        column: Any = self.columns.get(name)
        if column is None:
            return np.zeros(0, dtype)
        return column.load() if isinstance(column, StoredArray) else column


class Decoder:
    """Collects events into the current part. Dictionaries live as long as the decoder."""

    def __init__(self) -> None:
        self._dictionaries = Dictionaries()
        self.combos = self._dictionaries.combos
        self._layout = Layout(self._dictionaries)
        self.part = DecodedPart()  # the current one, whose columns are still in pieces
        self._pieces: defaultdict[str, list[Array]] = defaultdict(list)
        # how many combos ("") and texts of each name are in parts; each interner begins with the empty text
        self._taken = {"": 0, **dict.fromkeys(self._dictionaries.interners, 1)}

    def lose(self, why: str, offset: int = -1, count: int = 1) -> None:
        """Count something that was dropped or repaired; the first byte offset of each reason is kept."""
        if count:
            before, first = self.part.losses.get(why, (0, offset))
            self.part.losses[why] = (before + count, first)

    def take(self) -> DecodedPart:
        """Return the finished part; the decoder starts a new one."""
        part = self.part
        part.columns = {name: np.concatenate(pieces) for name, pieces in self._pieces.items()}
        part.phases = {phase: part.phases[phase] for phase in self.combos.phases if phase in part.phases}
        part.vocabulary.combos = list(islice(self.combos, self._taken[""], None))
        self._taken[""] = len(self.combos)
        for name, interner in self._dictionaries.interners.items():
            part.vocabulary.texts[name] = list(islice(interner, self._taken[name], None))
            self._taken[name] = len(interner)
        self.part = DecodedPart()
        self._pieces.clear()
        return part

    def feed_text(self, text: bytes, end: int) -> None:
        """Add the events of `{…}, {…}`, where `text` stands up to `end`.

        Raises msgspec.DecodeError, TypeError or ValueError, with nothing added, where it cannot.
        """
        parsed = self._layout.read(text, end)
        batch = self._with_odd(*parsed) if parsed is not None else None
        if batch is None:
            self.feed(decode_events(b"[" + text[:end] + b"]"))
        else:
            self._add(batch)

    def _with_odd(self, batch: EventBatch, at: Array, texts: list[bytes]) -> EventBatch | None:
        """Put in odd events; None where one cannot be decoded, or not be put into order with the others."""
        if not texts:
            return batch
        try:
            odd = self._batch([event_from_text(text) for text in texts])
        except (msgspec.DecodeError, TypeError, ValueError, OverflowError, RecursionError):
            return None
        if any(kind in _MOMENTS for kind, _, _ in odd.columns):
            return None
        for name in ("codes", "ts", "no_ts", "dur", "no_dur"):
            getattr(batch, name)[at] = getattr(odd, name)
        batch.columns += [(kind, at[indices], columns) for kind, indices, columns in odd.columns]
        batch.meta = odd.meta
        return batch

    def feed(self, events: Sequence[Event]) -> None:
        """Add events."""
        self._add(self._batch(events))

    def _batch(self, events: Sequence[Event]) -> EventBatch:
        count = len(events)
        exact = [exact_ns(bytes(event.ts)) for event in events]
        stamps = np.array([stamp or 0 for stamp in exact], np.int64)
        no_stamp = np.array([stamp is None for stamp in exact], bool)
        codes = np.fromiter(map(self.combos.__getitem__, map(combo_of, events)), np.int32, count)
        kinds = self.combos.kinds[codes]
        batch = EventBatch(codes, stamps, no_stamp, np.zeros(count, np.int64), np.zeros(count, bool), [], [])
        slices = kinds <= LAST_SLICE_KIND
        us = numbers(_select(events, slices), "dur", np.float64, real)
        is_bad = ~(np.abs(us) < EXACT_FROM)
        us = np.where(is_bad, 0.0, us)
        base = np.floor(us)  # first, so that the fraction keeps three decimals
        batch.dur[slices] = base.astype(np.int64) * 1000 + np.rint((us - base) * 1000).astype(np.int64)
        batch.no_dur[slices] = is_bad
        for kind in ARGS_FIELDS:
            mask = kinds == kind
            if mask.any():
                args = [bytes(event.args) for event in _select(events, mask)]
                columns = self._dictionaries.columns(kind, b"[%b]" % b",".join(args), len(args))
                batch.columns.append((kind, np.flatnonzero(mask), columns))
        flow = kinds == FLOW
        if flow.any():
            ids = numbers(_select(events, flow), "id", np.int64, whole)
            batch.columns.append((FLOW, np.flatnonzero(flow), {"id": ids}))
        for event in _select(events, kinds == META):
            args = msgspec.json.decode(event.args, type=MetaArgs)
            batch.meta.append((event.name, event.pid, event.tid, args.name))
        return batch

    def _add(self, batch: EventBatch) -> None:
        kinds = self.combos.kinds[batch.codes]
        numbering, kept = self._add_slices(batch, kinds <= LAST_SLICE_KIND)
        for kind, indices, columns in batch.columns:
            prefix = KIND_NAMES.get(kind) or _MOMENTS[kind]
            if kind in _MOMENTS:
                self._pieces[f"{prefix}.code"].append(batch.codes[indices].astype(np.int32, copy=False))
                self._pieces[f"{prefix}.ts"].append(batch.ts[indices])
            else:
                is_kept = kept[indices]
                if not is_kept.all():
                    indices, columns = indices[is_kept], {k: v[is_kept] for k, v in columns.items()}
                self._pieces[f"{prefix}.row"].append(numbering[indices])
            for name, values in columns.items():
                self._pieces[f"{prefix}.{name}"].append(values)
        self.part.meta.extend(batch.meta)
        counts = np.bincount(self.combos.phase_codes[batch.codes])
        for phase, count in zip(self.combos.phases, counts.tolist()):
            if count:
                self.part.phases[phase] = self.part.phases.get(phase, 0) + count
        self.part.events += len(kinds)

    def _add_slices(self, batch: EventBatch, is_slice: Array) -> tuple[Array, Array]:
        """Return the number of each slice in this part, and whether it was kept."""
        if batch.no_dur.any() or batch.no_ts.any() or batch.dur.min(initial=0) < 0:
            is_slice = self._drop(is_slice, batch)
        rows = np.flatnonzero(is_slice)
        self._pieces["code"].append(batch.codes[rows].astype(np.int32, copy=False))
        self._pieces["ts"].append(batch.ts[rows])
        self._pieces["dur"].append(batch.dur[rows])
        self._pieces["event"].append((rows + self.part.events).astype(np.int32))
        numbering: Array = np.cumsum(is_slice, dtype=np.int32) + np.int32(self.part.slices - 1)
        self.part.slices += len(rows)
        return numbering, is_slice

    def _drop(self, is_slice: Array, batch: EventBatch) -> Array:
        reasons = {
            "slices without a readable timestamp, dropped": batch.no_ts,
            "slices without a readable duration, dropped": ~batch.no_ts & batch.no_dur,
            "slices with a negative duration, dropped": ~batch.no_ts & ~batch.no_dur & (batch.dur < 0),
        }
        kept: Array = is_slice.copy()
        for why, lost in reasons.items():
            self.lose(why, count=int((is_slice & lost).sum()))
            kept &= ~lost
        return kept


def _select(events: Sequence[Any], mask: Array) -> list[Any]:
    return list(events) if mask.all() else list(compress(events, mask.tolist()))


_CHUNKS = 2  # of about 2 MB: consecutive requests usually need as many
_raw_list = msgspec.json.Decoder(list[msgspec.Raw])


class ArgsReader:
    """Finds events by the chunk table.

    A gzip file is inflated up to the event's chunk, unless that is one of the last few that were asked for.
    """

    def __init__(self, path: str, columns: Mapping[str, Array], identity: tuple[int, int] | None) -> None:
        self._path, self._identity = path, identity
        self._start, self._end, self._event = (columns[f"chunk.{name}"] for name in ("start", "end", "event"))
        self._chunks = Memo(_CHUNKS)

    def read(self, event: int) -> tuple[int, dict[str, Any]]:
        """Return (byte offset, object) of an event. Raises UserError where the file is not the one that was read."""
        chunk = int(np.searchsorted(self._event, event, "right")) - 1
        start, end = int(self._start[chunk]), int(self._end[chunk])
        events = self._chunks.get(
            chunk, lambda: _with_offsets(self._read_text(start, end - start)), keep=bool
        )
        index = event - int(self._event[chunk])
        if self._has_changed() or index >= len(events):
            raise self._changed()
        at, raw = events[index]
        if (args := sound_object(raw, float)) is None:
            raise self._changed()
        return start + at, args

    def _read_text(self, start: int, count: int) -> bytes:
        with closing(open_source(self._path)) as source:
            if self._has_changed() or len(text := source.read(start, count)) < count:
                raise self._changed()
        return text

    def _has_changed(self) -> bool:
        try:
            return self._identity is not None and file_identity(self._path) != tuple(self._identity)
        except OSError:
            return True  # it is gone

    def _changed(self) -> UserError:
        return UserError("the file has changed since it was read", file=self._path, next_step="Reload")


def file_identity(path: str) -> tuple[int, int]:
    """Return (size, mtime_ns), which distinguish one state of a file from another."""
    status = os.stat(path)
    return status.st_size, status.st_mtime_ns


def split_events(text: bytes) -> list[bytes]:
    """Return the text of each event of a chunk. What does not decode is one event, in whatever state."""
    try:
        return [*map(bytes, _raw_list.decode(b"[" + text + b"]"))]
    except (msgspec.DecodeError, RecursionError):
        return [text]


def _with_offsets(text: bytes) -> list[tuple[int, bytes]]:
    """Return each event of a chunk, and where in it that begins."""
    events, end = [], 0
    for raw in split_events(text):
        at = text.index(raw, end)
        end = at + len(raw)
        events.append((at, raw))
    return events


def spool_part(part: DecodedPart, path: str) -> DecodedPart:
    """Move the part's columns to the end of a file. Where that fails with an OSError the part is whole all the same."""
    columns: dict[str, Any] = part.columns
    with open(path, "ab") as file:
        for name, values in columns.items():
            stored = StoredArray(path, file.tell(), len(values), values.dtype.str)
            file.write(values.data)
            file.flush()
            columns[name] = stored
    return part
