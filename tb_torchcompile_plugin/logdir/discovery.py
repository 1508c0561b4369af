"""Find the runs, workers and spans of a logdir by file names.

The writer uses these file names, too. Discovery reads only names and first bytes of files, and never parses them.
Folders may be local or remote.
"""

import errno
import gzip
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from itertools import chain, groupby, islice
from typing import NamedTuple

from tb_torchcompile_plugin.errors import Notice, UserError, displayable
from tb_torchcompile_plugin.logdir import filesystem
from tb_torchcompile_plugin.logdir.filesystem import File as File
from tb_torchcompile_plugin.logdir.filesystem import Part as Part
from tb_torchcompile_plugin.logdir.log_text import parts
from tb_torchcompile_plugin.logdir.other_formats import OtherFormat, other_format
from tb_torchcompile_plugin.torch_names.log_lines import HEAD
from tb_torchcompile_plugin.torch_names.slices import EXPORTED

_TRACE = re.compile(r"^(?P<worker>.*?)(?:\.(?P<span>\d+))?\.pt\.trace\.json(?:\.gz)?$")
_SUMMARY = re.compile(r"^(?P<worker>.*?)\.(?P<time>\d+)\.pt\.compile\.pb$")
_DIGEST = re.compile(r"^(?P<worker>.*?)\.(?P<span>\d+)\.pt\.digest\.pb$")
_STATUS = re.compile(r"\.\d+\.pt\.compiling$")
_LOG = re.compile(r"^dedicated_log_torch_trace_.*\.log(?:\.gz)?$")
# A text of TORCH_LOGS, if its beginning has lines about compilations.
_TEXT = re.compile(r"\.(?:log|txt|out|err)(?:\.gz)?$")
_NS_DIGITS = 19  # of the time that torch's handler puts into a name
_LOG_RANK = re.compile(r"_rank_(\d+)[_.]")
_JSON = re.compile(r"^(?P<stem>.+?)\.json(?:\.gz)?$")
# One process of a server writes its prefill and its decode batches into files of their own, as SGLang names them.
_STAGE = re.compile(r"^(?P<worker>.+)[-_.](?P<stage>extend|prefill|decode|mixed)(?:\.trace)?$", re.IGNORECASE)
# SGLang merges the traces of all ranks, which stay next to it, and puts their labels before the process ids.
_MERGED = re.compile(r"^merged-(?P<id>.+)\.trace\.json(?:\.gz)?$")
_LABEL = re.compile(rb'"pid"\s*:\s*"(\[[A-Z]+\d+(?:-[A-Z]+\d+)*\]) ')
_LONGEST_LABEL, _BLOCK = 256, 1 << 20
_PERFETTO = re.compile(r"\.pftrace(?:\.gz)?$")  # named even where there are traces to read
_COPY = re.compile(r"^copy-[0-9a-f]{40}$")
# Where inference engines write the traces of capturing CUDA graphs, next to those of serving or one folder up.
_CAPTURE_FOLDERS = ("capture_traces", "graph_capture_profile")
_CAPTURE_RANK = re.compile(r"(?:rank_?|TP-)(\d+).*\.json(?:\.gz)?$")
# The files that count, of any name that they may have.
_FILES = (_JSON, _SUMMARY, _DIGEST, _STATUS, _LOG, _PERFETTO, _TEXT)
_LOG_LINE = re.compile(rb"^V\d{4} \d\d:\d\d:\d\d\.\d+ \d+ \S+\] \{")
_SNIFF_BYTES = 64 * 1024  # of a JSON file, which is a trace if they hold `traceEvents`
_BEGINNING = 256  # bytes that tell apart two texts of one path, one of which replaced the other
_MOST_SNIFFED = 64  # files of a folder without traces that are opened to see what they are
_CACHED_FILES = 4096  # whose first bytes were read
_GIVE_RIGHT = "Give the user that runs TensorBoard permission to read it, then reload"


def summary_name(worker: str, time_ns: int) -> str:
    """Return `{worker}.{time_ns}.pt.compile.pb`, which sorts next to the trace of the same cycle."""
    return f"{worker}.{time_ns}.pt.compile.pb"


def digest_name(worker: str, span: str) -> str:
    """Return `{worker}.{span}.pt.digest.pb`, which sorts next to its trace. span: its id, of digits."""
    return f"{worker}.{span}.pt.digest.pb"


