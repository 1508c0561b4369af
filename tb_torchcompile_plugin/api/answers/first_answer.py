"""What a report says first: how long a step is, what to change, and how."""

from __future__ import annotations

from typing import NamedTuple

from tb_torchcompile_plugin.analysis.ranks.job_rows import JobReport
from tb_torchcompile_plugin.analysis.runtime.span_report import Compile
from tb_torchcompile_plugin.api.report import Report, Run, RunFinding, SpanReport, Worker

NOTHING_FASTER = "Nothing that is known would make a step much faster."
NOTHING_TO_CHANGE = f"No finding: {NOTHING_FASTER[0].lower()}{NOTHING_FASTER[1:]}"
NOTHING_IN_A_PART = "No finding in what could be read, and what is missing may hold one: see the warning."


class FirstAnswer(NamedTuple):
    """headline: about what the first finding is about; run: of its run, of which `job`, `span` and `compiled` are
    what is known. first: None without findings that ask for a change."""

    headline: str
    run: Run | None
    job: JobReport | None
    worker: Worker | None
    span: SpanReport | None
    first: RunFinding | None

    @property
    def compiled(self) -> Compile | None:
        return self.worker.compile if self.worker else None


def first_answer(report: Report) -> FirstAnswer:
    """Of the run of the first finding; where there is none, of the newest span."""
    first = next((row for row in report.findings if row.advised), None)
    run = next((one for one in report.runs if first is None or one.run == first.run), None)
    if run is None:
        return FirstAnswer("", None, None, None, None, first)
    worker = _worker(run, first)
    span = _span(worker, first) if worker else None
    return FirstAnswer(_headline(run, worker, span), run, run.job, worker, span, first)


def _worker(run: Run, first: RunFinding | None) -> Worker | None:
    """The finding's, else the first one with a span that was read, else the first."""
    named = [one for one in run.workers if first and one.worker == first.worker]
    read = [one for one in run.workers if any(isinstance(span, SpanReport) for span in one.spans)]
    return next(iter((*named, *read, *run.workers)), None)


def _span(worker: Worker, first: RunFinding | None) -> SpanReport | None:
    """The finding's, else the newest."""
    spans = [one for one in worker.spans if isinstance(one, SpanReport)]
    named = [one for one in spans if first and one.span == first.span]
    return next(iter((*named, *reversed(spans))), None)


def _headline(run: Run, worker: Worker | None, span: SpanReport | None) -> str:
    if run.job:
        return run.job.headline
    if span:
        return span.overview.headline
    return worker.compile.headlines["overview"] if worker and worker.compile else ""
