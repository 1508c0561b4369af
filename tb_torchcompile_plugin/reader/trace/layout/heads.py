"""What stands before the time stamp of an event: phase, category, name and track, the same for many events."""

from __future__ import annotations

import msgspec
import numpy as np

from tb_torchcompile_plugin.reader.trace.codes import Dictionaries, combo_of
from tb_torchcompile_plugin.reader.trace.events import Event
from tb_torchcompile_plugin.reader.trace.layout.digits import Array
from tb_torchcompile_plugin.reader.trace.layout.lines import Lines

_MOST = 1 << 16  # heads that are remembered; their names are, all the same
_decode_event = msgspec.json.Decoder(Event).decode


class Heads(dict[bytes, int]):
    """Head → code of its combo; -1 where it is no sound JSON.

    opening: what belongs to each of them and stands before it; `but_not`: what a head may not hold, for it would say
    anew what has been read before. What else it says, what follows says again, and of two values the last one counts.
    """

    def __init__(
        self, dictionaries: Dictionaries, opening: bytes = b"", but_not: tuple[bytes, ...] = ()
    ) -> None:
        self._combos, self._opening, self._but_not = dictionaries.combos, opening, but_not

    def of(self, lines: Lines, starts: Array, ends: Array) -> Array:
        """The codes of some stretches of the text."""
        text = lines.text
        heads = [text[start:end] for start, end in zip(starts.tolist(), ends.tolist())]
        return np.fromiter(map(self.__getitem__, heads), np.int64, len(heads))

    def of_alike(self, lines: Lines, starts: Array, ends: Array) -> Array:
        """The same, faster where most are as the first of them."""
        if not len(starts):
            return np.zeros(0, np.int64)
        first = lines.text[starts[0] : ends[0]]
        codes = np.full(len(starts), self[first])
        others = np.flatnonzero(~lines.are(starts, ends, first))
        codes[others] = self.of(lines, starts[others], ends[others])
        return codes

    def of_both(self, lines: Lines, starts: Array, ends: Array, line: Array) -> Array:
        """The codes of stretches, and of what each of some lines says beside."""
        parts = zip(starts.tolist(), ends.tolist(), lines.start[line].tolist(), lines.end[line].tolist())
        heads = [lines.text[start:end] + b"," + lines.text[begin:stop] for start, end, begin, stop in parts]
        return np.fromiter(map(self.__getitem__, heads), np.int64, len(heads))

    def __missing__(self, head: bytes) -> int:
        if len(self) > _MOST:
            self.clear()
        refused = any(text in head for text in self._but_not)
        code = self[head] = -1 if refused else self._code(b"{" + self._opening + head + b"}")
        return code

    def _code(self, text: bytes) -> int:
        try:
            return self._combos[combo_of(_decode_event(text))]
        except (msgspec.DecodeError, TypeError, ValueError, RecursionError):
            return -1
