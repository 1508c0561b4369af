"""Look up and read what questions are about: the spans, workers, runs and jobs of a logdir.

A `Session` keeps what it read until a file changes. `api.routes` lists the questions.
"""

import os
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from dataclasses import replace
from functools import partial
from math import inf
from time import monotonic, sleep
from typing import NamedTuple, TypeVar

from tb_torchcompile_plugin.analysis.causes.break_costs import span_with_costs
from tb_torchcompile_plugin.analysis.compare.all_runs import AllRuns, all_runs
from tb_torchcompile_plugin.analysis.compare.jobs import Jobs
from tb_torchcompile_plugin.analysis.compare.sides import Side, Sides, make_side
from tb_torchcompile_plugin.api.catalog import Catalog, Ids, Runs, SpanFiles, runs_in
from tb_torchcompile_plugin.api.joined import job_of, no_job, why_not
from tb_torchcompile_plugin.api.read_queue import Progress, Reading, ReadQueue, finished
from tb_torchcompile_plugin.api.run_lines import RunLines, span_of_run, with_compiling
from tb_torchcompile_plugin.errors import NotFound, Notice, UserError, quoted
from tb_torchcompile_plugin.job import job as jobs
from tb_torchcompile_plugin.logdir.discovery import File, WorkerFiles
from tb_torchcompile_plugin.logdir.filesystem import is_remote, plain_path
from tb_torchcompile_plugin.profile.profile import BaselineRun, Profile
from tb_torchcompile_plugin.reader.cache.answers import AnswerStore
from tb_torchcompile_plugin.reader.cache.copies import read
from tb_torchcompile_plugin.reader.compile_data import CompileData, DataRead, read_compile_data, with_makers
from tb_torchcompile_plugin.reader.memo import Memo
from tb_torchcompile_plugin.reader.trace.kineto import Cancelled, Trace

Result = TypeVar("Result")

MAX_ANSWERS = 400  # in memory: about as many as there are questions about the 8 spans that are held open
MAX_COMPILE_DATA = 32  # workers
MAX_COMBINED = 12  # comparisons, jobs and start-ups: each holds all of its traces, or compile data
_READ_AT_ONCE = 2  # ranks of a job
_READ_AHEAD = 8  # runs in the queue for their lines: whoever asks again asks for more
_PAUSE_S = 0.2  # between looks whether a reading of a line may go on
PATIENCE_S = 1.0  # most answers are there sooner: one request is enough
MOST_TRACED = 64  # ranks of a job whose traces are read for it
_RETRY_S = 60.0  # until a trace of a job that could not be read is tried again


