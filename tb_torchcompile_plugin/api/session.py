"""Look up and read what questions are about: the spans, workers, runs and jobs of a logdir.

A `Session` keeps what it read until a file changes. `api.routes` lists the questions.
"""

import os
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import wait
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from math import inf
from time import monotonic
from typing import NamedTuple, TypeVar

from tb_torchcompile_plugin.analysis.causes.break_costs import span_with_costs
from tb_torchcompile_plugin.analysis.compare.all_runs import AllRuns
from tb_torchcompile_plugin.analysis.compare.jobs import Jobs
from tb_torchcompile_plugin.analysis.compare.sides import Side, Sides, make_side
from tb_torchcompile_plugin.analysis.ranks.rank_differences import Rank
from tb_torchcompile_plugin.api.catalog import Catalog, Ids, Listing, Runs, SpanFiles, runs_in
from tb_torchcompile_plugin.api.joined import job_of, no_job, why_not
from tb_torchcompile_plugin.api.read_queue import Progress, Reading, ReadQueue
from tb_torchcompile_plugin.api.run_lines import RunLines
from tb_torchcompile_plugin.errors import NotFound, Notice, UserError
from tb_torchcompile_plugin.job import job as jobs
from tb_torchcompile_plugin.logdir.discovery import File, WorkerFiles
from tb_torchcompile_plugin.logdir.filesystem import is_remote, plain_path
from tb_torchcompile_plugin.profile.profile import BaselineRun, Profile
from tb_torchcompile_plugin.reader.cache.answers import AnswerStore
from tb_torchcompile_plugin.reader.cache.copies import read
from tb_torchcompile_plugin.reader.compile_data import CompileData, DataRead, read_compile_data, with_makers
from tb_torchcompile_plugin.reader.memo import Memo
from tb_torchcompile_plugin.reader.trace.kineto import Trace

Result = TypeVar("Result")

MAX_ANSWERS = 400  # in memory: about as many as there are questions about the 8 spans that are held open
MAX_COMPILE_DATA = 32  # workers
MAX_COMBINED = 12  # comparisons, jobs and start-ups: each holds all of its traces, or compile data
_READ_AT_ONCE = 2  # ranks of a job
_PATIENCE_S = 1.0  # digests are mostly read sooner: one request is enough
MOST_TRACED = 64  # ranks of a job whose traces are read for it
_RETRY_S = 60.0  # until a trace of a job that could not be read is tried again


class _MemberRead(NamedTuple):
    """What was read of one span of a job."""

    files: tuple[File, ...]
    answer: Profile | Notice
    until_s: float  # a failure counts until then

    def is_valid(self, files: tuple[File, ...]) -> bool:
        """Whether it need not be read again."""
        is_whole = isinstance(self.answer, Notice) or self.answer.trace.is_whole()
        return is_whole and self.files == files and monotonic() <= self.until_s


_MembersRead = dict[jobs.Member, _MemberRead]


class NoCompileData(NotFound):
    """The worker has neither a summary nor a log."""

    code = "no_compile_data"


