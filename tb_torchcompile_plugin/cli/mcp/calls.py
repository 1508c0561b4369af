"""How an agent gets more: calls of the tools."""

from __future__ import annotations

from collections.abc import Sequence

from tb_torchcompile_plugin.api.answers.bounded import AFTER
from tb_torchcompile_plugin.api.answers.sections import Address

_ROOMY = 20_000  # bytes, for a row that had no room


class ToolCalls:
    """As a tool is called. path: below the logdir, "" for all of it."""

    def __init__(self, path: str = "") -> None:
        self._path = path

    def show(self, id: str) -> str:
        return self._call("show", id=id)

    def rows(self, section: str, after: str) -> str:
        if after:
            return self._call("report", after=after)
        return self._call("report", section=section, max_bytes=_ROOMY)

    def tables(self, sections: Sequence[str]) -> str:
        return self._call("report", section=",".join(sections))

    def what_if(self, place: Address, fix: str) -> str:
        return self._call(
            "what_if", run=place.run, worker=place.worker, span=place.span, fixes=[fix] if fix else []
        )

    def compare(self, run: str, several: bool) -> str:
        return self._call("compare", a=run, b=AFTER)

    def _call(self, tool: str, **arguments: str | int | list[str]) -> str:
        given = {**arguments, "path": self._path}
        return f"{tool}({', '.join(f'{name}={value!r}' for name, value in given.items() if value)})"
