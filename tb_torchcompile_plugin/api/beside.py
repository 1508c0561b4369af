"""Which run of a logdir is the same program as another one, eager beside compiled: its newest span of the same rank."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from tb_torchcompile_plugin.analysis.causes.payback_result import compiled_of, eager_of
from tb_torchcompile_plugin.api.catalog import Listing
from tb_torchcompile_plugin.api.run_lines import files_of
from tb_torchcompile_plugin.logdir.discovery import File, SpanFile, WorkerFiles, span_time_ns
from tb_torchcompile_plugin.profile.profile import Profile, RunBeside
from tb_torchcompile_plugin.reader.cache.answers import MadeOf


def made_of(files: Sequence[File], other: RunBeside | None, most_calls: int) -> MadeOf:
    """Of the answers about a span. Also of the name of the run beside it, which they tell: another logdir may hold the
    same files under other names. most_calls: of its model."""
    run, theirs = (other.run, other.files) if other else ("", ())
    return MadeOf((*files, *theirs), (most_calls, run))


def run_beside(
    look: Listing, run: str, worker: WorkerFiles, read: Callable[[WorkerFiles, SpanFile], Profile]
) -> RunBeside | None:
    """None where no run is named so, or none of its workers with a trace has this one's rank."""
    names = [one.run for one, _ in look.runs]
    other = eager_of(run, names) or compiled_of(run, names)
    workers = [one for one in look.workers(other) if one.spans] if other else []
    mine = next((one for one in workers if one.rank == worker.rank), None)
    if other is None or mine is None:
        return None
    newest = max(mine.spans, key=lambda span: span_time_ns(span.span) or span.file.mtime_ns)
    return RunBeside(other, files_of(mine, newest, ()), partial(read, mine, newest))