def status_name(worker: str, pid: int) -> str:
    """Return `{worker}.{pid}.pt.compiling`: ranks may share a worker name. See `compile_status`."""
    return f"{worker}.{pid}.pt.compiling"


def copy_name(key: str) -> str:
    """Return the folder of the cache that holds the copy of a remote file, by 40 hexadecimal digits."""
    return f"copy-{key}"


@dataclass(frozen=True)
class SpanFile:
    """One profiler cycle: one trace file."""

    span: str  # unique among the spans of its worker
    file: File


@dataclass
class WorkerFiles:
    """The files of one training process, by the worker name in their file names."""

    worker: str
    spans: list[SpanFile] = field(default_factory=list)
    summaries: list[File] = field(default_factory=list)  # newest first
    digests: dict[str, File] = field(default_factory=dict)  # by span, whether its trace is there or not
    log: File | None = None
    captures: tuple[File, ...] = ()  # traces of capturing the CUDA graphs that it replays
    rank: int | None = None

    @property
    def compile_files(self) -> tuple[File, ...]:
        """The files of its compile data."""
        return (*self.summaries, *([self.log] if self.log else []))

    @property
    def has_trace(self) -> bool:
        """Whether there is a trace, or data kept from one."""
        return bool(self.spans or self.digests)


@dataclass
class RunFiles:
    """One folder of the logdir that contains supported files."""

    run: str  # its relative path, "." for the logdir itself
    folder: str
    workers: dict[str, WorkerFiles] = field(default_factory=dict)
    logs: list[File] = field(default_factory=list)  # of torch, and parts of texts, not yet joined to a worker
    captures: dict[int, list[File]] = field(default_factory=dict)  # traces of capturing CUDA graphs, by rank
    statuses: list[File] = field(default_factory=list)  # of processes that compile, or were killed meanwhile
    alone: bool = False  # one trace was asked for: files next to it count only where they join

    def worker(self, name: str) -> WorkerFiles:
        """Return the files of a worker, which may be new."""
        return self.workers.setdefault(name, WorkerFiles(name))

    def split(self, name: str, ranks: Mapping[str, int | None]) -> None:
        """Make a worker of each rank that wrote under one `worker_name`. ranks: by span."""
        shared = self.workers.pop(name)

        def of_rank(span: str) -> WorkerFiles:
            rank = ranks.get(span)
            return self.worker(name if rank is None else f"{name}_rank_{rank}")

        for span in shared.spans:
            of_rank(span.span).spans.append(span)
        for span_id, digest in shared.digests.items():
            of_rank(span_id).digests[span_id] = digest
        for summary in shared.summaries:  # each was written with a trace
            of_rank(str(_summary_time(summary))).summaries.append(summary)


def discover(path: str, prefix: str = "", within: str = "") -> tuple[list[RunFiles], list[Notice]]:
    """Return the runs below `path`, sorted by name, and notices about unreadable folders.

    A folder that cannot be listed becomes a Notice; links are followed, each folder once.

    path: a folder, or one file, which then is alone; or the URL of one. prefix: its name from `--logdir_spec`. within:
    a local folder; everything outside it is ignored, including links that lead outside.
    """
    notices: list[Notice] = []
    path = filesystem.plain_path(path)
    remote = filesystem.is_remote(path)
    try:
        file = filesystem.remote_file(path) if remote else filesystem.local_file(path)
        if file is not None and (known := other_format(file.name)):
            return [], [_not_read(file, known)]
        if file is not None:
            return [_run_of_file(file, prefix, within)], notices
        folders = _remote_folders(path) if remote else _local_folders(path, notices, within)
        runs = [_run_of(folder, _run_name(path, folder, prefix), files, notices) for folder, files in folders]
        listed = (run for run in runs if run.workers or run.logs or run.statuses)
        runs = sorted(listed, key=lambda run: run.run)
        for run in runs:
            _add_captures(run, within, path)
        captures = {os.path.dirname(file.path) for run in runs for file in chain(*run.captures.values())}
        runs = [run for run in runs if run.folder not in captures]
        return runs, notices if runs or notices else _other_files(path, remote, within)
    except UserError as error:
        return [], [error.notice]


