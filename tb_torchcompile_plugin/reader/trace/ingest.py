"""The whole reading of one file: head, segments, table, notices."""

from __future__ import annotations

import contextlib
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tb_torchcompile_plugin.errors import Notice, UserError
from tb_torchcompile_plugin.reader.trace.codes import Array
from tb_torchcompile_plugin.reader.trace.head import Surroundings, find_head, read_surroundings
from tb_torchcompile_plugin.reader.trace.pool import can_start_processes, read_in_processes
from tb_torchcompile_plugin.reader.trace.segment import CUT_OFF
from tb_torchcompile_plugin.reader.trace.serial import (
    Advance,
    Cancel,
    Meter,
    Outcome,
    Sink,
    Task,
    read_in_process,
)
from tb_torchcompile_plugin.reader.trace.source import GzipSource, Source, open_source
from tb_torchcompile_plugin.reader.trace.table import Contents, build
from tb_torchcompile_plugin.torch_names.slices import PROFILER_CATS, TORCH_CATS

SEGMENT_BYTES, _LARGEST_SEGMENT = 16 << 20, 64 << 20
# of a large file: what is read last has no other beside it, and each costs some ms to put in order
_SEGMENTS = 16
_BYTES_PER_WORKER = 16 << 20  # below, starting a process costs more than it saves
_MAX_WORKERS = 8
_MAX_GZIP_WORKERS = 4  # each one inflates the whole file
_TYPICAL_PACKING = 10  # bytes of JSON in a byte of gzip
_DENSE_LIMIT = (
    1 << 22
)  # ids up to here are looked up in a table (32 MB at most), larger ones in a sorted list


@dataclass
class Result:
    """What reading a file gave."""

    path: str
    columns: dict[str, Array]
    contents: Contents
    metadata: dict[str, Any]
    notices: list[Notice]


