"""What stands between the numbers of a line of args and comes again and again: decoded once, then looked up.

A line is taken apart at the fields whose numbers run on from event to event. Each stretch up to the next of them must
be sound JSON of its own with a number behind it: then the line is sound if all are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
import numpy as np

from tb_torchcompile_plugin.reader.trace.codes import Dictionaries
from tb_torchcompile_plugin.reader.trace.events import ARG_NAMES, NO_ARGS, Args
from tb_torchcompile_plugin.reader.trace.layout.digits import (
    PADDING,
    Array,
    TextWords,
    digits_before,
    goes_on,
    signed_numbers,
    whole_numbers,
)
from tb_torchcompile_plugin.reader.trace.layout.lines import Lines

_MOST_BYTES = 8 << 20  # of stretches that are remembered: torch writes a few thousand different ones
_FEW = 8
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
            _Slot(dictionaries, said, field, numbers, is_first=place == 0)
            for place, field in enumerate([*running, ""])
        ]

    def read(self, lines: Lines, which: Array) -> tuple[dict[str, Array], Array]:
        """(field → column, whether it was understood) of some lines."""
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
        self._key = _quoted(field) + b": " if field else b""
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
        """(code, place behind it) of the stretch at each place."""
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
            place = lines.text.find(key, start, stop)
            stops[row] = place + length if place >= 0 else stop
        return stops

    def _look_up(self, text: bytes, starts: list[int], stops: list[int]) -> Array:
        stretches = [text[start:stop] for start, stop in zip(starts, stops)]
        codes = np.fromiter(map(self.__getitem__, stretches), np.int64, len(stretches))
        self._keep_new()
        if len(self._usual) < _USUAL and len(codes) > _FEW:
            self._prefer(stretches, codes)
        return codes

    def _prefer(self, stretches: list[bytes], codes: Array) -> None:
        """From now on look first whether it is the one that most of these are."""
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
    return [_quoted(name) for name in (field, f"{field}_old") if name == field or name in ARG_NAMES]


def _quoted(field: str) -> bytes:
    return b'"%s"' % ARG_NAMES.get(field, field).encode()
