"""A logdir or a file read to its end: what the command line prints and `load` makes tables of."""

from __future__ import annotations

import os
from collections.abc import Iterator

from tb_torchcompile_plugin.api import Advance, Session
from tb_torchcompile_plugin.errors import Notice, UserError
from tb_torchcompile_plugin.filesystem import is_remote, plain_path
from tb_torchcompile_plugin.report import Report, Span


def read_report(logdir: str, progress: Advance | None = None) -> Report:
    """Everything below a folder, or of one file. Raises UserError where there is no such file or folder."""
    check(logdir)
    return Session([("", logdir)]).report(progress=progress)


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


def all_warnings(report: Report) -> Iterator[Notice]:
    """Those of the logdir, then of each worker and span."""
    yield from report.warnings
    for run in report.runs:
        for worker in run.workers:
            yield from worker.warnings
            yield from worker.compile.warnings if worker.compile else ()
            for span in worker.spans:
                yield from span.warnings


def why_nothing(logdir: str, report: Report) -> str | Notice | None:
    """Why there is nothing in a report; None where something was read."""
    workers = [worker for run in report.runs for worker in run.workers]
    if any(worker.compile or any(isinstance(span, Span) for span in worker.spans) for worker in workers):
        return None
    warnings = list(all_warnings(report))
    if len(warnings) == 1:
        return warnings[0]
    if warnings:
        return f"{logdir}: nothing could be read; see the warnings above"
    return (
        f"{logdir}: no trace, compile summary or TORCH_TRACE log in it. "
        "Write one with tb_torchcompile_plugin.tensorboard_trace_handler"
    )
