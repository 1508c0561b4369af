"""`python -m tb_torchcompile_plugin.api.indexing.beside_training PID`: read traces when they have just been written.

The trace handler starts it in the background with `index=True`, so that traces open at once, and with `digest=True`,
so that there is a digest of each. It writes a line of JSON to its standard input for each trace: a `ToRead`; at last
`null`. It gives way to training: lowest priority (from the start, see `writer.background`), one core, one trace at a
time, the newest first. When whoever started it is gone before that `null`, it ends at once, whatever it is at.
"""

import json
import math
import os
import select
import sys
import threading
from collections.abc import Iterable, Iterator
from queue import PriorityQueue
from typing import NamedTuple, TypeAlias

from tb_torchcompile_plugin.api.indexing.index import POLL_S, Order, write_digest
from tb_torchcompile_plugin.logdir.discovery import digest_name, run_of_files
from tb_torchcompile_plugin.reader.cache.store import open_trace


class ToRead(NamedTuple):
    """A trace that was just written, and what to do with it."""

    trace: str
    summary: str | None  # of the same cycle, None where it was not written
    cache: bool  # whether it is read into the cache
    digest: bool  # whether a digest is written


# The newest trace first, and None behind all others.
_Waiting: TypeAlias = "PriorityQueue[tuple[float, ToRead | None]]"


def lines_from(parent: int) -> Iterator[str]:
    """Yield the lines of stdin until the parent has ended and its pipe is empty.

    The end of stdin does not show it: other children of the parent may hold the other end open.
    """
    partial_line = b""
    while True:
        has_ended = os.getppid() != parent  # asked first: what it sent before is in the pipe by now
        readable, _, _ = select.select([sys.stdin.fileno()], [], [], 0 if has_ended else POLL_S)
        chunk = os.read(sys.stdin.fileno(), 1 << 16) if readable else b""
        *lines, partial_line = (partial_line + chunk).split(b"\n")
        yield from (line.decode() for line in lines)
        if not chunk and (readable or has_ended):
            return


def listen(lines: Iterable[str], waiting: _Waiting) -> None:
    """Add what the lines name, until the final `null`. Ends the process where they end before it, or cannot be read."""
    is_complete = False
    try:
        for number, line in enumerate(lines):
            trace = json.loads(line)
            waiting.put((-number, ToRead(*trace)) if trace else (math.inf, None))
            if is_complete := trace is None:
                break
    finally:
        if not is_complete:
            os._exit(1)


def main(parent: int) -> None:
    """Read traces until there are no more. What cannot be read is passed over."""
    waiting: _Waiting = PriorityQueue()
    threading.Thread(target=listen, args=(lines_from(parent), waiting), daemon=True).start()
    while (trace := waiting.get()[1]) is not None:
        try:
            _read(trace)
        except Exception as error:  # whatever it is, it costs this trace alone
            print(error, file=sys.stderr)


def _read(trace: ToRead) -> None:
    opened = open_trace(trace.trace, workers=1) if trace.cache else None
    if not trace.digest:
        return
    run = run_of_files(list(filter(None, (trace.trace, trace.summary))))
    for worker in run.workers.values():
        for span in worker.spans:
            path = os.path.join(run.folder, digest_name(worker.worker, span.span))
            write_digest(Order(worker, span, path), opened)


if __name__ == "__main__":
    main(int(sys.argv[1]))