class _MemberRead(NamedTuple):
    files: tuple[File, ...]
    answer: Profile | Notice
    until_s: float  # a failure counts until then

    def is_valid(self, files: tuple[File, ...]) -> bool:
        is_whole = isinstance(self.answer, Notice) or self.answer.trace.is_whole()
        return is_whole and self.files == files and monotonic() <= self.until_s


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
        self._runs_queue: ReadQueue[str, None] = ReadQueue(places=1)  # in the background
        for queue in (self._queue, self._runs_queue):
            weakref.finalize(self, queue.close)  # also when the process ends
        self._compile_data, self.combined = Memo(MAX_COMPILE_DATA), Memo(MAX_COMBINED)
        self.answers = AnswerStore(MAX_ANSWERS, large_files_only=True)

    def close(self) -> None:
        """Stop what is being read and drop what is queued."""
        self._queue.close()
        self._runs_queue.close()

    def runs(self) -> Runs:
        """Return the runs, workers and spans of the logdir."""
        return runs_in(self.catalog.look())

    def all_runs(self, pin: str) -> AllRuns:
        """Return a line for each run. Runs without one are read in the background.

        pin: the run to compare the others with, or "". Asking again keeps the reading alive; otherwise it stops after a
        while.
        """
        listing = self.catalog.last()
        known = [self.lines.of(run.run, workers) for run, workers in listing.runs if workers]
        runs = with_compiling(known, listing.compiling())
        waiting = sorted(
            (run.place for run in runs if run.is_waiting), key=lambda place: -(place.recorded_s or 0)
        )
        for place in waiting[:_READ_AHEAD]:
            progress = Progress(place.run, 0, 0, 0, None)
            self._runs_queue.ask(place.run, place.span, progress, partial(self._read_line, place.run))
        return all_runs(runs, pin, waiting[0].run if waiting else "")

    def _read_line(self, run: str, reading: Reading[None]) -> None:
        """Read what the line of a run shows; spans that a user opened are read first."""
        workers = self.catalog.workers(run)
        place, worker, span = span_of_run(run, workers)
        problem = ""
        try:
            data, _ = with_makers(worker, workers, read_compile_data, Memo(1))
            if data is not None:
                self.lines.keep_compiled(worker, data)
            if place.span is not None:
                found = self.catalog.span((run, worker.worker, place.span))
                give_way = partial(self._give_way, reading)
                trace = read(found.span.file, None, None, give_way)
                if give_way():
                    raise Cancelled("all runs are no longer requested")
                self.lines.keep_span(self.opened(found, trace, data))
        except Cancelled:
            raise
        except Exception as error:
            file = span.file if span else worker.compile_files[0]
            problem = f"It cannot be read: {why_not(file, error).problem}"
        self.lines.keep_problem(run, workers, problem)

    def _give_way(self, reading: Reading[None]) -> bool:
        """Wait while spans that a user opened are read. Return whether all runs are no longer requested."""
        while self._queue.is_busy and not reading.stop():
            sleep(_PAUSE_S)
        return reading.stop()

    def opened(self, found: SpanFiles, trace: Trace, data: CompileData | None) -> Profile:
        """Return a span whose trace was read, with what its answers depend on."""
        other = found.baseline
        baseline = BaselineRun(other.run, other.files, partial(self._read_baseline, other)) if other else None
        captures = tuple((file, partial(read, file, None, None)) for file in found.worker.captures)
        return Profile(trace, data, found.span, files=found.files, baseline_run=baseline, captures=captures)

    def _read_baseline(self, other: SpanFiles) -> Profile:
        """Read a span that is not held open, as only numbers of it are kept. Raises UserError."""
        return Profile(read(other.span.file, None, None), self.compile_data_of(other.worker)[0], other.span)

    def compile_data(self, run: str, worker: str) -> CompileData:
        """Return what a worker compiled. Raises NotFound, and NoCompileData where none could be read."""
        data, notices = self.with_packages(run, self.catalog.worker(run, worker))
        if data is not None:
            return data
        if notices:
            raise NoCompileData.of(notices[0])
        raise NoCompileData(
            f"worker {quoted(worker)} has no compile data",
            next_step="Use tb_torchcompile_plugin.tensorboard_trace_handler, or set TORCH_TRACE to the logdir",
        )

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

    def ranks(self, run: str) -> dict[int, CompileData]:
        """Return the compile data of each rank of a run that has any. Raises NotFound.

        Of two workers with one rank the later name counts.
        """
        workers = self.catalog.workers(run)
        by_rank = {worker.rank: worker for worker in workers if worker.rank is not None}
        data_of_ranks = ((rank, self.compile_data_of(worker)[0]) for rank, worker in by_rank.items())
        return {rank: data for rank, data in data_of_ranks if data is not None}

    def poll_job(self, run: str, span: str = "") -> jobs.Job | Progress:
        """Return the ranks of a run together, or how far reading them is. A rank that cannot be read is missing.

        Of many ranks, or where traces are missing, digests are read, otherwise traces. Raises NotFound where there are
        fewer than two ranks, UserError where they cannot be read.
        """
        workers = self.catalog.workers(run)
        if jobs.prefers_digests(workers):
            files = jobs.digest_files(workers, span)
            begun = self.combined.begin((run, *files), partial(jobs.job_of_digests, files, span), files)
            if (job := soon(begun, None)) is None:
                raise no_job(run, [])
            return job
        spans = jobs.members(workers, span)
        if len(spans) > MOST_TRACED:
            raise UserError(
                f"the {len(spans):,} ranks of run {quoted(run)} have no digests, and not all of their traces "
                "have been read",
                next_step="Write digests with: tb-torchcompile index LOGDIR",
            )
        return self._poll_traces(run, span, spans)

    def poll_rank(self, run: str, span: str, rank: int) -> jobs.OneRank | Progress:
        """Return a rank of the same job with its trace, which is read if need be. Raises UserError."""
        if isinstance(job := self.poll_job(run, span), Progress):
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
                f"run {quoted(run)} does not contain traces of two ranks",
                next_step="Record all ranks into one folder, each with its own worker_name",
            )
        if isinstance(read := self._poll_members(run, spans), Progress):
            return read
        profiles = {member: about for member, about in read.items() if isinstance(about, Profile)}
        selected = jobs.recorded_together(
            {member: jobs.recorded_at(profile) for member, profile in profiles.items()}, span
        )
        begun = self.combined.begin((run, *spans, *selected), lambda: job_of(read, span), read)
        if (job := soon(begun, next(iter(profiles.values()), None))) is None:
            raise no_job(run, [answer for answer in read.values() if isinstance(answer, Notice)])
        return job

    def poll_jobs(self, run: str, span: str, run2: str, span2: str) -> Jobs | Progress:
        """Return two jobs to compare; see `poll_job`. Raises UserError, which names the side that failed."""
        both = _poll_both(partial(self.poll_job, run, span), partial(self.poll_job, run2, span2))
        if isinstance(both, Progress):
            return both
        return self.combined.get(("jobs", run, span, run2, span2), partial(Jobs, *both), both)

    def job(self, run: str, span: str = "") -> jobs.TracedJob | None:
        """Read the traces of a job; None where those of fewer than two ranks can be read."""
        spans = jobs.members(self.catalog.workers(run), span)
        return job_of(finished(partial(self._poll_members, run, spans)), span)

    def _poll_members(
        self, run: str, spans: list[jobs.Member]
    ) -> dict[jobs.Member, Profile | Notice | None] | Progress:
        """Return the spans of a job with their traces, or why one cannot be read, which is tried again after a while.

        What was read is kept until all of the job is: it may have more ranks than the queue keeps readings.
        """
        kept: dict[jobs.Member, _MemberRead] = self.combined.get(("members", run, *spans), dict)
        waiting: list[Progress] = []
        for member in spans:
            found = self.catalog.span((run, member.worker, member.span))
            if member in kept and kept[member].is_valid(found.files):
                continue
            try:
                answer = self.poll_profile(run, member.worker, member.span)
            except Exception as error:
                notice = why_not(found.span.file, error)
                kept[member] = _MemberRead(found.files, notice, monotonic() + _RETRY_S)
                continue
            if not isinstance(answer, Progress):
                kept[member] = _MemberRead(found.files, answer, inf)
            elif len(waiting := [*waiting, answer]) == _READ_AT_ONCE:  # each is read by several processes
                break
        return waiting[0] if waiting else {member: kept[member].answer for member in spans}

    def profile(self, run: str, worker: str, span: str) -> Profile:
        """Return a span with its trace and compile data. Reads the trace if need be; raises UserError."""
        return finished(partial(self.poll_profile, run, worker, span))

    def poll_profile(self, run: str, worker: str, span: str) -> Profile | Progress:
        """Return the same; while the trace is being read, how far that is.

        A reading that is not polled any more stops after a while (see `read_queue`).
        """
        ids = run, worker, span
        found = self.catalog.span(ids)
        progress = Progress(found.span.file.name, 0, found.span.file.size, 0, None)
        job = partial(self._read_span, ids)
        while (reading := self._queue.ask(ids, found.source, progress, job)).future.done():
            try:
                profile = reading.future.result()
            except Exception:  # reported once: the cause may be gone at the next request
                self._queue.forget(ids, reading)
                raise
            if profile.trace.is_whole():
                return profile
            # what was read is gone: its columns lie in the cache, where others may write
            self._queue.forget(ids, reading)
        return self._queue.progress(reading)

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
        return self.combined.get((run, worker, span, run2, worker2, span2), lambda: sides, both)

    def trace_file(self, run: str, worker: str, span: str) -> File:
        """Return the file of a trace. Raises NotFound."""
        return self.catalog.span((run, worker, span)).span.file

    def cancel(self, run: str, worker: str, span: str) -> None:
        """Stop reading a span that nobody else polls. Does nothing where it is not being read. Raises NotFound."""
        self.catalog.span((run, worker, span))
        self._queue.cancel((run, worker, span))

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