def ingest(
    path: str,
    progress: Advance | None,
    cancelled: Cancel | None,
    workers: int | None,
    chunk_bytes: int,
    directory: Path | None = None,
) -> Result:
    """Read `path`; columns go to files in `directory`, or where they fit best if it is None."""
    source = open_source(path)
    try:
        before = os.stat(path)
        meter = Meter(path, source.size, progress, cancelled)
        head = find_head(source)
        segment = max(SEGMENT_BYTES, min(source.size // _SEGMENTS, _LARGEST_SEGMENT))
        task = Task(source, head, meter, chunk_bytes, segment)
        count = _worker_count(workers, source)
        with contextlib.ExitStack() as stack:
            folder = ""  # for the parts of a large trace; "" where they are few or there is no room
            if count > 1 or source.size >= 2 * SEGMENT_BYTES or isinstance(source, GzipSource):
                with contextlib.suppress(OSError):
                    folder = stack.enter_context(
                        tempfile.TemporaryDirectory(
                            prefix="tb_torchcompile_", dir=directory, ignore_cleanup_errors=True
                        )
                    )
            if count > 1 and folder:
                outcome = read_in_processes(task, count, folder)
            else:
                outcome = read_in_process(task, os.path.join(folder, "spool") if folder else "")
            meter.at_end(sum(piece.part.events for piece in outcome.pieces), None)
            contents, columns = _finish(outcome, source.size, directory, meter)
        if contents.slices and not {*TORCH_CATS, *PROFILER_CATS}.intersection(
            contents.cats
        ):  # many tools write this format
            raise UserError(
                "this is no trace of the PyTorch profiler: it has no event of a kind that torch writes",
                file=path,
                next_step="Record it with torch.profiler, or look at it in the tool that wrote it",
            )
        contents.file = (before.st_size, before.st_mtime_ns)
        around = read_surroundings(head, outcome.tail)
        notices = _notices(path, outcome, contents, around)
        notices += _changed(path, before)
        meter.at_end(contents.events, 0.0)
        return Result(path, columns, contents, around.metadata, notices)
    finally:
        source.close()


def _worker_count(workers: int | None, source: Source) -> int:
    """Return as many as asked for; otherwise one per core, if the file is worth starting processes for."""
    if workers is None:
        packed = isinstance(source, GzipSource)
        size = source.size * (_TYPICAL_PACKING if packed else 1)
        limit = _MAX_GZIP_WORKERS if packed else _MAX_WORKERS
        workers = min(usable_cores(), limit, size // _BYTES_PER_WORKER)
    return workers if workers > 1 and can_start_processes() else 1


def usable_cores() -> int:
    """Return the number of cores that this process may run on."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


def _finish(
    outcome: Outcome, size: int, directory: Path | None, meter: Meter
) -> tuple[Contents, dict[str, Array]]:
    """Build the table in `directory`; without one in files where it is large, otherwise in memory."""
    if directory is None and size >= SEGMENT_BYTES:
        # the maps keep the data when their files are unlinked, so nothing can be left behind
        with contextlib.suppress(OSError), tempfile.TemporaryDirectory(prefix="tb_torchcompile_") as folder:
            return _finish(outcome, size, Path(folder), meter)
    sink = Sink(directory)
    return build(outcome.pieces, sink, meter.check), sink.columns


def _changed(path: str, before: os.stat_result) -> list[Notice]:
    try:
        now = os.stat(path)
    except OSError:
        return [Notice(path, "the file was removed while it was read", "what was read is shown")]
    if (now.st_size, now.st_mtime_ns) == (before.st_size, before.st_mtime_ns):
        return []
    kept = "its state at the start of reading is shown"
    return [Notice(path, "the file changed while it was read", kept, "Reload")]


def _notices(path: str, outcome: Outcome, contents: Contents, around: Surroundings) -> list[Notice]:
    kept = f"{contents.events} events were read and are shown"
    notices = []
    unfinished = outcome.stop.state == "eof"
    step = "If it is still being written, reload later; else copy or record it again" if unfinished else ""
    losses = dict(contents.losses)
    if outcome.problem or unfinished:
        problem = outcome.problem or "the trace is cut off: the file ends before its events do"
        if CUT_OFF in losses:  # the same cut, seen from the event that it went through
            problem += ", and the event there was dropped"
            del losses[CUT_OFF]
        notices.append(Notice(path, problem, kept, step))
    for why, (count, offset) in sorted(losses.items()):
        where = f" (the first at byte {offset})" if offset >= 0 else ""
        notices.append(Notice(path, f"{why}: {count}{where}", kept))
    if around.problem:
        extra = f" ({around.second_document_events} events)" if around.second_document_events else ""
        notices.append(Notice(path, around.problem + extra, kept))
    pairs = contents.phases.get("B", 0) + contents.phases.get("E", 0)
    if pairs:
        notices.append(Notice(path, f"{pairs} begin and end events (ph B, E) are counted, not shown", kept))
    if not contents.events and not notices:
        notices.append(Notice(path, "the trace holds no events", "", "Check that the profiler was active"))
    return notices


def first_row_of(ids: Array, rows: Array, wanted: Array) -> Array:
    """Return for each id in `wanted` the first of `rows` that has it in `ids` (same order); -1 for none or id < 0."""
    has_id = ids >= 0
    ids, rows = ids[has_id], rows[has_id]
    if not len(ids):
        return np.full(len(wanted), -1, np.int64)
    if int(ids.max()) <= max(_DENSE_LIMIT, 4 * len(ids)):
        table = np.full(int(ids.max()) + 2, -1, np.int64)
        table[ids[::-1]] = rows[::-1]  # the last assignment wins: the first row
        is_inside = (wanted >= 0) & (wanted < len(table))
        matches: Array = table[np.where(is_inside, wanted, len(table) - 1)]
    else:
        unique, first = np.unique(ids, return_index=True)
        at = np.minimum(np.searchsorted(unique, wanted), len(unique) - 1)
        matches = np.where(unique[at] == wanted, rows[first[at]], -1)
    return matches