def _add_captures(run: RunFiles, within: str, root: str = "") -> None:
    """Find the local capture traces that the traces of a run need, not above the logdir `root`."""
    if os.path.basename(run.folder) in _CAPTURE_FOLDERS or not any(row.spans for row in run.workers.values()):
        return
    parents = (run.folder,) if run.folder == root else (run.folder, os.path.dirname(run.folder))
    for folder in (os.path.join(parent, name) for parent in parents for name in _CAPTURE_FOLDERS):
        with suppress(OSError):  # absent, or a folder that cannot be listed, which has its own notice
            for file in _local_files(folder, os.listdir(folder), within):
                if match := _CAPTURE_RANK.search(file.name):
                    run.captures.setdefault(int(match[1]), []).append(file)


def run_of_files(paths: Sequence[str]) -> RunFiles:
    """Return the run of local files of one folder whose names say what they are; missing ones are left out.

    Lists nothing: the folder of a job may hold thousands.
    """
    run = RunFiles(".", os.path.dirname(paths[0]))
    for file in filter(None, map(filesystem.local_file, paths)):
        _place(run, file.name, file)
    return run


def log_rank(name: str) -> int | None:
    """Return the rank in the name of a TORCH_TRACE log, None without one."""
    match = _LOG_RANK.search(name)
    return int(match[1]) if match else None


def span_time_ns(span: str) -> int | None:
    """Return when torch's handler wrote the span, which it puts into the name; None where it did not."""
    return int(span) if len(span) == _NS_DIGITS and span.isdigit() else None


def _run_name(root: str, folder: str, prefix: str) -> str:
    relative = displayable(os.path.relpath(folder, root).replace(os.sep, "/"))
    if not prefix:
        return relative
    return prefix if relative == "." else f"{prefix}/{relative}"


def _remote_folders(root: str) -> Iterator[tuple[str, list[File]]]:
    """Yield each folder that holds files; stores have no others."""
    files = sorted(filesystem.remote_files(root), key=lambda file: os.path.split(file.path))
    for folder, inside in groupby(files, lambda file: os.path.dirname(file.path)):
        yield folder, list(inside)


def _local_folders(root: str, notices: list[Notice], within: str) -> Iterator[tuple[str, list[File]]]:
    seen: set[tuple[int, int]] = set()
    add_notice = partial(_add_folder_notice, notices)
    for folder, children, names in os.walk(root, onerror=add_notice, followlinks=True):
        try:
            status = os.stat(folder)
        except OSError as error:
            add_notice(error)
            continue
        # A link back to a folder that was already visited, or one that leads out.
        if (status.st_dev, status.st_ino) in seen or not filesystem.is_within(folder, within):
            children.clear()
            continue
        seen.add((status.st_dev, status.st_ino))
        # The cache may be in a logdir.
        children[:] = sorted(name for name in children if not _COPY.match(name))
        yield folder, _local_files(folder, names, within)


def _local_files(folder: str, names: Iterable[str], within: str) -> list[File]:
    counted = sorted(name for name in names if any(pattern.search(name) for pattern in _FILES))
    files = filter(None, (filesystem.local_file(os.path.join(folder, name)) for name in counted))
    return [file for file in files if filesystem.is_within(file.path, within)]


def _add_folder_notice(notices: list[Notice], error: OSError) -> None:
    steps = {
        errno.ENOENT: "Check the path. If nothing has been written there yet, reload later",
        errno.ENOTDIR: "Pass a folder or a regular file",
    }
    problem = f"this folder cannot be listed ({error.strerror or error})"
    next_step = steps.get(error.errno or 0, _GIVE_RIGHT)
    notices.append(_notice(str(error.filename or ""), problem, next_step))


def _notice(path: str, problem: str, next_step: str) -> Notice:
    return Notice(path, problem, "Everything else in the logdir is shown", next_step)


def _not_read(file: File, known: OtherFormat) -> Notice:
    return Notice(file.path, known.problem, next_step=known.next_step)


def _other_files(root: str, remote: bool, within: str) -> list[Notice]:
    """Return the first unsupported file of each kind in a folder without readable files."""
    paths = (os.path.join(folder, name) for folder, _, names in os.walk(root) for name in sorted(names))
    local = map(filesystem.local_file, (path for path in paths if filesystem.is_within(path, within)))
    files = islice(filter(None, filesystem.remote_files(root) if remote else local), _MOST_SNIFFED)
    notices: dict[str, Notice] = {}
    for file in files:
        with suppress(OSError, UserError):  # what cannot be opened is of no known kind
            if other := _sniffed(file).other:
                notices.setdefault(other.problem, _not_read(file, other))
    return list(notices.values())


