"""`tb-torchcompile compare A B`: two spans side by side. Each of A and B is a folder or one trace file."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import msgspec

from tb_torchcompile_plugin.api import Session
from tb_torchcompile_plugin.compare_report import Side, SpanName, full_report, side_of
from tb_torchcompile_plugin.errors import UserError
from tb_torchcompile_plugin.logdir import span_time_ns
from tb_torchcompile_plugin.report import Runs, SpanRef
from tb_torchcompile_plugin.text_compare import print_comparison


def show_comparison(a: str, b: str, as_json: bool) -> None:
    """Print the newest spans of both compared. Raises UserError where one holds no trace."""
    sessions = Session([("", a)]), Session([("", b)])
    names = [newest_span(session.runs(), logdir) for session, logdir in zip(sessions, (a, b))]
    sides = [_side(session, name) for session, name in zip(sessions, names)]
    found = full_report(names[0], sides[0], names[1], sides[1])
    if as_json:
        sys.stdout.write(msgspec.json.encode(found).decode() + "\n")
    else:
        print_comparison(found)


def _side(session: Session, name: SpanName) -> Side:
    if not name.span:
        return Side(None, session.compile_data(name.run, name.worker).summary)
    return side_of(session.opened(*name.ids).profile)


def newest_span(runs: Runs, logdir: str) -> SpanName:
    """The newest span of the first worker that has one, in the run that was written last, as the tab chooses it.

    Where there is no trace, what a worker compiled. Raises UserError where there is neither.
    """
    found = list(_spans(runs))
    if not found:
        return _compiled(runs, logdir)
    newest_run = max(found, key=lambda one: _time(one[0]))[1].run
    in_run = [one for one in found if one[1].run == newest_run]
    worker = in_run[0][1].worker
    return max((one for one in in_run if one[1].worker == worker), key=lambda one: _time(one[0]))[1]


def _spans(runs: Runs) -> Iterator[tuple[SpanRef, SpanName]]:
    for run in runs.runs:
        for worker in run.workers:
            for span in worker.spans:
                yield span, SpanName(run.run, worker.worker, span.span, span.trace_file)


def _compiled(runs: Runs, logdir: str) -> SpanName:
    for run in runs.runs:
        for worker in run.workers:
            if worker.has_compile:
                return SpanName(run.run, worker.worker, "", "")
    raise UserError(
        "there is no trace in it", file=logdir, next_step="Name a folder with one, or a trace file"
    )


def _time(span: SpanRef) -> float:
    """Unix seconds: a span is named by its time; copying a logdir changes the files' times."""
    told = span_time_ns(span.span)
    return span.modified_s if told is None else told / 1e9
