"""Merge a summary and a TORCH_TRACE log of one process, and find which log belongs to which worker.

What was recorded beats what was recovered after the fact, what only the log has is added, and nothing counts twice.
"""

import math
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, TypeAlias

from tb_torchcompile_plugin.compile_log.record import Key, key_of
from tb_torchcompile_plugin.compile_log.summary_pb2 import BACKWARD, Compilation, CompileSummary
from tb_torchcompile_plugin.errors import UserError
from tb_torchcompile_plugin.logdir import discovery
from tb_torchcompile_plugin.logdir.filesystem import read_range
from tb_torchcompile_plugin.reader.arrays import grouped
from tb_torchcompile_plugin.reader.cache import copies
from tb_torchcompile_plugin.reader.torch_trace.structured_log import LogIdentity, log_identity
from tb_torchcompile_plugin.torch_names.caches import is_package
from tb_torchcompile_plugin.torch_names.slices import CALL_CATS, PYTHON_FUNCTION, RUNTIME_CATS

_SAME_START_NS = 20_000_000  # what torch's metrics and its chromium events may differ by
# Fields that belong to compilations but are not their rows.
_TEXTS = ("artifacts", "shape_events", "runtime_metrics")
_ROWS = ("graph_breaks", "recompiles", "graphs")

_Row: TypeAlias = Any  # every repeated message here has a key; protobuf knows no base class that says so
_Key: TypeAlias = tuple[int, str, int]  # and direction; of rows without one 0


def merge(summary: CompileSummary, log: CompileSummary) -> CompileSummary:
    """Return the summary with what only the log has."""
    summary, log = _aligned(_with_packages_named(summary, log), log)
    merged = CompileSummary()
    merged.CopyFrom(summary)
    _replace(merged, "compilations", _merged_compilations(summary, log))
    for name in _ROWS:
        _replace(merged, name, _merged_rows(getattr(summary, name), getattr(log, name)))
    _replace(merged, "spans", _merged_spans(summary, log))
    _merge_texts(merged, summary, log)
    return merged


def _with_packages_named(summary: CompileSummary, log: CompileSummary) -> CompileSummary:
    """Number packages, which each process counts from its first record on, as the log does."""
    logged = [row for row in log.compilations if is_package(row.key.compile_id) and row.HasField("start_ns")]
    names = {
        row.key.compile_id: nearest.key.compile_id
        for row in summary.compilations
        if is_package(row.key.compile_id) and (nearest := _nearest(row, logged)) is not None
    }
    return _rekeyed(summary, lambda row: (row.key.epoch, names.get(row.key.compile_id, row.key.compile_id)))


def _nearest(row: Compilation, others: Iterable[Compilation]) -> Compilation | None:
    """Return the one that began at the same time; None where none did."""
    nearest = min(others, key=lambda other: abs(other.start_ns - row.start_ns), default=None)
    is_same = nearest is not None and abs(nearest.start_ns - row.start_ns) <= _SAME_START_NS
    return nearest if is_same else None


def _replace(merged: CompileSummary, name: str, rows: list[_Row]) -> None:
    del getattr(merged, name)[:]
    getattr(merged, name).extend(rows)


def _merged_rows(summary: Iterable[_Row], log: Iterable[_Row]) -> list[_Row]:
    """Return the rows of each compilation from the summary, or from the log if it has more."""
    ours, theirs = grouped(summary, _key), grouped(log, _key)
    fuller = {
        key: rows
        for key, rows in theirs.items()
        if len(rows) > sum(not row.recovered for row in ours.get(key, ()))
    }
    kept = [row for key, rows in ours.items() if key not in fuller for row in rows]
    if fuller:  # then the log knows better what happened where than torch did afterwards
        kept = [row for row in kept if row.key.compile_id or not row.recovered]
    return [*kept, *(row for rows in fuller.values() for row in rows)]


def _merged_compilations(summary: CompileSummary, log: CompileSummary) -> list[Compilation]:
    """Return recorded compilations, those that only the log has, and recovered ones that the log lacks."""
    recorded = [row for row in summary.compilations if not row.recovered]
    by_key = grouped(recorded, _key)
    added = [
        row for row in log.compilations if not any(_same(row, other) for other in by_key.get(_key(row), ()))
    ]
    keys = {_key(row) for row in added}
    kept = [row for row in summary.compilations if row.recovered and _key(row) not in keys]
    return sorted([*recorded, *added, *kept], key=lambda row: row.start_ns)