def _run_of(folder: str, name: str, files: list[File], notices: list[Notice]) -> RunFiles:
    run = RunFiles(name, folder)
    loose = [file for file in files if not _place(run, file.name, file) and _JSON.match(file.name)]
    names, exported = [file.name for file in loose], [file for file in loose if _is_exported(file)]
    for file in loose:
        if file not in exported and not _is_merged_again(file, names):
            _place_loose(run, file, notices)
    if not any(worker.spans for worker in run.workers.values()):
        for file in exported:  # not next to the trace that they are part of
            _place_loose(run, file, notices)
    if not run.logs and not any(worker.summaries for worker in run.workers.values()):  # which contain more
        texts = sorted((file for file in files if _TEXT.search(file.name)), key=lambda file: -file.mtime_ns)
        for file in texts[:_MOST_SNIFFED]:
            try:
                run.logs += _text_parts(file) if _sniffed(file).is_text else []
            except OSError as error:
                notices.append(_unreadable(file, error))
            except UserError:  # most texts are of other programs
                continue
    named = (file for file in files if _PERFETTO.search(file.name))
    notices += (_not_read(file, known) for file in named if (known := other_format(file.name)))
    for worker in run.workers.values():
        worker.spans.sort(key=lambda span: (len(span.span), span.span))  # numeric order of time stamps
        worker.summaries.sort(key=_summary_time, reverse=True)
    return run


def _place(run: RunFiles, name: str, file: File) -> bool:
    """Add a file to its worker if its name determines its kind; otherwise return False."""
    if match := _TRACE.match(name):
        _add_span(run.worker(match["worker"] or "trace"), match["span"] or "0", file)
    elif match := _SUMMARY.match(name):
        run.worker(match["worker"]).summaries.append(file)
    elif match := _DIGEST.match(name):
        run.worker(match["worker"]).digests[match["span"]] = file
    elif _LOG.match(name):
        run.logs.append(file)
    elif _STATUS.search(name) and not filesystem.is_remote(file.path):  # each would be a request every 2 s
        run.statuses.append(file)
    else:
        return False
    return True


def _add_span(worker: WorkerFiles, span: str, file: File) -> None:
    """Add a span. Two files may claim one id (`x.json` and `x.json.gz`): the second gets its whole name."""
    is_taken = any(other.span == span for other in worker.spans)
    worker.spans.append(SpanFile(file.name if is_taken else span, file))


def _place_loose(run: RunFiles, file: File, notices: list[Notice]) -> None:
    """Add a JSON file of any name, which is a trace when its first 64 KiB hold `traceEvents`."""
    try:
        if (sniffed := _sniffed(file)).is_trace:
            _add_loose(run, file, sniffed.labels)
    except UserError as error:
        notices.append(error.notice)
    except OSError as error:
        notices.append(_unreadable(file, error))


def _is_exported(file: File) -> bool:
    with suppress(OSError, UserError):  # `_place_loose` states why
        return _sniffed(file).is_exported
    return False


def _unreadable(file: File, error: OSError) -> Notice:
    return _notice(file.path, f"this file cannot be opened ({error.strerror or error})", _GIVE_RIGHT)


def _is_merged_again(file: File, names: Sequence[str]) -> bool:
    """Whether the traces that were merged into a file are next to it."""
    match = _MERGED.match(file.name)
    return match is not None and any(name.startswith(f"{match['id']}-") for name in names)


def _add_loose(run: RunFiles, file: File, labels: Sequence[str]) -> None:
    match = _JSON.match(file.name)
    stem = match["stem"] if match else file.name
    stage = _STAGE.match(stem)
    worker, span = stage.groups() if stage else (stem, "0")
    for rank, label in enumerate(labels):
        part = replace(file, tag=f"{file.mtime_ns} {label}", part=Part(label, rank, len(labels)))
        _add_span(run.worker(f"{worker}.{label.strip('[]')}"), span, part)
    if not labels:
        _add_span(run.worker(worker), span, file)


@lru_cache(_CACHED_FILES)
def _searched(path: str, beginning: bytes) -> list[tuple[int, list[Part]]]:
    """Return the size of a text when it was searched last, and its parts, in a list that is updated: logs grow."""
    return [(0, [])]


@lru_cache(_CACHED_FILES)
def _text_parts(file: File) -> list[File]:
    """Return a text once for each process that wrote into it, by reading what is new; of a remote one its beginning."""
    if filesystem.is_remote(file.path):
        found = parts([read_head(file.path)])
    else:
        searched = _searched(file.path, filesystem.read_range(file.path, 0, _BEGINNING))
        size, found = searched[0]
        # The last line may have been incomplete.
        found = parts(_blocks(file.path, max(0, size - _SNIFF_BYTES)), found)
        searched[0] = file.size, found
    return [replace(file, tag=f"{file.mtime_ns} {part}", part=part) for part in found]


