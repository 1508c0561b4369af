"""Keep a line of each run, so that all runs can be listed, and read the runs that have none, newest first.

They are read in the background, one after the other, while somebody asks for all runs. What somebody opened is read
first. Of each run the line alone is kept. A report, which has just read all of a run, does not ask here.
"""

import weakref
from collections.abc import Sequence
from functools import partial
from time import sleep
from typing import Protocol

from tb_torchcompile_plugin.analysis.compare import all_runs as lines
from tb_torchcompile_plugin.analysis.runtime.program import ProgramFacts, program, program_of_data
from tb_torchcompile_plugin.api.catalog import Catalog, SpanFiles, files_of, recorded_ns
from tb_torchcompile_plugin.api.joined import why_not
from tb_torchcompile_plugin.api.read_queue import Progress, Reading, ReadQueue
from tb_torchcompile_plugin.job.job import Job, TracedJob, members
from tb_torchcompile_plugin.logdir.discovery import File, SpanFile, WorkerFiles
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.cache.answers import AnswerSource, AnswerStore
from tb_torchcompile_plugin.reader.cache.copies import read
from tb_torchcompile_plugin.reader.compile_data import CompileData, read_compile_data, with_makers
from tb_torchcompile_plugin.reader.memo import Memo
from tb_torchcompile_plugin.reader.trace.kineto import Cancelled, Trace

MAX_IN_MEMORY = 10_000  # lines of some hundred bytes: one for each run of the largest logdirs
_READ_AHEAD = 8  # runs in the queue: whoever asks again asks for more
_PAUSE_S = 0.2  # between looks whether a reading may go on


class ListedRuns(Protocol):
    """What the runs are read from: a session."""

    catalog: Catalog

    @property
    def is_reading(self) -> bool:
        """Whether a trace that somebody opened is being read."""
        ...

    def opened(self, found: SpanFiles, trace: Trace, data: CompileData | None) -> Profile:
        """Return a span whose trace was read."""
        ...


