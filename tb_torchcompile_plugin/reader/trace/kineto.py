"""Kineto traces: the JSON that torch.profiler exports, plain or gzip, of any size and layout, as columns.

`read_trace` returns a `Trace`. Times are integer nanoseconds, exactly as written. Unreadable parts are counted in
`Trace.notices`; only files without a trace raise. Nothing here imports torch.
"""

import contextlib
import os
import tempfile
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tb_torchcompile_plugin.errors import Notice, UserError
from tb_torchcompile_plugin.reader.memo import cached_once, kept
from tb_torchcompile_plugin.reader.trace.decode import ArgsReader
from tb_torchcompile_plugin.reader.trace.events import END_NS, Array
from tb_torchcompile_plugin.reader.trace.pool import can_start_processes, read_events
from tb_torchcompile_plugin.reader.trace.segment import (
    CHUNK_BYTES,
    CUT_OFF,
    Advance,
    BytesRead,
    Cancel,
    Cancelled,
    Meter,
    Outcome,
    Task,
)
from tb_torchcompile_plugin.reader.trace.source import (
    GzipSource,
    Source,
    find_head,
    open_source,
    read_surroundings,
)
from tb_torchcompile_plugin.reader.trace.table import Contents, Sink, Track, build, narrow
from tb_torchcompile_plugin.torch_names import slices

# GPU work never began before its launch in 160 recordings; Kineto's conversion between the clocks is about 1 µs exact.
_CLOCK_ERROR_NS = 100_000
# A slice is far away if it is a hundred times the span of the middle 98 % of all slices outside of these: chosen so
# that a program that waits for minutes between two steps is still shown.
_RARE, _FAR, _MIN_SPAN_NS, _MAX_SAMPLED = 0.01, 100, 1_000_000_000, 100_000
SEGMENT_BYTES, _LARGEST_SEGMENT = 16 << 20, 64 << 20  # of what one process reads at once; chosen by hand
# of a large file: nothing is read in parallel with the last segment, and each costs some ms to put in order
_SEGMENTS = 16
# Of 80 MB, a second process takes 0.2 s of CPU time more, and saves as much time at most.
_BYTES_PER_WORKER = 64 << 20
_MAX_WORKERS = 8  # processes; chosen by hand
_MAX_GZIP_WORKERS = 4  # each one inflates the whole file
_TYPICAL_PACKING = 10  # bytes of JSON in a byte of gzip
# Ids up to here are looked up in a table (32 MB at most), larger ones in a sorted list.
_DENSE_LIMIT = 1 << 22

__all__ = ["Advance", "BytesRead", "Cancel", "Cancelled", "Trace", "Track", "read_trace"]