def _same(row: Compilation, other: Compilation) -> bool:
    """Whether two rows of one key are one compilation: several backwards may share a key."""
    timed = row.HasField("start_ns") and other.HasField("start_ns")
    return row.direction != BACKWARD or not timed or abs(row.start_ns - other.start_ns) <= _SAME_START_NS


def _merged_spans(summary: CompileSummary, log: CompileSummary) -> list[_Row]:
    """Merge spans: both saw the same events, so one is the same when it began at the same time under the same name."""
    unmatched = Counter((span.start_ns, span.name) for span in summary.spans)
    spans = list(summary.spans)
    for span in log.spans:
        if unmatched[span.start_ns, span.name]:
            unmatched[span.start_ns, span.name] -= 1
        else:
            spans.append(span)
    return sorted(spans, key=lambda span: (span.start_ns, -span.duration_ns))


def _merge_texts(merged: CompileSummary, summary: CompileSummary, log: CompileSummary) -> None:
    """Take the texts of the log for a compilation that the log recorded and the summary only recovered."""
    live = {_id(row) for row in (*summary.compilations, *summary.graphs) if not row.recovered}
    old = [row for row in (*summary.compilations, *summary.graphs) if row.recovered]
    logged = {_id(row) for row in log.compilations}
    ids = {_id(row) for row in old if _id(row) in logged - live}
    keys = {_key(row) for row in old} & {_key(row) for row in log.compilations}
    for name in _TEXTS:
        rows = getattr(summary, name)
        kept = [row for row in rows if _id(row) not in ids and _key(row) not in keys]
        have = {_key(row) for row in kept}
        _replace(merged, name, [*kept, *(row for row in getattr(log, name) if _key(row) not in have)])


def _id(row: _Row) -> Key:
    return key_of(row.key)


def _key(row: _Row) -> _Key:
    return *_id(row), getattr(row, "direction", 0)


def _aligned(summary: CompileSummary, log: CompileSummary) -> tuple[CompileSummary, CompileSummary]:
    """Return both with the same epochs. Who began to record later may not know of an earlier `torch._dynamo.reset()`.

    A compilation is known in both by its id and its start; ids that only the summary has go with the others of
    their epoch.
    """
    pairs = _pairs(summary, log)
    late = max([0, *(ours[0] - theirs for ours, theirs in pairs.items())])  # epochs that the log did not see
    log = _rekeyed(log, lambda row: (row.key.epoch + late, row.key.compile_id))
    steps = {ours: theirs + late - ours[0] for ours, theirs in pairs.items()}
    overall = _most_common(steps.values())
    by_epoch = {
        epoch: _most_common(step for (other, _), step in steps.items() if other == epoch)
        for epoch in {epoch for epoch, _ in steps}
    }

    def aligned(row: _Row) -> Key:
        step = steps.get(_id(row), by_epoch.get(row.key.epoch, overall))
        return max(0, int(row.key.epoch) + step), row.key.compile_id

    return _rekeyed(summary, aligned), log


def _pairs(summary: CompileSummary, log: CompileSummary) -> dict[Key, int]:
    """Return (epoch, compile id) of the summary → epoch of the log, by compilations that began at the same time."""
    timed = (row for row in log.compilations if row.HasField("start_ns"))
    candidates = grouped(timed, lambda row: (row.key.compile_id, row.direction))
    rows = (row for row in summary.compilations if row.HasField("start_ns"))
    pairs = ((row, _nearest(row, candidates.get((row.key.compile_id, row.direction), ()))) for row in rows)
    return {_id(row): nearest.key.epoch for row, nearest in pairs if nearest is not None}


def _most_common(steps: Iterable[int]) -> int:
    return next((step for step, _ in Counter(steps).most_common(1)), 0)


def _rekeyed(summary: CompileSummary, key: Callable[[_Row], Key]) -> CompileSummary:
    """Return a copy, or the summary itself where nothing changes."""
    names = ("compilations", *_ROWS, "spans", *_TEXTS)
    if all(key(row) == _id(row) for name in names for row in getattr(summary, name)):
        return summary
    copy = CompileSummary()
    copy.CopyFrom(summary)
    for name in names:
        for row in getattr(copy, name):
            row.key.epoch, row.key.compile_id = key(row)
    return copy