class RunLines:
    """The line of each run. Safe to call from many threads."""

    def __init__(self) -> None:
        self._store = AnswerStore(MAX_IN_MEMORY, large_files_only=False)
        self._tried: dict[AnswerSource, str] = {}  # what was read for its line, and why that failed or ""
        self._queue: ReadQueue[str, None] = ReadQueue(places=1)
        weakref.finalize(self, self._queue.close)

    def close(self) -> None:
        """Read no more."""
        self._queue.close()

    def all_runs(self, session: ListedRuns, pin: str) -> lines.AllRuns:
        """Return a line for each run, and begin to read the newest that have none.

        Asking again keeps the reading alive; otherwise it stops after a while.
        """
        runs = [self.of(run.run, workers) for run, workers in session.catalog.last().runs if workers]
        waiting = sorted(
            (run.place for run in runs if run.is_waiting), key=lambda place: -(place.recorded_s or 0)
        )
        for place in waiting[:_READ_AHEAD]:
            start = partial(
                Reading, Progress(place.run, 0, 0, 0, None), partial(self._read, session, place.run)
            )
            self._queue.ask(place.run, place.span, start)
        return lines.all_runs(runs, pin, waiting[0].run if waiting else "")

    def _read(self, session: ListedRuns, run: str, reading: Reading[None]) -> None:
        """Read what the line of a run shows. What cannot be read is not tried again until it changes."""
        workers = session.catalog.workers(run)
        place, worker, span = span_of_run(run, workers)
        problem = ""
        try:
            data, _ = with_makers(worker, workers, read_compile_data, Memo(1))
            if data is not None:
                self._keep_compiled(worker, data)
            if place.span is not None:
                found = session.catalog.span((run, worker.worker, place.span))
                give_way = partial(_give_way, session, reading)
                trace = read(found.span.file, None, None, give_way)
                if give_way():
                    raise Cancelled("nobody asks for all runs any more")
                self.keep_span(session.opened(found, trace, data))
        except Cancelled:
            raise
        except Exception as error:
            file = span.file if span else worker.compile_files[0]
            problem = f"It cannot be read: {why_not(file, error).problem}"
        self._tried[_source(worker, span, workers)] = problem

    def of(self, run: str, workers: Sequence[WorkerFiles]) -> lines.KnownRun:
        """Return what is known of a run."""
        place, worker, span = span_of_run(run, workers)
        source, compiled = _source(worker, span, workers), AnswerSource(tuple(worker.compile_files))
        facts = self.program(workers)
        line = self._store.get("line", lines.SpanLine, source) if span else None
        if line is None:
            why_not = self._tried.get(source, lines.WAITING) if source.files else lines.NO_COMPILE_DATA
            of_worker = self._store.get("compile_line", lines.CompileLine, compiled)
            is_all = of_worker is not None and span is None
            return lines.KnownRun(place, of_worker, None, "" if is_all else why_not, facts)
        by_name = {worker.worker: worker for worker in workers}
        job_files: list[File] = []
        for member in members(workers):
            owner = by_name[member.worker]
            member_span = next(span for span in owner.spans if span.span == member.span)
            job_files += _source(owner, member_span, workers).files
        job_source = AnswerSource(tuple(job_files))
        job = self._store.get("job_line", lines.FirstFinding, job_source) if job_files else None
        return lines.KnownRun(place, line, job, program=facts)

    def program(self, workers: Sequence[WorkerFiles]) -> ProgramFacts | None:
        """Return what a run executed, by the span that stands for it or by what it compiled; None until it is read."""
        _, worker, span = span_of_run("", workers)
        sources = _source(worker, span, workers), AnswerSource(tuple(worker.compile_files))
        known = (self._store.get("program", ProgramFacts, source) for source in sources if source.files)
        return next(filter(None, known), None)

    def keep_span(self, profile: Profile) -> None:
        """Keep the line of a span, and what program it is of."""
        source = AnswerSource(profile.files)
        if source.files:
            self._store.get("line", lines.SpanLine, source, partial(profile.of, lines.span_line))
            self._store.get("program", ProgramFacts, source, partial(profile.of, program))

    def begin_span(self, about: Profile | CompileData) -> None:
        """Keep the same on a thread of its own, which nobody waits for."""
        if isinstance(about, Profile):
            about.begin(self.keep_span)

    def keep_job(self, job: Job) -> None:
        """Keep what the ranks of a job should change first, where their traces were read."""
        if isinstance(job, TracedJob) and all(rank.profile.files for rank in job.ranks):
            source = AnswerSource(tuple(file for rank in job.ranks for file in rank.profile.files))
            self._store.get("job_line", lines.FirstFinding, source, partial(job.of, lines.job_line))

    def _keep_compiled(self, worker: WorkerFiles, data: CompileData) -> None:
        """Keep the line of a worker by what it compiled."""
        source = AnswerSource(tuple(worker.compile_files))
        self._store.get("compile_line", lines.CompileLine, source, partial(data.of, lines.compile_line))
        self._store.get("program", ProgramFacts, source, partial(program_of_data, data))


def _source(worker: WorkerFiles, span: SpanFile | None, workers: Sequence[WorkerFiles]) -> AnswerSource:
    """Return what the line of a run is computed from: a span, or without one what the worker compiled."""
    if span is None:
        return AnswerSource(tuple(worker.compile_files))
    return AnswerSource(files_of(worker, span, workers))


def _give_way(session: ListedRuns, reading: Reading[None]) -> bool:
    """Wait while what somebody opened is being read; return whether nobody asks for all runs any more."""
    while session.is_reading and not reading.stop():
        sleep(_PAUSE_S)
    return reading.stop()


def span_of_run(
    run: str, workers: Sequence[WorkerFiles]
) -> tuple[lines.RunPlace, WorkerFiles, SpanFile | None]:
    """Return the span that stands for a run, None where it has none, with its worker."""
    worker = next((worker for worker in workers if worker.spans), workers[0])
    span = max(worker.spans, key=recorded_ns, default=None)
    ranks = len(members(workers)) or 1
    recorded_s = recorded_ns(span) / 1e9 if span else None
    return lines.RunPlace(run, worker.worker, span.span if span else None, ranks, recorded_s), worker, span
