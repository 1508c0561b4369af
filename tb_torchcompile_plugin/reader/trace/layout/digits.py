"""Numbers and literals at many places of a text at once: eight bytes are one word, the first its lowest byte."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

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
    """The words at any places of a text with `PADDING`."""

    def __init__(self, text: bytes) -> None:
        self._text = text
        self._views: dict[int, Array] = {}

    def __getitem__(self, at: Array) -> npt.NDArray[np.uint64]:
        """The one at each place."""
        return self.from_on(at, 1)[:, 0]

    def from_on(self, at: Array, count: int) -> npt.NDArray[np.uint64]:
        """So many from each place on: a row each."""
        rows: npt.NDArray[np.uint64] = self._view(count)[at].view("<u8").reshape(len(at), count)
        return rows

    def _view(self, count: int) -> Array:
        """The text as blocks of so many words, one at each byte: numpy copies a block in one go."""
        view = self._views.get(count)
        if view is None:
            places = len(self._text) - 8 * count + 1
            view = np.ndarray((places,), f"V{8 * count}", self._text, strides=(1,))
            self._views[count] = view
        return view


def goes_on(words: TextWords, at: Array, literal: bytes) -> Array:
    """Whether the text goes on with `literal`, of at most as many bytes as `PADDING`, at each place."""
    pieces, mask = _pieces(literal)
    rows = words.from_on(at, len(pieces))
    same: Array = (rows[:, -1] & mask) == pieces[-1]
    for place, piece in enumerate(pieces[:-1]):
        same &= rows[:, place] == piece
    return same


@lru_cache(256)
def _pieces(literal: bytes) -> tuple[list[Any], Any]:
    """Its words, the last one filled up, and a mask for what counts of that."""
    parts = [literal[start : start + 8] for start in range(0, max(len(literal), 1), 8)]
    return [_as_word(part) for part in parts], _as_word(b"\xff" * len(parts[-1]))


def _as_word(part: bytes) -> Any:
    return np.uint64(int.from_bytes(part, "little"))


def digits_before(words: TextWords, at: Array) -> Array:
    """How many digits, at most eight, stand right before each place (8 or more)."""
    bits = _leading(words[at - 8].byteswap())[1]
    counts: Array = bits.view(np.int64) >> 3
    return counts


def whole_numbers(words: TextWords, at: Array) -> tuple[Array, Array, Array]:
    """(value as int64, place behind it, whether there is one) of a JSON integer of at most 15 digits at each place."""
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
    """The same of integers that may have a minus."""
    negative = (words[at] & _FIRST) == _MINUS
    values, end, read = whole_numbers(words, at + negative)
    return np.where(negative, -values, values), end, read


def thousandths(words: TextWords, at: Array) -> tuple[Array, Array, Array]:
    """The same of numbers without a sign and with three decimals, times 1,000: of µs in ns."""
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
    """The number that the digits are with which each word begins, and how many they are."""
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
    """Of eight digits in a word each, the first in its lowest byte; they are used up."""
    digits *= _TO_PAIRS
    digits >>= np.uint64(8)
    digits &= _PAIRS
    digits *= _TO_FOURS
    digits >>= np.uint64(16)
    digits &= _FOURS
    digits *= _TO_EIGHT
    digits >>= np.uint64(32)
    return digits.view(np.int64)
