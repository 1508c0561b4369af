"""Print a report on one screen: what a step takes, what to change, where a step goes, and what to ask next.

The first three lines are enough to act on: the verdict, the first finding with its place and its prediction, what to
do. Where nothing would make a step faster they say so, and what is worth knowing is below.
"""

from collections.abc import Iterator, Sequence
from textwrap import wrap
from typing import NamedTuple

from tb_torchcompile_plugin.analysis.formatting import about, duration, listed_numbers, percent, plural
from tb_torchcompile_plugin.analysis.runtime.ledger import KIND_OF_CAUSE, KIND_WORDS
from tb_torchcompile_plugin.analysis.runtime.step_breakdown import MeanPart
from tb_torchcompile_plugin.api.answers.bounded import Commands
from tb_torchcompile_plugin.api.answers.search import (
    NOTHING_COMPILED_SHOWS,
    NOTHING_FASTER,
    NOTHING_IN_A_PART,
    NOTHING_TO_CHANGE,
    FirstAnswer,
    first_answer,
)
from tb_torchcompile_plugin.api.answers.sections import Address, Table
from tb_torchcompile_plugin.api.report import Report, RunFinding, SpanReport
from tb_torchcompile_plugin.cli.text_table import Plain, stdout_console
from tb_torchcompile_plugin.errors import visible
from tb_torchcompile_plugin.reader.arrays import grouped
from tb_torchcompile_plugin.torch_names.slices import is_region

_STYLES = {"critical": "red", "warning": "yellow"}  # by severity
# Rows of each block, so that all blocks fit about 45 lines.
_FINDINGS, _PARTS, _RANKS = 5, 9, 5
_BAR = 20  # characters for 100 %: the bars of the longest names fit 80 columns


class ScreenLine(NamedTuple):
    """A line of the screen."""

    text: str
    style: str = ""
    is_command: bool = False  # to be copied: not cut at the width


def print_screen(report: Report, logdir: str) -> None:
    """Print to stdout, as wide as the terminal is; into a pipe the same without colours."""
    console = stdout_console()
    for line in screen(report, logdir, console.width):
        console.print(Plain(line.text, line.style), soft_wrap=True)


def screen(report: Report, logdir: str, width: int) -> list[ScreenLine]:
    """Return all lines, cut to the width except for commands."""
    answer = first_answer(report)
    blocks = [
        list(_first_lines(report, answer, width)),
        list(_findings(report, answer, width)),
        list(_ranks(answer)),
        list(_parts(answer)),
        list(_compiled(answer)),
        list(_next(report, answer, Commands(logdir))),
    ]
    lines = [line for block in blocks if block for line in (*block, ScreenLine(""))]
    return [line if line.is_command else line._replace(text=cut(line.text, width)) for line in lines[:-1]]


