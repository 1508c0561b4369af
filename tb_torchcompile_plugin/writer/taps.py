"""Handlers on torch's loggers that hear torch whatever the program does to loggers.

`logging.config` disables every logger that it does not name; programs clear the handlers and raise the levels of all
that there are. Nobody means the logger of torch's compile log by that, which writes nowhere.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

Take = Callable[[logging.LogRecord], None]


class OnError(Protocol):
    """Says what went wrong. Never raises."""

    def __call__(self, problem: str, error: BaseException) -> None: ...


class Tap(logging.Handler):
    """Hands records on. `emit` runs inside compilation: no torch operations, no input or output."""

    def __init__(self, take: Take, report: OnError) -> None:
        super().__init__(level=logging.DEBUG)
        self._take = take
        self._report = report

    def setLevel(self, level: int | str) -> None:
        """Whoever raises the level of all handlers does not mean this one."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._take(record)
        except Exception as error:
            self._report("a compile record could not be taken", error)


class Taps:
    """One tap on each logger. kept_open: loggers that cannot be silenced while they are tapped."""

    def __init__(self, takes: Mapping[str, Take], kept_open: Iterable[str], report: OnError) -> None:
        self._taps = {name: Tap(take, report) for name, take in takes.items()}
        self._kept_open = frozenset(kept_open)

    def on(self, name: str) -> bool:
        """Whether the logger of this name is tapped."""
        return self._taps[name] in logging.getLogger(name).handlers

    def install(self) -> None:
        """In front: torch's own handler removes itself while the list is walked, and a later one would be skipped."""
        for name, tap in self._taps.items():
            logger = logging.getLogger(name)
            if tap not in logger.handlers:
                logger.handlers.insert(0, tap)
            if name in self._kept_open:
                _keep_open(logger, tap)

    def remove(self) -> None:
        """Leaves each logger as the program has set it."""
        for name, tap in self._taps.items():
            logger = logging.getLogger(name)
            if isinstance(logger, _Open):
                logger.__class__ = type(logger).__mro__[2]
            logger.removeHandler(tap)


def _fixed(name: str, value: object) -> Any:
    """An attribute that stays what it is. What it is set to counts again when the logger is of its old class."""

    def keep(logger: logging.Logger, given: object) -> None:
        logger.__dict__[name] = given

    return property(lambda _: value, keep)


class _Open(logging.Logger):
    """A logger with a tap that nothing takes off."""

    _tap: Tap
    disabled = _fixed("disabled", False)
    level = _fixed("level", logging.DEBUG)

    def isEnabledFor(self, level: int) -> bool:
        return True

    def _get_handlers(self) -> list[logging.Handler]:
        handlers: list[logging.Handler] = self.__dict__["handlers"]
        if self._tap not in handlers:
            handlers.insert(0, self._tap)
        return handlers

    def _set_handlers(self, given: list[logging.Handler]) -> None:
        self.__dict__["handlers"] = given

    handlers = property(_get_handlers, _set_handlers)


def _keep_open(logger: logging.Logger, tap: Tap) -> None:
    if not isinstance(logger, _Open):
        with contextlib.suppress(TypeError):  # a class of the program's own that cannot be exchanged
            logger.__class__ = type("OpenLogger", (_Open, type(logger)), {"_tap": tap})
