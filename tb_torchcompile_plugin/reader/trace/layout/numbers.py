"""What stands between the numbers of a line of args and comes again and again: decoded once, then looked up.

A line is taken apart at the fields whose numbers run on from event to event. Each stretch up to the next of them must
be sound JSON of its own with a number behind it: then the line is sound if all are.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from tb_torchcompile_plugin.reader.trace.events import ARG_NAMES, NO_ARGS, Args, Dictionaries

Array = npt.NDArray[Any]

# or as much else, behind a text: so that there is a word at each place that is looked at
PADDING = bytes(128)


def _word(byte: int) -> Any:
    return np.uint64(int.from_bytes(bytes([byte]) * 8, "little"))


_ZEROS, _TO_HIGH, _HIGH = _word(ord("0")), _word(0x80 - 10), _word(0x80)
_ONES, _EIGHTS = _word(1), _word(8)
_PAIRS, _FOURS = np.uint64(0x00FF00FF00FF00FF), np.uint64(0x0000FFFF0000FFFF)
_FIRST, _FIRST_FOUR = np.uint64(0xFF), np.uint64(0xFFFFFFFF)
_ZERO, _MINUS = np.uint64(ord("0")), np.uint64(ord("-"))
_POINT_AND_ZEROS = np.uint64(int.from_bytes(b".000", "little"))
_NO_POINT = np.uint64(int.from_bytes(bytes([0x7F, *[0x80 - 10] * 3]), "little"))
_HIGH_FOUR = _HIGH & _FIRST_FOUR
_TENS = 10 ** np.arange(9, dtype=np.int64)
# each pair of digits becomes one number, then each pair of those, then the last pair
_TO_PAIRS, _TO_FOURS, _TO_EIGHT = np.uint64(2561), np.uint64(6553601), np.uint64(42949672960001)


class TextWords:
    """The words at any offsets of a text with `PADDING`.

    Eight bytes are one word, the first its lowest byte, so that numpy works at many offsets at once.
    """

    def __init__(self, text: bytes) -> None:
        self._text = text
        self._views: dict[int, Array] = {}

    def __getitem__(self, at: Array) -> npt.NDArray[np.uint64]:
        """Return the word at each offset."""
        return self.from_on(at, 1)[:, 0]

    def from_on(self, at: Array, count: int) -> npt.NDArray[np.uint64]:
        """Return so many words from each offset on: a row each."""
        view = self._views.get(count)
        if view is None:
            # the text as blocks of so many words, one at each byte: numpy copies a block in one go
            offsets = len(self._text) - 8 * count + 1
            view = np.ndarray((offsets,), f"V{8 * count}", self._text, strides=(1,))
            self._views[count] = view
        rows: npt.NDArray[np.uint64] = view[at].view("<u8").reshape(len(at), count)
        return rows


def goes_on(words: TextWords, at: Array, literal: bytes) -> Array:
    """Return whether the text goes on with `literal`, of at most as many bytes as `PADDING`, at each offset."""
    pieces, mask = _pieces(literal)
    rows = words.from_on(at, len(pieces))
    same: Array = (rows[:, -1] & mask) == pieces[-1]
    for index, piece in enumerate(pieces[:-1]):
        same &= rows[:, index] == piece
    return same


@lru_cache(256)
def _pieces(literal: bytes) -> tuple[list[Any], Any]:
    """Its words, the last one filled up, and a mask for what counts of that."""
    parts = [literal[start : start + 8] for start in range(0, max(len(literal), 1), 8)]
    return [_as_word(part) for part in parts], _as_word(b"\xff" * len(parts[-1]))


def _as_word(part: bytes) -> Any:
    return np.uint64(int.from_bytes(part, "little"))


def digits_before(words: TextWords, at: Array) -> Array:
    """Return how many digits, at most eight, stand right before each offset (8 or more)."""
    bits = _leading(words[at - 8].byteswap())[1]
    counts: Array = bits.view(np.int64) >> 3
    return counts


def whole_numbers(words: TextWords, at: Array) -> tuple[Array, Array, Array]:
    """Read a JSON integer of at most 15 digits at each offset: value, offset behind it, whether there is one."""
    first = words[at]
    values, counts = _digits(first)
    first &= _FIRST
    read = counts > 0
    read &= (first != _ZERO) | (counts == 1)
    end = at + counts
    long = np.flatnonzero(counts == 8)
    if len(long):
        more, further = _digits(words[end[long]])
        values[long] = values[long] * _TENS[further] + more
        end[long] += further
        read[long] &= further < 8
    return values, end, read


def signed_numbers(words: TextWords, at: Array) -> tuple[Array, Array, Array]:
    """Read the same of integers that may have a minus."""
    negative = (words[at] & _FIRST) == _MINUS
    values, end, read = whole_numbers(words, at + negative)
    return np.where(negative, -values, values), end, read


def thousandths(words: TextWords, at: Array) -> tuple[Array, Array, Array]:
    """Read the same of numbers without a sign and with three decimals, times 1,000: of µs in ns."""
    values, end, read = whole_numbers(words, at)
    decimals = words[end]
    decimals ^= _POINT_AND_ZEROS
    decimals &= _FIRST_FOUR
    others = decimals + _NO_POINT
    others |= decimals
    others &= _HIGH_FOUR
    read &= others == 0
    values *= 1000
    values += _value(decimals << np.uint64(32))
    end += 4
    return values, end, read


def _digits(words: npt.NDArray[np.uint64]) -> tuple[Array, Array]:
    """Return the number that the digits are with which each word begins, and how many they are."""
    digits, bits = _leading(words)
    digits <<= np.uint64(64) - bits
    bits >>= np.uint64(3)
    return _value(digits), bits.view(np.int64)


def _leading(words: npt.NDArray[np.uint64]) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
    """The words with digits as their values, and how many bits of each those have with which it begins."""
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
    return digits, bits


def _value(digits: npt.NDArray[np.uint64]) -> Array:
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
_OPENING, _BETWEEN, _CLOSING = b"  {", b"  },", b"\n  }"


@dataclass(frozen=True)
class Lines:
    """The lines of a text of events, and which of them belong to which event."""

    text: bytes
    words: TextWords
    start: Array  # of each line, in bytes of `text`
    end: Array  # of each line, without the newline
    first: Array  # of each event, its first line
    count: Array  # of each event, how many lines it has

    def are(self, starts: Array, ends: Array, text: bytes) -> Array:
        """Return whether each of some stretches is that text."""
        if len(text) > len(PADDING):
            return np.zeros(len(starts), bool)  # not to be seen at once
        same: Array = (ends - starts == len(text)) & goes_on(self.words, starts, text)
        return same

    def texts(self, events: Array) -> list[bytes]:
        """Return the text of some events, each from `{` to `}`."""
        starts = self.start[self.first[events]]
        ends = self.end[self.first[events] + self.count[events] - 1]
        return [self.text[start:end].removesuffix(b",") for start, end in zip(starts.tolist(), ends.tolist())]


def find_lines(text: bytes, end: int) -> Lines | None:
    """Find the lines of `{…}, {…}`, where `text` stands up to `end`.

    None where there are no lines between the events that are a brace alone.
    """
    if text[:1] in _SPACE:
        length = len(text)
        text = text.lstrip(_SPACE)
        end -= length - len(text)
    if not (text.startswith(b"{\n") and text.endswith(_CLOSING, 0, end)):
        return None
    if len(text) - end < len(PADDING):
        text += PADDING
    breaks = np.flatnonzero(np.frombuffer(text, np.uint8, end) == _NEWLINE)
    starts, ends = np.concatenate([[0], breaks + 1]), np.concatenate([breaks, [end]])
    words = TextWords(text)
    short = np.flatnonzero(ends - starts == len(_OPENING))
    first = np.concatenate([[0], short[goes_on(words, starts[short], _OPENING)]])
    lines = Lines(text, words, starts, ends, first, np.diff(first, append=len(starts)))
    before = first[1:] - 1
    return lines if lines.are(starts[before], ends[before], _BETWEEN).all() else None


_MOST_BYTES = 8 << 20  # of stretches that are remembered: torch writes a few thousand different ones
_FEW = 8  # stretches: of fewer none is called usual; chosen by hand
_USUAL = 3  # stretches of a kind that are looked for before all others
_SIGNED = {"memory_bytes"}
# before which field others run that only some lines have
_SOMETIMES = {
    "Ev Idx": [
        ("sequence", b',"Sequence number": '),
        ("sequence", b',"Record function id": 0, "Sequence number": '),
    ]
}
_decode_args = msgspec.json.Decoder(Args).decode


class ArgsLines:
    """Lines of args in which the numbers of the `running` fields come one after the other. fields: wanted of them."""

    def __init__(self, dictionaries: Dictionaries, running: Sequence[str], fields: Iterable[str]) -> None:
        self._none = {name: dictionaries.column([NO_ARGS], name) for name in fields}
        numbers = [*running, *(name for field in running for name, _ in _SOMETIMES.get(field, ()))]
        said = {name: none for name, none in self._none.items() if name not in numbers}
        self._slots = [
            _Slot(dictionaries, said, field, numbers, is_first=index == 0)
            for index, field in enumerate([*running, ""])
        ]

    def read(self, lines: Lines, which: Array) -> tuple[dict[str, Array], Array]:
        """Return (field → column, whether it was understood) of some lines."""
        at, end = lines.start[which], lines.end[which]
        columns: dict[str, Array] = {}
        sound, seen = np.ones(len(at), bool), np.zeros(len(at), np.int64)
        for slot in self._slots:
            for field, literal in _SOMETIMES.get(slot.field, ()):
                if field in self._none:
                    columns[field], at = _read_if_there(lines.words, at, literal, columns.get(field))
            codes, at = slot.find(lines, at, end)
            sound &= slot.sound[codes]
            if slot.says.any():
                says = slot.says[codes]
                sound &= (says & seen) == 0
                seen = seen | says
            for field, values in slot.columns.items():
                said, before = values[codes], columns.get(field)
                columns[field] = said if before is None else np.where(said == self._none[field], before, said)
            if slot.field:
                numbered = slot.numbered[codes]
                values, behind, read = slot.numbers(lines.words, at)
                sound &= read | ~numbered
                at = np.where(numbered & read, behind, at)
                columns[slot.field] = np.where(numbered, values, self._none.get(slot.field, -1))
        return {field: columns.get(field, none.repeat(len(at))) for field, none in self._none.items()}, sound


def _read_if_there(words: TextWords, at: Array, literal: bytes, before: Array | None) -> tuple[Array, Array]:
    """(numbers, places behind) where the text goes on with a key and a number; all else is as it was."""
    rows = np.flatnonzero(goes_on(words, at, literal))
    numbers, behind, read = whole_numbers(words, at[rows] + len(literal))
    values, ends = np.full(len(at), -1, np.int64) if before is None else before.copy(), at.copy()
    values[rows[read]], ends[rows[read]] = numbers[read], behind[read]
    return values, ends


class _Slot(dict[bytes, int]):
    """Stretch → code, up to the number of one field, or the end of the line.

    By code: sound (bool, whether it is JSON, and says none of the numbers), numbered (bool, whether that number
    follows), says (int64, a bit for each other field that it names), columns (what it says of them).
    """

    def __init__(
        self,
        dictionaries: Dictionaries,
        none: dict[str, Array],
        field: str,
        numbers: Sequence[str],
        *,
        is_first: bool,
    ) -> None:
        self.field = field
        self.numbers = signed_numbers if field in _SIGNED else whole_numbers
        self._dictionaries, self._none, self._is_first = dictionaries, none, is_first
        self._key = _spellings(field)[0] + b": " if field else b""
        self._numbers = [name for number in numbers for name in _spellings(number)]
        self._bits = [(name, 1 << bit) for bit, one in enumerate(none) for name in _spellings(one)]
        self._forget()

    def _forget(self) -> None:
        self.clear()
        self.columns: dict[str, Array] = {}
        self.says: Array = np.zeros(0, np.int64)
        self.sound: Array = np.zeros(0, bool)
        self.numbered: Array = np.zeros(0, bool)
        self._new: list[tuple[Args, int, bool, bool]] = []
        self._bytes = 0
        self._usual: list[bytes] = []

    def find(self, lines: Lines, at: Array, end: Array) -> tuple[Array, Array]:
        """Return (code, offset behind it) of the stretch at each offset."""
        if self._bytes > _MOST_BYTES:
            self._forget()
        codes, behind = np.zeros(len(at), np.int64), at.copy()
        rest = np.arange(len(at))
        for usual in self._usual:
            starts = at[rest]
            same = goes_on(lines.words, starts, usual) if self._key else lines.are(starts, end[rest], usual)
            codes[rest[same]] = self[usual]
            behind[rest[same]] += len(usual)
            rest = rest[~same]
        if len(rest) > len(at) // 2:
            self._usual = self._usual[1:]
        if len(rest):
            behind[rest] = self._stops(lines, at[rest], end[rest])
            codes[rest] = self._look_up(lines.text, at[rest].tolist(), behind[rest].tolist())
        return codes, behind

    def _stops(self, lines: Lines, at: Array, end: Array) -> Array:
        """Behind the key, where its number begins; without it, the line's end. In torch's longest lines it is last."""
        if not self._key:
            return end
        key, length = self._key, len(self._key)
        stops = end - digits_before(lines.words, end)
        others = np.flatnonzero(~goes_on(lines.words, stops - length, key))
        for row, start, stop in zip(others.tolist(), at[others].tolist(), end[others].tolist()):
            found = lines.text.find(key, start, stop)
            stops[row] = found + length if found >= 0 else stop
        return stops

    def _look_up(self, text: bytes, starts: list[int], stops: list[int]) -> Array:
        stretches = [text[start:stop] for start, stop in zip(starts, stops)]
        codes = np.fromiter(map(self.__getitem__, stretches), np.int64, len(stretches))
        self._keep_new()
        if len(self._usual) < _USUAL and len(codes) > _FEW:
            self._prefer(stretches, codes)
        return codes

    def _prefer(self, stretches: list[bytes], codes: Array) -> None:
        """Look first for the stretch that most of these are, from now on."""
        most = int(np.bincount(codes).argmax())
        is_most = codes == most
        text = stretches[int(is_most.argmax())]
        goes_on_alike = self.sound[most] and self.numbered[most] == bool(self._key)
        if goes_on_alike and len(text) <= len(PADDING) and 2 * is_most.sum() > len(codes):
            self._usual.append(text)

    def __missing__(self, stretch: bytes) -> int:
        code = self[stretch] = len(self)
        self._bytes += len(stretch)
        numbered = bool(self._key) and stretch.endswith(self._key)
        spoken = stretch.removesuffix(self._key) if numbered else stretch
        # what is said twice, or with escapes, is left to the JSON decoder
        is_plain = b"\\" not in stretch and not any(name in spoken for name in self._numbers)
        args = self._decoded(stretch, b"-1}" if numbered else b"}") if is_plain else None
        says = sum({bit for name, bit in self._bits if name in spoken})
        self._new.append((args or NO_ARGS, says, args is not None, numbered))
        return code

    def _decoded(self, stretch: bytes, closing: bytes) -> Args | None:
        if not self._is_first and stretch[:1] not in (b",", b""):
            return None  # it would belong to the number before
        try:
            return _decode_args((b"{" if self._is_first else b'{"":0') + stretch + closing)
        except (msgspec.DecodeError, TypeError, ValueError, RecursionError):
            return None

    def _keep_new(self) -> None:
        if not self._new:
            return
        args, says, sound, numbered = zip(*self._new)
        before = len(self.sound)
        for field, none in self._none.items():
            values = self._dictionaries.column(args, field)
            if field in self.columns:
                self.columns[field] = np.concatenate([self.columns[field], values])
            elif (values != none).any():
                self.columns[field] = np.concatenate([np.repeat(none, before), values])
        self.says = np.concatenate([self.says, np.array(says, np.int64)])
        self.sound = np.concatenate([self.sound, np.array(sound, bool)])
        self.numbered = np.concatenate([self.numbered, np.array(numbered, bool)])
        self._new = []


def _spellings(field: str) -> list[bytes]:
    """Return how the name of a field may be written in a trace: as now, and as it once was."""
    names = [ARG_NAMES.get(field, field)]
    if f"{field}_old" in ARG_NAMES:
        names.append(ARG_NAMES[f"{field}_old"])
    return [b'"%s"' % name.encode() for name in names]