def cut(text: str, width: int) -> str:
    """Return one line of at most so many characters, cut between words where there are any."""
    line = visible(" ".join(text.split()) if "\n" in text else text)
    if len(line) <= width:
        return line
    head = line[: width - 1]
    return (head[: head.rfind(" ")] if " " in head[width // 2 :] else head).rstrip(" ,:;") + "…"


def _first_lines(report: Report, answer: FirstAnswer, width: int) -> Iterator[ScreenLine]:
    span, first = answer.span, answer.first
    run = f"Run {answer.run.run}: " if answer.run and len(report.runs) > 1 else ""
    lost = span.coverage.worst() if span else None
    headline = _verdict(answer, first) if first else answer.headline or "Nothing was recorded."
    yield from (ScreenLine(line, "bold") for line in wrap(run + headline, width, subsequent_indent="    "))
    if _are_ranks(report):
        apart = f"The {len(report.runs)} runs are ranks of one job: put their traces into one folder to compare them."
        yield from map(ScreenLine, wrap(apart, width, subsequent_indent="    "))
    if lost:
        # Of a span that lacks too much, the headline begins with this.
        known = "" if lost.sentence in headline else f"{lost.sentence} "
        yield from map(ScreenLine, wrap(f"{known}{lost.fix}", width, subsequent_indent="    "))
    if first is None:
        is_lossy = answer.compiled is not None and answer.compiled.unreadable_records > 0
        nothing = NOTHING_TO_CHANGE if span or answer.job else NOTHING_COMPILED_SHOWS
        text = NOTHING_IN_A_PART if lost or is_lossy else nothing
        yield from map(ScreenLine, wrap(text, width))
        if span and span.coverage.level != "insufficient":
            reasons = "; ".join(span.overview.considered)
            yield ScreenLine(f"Considered: {reasons or 'every kind of finding; none applies here'}")
        return
    if span and not (span.what_if.why_nothing or any(row.asks_for_change for row in report.findings)):
        yield from (ScreenLine(NOTHING_FASTER), ScreenLine(""))
    who = _who(first).strip()
    head = f"{who[1:-1].capitalize()}: " if who else ""
    title = wrap(head + first.title + _location(first), width, subsequent_indent="    ")
    yield from (ScreenLine(line, _STYLES.get(first.severity, "")) for line in title)
    yield from map(ScreenLine, wrap(f"Do: {first.next_step}", width, subsequent_indent="    "))
    if first.code and first.code not in first.next_step:
        yield from (ScreenLine(f"    {line}", is_command=True) for line in first.code.splitlines())


def _are_ranks(report: Report) -> bool:
    """Whether each run is another rank: some programs write each rank into a folder of its own."""
    ranks = [worker.rank for run in report.runs for worker in run.workers]
    is_one_each = len(report.runs) == len(ranks) == len(set(ranks)) > 1
    return is_one_each and None not in ranks


def _verdict(answer: FirstAnswer, first: RunFinding) -> str:
    """Return the headline without the title of the finding that is below it."""
    job, span = answer.job, answer.span
    if job is None or all(row.title not in answer.headline for row in job.findings):
        return answer.headline.replace(f" → {first.title}", "")
    if span and answer.worker:
        headline = span.overview.headline.replace(f" → {first.title}", "").replace(f"; {first.title}", "")
        return f"Job of {job.ranks} ranks, rank {answer.worker.rank}: {headline}"
    step = "" if job.step_us is None else f", {duration(job.step_us)} a step"
    return f"Job of {job.ranks} ranks{step}. {job.basis}"


def _location(row: RunFinding) -> str:
    location = next((where for where in row.where if where not in row.title), "")
    return f" ({location})" if location else ""


def _in_one_line(row: RunFinding, width: int) -> str:
    """Return its title with its place and its prediction, which are kept where the title is too long."""
    at = _location(row)
    if len(row.title + at) <= width:
        return row.title + at
    step = row.predicted
    prediction = f" {duration(step.step_us)} → {about(*[step.after_us] * 3)} per step" if step else ""
    return cut(row.title, width - len(at + prediction)) + at + prediction


def _findings(report: Report, answer: FirstAnswer, width: int) -> Iterator[ScreenLine]:
    """Yield all but the first one. What several workers have in common is one line, each by its own time."""
    rows = [row for row in report.findings if row != answer.first]
    if rows:
        yield ScreenLine("Other findings, most important first", "bold")
    for row in rows[:_FINDINGS]:
        where = f"{row.run}: " if len(report.runs) > 1 else ""
        head = f"  [{row.severity}]{_who(row)} {where}"
        yield ScreenLine(head + _in_one_line(row, width - len(head)), _STYLES.get(row.severity, ""))
    if len(rows) > _FINDINGS:
        yield ScreenLine(f"  … and {len(rows) - _FINDINGS} more")


def _who(row: RunFinding) -> str:
    """Return " (ranks 0, 1)", or how many spans have the finding; "" for one alone."""
    if len(row.ranks) > 1:
        return f" (ranks {listed_numbers(row.ranks)})"
    return f" ({row.times} times)" if row.times > 1 else ""


def _ranks(answer: FirstAnswer) -> Iterator[ScreenLine]:
    """Yield those that the first finding names, then those that others wait for longest."""
    if (job := answer.job) is None:
        return
    named = answer.first.where if answer.first else []
    rows = sorted(job.by_rank, key=lambda row: (f"rank {row.rank}" not in named, -row.late_us))
    count = f"{min(_RANKS, len(rows))} of {job.world_size or job.ranks}"
    yield ScreenLine(f"Ranks, {count}; waits are of all that was recorded", "bold")
    if missing := job.missing_ranks:
        names = ", ".join(map(str, missing[:_RANKS])) + (" …" if missing[_RANKS:] else "")
        yield ScreenLine(
            f"  Not read: {plural(len(missing), 'rank')} ({names}); others may wait longer than is shown"
        )
    for row in rows[:_RANKS]:
        step = "" if row.step_us is None else f"{duration(row.step_us)} a step, "
        host = f" on {row.host}" if row.host else ""
        waits = f"waits {duration(row.wait_us)} for others, they {duration(row.late_us)} for it"
        yield ScreenLine(f"  rank {row.rank}{host}: {step}{waits}")


def _parts(answer: FirstAnswer) -> Iterator[ScreenLine]:
    """Yield where a step or the span goes; without a trace where compiling goes."""
    span = answer.span
    if span and span.coverage.level == "insufficient":
        return  # why the host or a GPU waits is unknown
    if span and (rows := span.step_breakdown.mean_parts):
        yield ScreenLine(_title_of_parts(answer, span, rows[0].kind), "bold")
        if any(warning.tells_of_a_cut for warning in span.warnings):
            yield ScreenLine("  The trace is cut off: what is missing of it counts as idle")
        yield from _shares(_named(span, [row for row in rows if row.kind != "profiler"]))
        if rows[-1].kind == "profiler":
            yield ScreenLine(f"  The profiler adds {duration(rows[-1].time_us)} to each step.")
    elif answer.compiled and (phases := answer.compiled.phases_s):
        yield ScreenLine("Where compiling goes", "bold")
        percents = answer.compiled.phases_percent
        yield from _shares([(name.replace("_", " "), 1e6 * s, percents[name]) for name, s in phases.items()])


def _named(span: SpanReport, rows: Sequence[MeanPart]) -> list[tuple[str, float, float]]:
    """Return each part by its name, with its time and share; Python that was not recorded is unaccounted time."""
    named = {name for row in span.ledger if row.kind == "python" for name in row.names}
    words: dict[str, str] = {part: KIND_WORDS[kind] for part, kind in KIND_OF_CAUSE.items()}
    words |= {
        "compiled_graph": KIND_WORDS["compiled_graph"],
        "break_eager": "eager operators or graph breaks",
    }
    if all(map(is_region, named)):
        words["python"] = KIND_WORDS["unaccounted"]
    parts = grouped(rows, lambda row: f"{row.kind} {words.get(row.part, row.part.replace('_', ' '))}")
    return [
        (name, sum(row.time_us for row in same), sum(row.percent for row in same))
        for name, same in parts.items()
    ]


def _title_of_parts(answer: FirstAnswer, span: SpanReport, kind: str) -> str:
    report = span.step_breakdown
    count = report.step_time.steps
    steps = f"a step goes, mean of {plural(count, 'step')}" if count else "the span goes"
    spans = [other.span for other in answer.worker.spans] if answer.worker else []
    number = spans.index(span.span) + 1 if span.span.isdigit() else span.span
    which = f", in span {number} of {len(spans)}" if len(spans) > 1 else ""
    gpu = "" if kind == "host" else ": the GPU at work, or idle while the host does what is named"
    return f"Where {steps}{_worker(answer)}{which}{gpu}"


def _worker(answer: FirstAnswer) -> str:
    """Return which worker of a job the numbers are from."""
    return f", on worker {answer.worker.worker}" if answer.job and answer.worker else ""


def _shares(rows: Sequence[tuple[str, float, float]]) -> Iterator[ScreenLine]:
    rows = sorted(rows, key=lambda row: -row[1])
    width = max(len(name) for name, _, _ in rows)
    for name, time_us, share in rows[:_PARTS]:
        bar = "█" * round(share / 100 * _BAR)
        yield ScreenLine(f"  {name:<{width}}  {duration(time_us):>8}  {percent(share):>7}  {bar}".rstrip())
    if rest := rows[_PARTS:]:
        time_us, share = sum(row[1] for row in rest), sum(row[2] for row in rest)
        yield ScreenLine(f"  {f'{len(rest)} more':<{width}}  {duration(time_us):>8}  {percent(share):>7}")


def _compiled(answer: FirstAnswer) -> Iterator[ScreenLine]:
    if answer.compiled is None:
        return
    span, of_worker = answer.span, answer.compiled.headlines
    of_span = span.headlines if span else {}
    sentences = [
        of_worker.get("compile_time"),
        of_span.get("graph_breaks") or of_worker.get("graph_breaks"),
        of_worker.get("recompiles"),
        *((span.overview.pays,) if span else ()),
    ]
    if any(sentences):
        yield ScreenLine(f"Compiled{_worker(answer)}", "bold")
    yield from (ScreenLine(f"  {sentence}") for sentence in sentences if sentence)


def _next(report: Report, answer: FirstAnswer, commands: Commands) -> Iterator[ScreenLine]:
    yield ScreenLine("What to ask next", "bold")
    reasons: dict[str, str] = {}  # by command
    if (first := answer.first) is not None:
        span = Address(first.run, first.worker, first.span or "")
        id = Table(Address(), "findings", [first]).ids[0]
        reasons[commands.show(id)] = "evidence, prediction, how to verify it"
        if first.fix and first.span:
            reasons[commands.what_if(span, first.fix)] = "where a step goes with the fix"
        reasons[commands.compare(first.run, len(report.all_runs) > 1)] = "once it is fixed and recorded"
    if answer.span:
        reasons[f"{commands.tables(['kernels'])} --top 10"] = "the hottest kernels"
    reasons[commands.full()] = "all tables"
    for command, why in reasons.items():
        yield ScreenLine(f"  {command}  # {why}", is_command=True)