class _Sniffed(NamedTuple):
    is_trace: bool = False
    is_exported: bool = False  # by this package, from a trace
    is_log: bool = False
    is_text: bool = False
    labels: tuple[str, ...] = ()  # of the processes whose traces a tool merged into it
    other: OtherFormat | None = None  # what it is that is not read


@lru_cache(_CACHED_FILES)  # the file's size and time are part of its name here, and failures are not kept
def _sniffed(file: File) -> _Sniffed:
    head = read_head(file.path) if file.size else b""
    is_merged = _LABEL.search(head) and not filesystem.is_remote(file.path)
    return _Sniffed(
        is_trace=b'"traceEvents"' in head,
        is_exported=EXPORTED.encode() in head,
        is_log=_LOG_LINE.match(head) is not None,
        is_text=HEAD.search(head) is not None,
        labels=_labels(file.path) if is_merged else (),
        other=other_format(file.name, head),
    )


def _labels(path: str) -> tuple[str, ...]:
    """Return the labels before the process ids of a merged profile, by reading all of it."""
    labels: dict[bytes, None] = {}
    rest = b""
    for block in _blocks(path):
        labels.update(dict.fromkeys(_LABEL.findall(rest + block)))
        rest = block[-_LONGEST_LABEL:]
    return tuple(label.decode() for label in labels)


def _blocks(path: str, start: int = 0) -> Iterator[bytes]:
    """Yield the content of a local file, unpacked, from the first line after `start` up to where it is damaged."""
    is_packed = filesystem.read_range(path, 0, 2) == b"\x1f\x8b"
    with (
        suppress(EOFError, OSError, zlib.error),
        gzip.open(path) if is_packed else open(path, "rb") as stream,
    ):
        if start:
            stream.seek(start)
            stream.readline(_BLOCK)
        while block := stream.read(_BLOCK):
            yield block


def read_head(path: str) -> bytes:
    """Return the first 64 KiB of a file, inflated when it is gzip (by its magic, not its name).

    path: a path, or the URL of a file that is not empty. Raises OSError; of a remote one UserError.
    """
    head = filesystem.read_range(path, 0, _SNIFF_BYTES)
    if not head.startswith(b"\x1f\x8b"):
        return head
    try:
        return zlib.decompressobj(wbits=31).decompress(head, _SNIFF_BYTES)
    except (zlib.error, gzip.BadGzipFile):
        return b""


def _summary_time(file: File) -> int:
    match = _SUMMARY.match(file.name)
    return int(match["time"]) if match else 0


def _run_of_file(file: File, prefix: str, within: str) -> RunFiles:
    """Return one file as a logdir: a trace of any name with the compile data of its worker, or compile data alone."""
    if not filesystem.is_remote(file.path):
        file = replace(file, path=os.path.abspath(file.path))
    run = RunFiles(prefix or ".", os.path.dirname(file.path))
    if not _place(run, file.name, file):
        sniffed = _Sniffed()
        with suppress(OSError, UserError):  # reading it will say why
            sniffed = _sniffed(file)
        if sniffed.is_log:
            run.logs.append(file)
        elif sniffed.is_text or (_TEXT.search(file.name) and not (sniffed.is_trace or sniffed.other)):
            run.logs += _text_parts(file) or [replace(file, part=Part("", -1, 0))]
        else:
            _add_loose(run, file, sniffed.labels)
    if any(worker.spans for worker in run.workers.values()):
        _add_compile_data(run, within)
        _add_captures(run, within)
    return run


def _add_compile_data(run: RunFiles, within: str) -> None:
    """Add the logs and summaries in the folder of a trace."""
    if filesystem.is_remote(run.folder):
        files = filesystem.remote_files(run.folder, below=False)
    else:
        _, _, names = next(os.walk(run.folder), ("", [], []))
        files = _local_files(run.folder, names, within)
    files = [file for file in files if _LOG.match(file.name) or _SUMMARY.match(file.name)]
    neighbors = _run_of(run.folder, run.run, files, [])
    run.alone = True
    run.logs = neighbors.logs
    for name, worker in run.workers.items():
        if name in neighbors.workers:
            worker.summaries = neighbors.workers[name].summaries
