"""One question at a time, waited for: what is asked is kept as the tab would be answered."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from tb_torchcompile_plugin.api.bodies import json_body, text_body
from tb_torchcompile_plugin.api.downloads import Download
from tb_torchcompile_plugin.api.export.pack import Body, Pack
from tb_torchcompile_plugin.api.export.without_code import without_code
from tb_torchcompile_plugin.api.read_queue import Progress
from tb_torchcompile_plugin.api.routes import ROUTES, Answer, Route, poll
from tb_torchcompile_plugin.api.session import Session
from tb_torchcompile_plugin.errors import ApiErrorBody, UserError

Texts: TypeAlias = dict[str, str]
Advance: TypeAlias = Callable[[Progress], None]

_SOON_S = 0.02
# What says how much of an answer is wanted, and not which: the file answers it with the one that it has.
_ANY = {
    "timeline_window": {"lanes"},
    "timeline_search": {"from", "to", "lanes", "at", "offset", "limit"},
    "all_runs": {"pin"},
}


def names_of(route: Route[Any]) -> list[str]:
    """The parameters that tell its questions apart, in order."""
    parameters = (*route.subject.ids, *route.parameters)
    every = [name for parameter in parameters for name in parameter.names]
    return [name for name in every if name not in _ANY.get(route.name, ())]


def key_of(name: str, texts: Texts) -> str:
    """By what an answer is found in the file; lines within a text have no order. The browser makes the same."""
    parts = ["\n".join(sorted(texts.get(one, "").split("\n"))) for one in names_of(ROUTES[name])]
    return "\x1f".join((name, *parts))


class Asker:
    """Asks the routes, and keeps what they answer in a pack."""

    def __init__(self, session: Session, pack: Pack, code: bool, advance: Advance | None = None) -> None:
        self.session, self.pack, self.code = session, pack, code
        self._advance = advance

    def ask(self, name: str, texts: Texts) -> Any:
        """The answer to one question, however long it takes. Raises UserError."""
        while isinstance(answer := poll(self.session, ROUTES[name], texts), Progress):
            if self._advance:
                self._advance(answer)
            time.sleep(_SOON_S)
        return answer if self.code else without_code(answer)

    def keep(self, name: str, texts: Texts) -> Any:
        """The same, kept; None where it failed: then that is what the file answers."""
        try:
            answer = self.ask(name, texts)
        except UserError as error:
            self.pack.add(key_of(name, texts), failure(error))
            return None
        self.pack.add(key_of(name, texts), body_of(answer))
        return answer

    def keep_all(self, name: str, every: Iterator[Texts]) -> Iterator[bytes]:
        """Many of one route, each once, with the blocks that get ready meanwhile."""
        for texts in every:
            if key_of(name, texts) not in self.pack:
                self.keep(name, texts)
                yield from self.pack.take()


def body_of(answer: Answer) -> Body:
    """As the server sends it."""
    assert not isinstance(answer, Download)
    if isinstance(answer, str):
        return Body("text/plain", text_body(answer))
    if isinstance(answer, bytes):
        return Body("application/octet-stream", answer)
    return Body("application/json", json_body(answer))


def failure(error: UserError) -> Body:
    """In the one shape of errors."""
    notice = error.notice
    body = ApiErrorBody(error.code, notice.problem, notice.file, notice.next_step)
    return Body("application/json", json_body({"error": body}), error.status)
