"""Handlers on torch's loggers that hear torch whatever the program does to loggers.

`logging.config` disables every logger that it does not name; programs clear the handlers and raise the levels of all
that there are. Nobody means the logger of torch's compile log by that, which writes nowhere.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import logging
import os
import subprocess
import sys
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


# Has traces read by one process of its own, which never gets in the way of training. It reads one trace at
# a time, the newest first. When training ends it finishes what waits; when training is killed it ends, too.


_READER = "tb_torchcompile_plugin.api.indexing.beside_training"
_START = "import os, runpy; os.nice(19); runpy.run_module({!r}, run_name='__main__', alter_sys=True)"
_reader: subprocess.Popen[bytes] | None = None
_owner = 0  # the process that started it: the child of a fork has one of its own


def read(trace: str, summary: str | None, *, index: bool, digest: bool) -> None:
    """Read a trace in the background: into the cache, or for its digest, or both. summary: of the same cycle, None
    where it was not written. Raises OSError if no process can start, or it cannot be told."""
    if not os.path.isfile(trace):
        return
    line = json.dumps([os.path.abspath(trace), summary and os.path.abspath(summary), index, digest])
    try:
        _tell(line)
    except BrokenPipeError:  # it was ended: another one
        _tell(line)


def _tell(line: str) -> None:
    """Never waits: what does not fit into the pipe is an OSError."""
    pipe = _running().stdin
    assert pipe is not None
    os.write(pipe.fileno(), f"{line}\n".encode())


def _running() -> subprocess.Popen[bytes]:
    global _reader, _owner
    if _reader is None or _owner != os.getpid() or _reader.poll() is not None:
        quiet = subprocess.DEVNULL
        command = [sys.executable, "-c", _START.format(_READER), str(os.getpid())]
        _reader = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=quiet, stderr=quiet, start_new_session=True
        )
        assert _reader.stdin is not None
        os.set_blocking(_reader.stdin.fileno(), False)
        if _owner != os.getpid():
            atexit.register(_finish)
        _owner = os.getpid()
    return _reader


def _finish() -> None:
    """Training has ended as it should: what waits may be read to its end."""
    try:
        if _reader is not None and _owner == os.getpid() and _reader.poll() is None:
            _tell("null")
    except OSError:  # then it ends with us
        pass
