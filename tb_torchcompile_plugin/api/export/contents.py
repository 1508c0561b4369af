"""What a file says of itself: where it is from, what it holds and what was left out, and why."""

from __future__ import annotations

import msgspec

from tb_torchcompile_plugin.analysis.formatting import plural, size
from tb_torchcompile_plugin.api.export.ask import names_of
from tb_torchcompile_plugin.api.export.values import LEFT_OUT
from tb_torchcompile_plugin.api.routes import ROUTES


class Held(msgspec.Struct, frozen=True):
    """A line of the list: what, and how much of it or why not."""

    what: str
    text: str


class FileContents(msgspec.Struct, frozen=True):
    """made: when, UTC. place: the address that the file opens with. parameters: by route, what tells its questions
    apart. reasons: by route, why what was not embedded is not there; instead: what to do about it."""

    title: str
    made: str
    version: str
    place: dict[str, str]
    holds: list[Held]
    left_out: list[Held]
    parameters: dict[str, list[str]]
    reasons: dict[str, str]
    instead: str


def parameters() -> dict[str, list[str]]:
    """By route."""
    return {name: names_of(route) for name, route in ROUTES.items()}


def reasons(code: bool) -> dict[str, str]:
    """By route, as a sentence without its end."""
    known = {
        **LEFT_OUT,
        "timeline": "The timeline of this span is left out of this file",
        "timeline_search": "This file can be searched for the names of its kernels, operators and compilations alone",
        "timeline_slice": "The details of this slice are left out of this file",
        "what_if": "This combination of fixes is left out of this file",
        "rank_what_if": "This combination of fixes is left out of this file",
        "side_by_side": "This stretch of the step is left out of this file",
        "memory": "This stretch of time is left out of this file",
        "compare": "This comparison is left out of this file",
    }
    if not code:
        known |= dict.fromkeys(
            ("artifact", "code_kernels"), "Code and graphs are left out of this file (--no-code)"
        )
    return known


def counted(number: int, one: str, length: int) -> str:
    """ "1,024 answers, 3.4 MB"."""
    return f"{plural(number, one)}, {size(length)}"