_RANK = re.compile(rb'"distributedInfo"\s*:\s*\{[^{}]*?"rank"\s*:\s*(\d+)')
_OF_HOST = rb'"cat"\s*:\s*"(?:%b)"' % "|".join((*CALL_CATS, PYTHON_FUNCTION, *RUNTIME_CATS)).encode()
_HOST_PID = (
    re.compile(rb'%b[^{}]*?"pid"\s*:\s*"?(\d+)' % _OF_HOST),
    re.compile(rb'"pid"\s*:\s*"?(\d+)[^{}]*?%b' % _OF_HOST),
)
_TAIL_BYTES = 64 * 1024  # as many as `read_head` reads of the beginning
_MAX_FILES = 8192  # whose identities are kept, as long as their size and time stay
# Workers of a run of which traces are opened to see whose they are: of more the names must show it.
_OPENED = 64
_COMPARED = 4  # newest traces of a worker, in which several ranks of one name take turns
_TRIED = 16  # traces of a worker, newest first, until one shows whose it is; both chosen by hand
# Process ids are reused: after such a pause, the same id counts as another process.
_SAME_PROCESS_NS = 12 * 3600 * 10**9


@dataclass(frozen=True)
class TraceIdentity:
    """Whose trace a file is: rank from `distributedInfo`, process id of its host events, and when it ended.

    first_ns: when the first trace of the same worker ended.
    """

    rank: int | None
    pid: int | None
    end_ns: int
    first_ns: int = 0


def trace_identity(file: discovery.File, span: str) -> TraceIdentity:
    """Read whose trace a file is from its first 64 KiB, and the last where those do not show it. Never raises."""
    if file.part:
        return TraceIdentity(file.part.rank, None, _end_ns(file, span))
    try:
        rank, pid = _rank_and_pid(file)
    except (OSError, UserError):  # reading it will say why
        rank, pid = None, None
    return TraceIdentity(rank, pid, _end_ns(file, span))


def _end_ns(file: discovery.File, span: str) -> int:
    time_ns = discovery.span_time_ns(span)
    return file.mtime_ns if time_ns is None else time_ns


@lru_cache(_MAX_FILES)
def _rank_and_pid(file: discovery.File) -> tuple[int | None, int | None]:
    ends = discovery.read_head(file.path) if file.size else b""
    # a gzip cannot be read from behind
    if file.size > _TAIL_BYTES and read_range(file.path, 0, 2) != b"\x1f\x8b":
        ends += b"\n" + read_range(file.path, file.size - _TAIL_BYTES, file.size)
    rank = _RANK.search(ends)
    pids = [match for pattern in _HOST_PID if (match := pattern.search(ends))]
    return int(rank[1]) if rank else None, int(pids[0][1]) if pids else None


def _identity_of_log(file: discovery.File) -> LogIdentity:
    if file.part:  # of a text of TORCH_LOGS
        rank = file.part.rank if file.part.rank >= 0 else None
        return LogIdentity(rank, int(file.part.label or 0) or None, start_ns=None, end_ns=None)
    try:
        return _read_identity_of_log(file)
    except UserError:  # it may have been removed; reading its own worker reports that
        return LogIdentity(discovery.log_rank(file.name), pid=None, start_ns=None, end_ns=None)


@lru_cache(_MAX_FILES)
def _read_identity_of_log(file: discovery.File) -> LogIdentity:
    with copies.ends(file) as path:
        return log_identity(path)


def join_logs(run: discovery.RunFiles) -> list[discovery.WorkerFiles]:
    """Return the workers of a run, sorted by name, each with its rank and its log where one joins.

    A log joins the worker with the same rank, otherwise the one with the same process id that was alive at the time;
    otherwise it is a worker of its own. Ranks and process ids come back with every job, so where several would do,
    the process id decides, then the time.
    """
    opened = len(run.workers) <= _OPENED
    if opened:
        _split_by_rank(run)
    traces: dict[str, TraceIdentity] = {}
    for name, worker in run.workers.items():
        times = [_end_ns(span.file, span.span) for span in worker.spans]
        first_ns = min(times or [file.mtime_ns for file in worker.summaries], default=0)
        traces[name] = replace(_identity(worker, opened), first_ns=first_ns)
        worker.rank = traces[name].rank
    logs = [(log, _identity_of_log(log)) for log in run.logs]
    homes = _homes([identity for _, identity in logs], traces)
    for number, (log, identity) in sorted(enumerate(logs), key=lambda item: -(item[1][1].start_ns or 0)):
        home = homes.get(number)
        if home is None and run.alone and traces:
            continue
        worker = run.worker(_own_name(run, identity, log) if home is None else home)
        if worker.rank is None:
            worker.rank = identity.rank
        worker.log = log
    for worker in run.workers.values() if run.captures else ():
        # vLLM profiles only rank 0 while it captures; the others capture the same.
        rank = worker.rank if worker.rank in run.captures else min(run.captures)
        worker.captures = tuple(run.captures[rank])
    return [run.workers[name] for name in sorted(run.workers)]


