"""File names of a logdir, and what lies in it: runs, workers, spans.

The one place that knows how files are called. The writer asks it for names, the readers ask it what is there.
Discovery looks at names and the first bytes of files only; it never parses one. Folders may be local or remote.
"""

from __future__ import annotations

import errno
import gzip
import os
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import groupby

from tb_torchcompile_plugin.errors import Notice, UserError, displayable
from tb_torchcompile_plugin.logdir import filesystem
from tb_torchcompile_plugin.logdir.filesystem import File as File

_TRACE = re.compile(r"^(?P<worker>.*?)(?:\.(?P<span>\d+))?\.pt\.trace\.json(?:\.gz)?$")
_SUMMARY = re.compile(r"^(?P<worker>.*?)\.(?P<time>\d+)\.pt\.compile\.pb$")
_DIGEST = re.compile(r"^(?P<worker>.*?)\.(?P<span>\d+)\.pt\.digest\.pb$")
_LOG = re.compile(r"^dedicated_log_torch_trace_.*\.log(?:\.gz)?$")
_NS_DIGITS = 19  # of the time that torch's handler puts into a name
_LOG_RANK = re.compile(r"_rank_(\d+)[_.]")
_JSON = re.compile(r"^(?P<stem>.+?)\.json(?:\.gz)?$")
_PERFETTO = re.compile(r"\.pftrace(?:\.gz)?$")  # what torch 2.14 and later can write, too
_COPY = re.compile(r"^copy-[0-9a-f]{40}$")
_LOG_LINE = re.compile(rb"^V\d{4} \d\d:\d\d:\d\d\.\d+ \d+ \S+\] \{")
_SNIFF_BYTES = 64 * 1024
_REMEMBERED = 4096  # files whose first bytes were looked at


def summary_name(worker: str, time_ns: int) -> str:
    """`{worker}.{time_ns}.pt.compile.pb`; sorts beside the trace of the same cycle."""
    return f"{worker}.{time_ns}.pt.compile.pb"


def digest_name(worker: str, span: str) -> str:
    """`{worker}.{span}.pt.digest.pb`; sorts beside the trace that it is of. span: its id, of digits."""
    return f"{worker}.{span}.pt.digest.pb"


def copy_name(key: str) -> str:
    """The folder of the cache that holds the copy of a remote file, by 40 hexadecimal digits."""
    return f"copy-{key}"


@dataclass(frozen=True)
class SpanFile:
    """One profiler cycle: one trace file. `span` is unique among the spans of its worker."""

    span: str
    file: File


@dataclass
class WorkerFiles:
    """The files of one training process, by the worker name in their file names."""

    worker: str
    spans: list[SpanFile] = field(default_factory=list)
    summaries: list[File] = field(default_factory=list)  # newest first
    digests: dict[str, File] = field(default_factory=dict)  # by span, whether its trace is there or not
    log: File | None = None
    rank: int | None = None

    @property
    def compile_files(self) -> tuple[File, ...]:
        """What its compile data is made of."""
        return (*self.summaries, *([self.log] if self.log else []))


@dataclass
class RunFiles:
    """One folder of the logdir that holds files of ours. `run` is its relative path, "." for the logdir itself."""

    run: str
    folder: str
    workers: dict[str, WorkerFiles] = field(default_factory=dict)
    logs: list[File] = field(default_factory=list)  # TORCH_TRACE logs not yet joined to a worker
    alone: bool = False  # one trace was asked for: what lies beside it counts only where it joins

    def worker(self, name: str) -> WorkerFiles:
        return self.workers.setdefault(name, WorkerFiles(name))


def discover(path: str, prefix: str = "", within: str = "") -> tuple[list[RunFiles], list[Notice]]:
    """The runs below `path`, sorted by name, and what could not be looked at.

    path: a folder, or one file, which then stands alone; or the URL of one. prefix: the name given to it by
    `--logdir_spec`. A folder that cannot be listed becomes a Notice; links are followed, each folder once. within: a
    local folder, what does not lie in which is left out, links that lead out of it as well.
    """
    notices: list[Notice] = []
    path = filesystem.plain_path(path)
    try:
        file = filesystem.remote_file(path) if filesystem.is_remote(path) else filesystem.local_file(path)
        if file is not None and _PERFETTO.search(file.name):
            return [], [_not_read_yet(file)]
        if file is not None:
            return _discover_file(file, prefix, within), notices
        folders = (
            _remote_folders(path) if filesystem.is_remote(path) else _local_folders(path, notices, within)
        )
        runs = [_run_of(folder, _run_name(path, folder, prefix), files, notices) for folder, files in folders]
    except UserError as error:
        return [], [error.notice]
    return sorted((run for run in runs if run.workers or run.logs), key=lambda run: run.run), notices


