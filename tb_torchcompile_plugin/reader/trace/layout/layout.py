"""Events as torch's C++ writer lays them out: some lines each, which begin alike.

    {
      "ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 5, "tid": 5,
      "ts": 4374058865586.233, "dur": 79.792,
      "args": {
        "External id": 2561,"Record function id": 0, "Ev Idx": 0
      }
    },

What is the same in many events is decoded once and looked up: heads as they stand, args by their `stretches`. The
numbers between are read at all places at once. An event that differs in anything is left to the JSON decoder, as text.
"""

from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import numpy as np

from tb_torchcompile_plugin.reader.trace import events
from tb_torchcompile_plugin.reader.trace.layout.numbers import (
    ArgsLines,
    Array,
    Lines,
    TextWords,
    find_lines,
    goes_on,
    thousandths,
    whole_numbers,
)

_MOST = 1 << 16  # heads that are remembered; their names are, all the same


class EventPrefixes(dict[bytes, int]):
    """Head → code of its combo; -1 where it is no sound JSON.

    opening: what belongs to each of them and stands before it; `but_not`: what a head may not hold, for it would repeat
    what has been read before. What follows repeats the rest of a head, and of two values the last one counts.
    """

    def __init__(
        self, dictionaries: events.Dictionaries, opening: bytes = b"", but_not: tuple[bytes, ...] = ()
    ) -> None:
        self._combos, self._opening, self._but_not = dictionaries.combos, opening, but_not

    def of(self, lines: Lines, starts: Array, ends: Array) -> Array:
        """Return the codes of some stretches of the text."""
        text = lines.text
        heads = [text[start:end] for start, end in zip(starts.tolist(), ends.tolist())]
        return np.fromiter(map(self.__getitem__, heads), np.int64, len(heads))

    def of_both(self, lines: Lines, starts: Array, ends: Array, line: Array) -> Array:
        """Return the codes of stretches, each joined with one of some lines."""
        parts = zip(starts.tolist(), ends.tolist(), lines.start[line].tolist(), lines.end[line].tolist())
        heads = [lines.text[start:end] + b"," + lines.text[begin:stop] for start, end, begin, stop in parts]
        return np.fromiter(map(self.__getitem__, heads), np.int64, len(heads))

    def __missing__(self, head: bytes) -> int:
        if len(self) > _MOST:
            self.clear()
        self[head] = -1
        if not any(text in head for text in self._but_not):
            with suppress(msgspec.DecodeError, TypeError, ValueError, RecursionError):
                event = events.decode_event(b"{" + self._opening + head + b"}")
                self[head] = self._combos[events.combo_of(event)]
        return self[head]


# fields whose numbers run on from event to event, in torch's order
_RUNNING: dict[tuple[int, ...], tuple[str, ...]] = {
    (events.PYTHON,): ("Python parent id", "Python id", "Ev Idx"),
    (events.RUNTIME,): ("external", "correlation"),
    (events.GPU, events.COLLECTIVE): ("external", "correlation"),
    (events.HOST, events.CONVOLUTION, events.PARAMETERS): ("external", "Ev Idx"),
    (events.MEMORY,): ("total_reserved", "total_allocated", "memory_bytes", "address", "Ev Idx"),
}
_READER_OF = np.full(events.UNUSED + 1, -1)
for _number, _kinds in enumerate(_RUNNING):
    _READER_OF[list(_kinds)] = _number
_BEFORE_TS, _BEFORE_DUR, _BEFORE_ARGS = b',\n    "ts": ', b', "dur": ', b',\n    "args": {\n'
_BEFORE_STAMP = b', "ts": '  # of a flow
_BEHIND_ARGS = b"\n    }\n "
_FLOW_LINES, _LINES_BESIDE_HEAD = 4, 6
_SLICE_HEAD, _MOMENT_HEAD = 1, 2  # lines
_LONGEST_DUR = int(events.EXACT_FROM) * 1000  # ns
_MOST_ODD = 0.2  # of the events; with more of them it is faster to decode all


@dataclass
class EventBatch:
    """Events in their order: their codes and times in ns, without (`no_ts`, `no_dur`) where they have none."""

    codes: Array
    ts: Array
    no_ts: Array
    dur: Array
    no_dur: Array
    columns: list[events.Columns]
    meta: list[tuple[Any, Any, Any, Any]]


