"""The parameters of a question: texts by name, read into the values that an analysis takes."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from tb_torchcompile_plugin.errors import BadRequest, visible

_SEE = "See docs/reference/routes.md"
_REQUIRED = object()


@dataclass(frozen=True)
class Parameter:
    """One parameter, or several that go together."""

    names: tuple[str, ...]
    read: Callable[..., object]  # computes the value from their texts; raises BadRequest
    otherwise: object = _REQUIRED  # the value where none of them is given

    @property
    def optional(self) -> bool:
        """Whether it may be left out."""
        return self.otherwise is not _REQUIRED


def values(parameters: Sequence[Parameter], texts: Mapping[str, str]) -> list[Any]:
    """Read all values. Raises BadRequest, which names all parameters that are missing."""
    given = [any(texts.get(name) for name in parameter.names) for parameter in parameters]
    missing = [
        name
        for parameter, is_given in zip(parameters, given)
        if is_given or not parameter.optional
        for name in parameter.names
        if not texts.get(name)
    ]
    if missing:
        raise BadRequest(f"missing parameters: {', '.join(missing)}", next_step=_SEE)
    return [
        parameter.read(*(texts[name] for name in parameter.names)) if is_given else parameter.otherwise
        for parameter, is_given in zip(parameters, given)
    ]


def span_ids(side: str = "", without_span: object = _REQUIRED) -> tuple[Parameter, ...]:
    """Return the ids of a span: those of its run and worker and its own.

    side: "2" for the second one of a comparison. without_span: "" where what a worker compiled may be meant.
    """
    return text(f"run{side}"), text(f"worker{side}"), text(f"span{side}", without_span)


def text(name: str, otherwise: object = _REQUIRED) -> Parameter:
    """Return a parameter that is taken as it is."""
    return Parameter((name,), str, otherwise)


def number(name: str, otherwise: object = _REQUIRED) -> Parameter:
    """Return a parameter that is a whole number from 0 on."""
    return Parameter((name,), partial(_integer, r"\d{1,9}", f"{name} is not a number"), otherwise)


def numbers(name: str) -> Parameter:
    """Return a parameter of numbers with commas between them; without it there are none."""
    read = partial(_integer, r"\d{1,9}", f"{name} is not a list of numbers")
    return Parameter((name,), lambda given: [*map(read, given.split(","))], ())


def texts(name: str) -> Parameter:
    """Return a parameter of texts with line breaks between them; without it there are none."""
    return Parameter((name,), lambda given: tuple(visible(line) for line in given.split("\n") if line), ())


def time(name: str, otherwise: object = _REQUIRED) -> Parameter:
    """Return a parameter in nanoseconds from the trace's first event, also before it."""
    read = partial(_integer, r"-?\d{1,18}", f"{name} is not a number of nanoseconds")
    return Parameter((name,), read, otherwise)


def window(otherwise: object = _REQUIRED) -> Parameter:
    """Return the parameters `from` and `to`, in ns."""
    start, end = time("from"), time("to")
    return Parameter(("from", "to"), lambda *given: (start.read(given[0]), end.read(given[1])), otherwise)


def _integer(pattern: str, problem: str, given: str) -> int:
    if not re.fullmatch(pattern, given, re.ASCII):
        raise BadRequest(problem, next_step=_SEE)
    return int(given)
