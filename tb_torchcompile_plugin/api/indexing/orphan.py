"""A process that was started to help ends with the one that started it, also where that was killed."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

_LOOK_S = 0.5  # how often it looks whether it was left alone


def end_with(parent: int, over: Callable[[], bool] = lambda: False) -> None:
    """From now on, on a thread of its own. over: from when on it may finish alone what it is at.

    Pipes do not tell: other children of the parent may hold their other ends open, and so do processes of one pool.
    """
    threading.Thread(target=_watch, args=(parent, over), daemon=True).start()


def _watch(parent: int, over: Callable[[], bool]) -> None:
    while not over():
        if os.getppid() != parent:
            os._exit(1)
        time.sleep(_LOOK_S)
