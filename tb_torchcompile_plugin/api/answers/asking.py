"""How whoever asked gets more: the words of a command, or of a tool."""

from __future__ import annotations

from collections.abc import Sequence
from shlex import quote
from typing import Protocol

from tb_torchcompile_plugin.api.answers.address import Address

AFTER = "AFTER"  # where the mended program is recorded


class Asking(Protocol):
    """Each answer can be typed, or called, as it is."""

    def show(self, id: str) -> str: ...

    def rows(self, section: str, after: str) -> str:
        """Of a section; after: the id of the last row that is known, "" where not even the first one had room."""

    def tables(self, sections: Sequence[str]) -> str: ...

    def what_if(self, place: Address, fix: str) -> str:
        """A span with this mended; fix: "" for all that could be."""

    def compare(self, run: str, several: bool) -> str:
        """The run before with the one after. several: whether it is one of several of its logdir."""


class Commands:
    """As `tb-torchcompile` is asked about a logdir. run, top, most_bytes: as they were given."""

    def __init__(
        self, logdir: str, run: str = "", top: int | None = None, most_bytes: int | None = None
    ) -> None:
        self._logdir = quote(logdir)
        self._run = f" --run {quote(run)}" if run else ""
        bounds = {"--top": top, "--max-bytes": most_bytes}
        self._bounds = "".join(f" {name} {value}" for name, value in bounds.items() if value is not None)

    def show(self, id: str) -> str:
        return f"tb-torchcompile show {quote(id)} --logdir {self._logdir}"

    def rows(self, section: str, after: str) -> str:
        if after:
            return f"tb-torchcompile report {self._logdir}{self._run} --json --after {quote(after)}{self._bounds}"
        return f"tb-torchcompile report {self._logdir}{self._run} --json --section {section}"

    def tables(self, sections: Sequence[str]) -> str:
        of = f"tb-torchcompile report {self._logdir}{self._run} --json --section {','.join(sections)}"
        return of + self._bounds

    def what_if(self, place: Address, fix: str) -> str:
        named = {"--run": place.run, "--worker": place.worker, "--span": place.span, "--fix": fix}
        chosen = "".join(f" {name} {quote(value)}" for name, value in named.items() if value)
        return f"tb-torchcompile what-if {self._logdir}{chosen}"

    def compare(self, run: str, several: bool) -> str:
        if several:
            return f"tb-torchcompile compare {self._logdir} {self._logdir} --run {quote(run)} --run {AFTER}"
        return f"tb-torchcompile compare {self._logdir} {AFTER}"

    def full(self) -> str:
        """All tables as text."""
        return f"tb-torchcompile report {self._logdir} --full"
