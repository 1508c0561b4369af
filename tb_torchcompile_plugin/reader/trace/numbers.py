"""Read literals and numbers at many offsets of a text at once.

Eight bytes are one word, the first its lowest byte, so that numpy works on all digits of a number together.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

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
