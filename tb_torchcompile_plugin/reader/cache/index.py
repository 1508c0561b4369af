"""`python -m tb_torchcompile_plugin.reader.cache.index PID`: read traces into the cache, so that they open at once.

The trace handler starts it in the background with `index=True`, and writes a line of JSON to its standard input for
each trace: its path; at last `null`. It gives way to training: lowest priority, one core, one trace at a time, the
newest first. When whoever started it is gone before that `null`, it ends at once, whatever it is at.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterable

from tb_torchcompile_plugin.reader.cache.store import open_trace

_LOOK_S = 0.5  # how often it looks whether it was left alone


class _Waiting:
    """The traces that are still to be read, as another thread is told of them."""

    def __init__(self) -> None:
        self._paths: list[str] = []
        self._changed = threading.Condition()
        self.complete = False

    def listen(self, lines: Iterable[str]) -> None:
        """Ends the process where the lines end before all was said."""
        for line in lines:
            path = json.loads(line)
            with self._changed:
                self.complete = path is None
                self._paths += [path] if path else []
                self._changed.notify()
        if not self.complete:
            os._exit(1)

    def newest(self) -> str | None:
        """Waits for one; None when there are no more."""
        with self._changed:
            self._changed.wait_for(lambda: self._paths or self.complete)
            return self._paths.pop() if self._paths else None


def main(parent: int) -> None:
    """Read what it is told to, until there is no more. What cannot be read is passed over."""
    os.nice(19)
    waiting = _Waiting()
    threading.Thread(target=waiting.listen, args=(sys.stdin,), daemon=True).start()
    threading.Thread(target=_end_with, args=(parent, waiting), daemon=True).start()
    while (path := waiting.newest()) is not None:
        try:
            open_trace(path, workers=1)
        except Exception as error:  # whatever it is, it costs this trace alone
            print(error, file=sys.stderr)


def _end_with(parent: int, waiting: _Waiting) -> None:
    """A pipe does not tell: other children of the one that started this may hold its other end open."""
    while not waiting.complete:
        if os.getppid() != parent:
            os._exit(1)
        time.sleep(_LOOK_S)


if __name__ == "__main__":
    main(int(sys.argv[1]))
