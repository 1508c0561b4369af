"""Events as torch's C++ writer lays them out: some lines each, which begin alike.

    {
      "ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 5, "tid": 5,
      "ts": 4374058865586.233, "dur": 79.792,
      "args": {
        "External id": 2561,"Record function id": 0, "Ev Idx": 0
      }
    },

Heads recur in many events and are decoded once. The times of all events of one kind are converted together, and so are
their args, for the fields that this kind needs. An event that differs in anything is left to the JSON decoder, as text.
Eight bytes are one word, the first its lowest byte, so that numpy works on all digits of a number together.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from tb_torchcompile_plugin.reader.trace import events

Array = npt.NDArray[Any]
Words = npt.NDArray[np.uint64]
NumberReader = Callable[[bytes, Array], tuple[Array, Array, Array]]

PADDING = bytes(128)  # behind a text, so that there is a word at each offset


def _word(byte: int) -> Any:
    return np.uint64(int.from_bytes(bytes([byte]) * 8, "little"))


_ZEROS, _TO_HIGH, _HIGH = _word(ord("0")), _word(0x80 - 10), _word(0x80)
_ONES, _EIGHTS = _word(1), _word(8)
_PAIRS, _FOURS = np.uint64(0x00FF00FF00FF00FF), np.uint64(0x0000FFFF0000FFFF)
_FIRST, _ZERO = np.uint64(0xFF), np.uint64(ord("0"))
_TENS = 10 ** np.arange(9, dtype=np.int64)
# each pair of digits becomes one number, then each pair of those, then the last pair
_TO_PAIRS, _TO_FOURS, _TO_EIGHT = np.uint64(2561), np.uint64(6553601), np.uint64(42949672960001)
_POINT_AND_ZEROS = np.uint64(int.from_bytes(b".000", "little"))
_NO_POINT = np.uint64(int.from_bytes(bytes([0x7F, *[0x80 - 10] * 3]), "little"))
_FIRST_FOUR = np.uint64(0xFFFFFFFF)


def read_at(text: bytes, at: Array, dtype: str) -> Array:
    """Return a value of this type from the bytes at each offset."""
    size = np.dtype(dtype).itemsize
    view: Array = np.ndarray((len(text) - size + 1,), dtype, text, strides=(1,))
    return view[at]


def goes_on(text: bytes, at: Array, literal: bytes) -> Array:
    """Return whether the text goes on with `literal`, of at most as many bytes as `PADDING`, at each offset."""
    same: Array = read_at(text, at, f"S{len(literal)}") == literal
    return same


def whole_numbers(text: bytes, at: Array) -> tuple[Array, Array, Array]:
    """Read a JSON integer of at most 15 digits at each offset: value, offset behind it, whether there is one."""
    words = read_at(text, at, "<u8")
    values, counts = _digits(words)
    sound = (counts > 0) & (((words & _FIRST) != _ZERO) | (counts == 1))
    end = at + counts
    long = np.flatnonzero(counts == 8)
    if len(long):
        more, further = _digits(read_at(text, end[long], "<u8"))
        values[long] = values[long] * _TENS[further] + more
        end[long] += further
        sound[long] &= further < 8
    return values, end, sound


def thousandths(text: bytes, at: Array) -> tuple[Array, Array, Array]:
    """Read the same of numbers without a sign and with three decimals, times 1,000: of µs in ns."""
    values, end, sound = whole_numbers(text, at)
    decimals = read_at(text, end, "<u8") ^ _POINT_AND_ZEROS
    decimals &= _FIRST_FOUR
    sound &= ((decimals + _NO_POINT | decimals) & _HIGH & _FIRST_FOUR) == 0
    return values * 1000 + _value(decimals << np.uint64(32)), end + 4, sound


def read_numbers(
    text: bytes, at: Array, pattern: Sequence[tuple[bytes, NumberReader]], closing: bytes
) -> tuple[list[Array], Array, Array]:
    """Read numbers, each behind a literal, and a last literal: the numbers, offset behind, whether all is there."""
    sound, numbers = np.ones(len(at), bool), []
    for literal, read in pattern:
        sound &= goes_on(text, at, literal)
        values, at, is_number = read(text, at + len(literal))
        sound &= is_number
        numbers.append(values)
    return numbers, at + len(closing), sound & goes_on(text, at, closing)


def _digits(words: Words) -> tuple[Array, Array]:
    """Return the number that the digits are with which each word begins, and how many they are."""
    digits = words ^ _ZEROS
    others = digits + _TO_HIGH
    others |= digits
    others &= _HIGH  # the high bit of each byte that is no digit
    bits = others - np.uint64(1)
    bits &= ~others
    bits >>= np.uint64(7)
    bits &= _ONES  # the lowest bit of each byte before the first of those
    bits *= _EIGHTS
    bits >>= np.uint64(56)  # eight for each
    digits <<= np.uint64(64) - bits
    bits >>= np.uint64(3)
    return _value(digits), bits.view(np.int64)


def _value(digits: Words) -> Array:
    """Return the number that eight digits are in a word each, the first in its lowest byte; they are used up."""
    digits *= _TO_PAIRS
    digits >>= np.uint64(8)
    digits &= _PAIRS
    digits *= _TO_FOURS
    digits >>= np.uint64(16)
    digits &= _FOURS
    digits *= _TO_EIGHT
    digits >>= np.uint64(32)
    return digits.view(np.int64)


_NEWLINE = ord("\n")
_SPACE = b" \t\r\n"
_OPENING, _BETWEEN, _CLOSING = b"  {\n", b"  },\n", b"\n  }"
_BEFORE_ARGS, _BEHIND_ARGS = b',\n    "args": {\n', b"    }\n  }"
_TS, _DUR = (b'    "ts": ', thousandths), (b', "dur": ', thousandths)
_FLOW = (
    *((b'"id": ', whole_numbers), (b', "pid": ', whole_numbers), (b', "tid": ', whole_numbers)),
    (b', "ts": ', thousandths),
)
_FLOW_LINES, _LINES_BESIDE_HEAD = 4, 6  # of an event, with those of its braces
_SLICE_HEAD, _MEMORY_HEAD = 1, 2  # lines
_FLOW_START, _FLOW_END = b'    "ph": "s", ', b'    "ph": "f", '
_FLOW_NAME = re.compile(rb'    "cat": "[^"\\]*", "name": "[^"\\]*"(?:, "bp": "e")?\n')
_LONGEST_DUR = int(events.EXACT_FROM) * 1000  # ns
_MAX_HEADS = 1 << 16  # that are remembered; their names are, all the same
_MAX_ODD = 0.2  # of the events; with more of them it is faster to decode all


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


class _Lines:
    """The lines of a text of events, and which of them belong to which event."""

    def __init__(self, text: bytes, end: int) -> None:
        text = self.text = text if len(text) - end >= len(PADDING) else text + PADDING
        breaks = np.flatnonzero(np.frombuffer(text, np.uint8, end) == _NEWLINE) + 1
        self.start = np.concatenate([[0], breaks, [end + 1]])  # of each line, and where one more would begin
        short = np.flatnonzero(np.diff(self.start) == len(_OPENING))
        first = short[goes_on(text, self.start[short], _OPENING)]
        self.first = np.concatenate([[0], first])  # of each event, its first line
        self.count = np.diff(self.first, append=len(self.start) - 1)  # of each event

    def texts(self, lines: Array, count: int | Array = 1) -> list[bytes]:
        """Return the text of each of some lines, and of those that follow it."""
        spans = zip(self.start[lines].tolist(), self.start[lines + count].tolist())
        return [self.text[start:end] for start, end in spans]


class _Heads(dict[bytes, int]):
    """Head → code of its combo."""

    def __init__(self, combos: events.Combos) -> None:
        self._combos = combos

    def codes(self, heads: list[bytes]) -> Array:
        """Return the codes of some heads. Raises msgspec.DecodeError and others where one is no sound JSON."""
        return np.fromiter(map(self.__getitem__, heads), np.int64, len(heads))

    def __missing__(self, head: bytes) -> int:
        if len(self) > _MAX_HEADS:
            self.clear()
        event = events.decode_event(b"{" + head + b'"":0}')
        code = self[head] = self._combos[events.combo_of(event)]
        return code


class Layout:
    """Reads texts of events; what it has decoded once it knows by the codes of some dictionaries."""

    def __init__(self, dictionaries: events.Dictionaries) -> None:
        self._dictionaries = dictionaries
        self._heads = _Heads(dictionaries.combos)

    def read(self, text: bytes, end: int) -> tuple[EventBatch, Array, list[bytes]] | None:
        """Read the events of `{…}, {…}`, up to `end`; None where many are laid out in another way.

        With the indices and texts of odd ones, which must be decoded: what the batch holds of them means nothing.
        """
        if text[:1] in _SPACE:
            length = len(text)
            text = text.lstrip(_SPACE)
            end -= length - len(text)
        if not (text.startswith(b"{\n") and text.endswith(_CLOSING, 0, end)):
            return None
        lines = _Lines(text, end)
        if not goes_on(lines.text, lines.start[lines.first[1:] - 1], _BETWEEN).all():
            return None
        try:
            return self._read(lines)
        except (msgspec.DecodeError, TypeError, ValueError, RecursionError):
            return None

    def _read(self, lines: _Lines) -> tuple[EventBatch, Array, list[bytes]] | None:
        count = len(lines.first)
        (codes, ts, dur), (no_ts, no_dur) = np.zeros((3, count), np.int64), np.zeros((2, count), bool)
        batch = EventBatch(codes, ts, no_ts, dur, no_dur, [], [])
        is_odd = np.ones(count, bool)
        is_odd[self._read_flows(lines, batch)] = False
        for head_lines in (_SLICE_HEAD, _MEMORY_HEAD):
            is_odd[self._read_timed(lines, batch, head_lines)] = False
        odd = np.flatnonzero(is_odd)
        if len(odd) > _MAX_ODD * count:
            return None
        texts = lines.texts(lines.first[odd], lines.count[odd])
        return batch, odd, [text.strip(b" ,\n") for text in texts]

    def _read_flows(self, lines: _Lines, batch: EventBatch) -> Array:
        """Read the flows; return their indices. Those that become no column are counted alone."""
        indices = np.flatnonzero(lines.count == _FLOW_LINES)
        at = lines.start[lines.first[indices] + 1]
        (ids, pid, tid, ts), _, sound = read_numbers(lines.text, at + len(_FLOW_START), _FLOW, b",\n")
        is_start = goes_on(lines.text, at, _FLOW_START)
        rows = np.flatnonzero(sound & (is_start | goes_on(lines.text, at, _FLOW_END)))
        indices, is_start = indices[rows], is_start[rows]
        codes = self._codes_of_flows(is_start, lines.texts(lines.first[indices] + 2), pid[rows], tid[rows])
        joined = np.flatnonzero(self._dictionaries.combos.kinds[codes] == events.FLOW)
        if len(joined):
            batch.columns.append((events.FLOW, indices[joined], {"id": ids[rows[joined]]}))
        batch.codes[indices], batch.ts[indices] = codes, ts[rows]
        return indices

    def _codes_of_flows(self, is_start: Array, names: list[bytes], pid: Array, tid: Array) -> Array:
        """Return codes without the thread, which is different for many; but with it where flows become a column."""
        if not all(map(_FLOW_NAME.fullmatch, set(names))):
            raise ValueError("a flow has further fields")
        phases = (_FLOW_END, _FLOW_START)
        of_names = [{name: self._heads[b"%b%b," % (phase, name)] for name in set(names)} for phase in phases]
        keys = zip(is_start.tolist(), names)
        codes = np.fromiter((of_names[phase][name] for phase, name in keys), np.int64, len(names))
        joined = np.flatnonzero(self._dictionaries.combos.kinds[codes] == events.FLOW)
        columns = (column[joined].tolist() for column in (np.arange(len(names)), is_start, pid, tid))
        codes[joined] = self._heads.codes(
            [
                b'%b"pid": %d, "tid": %d, %b,' % (phases[start], pid, tid, names[row])
                for row, start, pid, tid in zip(*columns)
            ]
        )
        return codes

    def _read_timed(self, lines: _Lines, batch: EventBatch, head_lines: int) -> Array:
        """Read the slices, or moments; return their indices. head_lines: how many stand before their time stamp."""
        is_slice = head_lines == _SLICE_HEAD
        indices = np.flatnonzero(lines.count == head_lines + _LINES_BESIDE_HEAD)
        args = lines.first[indices] + head_lines + 3
        (ts, *dur), behind, sound = read_numbers(
            lines.text, lines.start[args - 2], (_TS, _DUR) if is_slice else (_TS,), _BEFORE_ARGS
        )
        sound &= (behind == lines.start[args]) & goes_on(lines.text, lines.start[args + 1], _BEHIND_ARGS)
        codes = self._heads.codes(lines.texts(lines.first[indices] + 1, head_lines))
        kinds = self._dictionaries.combos.kinds[codes]
        sound &= kinds <= events.LAST_SLICE_KIND if is_slice else kinds == events.MEMORY
        batch.codes[indices], batch.ts[indices] = codes, ts
        for us in dur:
            batch.dur[indices] = us
            sound &= us < _LONGEST_DUR
        for kind in np.unique(kinds[sound]).tolist():
            rows = np.flatnonzero(sound & (kinds == kind))
            text = b"[{%b}]" % b"},{".join(lines.texts(args[rows]))
            batch.columns.append((kind, indices[rows], self._dictionaries.columns(kind, text, len(rows))))
        return indices[sound]
