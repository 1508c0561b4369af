"""Handlers on torch's loggers that receive records whatever the program does to loggers.

`logging.config` disables every logger that it does not name; programs clear the handlers and raise the levels of all
loggers. None of that is meant for the logger of torch's compile log, which writes nowhere.
"""

import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

Take = Callable[[logging.LogRecord], None]
Report = Callable[[str, BaseException], None]  # logs a problem, never raises


class RecordHandler(logging.Handler):
    """Hands records on. `emit` runs inside compilation: no torch operations, no input or output."""

    def __init__(self, take: Take, report: Report) -> None:
        super().__init__(level=logging.DEBUG)
        self._take, self._report = take, report

    def setLevel(self, level: int | str) -> None:
        """Ignore the level: a program that raises the level of all handlers does not mean this one."""

    def emit(self, record: logging.LogRecord) -> None:
        """Hand the record on; log what goes wrong."""
        try:
            self._take(record)
        except Exception as error:
            self._report("a compile record could not be taken", error)


class LogHandlers:
    """One handler on each logger. kept_open: loggers that cannot be silenced meanwhile."""

    def __init__(self, takes: Mapping[str, Take], kept_open: Iterable[str], report: Report) -> None:
        self._handlers = {name: RecordHandler(take, report) for name, take in takes.items()}
        self._kept_open = frozenset(kept_open)

    def is_installed(self, name: str) -> bool:
        """Return whether the logger of this name has its handler."""
        return self._handlers[name] in logging.getLogger(name).handlers

    def install(self) -> None:
        """Put each handler first: torch's own removes itself while the list is walked, which skips the next one."""
        for name, handler in self._handlers.items():
            logger = logging.getLogger(name)
            if handler not in logger.handlers:
                logger.handlers.insert(0, handler)
            if name in self._kept_open and not isinstance(logger, _OpenLogger):
                with contextlib.suppress(TypeError):  # a class of the program's own that cannot be exchanged
                    bases = (_OpenLogger, type(logger))
                    logger.__class__ = type("OpenLogger", bases, {"_handler": handler})

    def remove(self) -> None:
        """Leave each logger as the program has set it."""
        for name, handler in self._handlers.items():
            logger = logging.getLogger(name)
            if isinstance(logger, _OpenLogger):
                logger.__class__ = type(logger).__mro__[2]
            logger.removeHandler(handler)


def _fixed(name: str, value: object) -> Any:
    """Make an attribute that keeps its value; what it is set to counts once the logger has its old class again."""

    def keep(logger: logging.Logger, assigned: object) -> None:
        logger.__dict__[name] = assigned

    return property(lambda _: value, keep)


class _OpenLogger(logging.Logger):
    """A logger whose handler cannot be removed."""

    _handler: RecordHandler
    disabled = _fixed("disabled", False)
    level = _fixed("level", logging.DEBUG)

    def isEnabledFor(self, level: int) -> bool:
        return True

    def _get_handlers(self) -> list[logging.Handler]:
        handlers: list[logging.Handler] = self.__dict__["handlers"]
        if self._handler not in handlers:
            handlers.insert(0, self._handler)
        return handlers

    def _set_handlers(self, assigned: list[logging.Handler]) -> None:
        self.__dict__["handlers"] = assigned

    handlers = property(_get_handlers, _set_handlers)