def _split_by_rank(run: discovery.RunFiles) -> None:
    """Make workers of the ranks that share a `worker_name`, which their traces show."""
    for name, worker in list(run.workers.items()):
        newest: list[TraceIdentity] = []
        for span in worker.spans[: -_COMPARED - 1 : -1] if len(worker.spans) > 1 else ():
            newest.append(trace_identity(span.file, span.span))
            # No rank was recorded, or the name ends with the process id, as torch's own do.
            if newest[0].rank is None or name.endswith(f"_{newest[0].pid}"):
                break
        if len({identity.rank for identity in newest} - {None}) > 1:
            run.split(name, {span.span: trace_identity(span.file, span.span).rank for span in worker.spans})


def _identity(worker: discovery.WorkerFiles, opened: bool) -> TraceIdentity:
    """Identify the worker by its newest trace that shows it, otherwise by its name.

    A trace that is empty or half-written shows nothing. opened: whether traces are opened for it.
    """
    spans = worker.spans[: -_TRIED - 1 : -1] if opened else []
    newest = worker.spans[-1] if worker.spans else None
    for span in spans:
        identity = trace_identity(span.file, span.span)
        if identity.rank is not None or identity.pid is not None:
            return identity
    if spans and newest is not None and discovery.span_time_ns(newest.span) is None:
        # A file of another tool may be called anything.
        return trace_identity(newest.file, newest.span)
    rank = re.fullmatch(r"rank_?(\d+)", worker.worker)
    pid = None if rank else re.search(r"_(\d+)$", worker.worker)  # torch's own worker names end with it
    end_ns = int(newest.span) if newest else max((file.mtime_ns for file in worker.summaries), default=0)
    return TraceIdentity(int(rank[1]) if rank else None, int(pid[1]) if pid else None, end_ns)


def _homes(logs: list[LogIdentity], traces: dict[str, TraceIdentity]) -> dict[int, str]:
    """Return the number of a log → its worker. Each has one at most; what fits best is paired first."""
    pairs = sorted(
        (fit, number, name)
        for number, log in enumerate(logs)
        for name, trace in traces.items()
        if (fit := _fit(log, trace)) is not None
    )
    homes: dict[int, str] = {}
    for _, number, name in pairs:
        if number not in homes and name not in homes.values():
            homes[number] = name
    return homes


def _fit(log: LogIdentity, trace: TraceIdentity) -> tuple[int, float] | None:
    """Return how well they fit, the smaller the better; None where they cannot be of one process.

    The log of a process begins before its trace ends, maybe long before: of several the last one counts. A process
    may compile first and be profiled later, but with only its id to go by, not _SAME_PROCESS_NS later.
    """
    same_rank = log.rank is not None and log.rank == trace.rank
    known_pids = log.pid is not None and trace.pid is not None
    alive = log.start_ns is None or not trace.end_ns or log.start_ns <= trace.end_ns
    last_ns = log.start_ns if log.end_ns is None else log.end_ns
    soon = last_ns is None or not trace.first_ns or trace.first_ns - last_ns <= _SAME_PROCESS_NS
    same_process = known_pids and log.pid == trace.pid and alive and soon
    apart = math.inf if log.start_ns is None else abs(trace.end_ns - log.start_ns)
    if same_rank:
        return (0 if same_process else 3 if known_pids or not alive else 1), apart
    disagree = log.rank is not None and trace.rank is not None
    return (2, apart) if same_process and not disagree else None


def _own_name(run: discovery.RunFiles, identity: LogIdentity, log: discovery.File) -> str:
    if identity.rank is not None:
        wanted = f"rank_{identity.rank}"
    elif identity.pid is not None:
        wanted = f"pid_{identity.pid}"
    else:
        wanted = log.name
    machine = log.part.machine if log.part else ""
    return wanted if wanted not in run.workers else f"{wanted}.{machine or os.path.splitext(log.name)[0]}"
