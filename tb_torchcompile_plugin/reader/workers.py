"""Which TORCH_TRACE log belongs to which worker.

A log joins the worker of its folder with the same rank; else the one with the same process id that was alive at
the time; else it is a worker of its own. Only the first and last bytes of each file are looked at.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import lru_cache

from tb_torchcompile_plugin.errors import UserError
from tb_torchcompile_plugin.filesystem import read_range
from tb_torchcompile_plugin.logdir import File, Run, Worker, log_rank, read_head
from tb_torchcompile_plugin.reader import copies
from tb_torchcompile_plugin.reader.structured_log import LogIdentity, log_identity

_RANK = re.compile(rb'"distributedInfo"\s*:\s*\{[^{}]*?"rank"\s*:\s*(\d+)')
_HOST_PID = (
    re.compile(
        rb'"cat"\s*:\s*"(?:cpu_op|user_annotation|python_function|cuda_runtime)"[^{}]*?"pid"\s*:\s*"?(\d+)'
    ),
    re.compile(
        rb'"pid"\s*:\s*"?(\d+)[^{}]*?"cat"\s*:\s*"(?:cpu_op|user_annotation|python_function|cuda_runtime)"'
    ),
)
_TAIL_BYTES = 64 * 1024
_REMEMBERED = 4096  # files


@dataclass(frozen=True)
class TraceIdentity:
    """Whose trace a file is: rank from `distributedInfo`, process id of its host events, and when it ended."""

    rank: int | None
    pid: int | None
    end_ns: int


_UNKNOWN_LOG = LogIdentity(rank=None, pid=None, start_ns=None, end_ns=None)


def trace_identity(file: File, span: str) -> TraceIdentity:
    """Cheap: the first 64 KiB, and the last where the first do not tell. Never raises; unknown is None."""
    try:
        rank, pid = _rank_and_pid(file)
    except (OSError, UserError):  # reading it will say why
        rank, pid = None, None
    end_ns = int(span) if len(span) == 19 and span.isdigit() else file.mtime_ns
    return TraceIdentity(rank, pid, end_ns)


@lru_cache(_REMEMBERED)  # the file's size and time are part of its name here, and failures are not kept
def _rank_and_pid(file: File) -> tuple[int | None, int | None]:
    ends = read_head(file.path) + b"\n" + _tail(file) if file.size else b""
    rank = _RANK.search(ends)
    pids = [match for pattern in _HOST_PID if (match := pattern.search(ends))]
    return int(rank[1]) if rank else None, int(pids[0][1]) if pids else None


def _identity_of_log(file: File) -> LogIdentity:
    try:
        return _known_identity_of_log(file)
    except UserError:  # it may have gone; a worker of its own says so when it is read
        return _UNKNOWN_LOG


@lru_cache(_REMEMBERED)
def _known_identity_of_log(file: File) -> LogIdentity:
    with copies.ends(file) as path:
        return log_identity(path)


def join_logs(run: Run) -> list[Worker]:
    """The workers of a run, sorted by name, each with its rank and its log where one joins."""
    identities = {worker.worker: _identity(worker) for worker in run.workers.values()}
    for worker in run.workers.values():
        worker.rank = identities[worker.worker].rank
    logs = [(log, _identity_of_log(log)) for log in run.logs]
    for log, identity in sorted(
        logs, key=lambda pair: pair[1].start_ns or 0, reverse=True
    ):  # the newest claims first
        _join(run, log, identity, identities)
    return [run.workers[name] for name in sorted(run.workers)]


def _identity(worker: Worker) -> TraceIdentity:
    if worker.spans:
        last = worker.spans[-1]
        return trace_identity(last.file, last.span)
    pid = re.search(r"_(\d+)$", worker.worker)  # the default worker name ends with the process id
    newest = worker.summaries[0].mtime_ns if worker.summaries else 0
    return TraceIdentity(None, int(pid[1]) if pid else None, newest)


def _join(run: Run, log: File, identity: LogIdentity, traces: dict[str, TraceIdentity]) -> None:
    rank = log_rank(log.name)
    rank = identity.rank if rank is None else rank
    name = _claimant(rank, identity, traces)
    if name is None or run.workers[name].log is not None:
        if run.alone and traces:
            return
        name = _own_name(run, rank, identity, log)
    worker = run.worker(name)
    if worker.rank is None:
        worker.rank = rank
    worker.log = log


def _claimant(rank: int | None, log: LogIdentity, traces: dict[str, TraceIdentity]) -> str | None:
    """The worker that a log belongs to: same rank, else same process and alive when the log began."""
    if rank is not None:
        for name, trace in traces.items():
            if trace.rank == rank:
                return name
    for name, trace in traces.items():
        alive = log.start_ns is None or log.start_ns <= trace.end_ns
        if log.pid is not None and trace.pid == log.pid and alive and not _disagree(rank, trace.rank):
            return name
    return None


def _disagree(log_rank: int | None, trace_rank: int | None) -> bool:
    return log_rank is not None and trace_rank is not None and log_rank != trace_rank


def _own_name(run: Run, rank: int | None, identity: LogIdentity, log: File) -> str:
    if rank is not None:
        wanted = f"rank_{rank}"
    elif identity.pid is not None:
        wanted = f"pid_{identity.pid}"
    else:
        wanted = log.name
    taken = run.workers.get(wanted)
    return wanted if taken is None or taken.log is None else f"{wanted}.{os.path.splitext(log.name)[0]}"


def _tail(file: File) -> bytes:
    """The last 64 KiB of a larger file; nothing of a gzip, which cannot be read from behind."""
    if file.size <= _TAIL_BYTES or read_range(file.path, 0, 2) == b"\x1f\x8b":
        return b""
    return read_range(file.path, file.size - _TAIL_BYTES, file.size)