def run_of_files(paths: Sequence[str]) -> RunFiles:
    """The run of local files of one folder whose names say what they are; those that are not there are left out. Lists
    nothing: the folder of a job may hold thousands."""
    run = RunFiles(".", os.path.dirname(paths[0]))
    for file in filter(None, map(filesystem.local_file, paths)):
        _place(run, file.name, file)
    return run


def log_rank(name: str) -> int | None:
    """The rank in the name of a TORCH_TRACE log, None where it has none."""
    match = _LOG_RANK.search(name)
    return int(match[1]) if match else None


def span_time_ns(span: str) -> int | None:
    """When torch's handler wrote the span, which it puts into the name; None where the name does not tell."""
    return int(span) if len(span) == _NS_DIGITS and span.isdigit() else None


def is_log(name: str) -> bool:
    return _LOG.match(name) is not None


def is_summary(name: str) -> bool:
    return _SUMMARY.match(name) is not None


def _run_name(root: str, folder: str, prefix: str) -> str:
    relative = displayable(os.path.relpath(folder, root).replace(os.sep, "/"))
    if not prefix:
        return relative
    return prefix if relative == "." else f"{prefix}/{relative}"


def _remote_folders(root: str) -> Iterator[tuple[str, list[File]]]:
    """Each folder that holds files; stores have no others."""
    files = filesystem.remote_files(root)
    in_order = sorted(files, key=lambda file: os.path.split(file.path))
    for folder, inside in groupby(in_order, lambda file: os.path.dirname(file.path)):
        yield folder, list(inside)


def _local_folders(root: str, notices: list[Notice], within: str) -> Iterator[tuple[str, list[File]]]:
    seen: set[tuple[int, int]] = set()

    def unreadable(error: OSError) -> None:
        notices.append(_folder_notice(error))

    for folder, children, _ in os.walk(root, onerror=unreadable, followlinks=True):
        try:
            status = os.stat(folder)
        except OSError as error:
            unreadable(error)
            continue
        # A link back to a folder that was already visited, or one that leads out.
        if (status.st_dev, status.st_ino) in seen or not filesystem.lies_in(folder, within):
            children.clear()
            continue
        seen.add((status.st_dev, status.st_ino))
        # The cache may lie in a logdir.
        children[:] = sorted(name for name in children if not _COPY.match(name))
        yield folder, [file for file in _files_in(folder) if filesystem.lies_in(file.path, within)]


def _files_in(folder: str) -> list[File]:
    try:
        names = sorted(os.listdir(folder))
    except OSError:  # os.walk has reported it, or it has just gone
        return []
    files = (filesystem.local_file(os.path.join(folder, name)) for name in names if _may_count(name))
    return [file for file in files if file is not None]


def _may_count(name: str) -> bool:
    kinds = (_JSON.match, _SUMMARY.match, _DIGEST.match, _LOG.match, _PERFETTO.search)
    return any(is_it(name) for is_it in kinds)


def _folder_notice(error: OSError) -> Notice:
    steps = {
        errno.ENOENT: "Check the path; if nothing has been written there yet, reload later",
        errno.ENOTDIR: "Give a folder, or a regular file",
    }
    return Notice(
        str(error.filename or ""),
        f"this folder cannot be listed ({error.strerror or error})",
        "Everything else in the logdir is shown",
        steps.get(error.errno or 0, "Give the user that runs TensorBoard the right to read it, then reload"),
    )


def _not_read_yet(file: File) -> Notice:
    return Notice(
        file.path,
        "this is a Perfetto trace, which is not read yet",
        "Everything else in the logdir is shown",
        "Record as .json: what export_chrome_trace writes depends on the end of the name",
    )


