"""Texts by number."""

from __future__ import annotations


class Codes:
    """`texts`: in the order in which they were met."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._codes: dict[str, int] = {}

    def code(self, text: str) -> int:
        """The number of a text; a new one where it was not met before."""
        code = self._codes.setdefault(text, len(self.texts))
        if code == len(self.texts):
            self.texts.append(text)
        return code
