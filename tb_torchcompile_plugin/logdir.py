"""File names of a logdir, and what lies in it: runs, workers, spans.

The one place that knows how files are called. The writer asks it for names, the readers ask it what is there.
Discovery looks at names and the first bytes of files only; it never parses one.
"""

from __future__ import annotations

import gzip
import os
import re
import stat
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from tb_torchcompile_plugin.errors import Notice

_TRACE = re.compile(r"^(?P<worker>.*?)(?:\.(?P<span>\d+))?\.pt\.trace\.json(?:\.gz)?$")
_SUMMARY = re.compile(r"^(?P<worker>.*?)\.(?P<time>\d+)\.pt\.compile\.pb$")
_LOG = re.compile(r"^dedicated_log_torch_trace_(?:rank_(?P<rank>\d+)_)?.*\.log(?:\.gz)?$")
_JSON = re.compile(r"^(?P<stem>.+?)\.json(?:\.gz)?$")
_LOG_LINE = re.compile(rb"^V\d{4} \d\d:\d\d:\d\d\.\d+ \d+ \S+\] \{")
_SNIFF_BYTES = 64 * 1024


def trace_name(worker: str, time_ns: int, gzipped: bool = False) -> str:
    """`{worker}.{time_ns}.pt.trace.json[.gz]`, as torch's own handler names its files."""
    return f"{worker}.{time_ns}.pt.trace.json" + (".gz" if gzipped else "")


def summary_name(worker: str, time_ns: int) -> str:
    """`{worker}.{time_ns}.pt.compile.pb`; sorts beside the trace of the same cycle."""
    return f"{worker}.{time_ns}.pt.compile.pb"


@dataclass(frozen=True)
class File:
    """A regular file, identified the way caches key it."""

    path: str
    size: int
    mtime_ns: int

    @property
    def name(self) -> str:
        return os.path.basename(self.path)


@dataclass(frozen=True)
class Span:
    """One profiler cycle: one trace file. `span` is unique among the spans of its worker."""

    span: str
    file: File


@dataclass
class Worker:
    """The files of one training process, by the worker name in their file names."""

    worker: str
    spans: list[Span] = field(default_factory=list)
    summaries: list[File] = field(default_factory=list)  # newest first
    log: File | None = None
    rank: int | None = None


@dataclass
class Run:
    """One folder of the logdir that holds files of ours. `run` is its relative path, "." for the logdir itself."""

    run: str
    folder: str
    workers: dict[str, Worker] = field(default_factory=dict)
    logs: list[File] = field(default_factory=list)  # TORCH_TRACE logs not yet joined to a worker
    alone: bool = False  # one trace was asked for: what lies beside it counts only where it joins

    def worker(self, name: str) -> Worker:
        return self.workers.setdefault(name, Worker(name))


def discover(path: str, prefix: str = "") -> tuple[list[Run], list[Notice]]:
    """The runs below `path`, sorted by name, and what could not be looked at.

    path: a folder, or one file, which then stands alone. prefix: the name given to it by `--logdir_spec`.
    A folder that cannot be listed becomes a Notice; links are followed, each folder once.
    """
    notices: list[Notice] = []
    if os.path.isfile(path):
        return _discover_file(path, prefix), notices
    runs = []
    for folder in _folders(path, notices):
        run = _run_of(folder, _run_name(path, folder, prefix), notices)
        if run.workers or run.logs:
            runs.append(run)
    return sorted(runs, key=lambda run: run.run), notices


def log_rank(name: str) -> int | None:
    """The rank in the name of a TORCH_TRACE log, None where it has none."""
    match = _LOG.match(name)
    return int(match["rank"]) if match and match["rank"] is not None else None


def is_log(name: str) -> bool:
    return _LOG.match(name) is not None


def is_summary(name: str) -> bool:
    return _SUMMARY.match(name) is not None


def _run_name(root: str, folder: str, prefix: str) -> str:
    relative = os.path.relpath(folder, root).replace(os.sep, "/")
    if not prefix:
        return relative
    return prefix if relative == "." else f"{prefix}/{relative}"


def _folders(root: str, notices: list[Notice]) -> Iterator[str]:
    seen: set[tuple[int, int]] = set()

    def unreadable(error: OSError) -> None:
        notices.append(_folder_notice(error))

    for folder, children, _ in os.walk(root, onerror=unreadable, followlinks=True):
        try:
            status = os.stat(folder)
        except OSError as error:
            unreadable(error)
            continue
        if (status.st_dev, status.st_ino) in seen:  # a link back to a folder that was already visited
            children.clear()
            continue
        seen.add((status.st_dev, status.st_ino))
        children.sort()
        yield folder