class Session:
    """One logdir, or several, each under a name of its own. Safe to call from many threads."""

    def __init__(self, logdirs: Sequence[tuple[str, str]], within: str = "", *, ahead: bool = True) -> None:
        """Open logdirs: (run prefix, path) pairs; the prefix is "" for a plain `--logdir`.

        within: a folder; files outside are not read. ahead: whether what panels ask first is computed as soon as a
        trace is read, by a thread of its own, which may abort a process that ends meanwhile (SIGABRT, inside of C++).
        """
        self.lines, self._ahead = RunLines(), ahead
        self.catalog = Catalog(logdirs, within, self.lines.program)
        self._queue: ReadQueue[Ids, Profile] = ReadQueue()
        weakref.finalize(self, self._queue.close)  # also when the process ends
        self._compile_data, self.combined = Memo(MAX_COMPILE_DATA), Memo(MAX_COMBINED)
        self.answers = AnswerStore(MAX_ANSWERS, large_files_only=True)

    def close(self) -> None:
        """Stop what is being read and drop what is queued."""
        self._queue.close()
        self.lines.close()

    def look(self) -> Listing:
        """List the logdir. Reads first and last bytes of files that are new; parses nothing."""
        return self.catalog.look()

    def runs(self) -> Runs:
        """Return the runs, workers and spans of the logdir."""
        return runs_in(self.look())

    def all_runs(self, pin: str) -> AllRuns:
        """Return a line for each run. pin: the run to compare the others with, or ""."""
        return self.lines.all_runs(self, pin)

    @property
    def is_reading(self) -> bool:
        """Whether a trace that somebody opened is being read."""
        return self._queue.is_busy

    def opened(self, found: SpanFiles, trace: Trace, data: CompileData | None) -> Profile:
        """Return a span whose trace was read, with what its answers depend on."""
        other = found.baseline
        baseline = BaselineRun(other.run, other.files, partial(self._read_baseline, other)) if other else None
        return Profile(trace, data, found.span, files=found.files, baseline_run=baseline)

    def _read_baseline(self, other: SpanFiles) -> Profile:
        """Read a span that is not held open, as only numbers of it are kept. Raises UserError."""
        return Profile(read(other.span.file, None, None), self.compile_data_of(other.worker)[0], other.span)

    def compile_data(self, run: str, worker: str) -> CompileData:
        """Return what a worker compiled. Raises NotFound, and NoCompileData where none could be read."""
        data, notices = self.with_packages(run, self.catalog.worker(run, worker))
        if data is None:
            raise _no_compile_data(worker, notices)
        return data

    def compile_data_of(self, worker: WorkerFiles) -> DataRead:
        """Return the compile data of a worker, None where none can be read, and what could not be read."""
        files = worker.compile_files
        folder = os.path.dirname(files[0].path) if files else ""
        key, read = (folder, worker.worker), partial(read_compile_data, worker)
        # one that could not be read may be readable the next time
        made_of = files, worker.has_trace
        return self._compile_data.get(key, read, made_of, lambda data: all(notice.kept for notice in data[1]))

    def with_packages(self, run: str, worker: WorkerFiles) -> DataRead:
        """Return the same, with the packages that another process of the run compiled."""
        return with_makers(worker, self.catalog.workers(run), self.compile_data_of, self._compile_data)

    def ranks(self, run: str) -> list[Rank]:
        """Return the ranks of a run that have compile data. Raises NotFound."""
        return self.ranks_of(self.catalog.workers(run))

    def ranks_of(self, workers: Sequence[WorkerFiles]) -> list[Rank]:
        """Return each rank once. Of two workers with one rank the later name counts."""
        by_rank = {worker.rank: worker for worker in workers if worker.rank is not None}
        data_of_ranks = ((rank, self.compile_data_of(worker)[0]) for rank, worker in by_rank.items())
        return [Rank(rank, data) for rank, data in data_of_ranks if data is not None]

    def job_members(self, run: str, span: str = "") -> list[jobs.Member]:
        """Return the spans of a run that were recorded with this one, or with the newest. Raises NotFound."""
        return jobs.members(self.catalog.workers(run), span)

    def poll_job(self, run: str, span: str = "") -> jobs.Job | Progress:
        """Return the ranks of a run together, or how far reading them is. A rank that cannot be read is missing.

        Of many ranks, or where traces are missing, digests are read, otherwise traces. Raises NotFound where there are
        fewer than two ranks, UserError where they cannot be read.
        """
        workers = self.catalog.workers(run)
        if jobs.prefers_digests(workers):
            files = jobs.digest_files(workers, span)
            future = self.combined.begin((run, *files), partial(jobs.job_of_digests, files, span), files)
            wait([future], _PATIENCE_S)
            if not future.done():
                return all_read(None)
            if (job := future.result()) is None:
                raise no_job(run, [])
            return job
        spans = self.job_members(run, span)
        if len(spans) > MOST_TRACED:
            raise UserError(
                f"the {len(spans):,} ranks of run {run!r} have no digests, and not all of their traces have been read",
                next_step="Write digests with: tb-torchcompile index LOGDIR",
            )
        return self._poll_traces(run, span, spans)

    def poll_rank(self, run: str, span: str, rank: int) -> jobs.OneRank | Progress:
        """Return a rank of the same job with its trace, which is read if need be. Raises UserError."""
        job = self.poll_job(run, span)
        if isinstance(job, Progress):
            return job
        if isinstance(job, jobs.TracedJob):
            return job.of(jobs.one_rank, rank)
        index = jobs.index_of_rank(job, rank)
        digest = job.digests[index]
        profile = self.poll_profile(run, digest.worker, digest.span)
        return profile if isinstance(profile, Progress) else job.of(jobs.OneRank, index, profile)

    def _poll_traces(self, run: str, span: str, spans: list[jobs.Member]) -> jobs.TracedJob | Progress:
        if not spans:
            raise NotFound(
                f"run {run!r} does not contain traces of two ranks",
                next_step="Record all ranks into one folder, each with its own worker_name",
            )
        members_read: _MembersRead = self.combined.get(("members", run, *spans), dict)
        read: dict[jobs.Member, Profile | Notice | None] = {}
        waiting: list[Progress] = []
        for member in spans:
            answer = self._poll_member(run, member, members_read)
            if not isinstance(answer, Progress):
                read[member] = answer
            elif len(waiting := [*waiting, answer]) == _READ_AT_ONCE:  # each is read by several processes
                break
        if waiting:
            return waiting[0]
        profiles = {member: about for member, about in read.items() if isinstance(about, Profile)}
        selected = jobs.recorded_together(
            {member: jobs.recorded_at(profile) for member, profile in profiles.items()}, span
        )
        future = self.combined.begin((run, *spans, *selected), lambda: job_of(read, span), read)
        if not future.done():
            return all_read(next(iter(profiles.values()), None))
        if (job := future.result()) is None:
            raise no_job(run, [answer for answer in read.values() if isinstance(answer, Notice)])
        return job

    def poll_jobs(self, run: str, span: str, run2: str, span2: str) -> Jobs | Progress:
        """Return two jobs to compare; see `poll_job`. Raises UserError, which names the side that failed."""
        both = _poll_both(partial(self.poll_job, run, span), partial(self.poll_job, run2, span2))
        if isinstance(both, Progress):
            return both
        return self.combined.get(("jobs", run, span, run2, span2), partial(Jobs, *both), both)

    def job(self, run: str, span: str = "") -> jobs.TracedJob | None:
        """Read the traces of a job one after the other; None where those of fewer than two ranks can be read."""
        read: dict[jobs.Member, Profile | Notice | None] = {}
        for member in self.job_members(run, span):
            try:
                read[member] = self.profile(run, member.worker, member.span)
            except Exception as error:
                read[member] = why_not(self.trace_file(run, member.worker, member.span), error)
        return job_of(read, span)

    def _poll_member(self, run: str, member: jobs.Member, read: _MembersRead) -> Profile | Progress | Notice:
        """Keep what was read until all of the job is: it may have more ranks than the queue keeps readings.

        What could not be read is tried again after a while.
        """
        found = self.catalog.span((run, member.worker, member.span))
        known = read.get(member)
        if known is None or not known.is_valid(found.files):
            try:
                answer = self.poll_profile(run, member.worker, member.span)
                if isinstance(answer, Progress):
                    return answer
                known = _MemberRead(found.files, answer, inf)
            except Exception as error:
                known = _MemberRead(found.files, why_not(found.span.file, error), monotonic() + _RETRY_S)
            read[member] = known
        return known.answer

    def profile(self, run: str, worker: str, span: str) -> Profile:
        """Return a span with its trace and compile data. Reads the trace if need be; raises UserError."""
        profile = self.poll_profile(run, worker, span, to_the_end=True)
        assert isinstance(profile, Profile)
        return profile

    def poll_profile(
        self, run: str, worker: str, span: str, *, to_the_end: bool = False
    ) -> Profile | Progress:
        """Return the same; while the trace is being read, how far that is, unless this waits `to_the_end`.

        A reading that is not polled any more stops after a while (see `read_queue`).
        """
        ids = run, worker, span
        reading = self._reading(ids, to_the_end=to_the_end)
        if not to_the_end and not reading.future.done():
            return self._queue.progress(reading)
        try:
            return reading.future.result()
        except Exception:  # told once: the cause may be gone when somebody asks again
            self._queue.forget(ids, reading)
            raise

    def poll(self, run: str, worker: str, span: str = "") -> Profile | CompileData | Progress:
        """Return a span, or without one what the worker compiled."""
        return self.poll_profile(run, worker, span) if span else self.compile_data(run, worker)

    def side(self, run: str, worker: str, span: str = "") -> Side:
        """Return one side of a comparison. Reads the trace if need be; raises UserError."""
        about = self.profile(run, worker, span) if span else self.compile_data(run, worker)
        return make_side(about, run, worker)

    def poll_sides(
        self, run: str, worker: str, span: str, run2: str, worker2: str, span2: str
    ) -> Sides | Progress:
        """Return two spans, or what two workers compiled. Raises UserError, which names the side that failed."""
        both: tuple[Profile | CompileData, Profile | CompileData] | Progress
        both = _poll_both(partial(self.poll, run, worker, span), partial(self.poll, run2, worker2, span2))
        if isinstance(both, Progress):
            return both
        sides = Sides(make_side(both[0], run, worker), make_side(both[1], run2, worker2))
        ids = run, worker, span, run2, worker2, span2
        return self.combined.get(ids, lambda: sides, both)

    def trace_file(self, run: str, worker: str, span: str) -> File:
        """Return the file of a trace. Raises NotFound."""
        return self.catalog.span((run, worker, span)).span.file

    def cancel(self, run: str, worker: str, span: str) -> None:
        """Stop reading a span that nobody else polls. Does nothing where it is not being read. Raises NotFound."""
        self.catalog.span((run, worker, span))
        self._queue.cancel((run, worker, span))

    def _reading(self, ids: Ids, *, to_the_end: bool) -> Reading[Profile]:
        found = self.catalog.span(ids)

        def start() -> Reading[Profile]:
            progress = Progress(found.span.file.name, 0, found.span.file.size, 0, None)
            return Reading(progress, partial(self._read_span, ids))

        reading = self._queue.ask(ids, found.source, start, to_the_end=to_the_end)
        is_read = reading.future.done() and reading.future.exception() is None
        if is_read and not reading.future.result().trace.is_whole():
            # what was read is gone: its columns lie in the cache, where others may write
            self._queue.forget(ids, reading)
            reading = self._queue.ask(ids, found.source, start, to_the_end=to_the_end)
        return reading

    def _read_span(self, ids: Ids, reading: Reading[Profile]) -> Profile:
        found = self.catalog.span(ids)
        data, _ = self.with_packages(ids[0], found.worker)
        fetching = partial(reading.advance, stage="fetching")
        trace = read(found.span.file, reading.advance, fetching, reading.stop)
        profile = self.opened(found, replace(trace, notices=_will_retry(trace.notices)), data)
        if self._ahead:
            profile.begin(span_with_costs)  # nobody should wait for it in a request, nor anything else for it
        return profile


