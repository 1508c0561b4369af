"""Keep a line of each run, so that all runs can be listed without opening a trace; read compile summaries for the rest.

Summaries are read in the background, one after the other. No log is read. A report, which has just read all of a run,
does not ask here.
"""

import logging
import weakref
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from tb_torchcompile_plugin.analysis.compare import all_runs as lines
from tb_torchcompile_plugin.analysis.runtime.program import ProgramFacts, program, program_of_data
from tb_torchcompile_plugin.api.catalog import files_of, recorded_ns
from tb_torchcompile_plugin.api.read_queue import Progress, Reading, ReadQueue
from tb_torchcompile_plugin.job.job import Job, TracedJob, members
from tb_torchcompile_plugin.logdir.discovery import File, SpanFile, WorkerFiles
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.cache.answers import AnswerSource, AnswerStore
from tb_torchcompile_plugin.reader.compile_data import CompileData, read_compile_data

_log = logging.getLogger(__name__)

MAX_IN_MEMORY = 10_000  # lines of some hundred bytes: one for each run of the largest logdirs


class RunLines:
    """The line of each run. Safe to call from many threads."""

    def __init__(self) -> None:
        self._store = AnswerStore(MAX_IN_MEMORY, large_files_only=False)
        self._queue: ReadQueue[AnswerSource, None] = ReadQueue(places=1)
        self._asked: set[AnswerSource] = set()  # summaries that were given to the queue
        self._unread: set[AnswerSource] = set()  # of these, those that wait or are being read
        weakref.finalize(self, self._queue.close)

    @property
    def reading(self) -> int:
        """How many summaries are still to be read."""
        return len(self._unread)

    def close(self) -> None:
        """Read no more summaries."""
        self._queue.close()
        self._unread.clear()

    def of(self, run: str, workers: Sequence[WorkerFiles]) -> lines.KnownRun:
        """Return what is known of a run."""
        place, worker, span = span_of_run(run, workers)
        without_traces = [worker for worker in workers if not worker.spans]
        files = files_of(worker, span, without_traces) if span else ()
        line = self._store.get("line", lines.SpanLine, AnswerSource(files)) if span else None
        if line is None:
            compiled, why_not = self._compiled(worker)
            return lines.KnownRun(place, compiled, None, why_not, self.program(workers))
        by_name = {worker.worker: worker for worker in workers}
        job_files: list[File] = []
        for member in members(workers):
            owner = by_name[member.worker]
            member_span = next(span for span in owner.spans if span.span == member.span)
            job_files += files_of(owner, member_span, without_traces)
        job = (
            self._store.get("job_line", lines.JobLine, AnswerSource(tuple(job_files))) if job_files else None
        )
        return lines.KnownRun(place, line, job, program=self.program(workers))

    def program(self, workers: Sequence[WorkerFiles]) -> ProgramFacts | None:
        """Return what a run executed, by the span that stands for it or by its summaries; None until one is read."""
        _, worker, span = span_of_run("", workers)
        files = files_of(worker, span, [other for other in workers if not other.spans]) if span else ()
        sources = [AnswerSource(tuple(group)) for group in (files, worker.summaries) if group]
        known = (self._store.get("program", ProgramFacts, source) for source in sources)
        return next(filter(None, known), None)

    def _compiled(self, worker: WorkerFiles) -> tuple[lines.CompileLine | None, str]:
        """Return what its summaries show, or what its log showed when it was read; otherwise None, and why."""
        source = AnswerSource(tuple(worker.summaries or worker.compile_files))
        line = self._store.get("compile_line", lines.CompileLine, source) if source.files else None
        if line is not None or not source.files:
            return line, "" if line else lines.NO_COMPILE_DATA
        if not worker.summaries:
            return None, lines.LOG_UNREAD
        if source not in self._asked:
            self._asked.add(source)
            self._unread.add(source)
            start = partial(Reading, Progress("", 0, 0, 0, None), partial(self._read, worker, source))
            self._queue.ask(source, None, start, to_the_end=True)
        return None, lines.BEING_READ if source in self._unread else lines.NO_COMPILE_DATA

    def _read(self, worker: WorkerFiles, source: AnswerSource, reading: Reading[None]) -> None:
        try:
            data, _notices = read_compile_data(replace(worker, log=None))
            if data is not None:
                self._store.get("compile_line", lines.CompileLine, source, partial(lines.compile_line, data))
                self._store.get("program", ProgramFacts, source, partial(program_of_data, data))
        except Exception as error:  # whoever opens the run is shown why
            _log.debug("a summary of %s could not be read", worker.worker, exc_info=error)
        self._unread.discard(source)
        self._queue.forget(source, reading)  # its result is in the store

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
            self._store.get("job_line", lines.JobLine, source, partial(job.of, lines.job_line))

    def keep_log(self, data: CompileData) -> None:
        """Keep the line of a worker whose compile data comes from its log alone."""
        if data.log and data.source == "torch_trace":
            source = AnswerSource((data.log,))
            self._store.get("compile_line", lines.CompileLine, source, partial(data.of, lines.compile_line))


def span_of_run(
    run: str, workers: Sequence[WorkerFiles]
) -> tuple[lines.RunPlace, WorkerFiles, SpanFile | None]:
    """Return the span that stands for a run, None where it has none, with its worker."""
    worker = next((worker for worker in workers if worker.spans), workers[0])
    span = max(worker.spans, key=recorded_ns, default=None)
    ranks = len(members(workers)) or 1
    recorded_s = recorded_ns(span) / 1e9 if span else None
    return lines.RunPlace(run, worker.worker, span.span if span else None, ranks, recorded_s), worker, span
