"""The lines of a text of events, and which of them belong to which event."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tb_torchcompile_plugin.reader.trace.layout.digits import PADDING, Array, TextWords, goes_on

_NEWLINE = ord("\n")
_SPACE = b" \t\r\n"
_OPENING, _BETWEEN, _CLOSING = b"  {", b"  },", b"\n  }"


@dataclass(frozen=True)
class Lines:
    """start, end: of each line, in bytes of `text`, the newline not among them.
    first, count: of each event, its first line and how many they are.
    """

    text: bytes
    words: TextWords
    start: Array
    end: Array
    first: Array
    count: Array

    def are(self, starts: Array, ends: Array, text: bytes) -> Array:
        """Whether each of some stretches is that text."""
        if len(text) > len(PADDING):
            return np.zeros(len(starts), bool)  # not to be seen at once
        same: Array = (ends - starts == len(text)) & goes_on(self.words, starts, text)
        return same

    def texts(self, events: Array) -> list[bytes]:
        """Of some events, each from `{` to `}`."""
        starts = self.start[self.first[events]]
        ends = self.end[self.first[events] + self.count[events] - 1]
        return [self.text[start:end].removesuffix(b",") for start, end in zip(starts.tolist(), ends.tolist())]


def find_lines(text: bytes, end: int) -> Lines | None:
    """The lines of `{…}, {…}`, where `text` stands up to `end`; None where there are no lines between the events that
    are a brace alone."""
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
