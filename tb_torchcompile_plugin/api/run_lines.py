"""Keep a line of each run, so that all runs can be listed without reading them again.

A report, which has just read all of a run, does not ask here.
"""

from collections.abc import Sequence
from functools import partial

from tb_torchcompile_plugin.analysis.compare import all_runs as lines
from tb_torchcompile_plugin.analysis.runtime.program import ProgramFacts, program, program_of_data
from tb_torchcompile_plugin.api.catalog import Compiling, compiling_in_words, files_of, recorded_ns
from tb_torchcompile_plugin.job.job import Job, TracedJob, members
from tb_torchcompile_plugin.logdir.discovery import File, SpanFile, WorkerFiles
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.cache.answers import AnswerSource, AnswerStore
from tb_torchcompile_plugin.reader.compile_data import CompileData

MAX_IN_MEMORY = 10_000  # lines of some hundred bytes: one for each run of the largest logdirs


class RunLines:
    """The line of each run. Safe to call from many threads."""

    def __init__(self) -> None:
        self._store = AnswerStore(MAX_IN_MEMORY, large_files_only=False)
        self._tried: dict[AnswerSource, str] = {}  # what was read for its line, and why that failed or ""

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

    def keep_span(self, about: Profile | CompileData) -> None:
        """Keep the line of a span, and what program it is of."""
        if isinstance(about, Profile) and about.files:
            source = AnswerSource(about.files)
            self._store.get("line", lines.SpanLine, source, partial(about.of, lines.span_line))
            self._store.get("program", ProgramFacts, source, partial(about.of, program))

    def keep_problem(self, run: str, workers: Sequence[WorkerFiles], problem: str) -> None:
        """Keep why a run cannot be read, "" where it was: it is not tried again until it changes."""
        _, worker, span = span_of_run(run, workers)
        self._tried[_source(worker, span, workers)] = problem

    def begin_span(self, about: Profile | CompileData) -> None:
        """Keep the same on a thread of its own, which nobody waits for."""
        if isinstance(about, Profile):
            about.begin(self.keep_span)

    def keep_job(self, job: Job) -> None:
        """Keep what the ranks of a job should change first, where their traces were read."""
        if isinstance(job, TracedJob) and all(rank.profile.files for rank in job.ranks):
            source = AnswerSource(tuple(file for rank in job.ranks for file in rank.profile.files))
            self._store.get("job_line", lines.FirstFinding, source, partial(job.of, lines.job_line))

    def keep_compiled(self, worker: WorkerFiles, data: CompileData) -> None:
        """Keep the line of a worker by what it compiled."""
        source = AnswerSource(tuple(worker.compile_files))
        self._store.get("compile_line", lines.CompileLine, source, partial(data.of, lines.compile_line))
        self._store.get("program", ProgramFacts, source, partial(program_of_data, data))


def with_compiling(runs: Sequence[lines.KnownRun], compiling: Compiling) -> list[lines.KnownRun]:
    """Return the runs with what their processes compile now, and those that have no other file yet."""
    known = {run.place.run: run for run in runs}
    for run, rows in compiling.items():
        place = lines.RunPlace(run, "", None, len(rows), rows[0].updated_s)
        new = lines.KnownRun(place, None, None, lines.NO_COMPILE_DATA)
        known[run] = known.get(run, new)._replace(compiling=compiling_in_words(rows))
    return list(known.values())


def _source(worker: WorkerFiles, span: SpanFile | None, workers: Sequence[WorkerFiles]) -> AnswerSource:
    """Return what the line of a run is computed from: a span, or without one what the worker compiled."""
    if span is None:
        return AnswerSource(tuple(worker.compile_files))
    return AnswerSource(files_of(worker, span, workers))


def span_of_run(
    run: str, workers: Sequence[WorkerFiles]
) -> tuple[lines.RunPlace, WorkerFiles, SpanFile | None]:
    """Return the span that stands for a run, None where it has none, with its worker."""
    worker = next((worker for worker in workers if worker.spans), workers[0])
    span = max(worker.spans, key=recorded_ns, default=None)
    ranks = len(members(workers)) or 1
    recorded_s = recorded_ns(span) / 1e9 if span else None
    return lines.RunPlace(run, worker.worker, span.span if span else None, ranks, recorded_s), worker, span