class Layout:
    """Reads texts of events; what it has decoded once it knows by the codes of some dictionaries."""

    def __init__(self, dictionaries: events.Dictionaries) -> None:
        self._combos = dictionaries.combos
        self._heads = EventPrefixes(dictionaries)
        self._flows = {
            phase: EventPrefixes(dictionaries, b'"ph":"%s",' % phase, (b'"id"', b'"ts"', b"\\"))
            for phase in (b"s", b"f")
        }
        self._args = {
            kinds: ArgsLines(
                dictionaries, running, {name for kind in kinds for name in events.ARGS_FIELDS[kind]}
            )
            for kinds, running in _RUNNING.items()
        }

    def read(self, text: bytes, end: int) -> tuple[EventBatch, Array, list[bytes]] | None:
        """Read the events of `{…}, {…}`, up to `end`; None where many are laid out in another way.

        With the indices and texts of odd ones, which must be decoded: what the batch holds of them means nothing.
        """
        lines = find_lines(text, end)
        if lines is None:
            return None
        count = len(lines.first)
        (codes, ts, dur), (no_ts, no_dur) = np.zeros((3, count), np.int64), np.zeros((2, count), bool)
        batch = EventBatch(codes, ts, no_ts, dur, no_dur, [], [])
        is_odd = np.ones(count, bool)
        is_odd[self._read_flows(lines, batch)] = False
        for head in (_SLICE_HEAD, _MOMENT_HEAD):
            is_odd[self._read_timed(lines, batch, head)] = False
        odd = np.flatnonzero(is_odd)
        return (batch, odd, lines.texts(odd)) if len(odd) <= _MOST_ODD * count else None

    def _read_flows(self, lines: Lines, batch: EventBatch) -> Array:
        """Return the indices of the flows that were understood. Those that become no column are counted alone."""
        flows = np.flatnonzero(lines.count == _FLOW_LINES)
        ids, kinds = np.zeros(len(flows), np.int64), np.full(len(flows), -1)
        for phase, heads in self._flows.items():
            opening = b'    "ph": "%s", "id": ' % phase
            rows = np.flatnonzero(goes_on(lines.words, lines.start[lines.first[flows] + 1], opening))
            line = lines.first[flows[rows]] + 1
            flow = _read_flow_line(lines, lines.start[line] + len(opening))
            codes = heads.of(lines, lines.start[line + 1], lines.end[line + 1])
            kinds[rows] = np.where(flow.sound & (codes >= 0), self._combos.kinds[codes], -1)
            joined = np.flatnonzero(kinds[rows] == events.FLOW)
            codes[joined] = heads.of_both(lines, flow.track[joined], flow.track_end[joined], line[joined] + 1)
            batch.codes[flows[rows]], batch.ts[flows[rows]], ids[rows] = codes, flow.ts, flow.id
        joined = np.flatnonzero(kinds == events.FLOW)
        if len(joined):
            batch.columns.append((events.FLOW, flows[joined], {"id": ids[joined]}))
        understood: Array = flows[(kinds == events.FLOW) | (kinds == events.UNUSED)]
        return understood

    def _read_timed(self, lines: Lines, batch: EventBatch, head_lines: int) -> Array:
        """Return the indices of the slices, or moments, that were understood.

        head_lines: how many lines stand before their time stamp.
        """
        indices = np.flatnonzero(lines.count == head_lines + _LINES_BESIDE_HEAD)
        head = lines.first[indices] + 1
        args = head + head_lines + 2
        behind, sound = _read_times(lines, lines.end[head + head_lines - 1] - 1, indices, batch, head_lines)
        sound &= behind == lines.start[args]
        sound &= goes_on(lines.words, lines.end[args], _BEHIND_ARGS)
        codes = self._heads.of(lines, lines.start[head], lines.end[head + head_lines - 1] - 1)
        batch.codes[indices] = codes
        kinds = self._combos.kinds[codes]
        sound &= (codes >= 0) & (
            kinds <= events.LAST_SLICE_KIND if head_lines == _SLICE_HEAD else kinds == events.MEMORY
        )
        rows = np.flatnonzero(sound)
        return self._read_args(lines, batch, args[rows], indices[rows], kinds[rows])

    def _read_args(self, lines: Lines, batch: EventBatch, args: Array, indices: Array, kinds: Array) -> Array:
        """Return those of the events whose line of args was understood."""
        sound = np.zeros(len(indices), bool)
        readers = _READER_OF[kinds]
        for number, (own, reader) in enumerate(self._args.items()):
            rows = np.flatnonzero(readers == number)
            if len(rows):
                columns, sound[rows] = reader.read(lines, args[rows])
                for kind in own:
                    chosen = np.flatnonzero(sound[rows] & (kinds[rows] == kind))
                    selected = {name: columns[name][chosen] for name in events.ARGS_FIELDS[kind]}
                    if len(chosen):
                        batch.columns.append((kind, indices[rows[chosen]], selected))
        return indices[sound]


class _FlowLine(NamedTuple):
    """id and ts (ns) of flows, where their track stands in the text, and whether their lines hold this alone."""

    id: Array
    track: Array
    track_end: Array
    ts: Array
    sound: Array


def _read_flow_line(lines: Lines, at: Array) -> _FlowLine:
    words = lines.words
    ids, at, sound = whole_numbers(words, at)
    stamp, read = _behind_track(words, at)
    sound &= read
    ts, end, read = thousandths(words, stamp)
    sound &= read
    sound &= goes_on(words, end, b",\n")
    return _FlowLine(ids, at + 2, stamp - len(_BEFORE_STAMP), ts, sound)


def _behind_track(words: TextWords, at: Array) -> tuple[Array, Array]:
    """Return (where time stamps begin, whether all is well) behind the ids of flows."""
    sound = np.ones(len(at), bool)
    for literal in (b', "pid": ', b', "tid": '):
        sound &= goes_on(words, at, literal)
        _, at, read = whole_numbers(words, at + len(literal))
        sound &= read
    return at + len(_BEFORE_STAMP), sound & goes_on(words, at, _BEFORE_STAMP)


def _read_times(
    lines: Lines, at: Array, indices: Array, batch: EventBatch, head_lines: int
) -> tuple[Array, Array]:
    """Return (where args begin, whether all is well) of what follows the heads."""
    words = lines.words
    sound = goes_on(words, at, _BEFORE_TS)
    batch.ts[indices], at, read = thousandths(words, at + len(_BEFORE_TS))
    sound &= read
    if head_lines == _SLICE_HEAD:
        sound &= goes_on(words, at, _BEFORE_DUR)
        dur, at, read = thousandths(words, at + len(_BEFORE_DUR))
        batch.dur[indices] = dur
        sound &= read
        sound &= dur < _LONGEST_DUR
    sound &= goes_on(words, at, _BEFORE_ARGS)
    return at + len(_BEFORE_ARGS), sound