def _folder_notice(error: OSError) -> Notice:
    return Notice(
        str(error.filename or ""),
        f"this folder cannot be listed ({error.strerror or error})",
        "Everything else in the logdir is shown",
        "Give the user that runs TensorBoard the right to read it, then reload",
    )


def _run_of(folder: str, name: str, notices: list[Notice]) -> Run:
    run = Run(name, folder)
    try:
        entries = sorted(os.listdir(folder))
    except OSError:  # os.walk has reported it
        return run
    loose = []
    for entry in entries:
        file = _regular_file(os.path.join(folder, entry))
        if file is None:
            continue
        if not _place(run, entry, file) and _JSON.match(entry):
            loose.append(file)
    for file in loose:
        _place_loose(run, file, notices)
    _sort(run)
    return run


def _regular_file(path: str) -> File | None:
    """None for what cannot be opened without risk: folders, FIFOs, devices, broken links."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    if not stat.S_ISREG(status.st_mode):
        return None
    return File(path, status.st_size, status.st_mtime_ns)


def _place(run: Run, name: str, file: File) -> bool:
    """Put a file whose name says what it is in its place; False where the name says nothing."""
    if match := _TRACE.match(name):
        _add_span(run.worker(match["worker"] or "trace"), match["span"] or "0", file)
    elif match := _SUMMARY.match(name):
        run.worker(match["worker"]).summaries.append(file)
    elif _LOG.match(name):
        run.logs.append(file)
    else:
        return False
    return True


def _add_span(worker: Worker, span: str, file: File) -> None:
    """Two files may claim one span id (`x.json` and `x.json.gz`): the second is known by its whole name."""
    taken = {known.span for known in worker.spans}
    worker.spans.append(Span(span if span not in taken else file.name, file))


def _place_loose(run: Run, file: File, notices: list[Notice]) -> None:
    """A JSON file of any name is a trace when its first 64 KiB hold `traceEvents`."""
    try:
        head = read_head(file.path)
    except OSError as error:
        notices.append(
            Notice(
                file.path,
                f"this file cannot be opened ({error.strerror or error})",
                "Everything else in the logdir is shown",
                "Give the user that runs TensorBoard the right to read it, then reload",
            )
        )
        return
    if b'"traceEvents"' in head:
        match = _JSON.match(file.name)
        _add_span(run.worker(match["stem"] if match else file.name), "0", file)


def read_head(path: str, limit: int = _SNIFF_BYTES) -> bytes:
    """The first `limit` bytes of a file, inflated when it is gzip (told by its magic, not its name)."""
    with open(path, "rb") as stream:
        head = stream.read(limit)
    if not head.startswith(b"\x1f\x8b"):
        return head
    try:
        return zlib.decompressobj(wbits=31).decompress(head, limit)
    except (zlib.error, gzip.BadGzipFile):
        return b""


def _sort(run: Run) -> None:
    for worker in run.workers.values():
        worker.spans.sort(key=lambda span: (len(span.span), span.span))  # numeric order of time stamps
        worker.summaries.sort(key=_summary_time, reverse=True)


def _summary_time(file: File) -> int:
    match = _SUMMARY.match(file.name)
    return int(match["time"]) if match else 0


def _discover_file(path: str, prefix: str) -> list[Run]:
    """One file as a logdir: a trace of any name with the compile data of its worker, or compile data alone."""
    folder, name = os.path.split(os.path.abspath(path))
    run = Run(prefix or ".", folder)
    file = _regular_file(os.path.join(folder, name))
    if file is None:
        return []
    if not _place(run, name, file):
        if _LOG_LINE.match(_head_or_nothing(path)):
            run.logs.append(file)
        else:
            match = _JSON.match(name)
            run.worker(match["stem"] if match else name).spans.append(Span("0", file))
    if any(worker.spans for worker in run.workers.values()):
        _add_compile_data_beside(run)
    return [run]


def _head_or_nothing(path: str) -> bytes:
    try:
        return read_head(path, 4096)
    except OSError:
        return b""


def _add_compile_data_beside(run: Run) -> None:
    beside = _run_of(run.folder, run.run, [])
    run.alone = True
    run.logs = beside.logs
    for name, worker in run.workers.items():
        if name in beside.workers:
            worker.summaries = beside.workers[name].summaries
