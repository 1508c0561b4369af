"""What a report could not read, and whether it read anything."""

from __future__ import annotations

from collections.abc import Iterator

from tb_torchcompile_plugin.analysis.runtime.span_report import Span
from tb_torchcompile_plugin.api.report import Report
from tb_torchcompile_plugin.errors import Notice


def all_warnings(report: Report) -> Iterator[Notice]:
    """Those of the logdir, then of each worker and span."""
    yield from report.warnings
    for run in report.runs:
        if run.job and not run.job.traced:
            yield from run.job.warnings
        for worker in run.workers:
            yield from worker.warnings
            yield from worker.compile.warnings if worker.compile else ()
            for span in worker.spans:
                yield from span.warnings


def why_nothing(logdir: str, report: Report) -> str | Notice | None:
    """Why there is nothing in a report; None where something was read."""
    workers = [worker for run in report.runs for worker in run.workers]
    if any(run.job for run in report.runs) or any(
        worker.compile or any(isinstance(span, Span) for span in worker.spans) for worker in workers
    ):
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