class _Column:
    """An attribute of a `Trace` that returns the column with its name."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, trace: "Trace", owner: type) -> Array:
        return trace.columns[self._name]


@dataclass(eq=False, kw_only=True)
class Trace(Contents):
    """One trace file as columns: arrays of length n, one row per `ph=X` slice, by (track, ts, -dur, file order).

    ts, dur: int64 ns; epoch time is base_ns + ts. name, cat, track: codes into names, cats, tracks.
    Ids are -1 where unknown: correlation, external_id, device, stream, sequence, forward_thread.
    They, rows and indices are int32 if the column fits, otherwise int64. `event` is the slice's place
    among all events of the file.
    depth, parent (a row, -1: none), self_ns: nesting on the track. A slice that outlasts its parent counts as
    ending with it there; its own `dur` stays. `crossing` counts them.
    track_bounds: slices of track t are rows track_bounds[t] … track_bounds[t+1].
    metadata: all top-level keys but traceEvents.
    """

    path: str
    columns: dict[str, Array]
    metadata: dict[str, Any]
    notices: list[Notice]

    ts = _Column()
    dur = _Column()
    name = _Column()
    cat = _Column()
    track = _Column()
    track_bounds = _Column()
    event = _Column()
    correlation = _Column()
    external_id = _Column()
    device = _Column()
    stream = _Column()
    sequence = _Column()
    forward_thread = _Column()
    depth = _Column()
    parent = _Column()
    self_ns = _Column()

    def __len__(self) -> int:
        return len(self.ts)

    @property
    def base_ns(self) -> int:
        """The baseTimeNanoseconds of the file; 0 where it has none (its time stamps are epoch time then)."""
        try:
            base = int(self.metadata.get("baseTimeNanoseconds", 0))
        except (TypeError, ValueError, OverflowError):
            return 0
        return base if abs(base) < END_NS else 0

    @property
    def distributed(self) -> dict[str, Any]:
        """What torch recorded of the job that this process is part of; {} where it recorded nothing."""
        info = self.metadata.get("distributedInfo")
        return info if isinstance(info, dict) else {}

    @property
    def is_cut_off(self) -> bool:
        """Whether the file is truncated: at any time, other events may be missing."""
        return any(notice.is_truncated for notice in self.notices)

    @property
    def is_lossy(self) -> bool:
        """Whether anything in the file could not be read; what was repaired could."""
        return any(notice.is_missing_something for notice in self.notices)

    def is_whole(self) -> bool:
        """Whether its columns are still accessible; otherwise it must be read again.

        A mapped file that is shorter than its column would end the process (SIGBUS). Unnamed files cannot be truncated.
        """
        mapped: Array | None = self.columns["track_bounds"]  # a view of a view of the map
        while mapped is not None and not isinstance(mapped, np.memmap):
            mapped = mapped.base
        with suppress(OSError):
            return mapped is None or os.stat(str(mapped.filename)).st_size >= mapped.nbytes
        return True

    def sparse(self, column: str) -> tuple[Array, Array]:
        """(rows, values) of a column that few slices have; rows ascend.

        registers, shared_memory (bytes), occupancy (%), bytes, kernel_num_gb, kernel_flop, python_module: numbers.
        graph_node: ascends in the order in which a CUDA graph was captured. annotation: a code of texts.
        grid, block, stack, input_types, input_dims, concrete_inputs (of aten::conv2d only): codes into `texts[column]`,
        JSON text as recorded. Of collectives, from kernels and `record_param_comms`: collective_seq, in_elements,
        out_elements, source_rank, destination_rank as numbers, collective, group_name, group_ranks, dtype, comms_id as
        codes of texts.
        """
        return self.columns[f"{column}.row"], self.columns[column]

    def memory(self) -> dict[str, Array]:
        """Return the profiler's [memory] instants by time; -1 where unknown.

        ts (ns), track, memory_bytes (negative: freed), total_allocated, total_reserved, address, device_type (0: CPU,
        1: CUDA), device_id.
        """
        return self._columns_of("memory.")

    def flows(self) -> dict[str, Array]:
        """Return the ends of forward → backward arrows by time: ts (ns), track, id, start."""
        return self._columns_of("flow.")

    def _columns_of(self, prefix: str) -> dict[str, Array]:
        return {
            name.removeprefix(prefix): values
            for name, values in self.columns.items()
            if name.startswith(prefix)
        }

    def select(self, *, cat: str | Iterable[str]) -> Array:
        """Return rows (int64, ascending) of the slices of these categories."""
        wanted = {cat} if isinstance(cat, str) else set(cat)
        return np.flatnonzero(np.array([text in wanted for text in self.cats], bool)[self.cat])

    @kept
    def window(self) -> tuple[int, int]:
        """Return (start of the first slice, end of the last one) in ns; (0, 0) where there is none.

        The profiler's own "Trace" slices do not count, nor do those of categories that are not torch's where there are
        slices of torch's.
        """
        return self.extent(slices.TORCH_CATS if slices.TORCH_CATS.intersection(self.cats) else None)

    def extent(self, cats: AbstractSet[str] | None = None) -> tuple[int, int]:
        """Return the window of slices of these categories, or of all except "Trace"."""
        mask = [cat != "Trace" if cats is None else cat in cats for cat in self.cats]
        counted = np.array(mask or [False], bool)[self.cat]
        counted[self.implausible()] = False
        if not counted.any():
            return 0, 0
        limits = np.iinfo(np.int64)
        start = np.min(self.ts, where=counted, initial=limits.max)
        return int(start), int(np.max(self.ts + self.dur, where=counted, initial=limits.min))

    @kept
    def launch_of(self) -> Array:
        """Return for each GPU slice the row of the call that launched it (same correlation), otherwise -1."""
        gpu = self.select(cat=slices.GPU_CATS)
        launches = self.select(cat=slices.RUNTIME_CATS)
        launch = np.full(len(self), -1, np.int64)
        launch[gpu] = first_row_of(self.correlation[launches], launches, self.correlation[gpu])
        return narrow(launch)

    @kept
    def implausible(self) -> Array:
        """Return the rows (ascending) of slices whose times cannot be true; they are drawn, but not counted.

        GPU work that begins before its launch call, and slices far outside all others, for example with a time stamp of
        0 or a wrongly converted clock.
        """
        launch, wrong = self.launch_of(), np.zeros(len(self), bool)
        launched = np.flatnonzero(launch >= 0)
        wrong[launched] = self.ts[launched] < self.ts[launch[launched]] - _CLOCK_ERROR_NS
        if len(self):
            first, last = np.quantile(self.ts[:: 1 + len(self) // _MAX_SAMPLED], (_RARE, 1 - _RARE))
            width = _FAR * max(last - first, _MIN_SPAN_NS)
            wrong |= (self.ts < first - width) | (self.ts + self.dur > last + width)
        return np.flatnonzero(wrong)

    @cached_once
    def call_rows(self) -> Array:
        """Return the rows (ascending) of host calls. Cached, because many analyses search their names."""
        return narrow(self.select(cat=slices.CALL_CATS))

    @kept
    def op_of(self) -> Array:
        """Return for each slice with an External id the row of the host op that has it, otherwise -1."""
        ops = self.call_rows
        return narrow(first_row_of(self.external_id[ops], ops, np.asarray(self.external_id)))

    @cached_once
    def _args_reader(self) -> ArgsReader:
        return ArgsReader(self.path, self.columns, self.file)

    def args(self, row: int) -> dict[str, Any]:
        """Fetch all args of one slice from the file. Raises UserError where the file has changed or gone."""
        args = self._args_reader.read(int(self.event[row]))[1].get("args")
        return args if isinstance(args, dict) else {}


def read_trace(
    path: str,
    *,
    progress: Advance | None = None,
    cancelled: Cancel | None = None,
    workers: int | None = None,
    chunk_bytes: int = CHUNK_BYTES,
) -> Trace:
    """Read a trace file.

    progress: called regularly. cancelled: called regularly; true stops reading with `Cancelled`.
    workers: processes to read with; 1 reads in this process, None chooses by the file's size and the machine.
    chunk_bytes: text decoded at once; the result does not depend on it, nor on `workers`.
    Raises UserError if there is no trace; everything readable is kept, with notices.
    """
    return ingest(path, progress, cancelled, workers, chunk_bytes)[0]


def ingest(
    path: str,
    progress: Advance | None,
    cancelled: Cancel | None,
    workers: int | None,
    chunk_bytes: int,
    sink: Sink | None = None,
) -> tuple[Trace, Contents]:
    """Read `path`; columns go to the file of `sink`, or where they fit best if it is None."""
    source = open_source(path)
    try:
        before = os.stat(path)
        meter = Meter(path, source.size, progress, cancelled)
        directory = sink.path.parent if sink and sink.path else None
        head = find_head(source)
        segment = max(SEGMENT_BYTES, min(source.size // _SEGMENTS, _LARGEST_SEGMENT))
        task = Task(path, source.size, head.start, chunk_bytes, segment)
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
            outcome = read_events(task, source, meter, count if folder else 1, folder)
            meter.at_end(sum(part.events for part in outcome.parts), None)
            contents, columns = _finish(outcome, source.size, sink, meter)
        if contents.slices and not {*slices.TORCH_CATS, *slices.PROFILER_CATS}.intersection(contents.cats):
            raise UserError(  # many tools write this format
                "this is not a PyTorch profiler trace: it contains no events of torch",
                file=path,
                next_step="Record it with torch.profiler, or open it in the tool that wrote it",
            )
        contents.file = (before.st_size, before.st_mtime_ns)
        metadata, damage = read_surroundings(head, outcome.stop.tail)
        notices = _notices(path, outcome, contents, damage)
        notices += _changed(path, before)
        meter.at_end(contents.events, 0.0)
        trace = Trace(path=path, columns=columns, metadata=metadata, notices=notices, **vars(contents))
        return trace, contents
    finally:
        source.close()


def _worker_count(workers: int | None, source: Source) -> int:
    """Return the requested number; otherwise one per core if the file is large enough."""
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
    outcome: Outcome, size: int, sink: Sink | None, meter: Meter
) -> tuple[Contents, dict[str, Array]]:
    """Build the table in `sink`; without one in a file where it is large, otherwise in memory."""
    if sink is None and size >= SEGMENT_BYTES:
        # the map keeps the data when its file is unlinked, so nothing can be left behind
        with contextlib.suppress(OSError), tempfile.TemporaryDirectory(prefix="tb_torchcompile_") as folder:
            return _finish(outcome, size, Sink(Path(folder, "columns")), meter)
    sink = sink or Sink()
    contents = build(outcome.parts, sink, meter.check)
    return contents, sink.columns()


def _changed(path: str, before: os.stat_result) -> list[Notice]:
    try:
        now = os.stat(path)
    except OSError:
        return [Notice(path, "the file was removed while it was read", "the part that was read is shown")]
    if (now.st_size, now.st_mtime_ns) == (before.st_size, before.st_mtime_ns):
        return []
    kept = "its state when reading started is shown"
    return [Notice(path, "the file changed while it was read", kept, "Reload")]


def _notices(path: str, outcome: Outcome, contents: Contents, damage: str) -> list[Notice]:
    kept = f"{contents.events} events were read and are shown"
    notices = []
    unfinished = outcome.stop.state == "eof"
    step = (
        "If it is still being written, reload later; otherwise copy or record it again" if unfinished else ""
    )
    losses = dict(contents.losses)
    if outcome.stop.problem or unfinished:
        problem = outcome.stop.problem or "the trace is cut off: the file ends before its events do"
        if CUT_OFF in losses:  # the same cut, seen from the event that it went through
            problem += ", and the event there was dropped"
            del losses[CUT_OFF]
        notices.append(Notice(path, problem, kept, step))
    for why, (count, offset) in sorted(losses.items()):
        where = f" (the first at byte {offset})" if offset >= 0 else ""
        notices.append(Notice(path, f"{why}: {count}{where}", kept))
    if damage:
        notices.append(Notice(path, damage, kept))
    pairs = contents.phases.get("B", 0) + contents.phases.get("E", 0)
    if pairs:
        notices.append(Notice(path, f"{pairs} begin and end events (ph B, E) are counted, not shown", kept))
    if not contents.events and not notices:
        notices.append(Notice(path, "the trace contains no events", "", "Check that the profiler was active"))
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
