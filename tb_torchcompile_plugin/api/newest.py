"""Which span is meant where nobody says so: the one that the tab opens with."""

from __future__ import annotations

from collections.abc import Iterator

from tb_torchcompile_plugin.api.catalog import Runs, SpanRef
from tb_torchcompile_plugin.errors import UserError
from tb_torchcompile_plugin.logdir.discovery import span_time_ns

Ids = tuple[str, str, str]  # run, worker, span; "" for the compile data of a worker alone


def newest_span(runs: Runs, logdir: str) -> Ids:
    """The newest span of the first worker that has one, in the run that was written last, as the tab chooses it.

    Where there is no trace, what a worker compiled. Raises UserError where there is neither.
    """
    spans = list(_spans(runs))
    if not spans:
        return _compiled(runs, logdir)
    newest_run = max(spans, key=lambda one: _time(one[0]))[1][0]
    in_run = [one for one in spans if one[1][0] == newest_run]
    worker = in_run[0][1][1]
    return max((one for one in in_run if one[1][1] == worker), key=lambda one: _time(one[0]))[1]


def _spans(runs: Runs) -> Iterator[tuple[SpanRef, Ids]]:
    for run in runs.runs:
        for worker in run.workers:
            for span in worker.spans:
                yield span, (run.run, worker.worker, span.span)


def _compiled(runs: Runs, logdir: str) -> Ids:
    for run in runs.runs:
        for worker in run.workers:
            if worker.has_compile:
                return run.run, worker.worker, ""
    raise UserError(
        "there is no trace in it", file=logdir, next_step="Name a folder with one, or a trace file"
    )


def _time(span: SpanRef) -> float:
    """Unix seconds: a span is named by its time; copying a logdir changes the files' times."""
    time_ns = span_time_ns(span.span)
    return span.modified_s if time_ns is None else time_ns / 1e9
