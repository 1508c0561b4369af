"""A trace out of the cache or its file, which may lie in a bucket."""

from __future__ import annotations

from dataclasses import replace

from tb_torchcompile_plugin.logdir.filesystem import File
from tb_torchcompile_plugin.reader.cache import copies
from tb_torchcompile_plugin.reader.cache.store import open_trace
from tb_torchcompile_plugin.reader.trace.kineto import Advance, BytesRead, Cancel, Trace


def read(
    file: File, progress: Advance | None, fetching: Advance | None, cancelled: Cancel | None = None
) -> Trace:
    """Return the trace in a file, which its progress and notices name, however far away it is."""

    def advance(moved: BytesRead) -> None:
        if progress is not None:
            progress(replace(moved, file=file.path))

    with copies.local(file, fetching, cancelled) as path:
        trace = open_trace(path, progress=advance, cancelled=cancelled)
    return replace(trace, notices=copies.named(trace.notices, path, file))
