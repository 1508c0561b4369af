"""List what the logdirs hold: runs, their workers, and who has which id.

Listing reads folders, and first and last bytes of files that are new; it parses nothing. Ids are looked up in the last
listing; only one that is missing there causes another one.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, TypeVar

import msgspec

from tb_torchcompile_plugin import __version__
from tb_torchcompile_plugin.analysis.formatting import plural
from tb_torchcompile_plugin.analysis.runtime.program import ProgramFacts, baseline_of
from tb_torchcompile_plugin.errors import NotFound, Notice, UserError, WrongArgument, quoted
from tb_torchcompile_plugin.job.job import prefers_digests
from tb_torchcompile_plugin.logdir import discovery
from tb_torchcompile_plugin.logdir.compile_status import MAX_BYTES, CompileStatus
from tb_torchcompile_plugin.logdir.filesystem import read_range
from tb_torchcompile_plugin.reader.cache.answers import AnswerSource
from tb_torchcompile_plugin.reader.compile_data import makers
from tb_torchcompile_plugin.reader.merge import join_logs

Found = TypeVar("Found")
Ids = tuple[str, str, str]  # run, worker, span; "" for the compile data of a worker alone
Compiling = dict[str, list[CompileStatus]]  # what the processes of each run compile now
ProgramOf = Callable[[Sequence[discovery.WorkerFiles]], ProgramFacts | None]
SCHEMA_VERSION = 2  # of all that leaves
_MAX_KNOWN = 1_000  # runs: of more, names decide, as what one executed takes 50 µs to look up on disk
_RELOAD = "Reload: the files may have been removed"


class SpanRef(msgspec.Struct, frozen=True):
    """A span as the tab lists it."""

    span: str
    trace_file: str
    size_bytes: int
    modified_s: float


class WorkerRef(msgspec.Struct, frozen=True):
    """A worker as the tab lists it."""

    worker: str
    rank: int | None
    has_compile: bool
    spans: list[SpanRef]


class RunRef(msgspec.Struct, frozen=True):
    """A run."""

    run: str
    workers: list[WorkerRef]
    ranks: int  # those that can be looked at together, from two on
    job_bytes: int  # how much is read for that
    compiling: str = ""  # what its processes compile now, in words


class Runs(msgspec.Struct, frozen=True):
    """What a logdir holds."""

    plugin_version: str
    runs: list[RunRef]
    warnings: list[Notice]
    schema_version: int = SCHEMA_VERSION


class BaselineRef(msgspec.Struct, frozen=True):
    """The span to compare a span with, of its baseline run; null without one."""

    run: str | None = None
    worker: str | None = None
    span: str | None = None


class SpanFiles(NamedTuple):
    """A span of a worker."""

    run: str
    worker: discovery.WorkerFiles
    span: discovery.SpanFile
    files: tuple[discovery.File, ...]  # all that it is read from
    baseline: "SpanFiles | None" = None  # of its baseline run

    @property
    def source(self) -> AnswerSource:
        """What answers about it are computed from."""
        if self.baseline is None:
            return AnswerSource(self.files)
        return AnswerSource((*self.files, *self.baseline.files), self.baseline.run)


@dataclass
class Listing:
    """What the logdirs held at one moment: each run with its workers and their logs, and what could not be read."""

    runs: list[tuple[discovery.RunFiles, list[discovery.WorkerFiles]]] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)
    statuses: dict[str, list[discovery.File]] = field(default_factory=dict)  # of each run that compiles
    # of a run by its workers, as far as it is known without reading a trace
    program_of: ProgramOf = lambda workers: None
    _spans: dict[Ids, SpanFiles] = field(default_factory=dict)

    def compiling(self) -> Compiling:
        """Read what is compiled now, also in runs that have no other file yet."""
        read = {run: list(filter(None, map(_current_status, files))) for run, files in self.statuses.items()}
        return {run: rows for run, rows in read.items() if rows}

    def workers(self, run: str) -> list[discovery.WorkerFiles]:
        """Return the workers of a run; [] where there is no such run."""
        return next((workers for listed, workers in self.runs if listed.run == run), [])

    def worker(self, run: str, worker: str) -> discovery.WorkerFiles | None:
        """Return a worker by its ids; None where there is none."""
        return next((candidate for candidate in self.workers(run) if candidate.worker == worker), None)

    def span(self, ids: Ids) -> SpanFiles | None:
        """Return a span by its ids; None where there is none."""
        if ids not in self._spans:
            run, worker_id, span_id = ids
            worker = self.worker(run, worker_id)
            span = next((span for span in worker.spans if span.span == span_id), None) if worker else None
            if worker is None or span is None:
                return None
            files = files_of(worker, span, self.workers(run))
            self._spans[ids] = SpanFiles(run, worker, span, files, self.baseline(run, worker))
        return self._spans[ids]

    @cached_property
    def programs(self) -> dict[str, ProgramFacts | None]:
        """What each run executed when it was first asked for, None where that is unknown."""
        is_small = len(self.runs) <= _MAX_KNOWN
        return {
            run.run: self.program_of(workers) if is_small and workers else None for run, workers in self.runs
        }

    def baseline(self, run: str, like: discovery.WorkerFiles) -> SpanFiles | None:
        """Return what to compare the spans of a worker with: the newest of its rank, in its baseline run."""
        other = baseline_of(run, self.programs) or ""
        traced = (worker for worker in self.workers(other) if worker.spans)
        worker = next((worker for worker in traced if worker.rank == like.rank), None)
        if worker is None:
            return None
        newest = max(worker.spans, key=recorded_ns)
        return SpanFiles(other, worker, newest, files_of(worker, newest, ()))


def _current_status(file: discovery.File) -> CompileStatus | None:
    """Return what a process compiles; None where it has ended, or where its file cannot be read."""
    try:
        status = msgspec.json.decode(read_range(file.path, 0, MAX_BYTES), type=CompileStatus)
    except (OSError, ValueError, RecursionError, msgspec.DecodeError):
        # It was just removed, is of another version, or damaged.
        return None
    return status if status.is_current(time.time()) else None


def compiling_in_words(rows: Sequence[CompileStatus]) -> str:
    """Return "Compiling now: forward (train.py:58), …; 7 more processes". The longest one is named."""
    longest = max(rows, key=lambda row: row.seconds)
    more = f"; {plural(len(rows) - 1, 'more process', 'more processes')}" if len(rows) > 1 else ""
    return f"Compiling now: {longest.in_words()}{more}"


def files_of(
    worker: discovery.WorkerFiles, span: discovery.SpanFile, workers: Sequence[discovery.WorkerFiles]
) -> tuple[discovery.File, ...]:
    """Return all files that a span is read from.

    These are its trace, those of capturing its CUDA graphs, the compile data of its worker, and that of `workers` that
    may have compiled what it runs.
    """
    packages = (file for maker in makers(worker, workers) for file in maker.compile_files)
    return (span.file, *worker.captures, *worker.compile_files, *packages)


def recorded_ns(span: discovery.SpanFile) -> int:
    """Return when a span was recorded (Unix time). Its name has it: copying a logdir changes the times of files."""
    return discovery.span_time_ns(span.span) or span.file.mtime_ns


def only_run(runs: Runs, run: str) -> Runs:
    """Keep the run of this name, all runs for "". Raises WrongArgument."""
    kept = [listed for listed in runs.runs if run in ("", listed.run)]
    if run and not kept:
        names = ", ".join(repr(listed.run) for listed in runs.runs) or "none"
        raise WrongArgument(f"there is no run {quoted(run)}", next_step=f"Available: {names}")
    return msgspec.structs.replace(runs, runs=kept)


def runs_in(listing: Listing) -> Runs:
    """Return a listing as the tab gets it."""
    compiling = {run: compiling_in_words(rows) for run, rows in listing.compiling().items()}
    refs = [_run_ref(run.run, workers, compiling.pop(run.run, "")) for run, workers in listing.runs]
    refs += [_run_ref(run, [], words) for run, words in compiling.items()]
    return Runs(plugin_version=__version__, runs=refs, warnings=listing.notices)


def _run_ref(run: str, workers: list[discovery.WorkerFiles], compiling: str) -> RunRef:
    refs = [
        WorkerRef(
            worker.worker,
            worker.rank,
            has_compile=bool(worker.summaries or worker.log),
            spans=[
                SpanRef(span.span, span.file.name, span.file.size, span.file.mtime_ns / 1e9)
                for span in worker.spans
            ],
        )
        for worker in workers
    ]
    if prefers_digests(workers):
        sizes = [max(file.size for file in worker.digests.values()) for worker in workers if worker.digests]
        return RunRef(run, refs, len(sizes), sum(sizes), compiling)
    ranks = [ref for ref in refs if ref.rank is not None and ref.spans]
    count = len({rank.rank for rank in ranks})
    sizes = [max(span.size_bytes for span in rank.spans) for rank in ranks]
    return RunRef(run, refs, count, sum(sizes) if count > 1 else 0, compiling)


def baseline_ref(found: SpanFiles | None) -> BaselineRef:
    """Return the span of the baseline run to compare with; nulls without one."""
    return BaselineRef(found.run, found.worker.worker, found.span.span) if found else BaselineRef()


class Catalog:
    """The listings of one logdir, or of several, each under a name of its own. Safe to call from many threads."""

    def __init__(
        self,
        logdirs: Sequence[tuple[str, str]],
        within: str = "",
        program_of: ProgramOf = lambda workers: None,
    ) -> None:
        """Take (run prefix, path or URL) pairs. within: see `discover`. program_of: see `Listing`."""
        self._logdirs, self._within, self._program_of = list(logdirs), within, program_of
        self._last: Listing | None = None
        self._looking, self._begun = threading.Lock(), 0

    def look(self) -> Listing:
        """List the logdirs now. All who ask before a listing begins share it."""
        begun = self._begun
        with self._looking:
            if self._last is None or self._begun == begun:
                self._begun += 1
                listing = Listing(program_of=self._program_of)
                for prefix, path in self._logdirs:
                    runs, notices = discovery.discover(path, prefix, self._within)
                    listing.runs += [(run, join_logs(run)) for run in runs if run.workers or run.logs]
                    listing.statuses |= {run.run: run.statuses for run in runs if run.statuses}
                    listing.notices += notices
                self._last = listing
            return self._last

    def last(self) -> Listing:
        """Return the last listing; list now if there was none."""
        return self._last or self.look()

    def _find(self, find: Callable[[Listing], Found | None], problem: str) -> Found:
        """Find something in the last listing, otherwise in a new one. Raises NotFound with this problem."""
        if self._last and (found := find(self._last)):
            return found
        if found := find(self.look()):
            return found
        raise NotFound(problem, next_step=_RELOAD)

    def workers(self, run: str) -> list[discovery.WorkerFiles]:
        """Return the workers of a run. Raises NotFound."""
        return self._find(lambda listing: listing.workers(run), f"there is no run {quoted(run)}")

    def worker(self, run: str, worker: str) -> discovery.WorkerFiles:
        """Return a worker. Raises NotFound."""
        problem = f"there is no worker {quoted(worker)} in run {quoted(run)}"
        return self._find(lambda listing: listing.worker(run, worker), problem)

    def baseline(self, run: str, worker: str) -> SpanFiles | None:
        """Return what to compare the spans of a worker with. Raises NotFound."""
        found = self.worker(run, worker)  # may list the logdir again
        return self.last().baseline(run, found)

    def span(self, ids: Ids) -> SpanFiles:
        """Return a span by its ids. Raises NotFound."""
        run, worker, span = ids
        self.worker(run, worker)
        problem = f"worker {quoted(worker)} has no span {quoted(span)}"
        return self._find(lambda listing: listing.span(ids), problem)


def ids_of(runs: Iterable[RunRef]) -> Iterator[Ids]:
    """Yield each span, and each worker that has nothing but compile data."""
    for run in runs:
        for worker in run.workers:
            for span in worker.spans:
                yield run.run, worker.worker, span.span
            if worker.has_compile and not worker.spans:
                yield run.run, worker.worker, ""


def newest_span(runs: Runs, logdir: str, run: str = "", worker: str = "", span: str = "") -> Ids:
    """Return the newest span of the first worker that has one, in the run that was written last: what the tab opens.

    run, worker, span: of these alone, "" for any. Where there is no trace, what a worker compiled. Raises UserError
    where there is neither, WrongArgument for a name that is not there.
    """
    listed = only_run(runs, run).runs
    every = list(ids_of(listed))
    fitting = [ids for ids in every if worker in ("", ids[1]) and span in ("", ids[2])]
    # By the time in a name, where it has one: copying a logdir changes the files' times.
    times = {
        (ref.run, own.worker, row.span): row.modified_s
        if (time_ns := discovery.span_time_ns(row.span)) is None
        else time_ns / 1e9
        for ref in listed
        for own in ref.workers
        for row in own.spans
    }
    if traced := [ids for ids in fitting if ids in times]:
        newest_run = max(traced, key=times.__getitem__)[0]
        first = next(ids for ids in traced if ids[0] == newest_run)
        return max((ids for ids in traced if ids[:2] == first[:2]), key=times.__getitem__)
    if fitting:
        return fitting[0]
    if worker or span:
        names = ", ".join(" ".join(ids) for ids in every if ids[2]) or "none"
        raise WrongArgument(
            f"there is no trace of {quoted(' '.join(filter(None, (run, worker, span))))}",
            next_step=f"Choose one of (run worker span): {names}",
        )
    raise no_trace(logdir)


def no_trace(logdir: str) -> UserError:
    """Return the error for a logdir without what a command needs."""
    return UserError(
        "it contains no trace", file=logdir, next_step="Pass a folder with traces, or a trace file"
    )
