"""Work in a process of its own, which says when it is ready and waits to be told to go on."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.context import ForkContext, SpawnContext
from pathlib import Path
from typing import Any

Work = Callable[[Callable[[], None]], dict[str, Any]]  # calls its argument when it is ready


class Child:
    """One running piece of work. Its output goes to a log file."""

    def __init__(self, context: ForkContext | SpawnContext, name: str, log: Path, work: Work) -> None:
        self.name, self.log = name, log
        self._pipe, other = context.Pipe()
        self._process = context.Process(target=_child, args=(other, log, work), name=name)
        self._process.start()
        other.close()

    def answer(self, seconds: float) -> dict[str, Any]:
        """What it says next: {"ready": True}, its result, or {"error": text}. Ended when it takes longer."""
        try:
            if self._pipe.poll(seconds):
                return dict(self._pipe.recv())
            self.end()
            return {"error": f"no answer in {seconds:.0f} s"}
        except (EOFError, OSError):
            self.end()
            return {"error": f"ended with status {self._process.exitcode}: {self._last_words()}"}

    def has_spoken(self, seconds: float) -> bool:
        """Whether an answer comes within so many seconds."""
        return self._pipe.poll(seconds)

    def go(self) -> None:
        self._pipe.send("go")

    def end(self) -> None:
        """Ends it, if need be by force, and waits for it."""
        self._process.join(5)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    def _last_words(self) -> str:
        return self.log.read_text(errors="replace")[-800:] if self.log.exists() else ""


def _child(pipe: Connection, log: Path, work: Work) -> None:
    _redirect(log)

    def ready() -> None:
        pipe.send({"ready": True})
        pipe.recv()

    try:
        answer = work(ready)
    except BaseException:
        answer = {"error": traceback.format_exc()[-3000:]}
    pipe.send(answer)
    pipe.close()
    sys.stdout.flush()
    os._exit(0)  # workers of data loaders and threads of libraries do not hold it up


def _redirect(log: Path) -> None:
    log.parent.mkdir(parents=True, exist_ok=True)
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(file, 1)
    os.dup2(file, 2)