def soon(begun: Future[Result], about: object) -> Result | Progress:
    """Return what a thread computes, otherwise that what it is about is read: no request waits long."""
    wait([begun], PATIENCE_S)
    if begun.done():
        return begun.result()
    if (profile := _profile_of(about)) is None or profile.span is None:
        return Progress("", 0, 0, 0, None)
    file = profile.span.file
    return Progress(file.name, file.size, file.size, profile.trace.events, 0.0)


def _profile_of(about: object) -> Profile | None:
    """Return what the answer is computed from; of several, the last."""
    if isinstance(about, Jobs):
        return _profile_of(about.candidate)
    if isinstance(about, jobs.TracedJob):
        return about.ranks[-1].profile
    if isinstance(about, jobs.OneRank):
        return about.profile
    if isinstance(about, Sides):
        return about.candidate.profile
    return about if isinstance(about, Profile) else None


def _will_retry(notices: list[Notice]) -> list[Notice]:
    """Reword the notices about a trace without its end: it may still be written, and is read again then."""
    step = "Reload to read it again when it changes. If writing has ended, copy or record it again"
    return [
        replace(notice, problem=f"incomplete: {notice.problem}", next_step=step)
        if notice.is_truncated
        else notice
        for notice in notices
    ]


def _poll_both(
    first: Callable[[], Result | Progress], second: Callable[[], Result | Progress]
) -> tuple[Result, Result] | Progress:
    """Poll both sides of a comparison, so that both are read at a time."""
    both: list[Result | Progress] = []
    for side, poll in (("baseline", first), ("candidate", second)):
        try:
            both.append(poll())
        except UserError as error:
            named = replace(error.notice, problem=f"{side}: {error.notice.problem}")
            raise type(error).of(named) from error
    before, after = both
    if isinstance(before, Progress):
        return before
    return after if isinstance(after, Progress) else (before, after)