def _run_of(folder: str, name: str, files: list[File], notices: list[Notice]) -> RunFiles:
    run = RunFiles(name, folder)
    loose = [file for file in files if not _place(run, file.name, file) and _JSON.match(file.name)]
    for file in loose:
        _place_loose(run, file, notices)
    notices += [_not_read_yet(file) for file in files if _PERFETTO.search(file.name)]
    _sort(run)
    return run


def _place(run: RunFiles, name: str, file: File) -> bool:
    """Put a file whose name says what it is in its place; False where the name says nothing."""
    if match := _TRACE.match(name):
        _add_span(run.worker(match["worker"] or "trace"), match["span"] or "0", file)
    elif match := _SUMMARY.match(name):
        run.worker(match["worker"]).summaries.append(file)
    elif match := _DIGEST.match(name):
        run.worker(match["worker"]).digests[match["span"]] = file
    elif _LOG.match(name):
        run.logs.append(file)
    else:
        return False
    return True


def _add_span(worker: WorkerFiles, span: str, file: File) -> None:
    """Two files may claim one span id (`x.json` and `x.json.gz`): the second is known by its whole name."""
    taken = {known.span for known in worker.spans}
    worker.spans.append(SpanFile(span if span not in taken else file.name, file))


def _place_loose(run: RunFiles, file: File, notices: list[Notice]) -> None:
    """A JSON file of any name is a trace when its first 64 KiB hold `traceEvents`."""
    try:
        counts = _is_trace(file)
    except UserError as error:
        notices.append(error.notice)
        return
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
    if counts:
        match = _JSON.match(file.name)
        _add_span(run.worker(match["stem"] if match else file.name), "0", file)


@lru_cache(_REMEMBERED)  # the file's size and time are part of its name here, and failures are not kept
def _is_trace(file: File) -> bool:
    return file.size > 0 and b'"traceEvents"' in read_head(file.path)


def read_head(path: str, limit: int = _SNIFF_BYTES) -> bytes:
    """The first `limit` bytes of a file, inflated when it is gzip (told by its magic, not its name).

    path: a path, or the URL of a file that is not empty. Raises OSError; of a remote one UserError.
    """
    head = filesystem.read_range(path, 0, limit)
    if not head.startswith(b"\x1f\x8b"):
        return head
    try:
        return zlib.decompressobj(wbits=31).decompress(head, limit)
    except (zlib.error, gzip.BadGzipFile):
        return b""


def _sort(run: RunFiles) -> None:
    for worker in run.workers.values():
        worker.spans.sort(key=lambda span: (len(span.span), span.span))  # numeric order of time stamps
        worker.summaries.sort(key=_summary_time, reverse=True)


def _summary_time(file: File) -> int:
    match = _SUMMARY.match(file.name)
    return int(match["time"]) if match else 0


def _discover_file(file: File, prefix: str, within: str) -> list[RunFiles]:
    """One file as a logdir: a trace of any name with the compile data of its worker, or compile data alone."""
    if not filesystem.is_remote(file.path):
        file = replace(file, path=os.path.abspath(file.path))
    run = RunFiles(prefix or ".", os.path.dirname(file.path))
    if not _place(run, file.name, file):
        if _LOG_LINE.match(_head_or_nothing(file)):
            run.logs.append(file)
        else:
            match = _JSON.match(file.name)
            run.worker(match["stem"] if match else file.name).spans.append(SpanFile("0", file))
    if any(worker.spans for worker in run.workers.values()):
        _add_compile_data_beside(run, within)
    return [run]


def _head_or_nothing(file: File) -> bytes:
    try:
        return read_head(file.path, 4096) if file.size else b""
    except (OSError, UserError):  # reading it will say why
        return b""


def _add_compile_data_beside(run: RunFiles, within: str) -> None:
    remote = filesystem.is_remote(run.folder)
    files = filesystem.remote_files(run.folder, below=False) if remote else _files_in(run.folder)
    mine = [file for file in files if is_log(file.name) or is_summary(file.name)]
    if not remote:
        mine = [file for file in mine if filesystem.lies_in(file.path, within)]
    beside = _run_of(run.folder, run.run, mine, [])
    run.alone = True
    run.logs = beside.logs
    for name, worker in run.workers.items():
        if name in beside.workers:
            worker.summaries = beside.workers[name].summaries
