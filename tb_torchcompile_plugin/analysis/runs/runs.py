"""All runs of a logdir beside one another, and against one of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from tb_torchcompile_plugin.analysis.runs.remembered import JobLine
from tb_torchcompile_plugin.analysis.runs.rows import CompileLine, SpanLine
from tb_torchcompile_plugin.analysis.step_breakdown.step_times import noise_us
from tb_torchcompile_plugin.analysis.words import plural


class RunPlace(NamedTuple):
    """The span of a run that stands for it: the newest one of its first worker with a trace. recorded_s: Unix time."""

    run: str
    worker: str
    span: str | None
    ranks: int
    recorded_s: float | None


NO_COMPILE_DATA = "No compile summary or log that can be read"
BEING_READ = "Its compile summary is being read"
LOG_UNREAD = "Its log is not read yet: open the run to read it"
_NO_TRACE = "There is no trace"
_UNREAD = "The trace is not read yet: open the run to read it"
_NO_STEPS = "No steps were marked: profile with a schedule"
_NO_GPU = "Nothing ran on a GPU"


class WhyUnknown(msgspec.Struct, frozen=True):
    """Why what is None of a run is not known, "" where it is: what only a trace tells, and what was compiled."""

    step: str
    gpu: str
    trace: str
    compile: str


class RunRow(SpanLine, frozen=True):
    """A run, by one of its spans. read: whether the trace was read before; what only a trace tells is None else.
    change_percent: of the step against the pinned run's; within_noise: whether that may be chance."""

    run: str
    worker: str
    span: str | None
    ranks: int
    recorded_s: float | None
    read: bool
    change_percent: float | None
    within_noise: bool
    why_unknown: WhyUnknown


class AllRuns(msgspec.Struct, frozen=True):
    """reading: of how many runs the summary is still to be read; ask again. pin: the run that others are held
    against, "" without one."""

    headline: str
    rows: list[RunRow]
    reading: int
    pin: str


class KnownRun(NamedTuple):
    """A run, and as much as is known of it without opening a trace. why_not: why there is no line."""

    place: RunPlace
    line: CompileLine | None
    job: JobLine | None
    why_not: str = ""


def all_runs(known: Sequence[KnownRun], reading: int, pin: str) -> AllRuns:
    """In their order. pin: the run that the others are held against; "" for none."""
    base = next((one.line for one in known if one.place.run == pin), None)
    rows = [_row(one, base if isinstance(base, SpanLine) else None) for one in known]
    return AllRuns(_headline(rows, reading), rows, reading, pin)


def _row(one: KnownRun, base: SpanLine | None) -> RunRow:
    line = one.line if isinstance(one.line, SpanLine) else None
    fields: dict[str, Any] = dict.fromkeys(SpanLine.__struct_fields__)
    for known in (one.line, one.job if one.job and one.job.finding else None):
        fields |= {name: getattr(known, name) for name in known.__struct_fields__} if known else {}
    compared = base is not None and line is not None and line is not base
    return RunRow(
        **fields,
        **one.place._asdict(),
        read=line is not None,
        change_percent=_change(base, line) if base and line and compared else None,
        within_noise=_noise(base, line) if base and line and compared else False,
        why_unknown=_why_unknown(one, line),
    )


def _why_unknown(one: KnownRun, line: SpanLine | None) -> WhyUnknown:
    trace = "" if line else _NO_TRACE if one.place.span is None else _UNREAD
    return WhyUnknown(
        step=trace or (_NO_STEPS if line and line.step_us is None else ""),
        gpu=trace or (_NO_GPU if line and line.gpu_busy_percent is None else ""),
        trace=trace,
        compile=one.why_not or (NO_COMPILE_DATA if one.line and one.line.compilations is None else ""),
    )


def _change(base: SpanLine, line: SpanLine) -> float | None:
    return None if line.step_us is None or not base.step_us else 100 * (line.step_us / base.step_us - 1)


def _noise(base: SpanLine, line: SpanLine) -> bool:
    """Whether the means lie no further apart than by chance."""
    apart = noise_us(base.times, line.times) if base.times and line.times else None
    return apart is not None and abs((line.step_us or 0) - (base.step_us or 0)) <= apart


def _headline(rows: Sequence[RunRow], reading: int) -> str:
    """ "13 runs. 9 were read before; 4 are not read yet. Summaries of 2 runs are being read." """
    unread = sum(not row.read and row.span is not None for row in rows)
    said = f"{plural(len(rows), 'run')}."
    if unread:
        said += f" {plural(unread, 'trace is', 'traces are')} not read yet: open a run to read it."
    return said + (f" {plural(reading, 'summary is', 'summaries are')} being read." if reading else "")
