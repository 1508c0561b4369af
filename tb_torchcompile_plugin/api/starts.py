"""Which start-ups of its logdir is a start-up compared with?"""

import logging
from collections.abc import Iterator
from itertools import islice

import msgspec

from tb_torchcompile_plugin.analysis.causes.findings import compile_findings
from tb_torchcompile_plugin.analysis.compare.compare import Comparison, compare
from tb_torchcompile_plugin.analysis.compare.jobs import Jobs, JobsCompared, compare_jobs
from tb_torchcompile_plugin.analysis.compare.sides import Sides
from tb_torchcompile_plugin.analysis.compile.cache_keys import Start, Starts
from tb_torchcompile_plugin.analysis.compile.startup import start_findings
from tb_torchcompile_plugin.analysis.finding import Finding
from tb_torchcompile_plugin.api.catalog import Ids, Listing
from tb_torchcompile_plugin.api.session import Session
from tb_torchcompile_plugin.reader.compile_data import CompileData

_log = logging.getLogger(__name__)
_MAX_OTHERS = 24  # start-ups that one is compared with; chosen by hand, as each of them is read


def starts_of(session: Session, run: str, worker: str) -> Starts:
    """Return what a worker compiled, then the ranks of its run, then other runs. Raises NotFound, NoCompileData."""
    data = session.compile_data(run, worker)
    listing = session.catalog.last()
    found = listing.worker(run, worker)
    own = Start(run, worker, found.rank if found else None, data)
    others = tuple(islice(_others(session, listing, own), _MAX_OTHERS))
    sources = (data, *(other.data for other in others))
    return session.combined.get(("starts", run, worker), lambda: Starts(own, others), sources)


def _others(session: Session, listing: Listing, own: Start) -> Iterator[Start]:
    for run, workers in sorted(listing.runs, key=lambda row: row[0].run != own.run):
        for worker in workers:
            if (run.run, worker.worker) != (own.run, own.worker) and worker.compile_files:
                data, _ = session.compile_data_of(worker)
                if data is not None:
                    yield Start(run.run, worker.worker, worker.rank, data)


def starts_or_none(session: Session, run: str, worker: str) -> Starts | None:
    """Return the same for a report, or None: an error about another run must not break the report of this one."""
    try:
        return starts_of(session, run, worker)
    except Exception as error:
        _log.warning("the start-up of %s of %s cannot be compared with others", worker, run, exc_info=error)
        return None


def findings_with_start(data: CompileData, start: Starts | None) -> list[Finding]:
    """Return what the compile data shows. A finding that explains missed caches replaces the one that counts misses."""
    why = start.of(start_findings) if start else []
    rows = data.of(compile_findings)
    rows = [row for row in rows if not why or row.rule != "cache_missed" or "lookups" in row.evidence]
    return [*why, *rows]


class WithJobs(Comparison, frozen=True):
    """A comparison of two spans, with the jobs that they are of; null where one of them is of none."""

    jobs: JobsCompared | None


def comparison(*sides: tuple[Session, Ids]) -> WithJobs:
    """Compare two spans, each in its session. Raises UserError."""
    report = compare(Sides(*(session.side(*ids) for session, ids in sides)))
    jobs = [session.job(run, span) for session, (run, _, span) in sides]
    compared = compare_jobs(Jobs(*(job for job in jobs if job))) if all(jobs) else None
    return WithJobs(**msgspec.structs.asdict(report), jobs=compared)