def open_logdir(logdir: str) -> Session:
    """Open one folder or file for a command. Raises UserError where there is none."""
    check(logdir)
    return Session([("", logdir)], ahead=False)


def check(logdir: str) -> None:
    """Raise UserError for a local path that is neither a file nor a folder."""
    path = plain_path(logdir)
    if is_remote(logdir) or os.path.isdir(path) or os.path.isfile(path):
        return
    if os.path.exists(path):
        raise UserError(
            "this is a pipe or a device, not a regular file",
            file=logdir,
            next_step="Write it to a file first",
        )
    raise UserError("there is no such file or folder", file=logdir, next_step="Check the path")


def all_read(profile: Profile | None) -> Progress:
    """Return the progress that is shown while something is computed from what was read."""
    if profile is None or profile.span is None:
        return Progress("", 0, 0, 0, None)
    file = profile.span.file
    return Progress(file.name, file.size, file.size, profile.trace.events, 0.0)


def _will_retry(notices: list[Notice]) -> list[Notice]:
    """Reword the notices about a trace without its end: it may still be written, and is read again then."""
    step = "Reload to read it again when it changes. If writing has ended, copy or record it again"
    return [
        replace(notice, problem=f"incomplete: {notice.problem}", next_step=step)
        if notice.is_truncated
        else notice
        for notice in notices
    ]


def _no_compile_data(worker: str, notices: list[Notice]) -> NoCompileData:
    if notices:
        return NoCompileData.of(notices[0])
    return NoCompileData(
        f"worker {worker!r} has no compile data",
        next_step="Use tb_torchcompile_plugin.tensorboard_trace_handler, or set TORCH_TRACE to the logdir",
    )


def _poll_both(
    first: Callable[[], Result | Progress], second: Callable[[], Result | Progress]
) -> tuple[Result, Result] | Progress:
    """Poll both sides of a comparison, so that both are read at a time."""
    with _named_side("baseline"):
        before = first()
    with _named_side("candidate"):
        after = second()
    if isinstance(before, Progress):
        return before
    return after if isinstance(after, Progress) else (before, after)


@contextmanager
def _named_side(side: str) -> Iterator[None]:
    try:
        yield
    except UserError as error:
        named = replace(error.notice, problem=f"{side}: {error.notice.problem}")
        raise type(error).of(named) from error
