"""A report on one screen: what a step takes, what to change, where a step goes, and what to ask next.

The first three lines are enough to act on: the verdict, the first finding with its place and its prediction, what to
do. Where nothing would make a step faster they say so, and what is worth knowing stands below.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import wrap
from typing import NamedTuple

from rich.console import Console

from tb_torchcompile_plugin.analysis.finding import Finding
from tb_torchcompile_plugin.analysis.formatting import duration, percent, plural
from tb_torchcompile_plugin.api.answers.bounded import Commands
from tb_torchcompile_plugin.api.answers.search import (
    NOTHING_FASTER,
    NOTHING_IN_A_PART,
    NOTHING_TO_CHANGE,
    FirstAnswer,
    first_answer,
)
from tb_torchcompile_plugin.api.answers.sections import Address, Table
from tb_torchcompile_plugin.api.report import Report, RunFinding
from tb_torchcompile_plugin.cli.text_table import Plain
from tb_torchcompile_plugin.errors import visible
from tb_torchcompile_plugin.reader.arrays import grouped

WIDTH = 120  # where no terminal tells one
_FINDINGS, _PARTS, _RUNS, _RANKS, _TO_DO = 5, 9, 5, 5, 4


class ScreenLine(NamedTuple):
    """whole: not cut at the width, because it is to be copied."""

    text: str
    style: str = ""
    whole: bool = False


def print_screen(report: Report, logdir: str) -> None:
    """To stdout, as wide as the terminal is; of a pipe the same without colours."""
    console = Console(highlight=False)
    width = console.width if console.is_terminal else WIDTH
    for line in screen(report, logdir, width):
        console.print(Plain(line.text, line.style), soft_wrap=True)


def screen(report: Report, logdir: str, width: int) -> list[ScreenLine]:
    """All lines, cut to the width but for commands."""
    said = first_answer(report)
    parts = [
        list(_first_three(said, report.findings, _of_run(report, said), width)),
        list(_findings(report, said, width)),
        list(_runs(report)),
        list(_ranks(said)),
        list(_parts(said)),
        list(_compiled(said)),
        list(_next(report, said, Commands(logdir))),
    ]
    lines = [line for part in parts if part for line in (*part, ScreenLine(""))]
    return [line if line.whole else line._replace(text=cut(line.text, width)) for line in lines[:-1]]


def cut(text: str, width: int) -> str:
    """One line of at most so many characters, between words where there are any."""
    line = visible(" ".join(text.split()) if "\n" in text else text)
    if len(line) <= width:
        return line
    head = line[: width - 1]
    return (head[: head.rfind(" ")] if " " in head[width // 2 :] else head).rstrip(" ,:;") + "…"


def _of_run(report: Report, said: FirstAnswer) -> str:
    """Of several runs: which one is told of first."""
    return f"Run {said.run.run}: " if said.run and len(report.runs) > 1 else ""


def _first_three(said: FirstAnswer, rows: Sequence[RunFinding], of: str, width: int) -> Iterator[ScreenLine]:
    if (first := said.first) is None:
        yield ScreenLine(of + (said.headline or "Nothing was recorded."), "bold")
        yield ScreenLine(NOTHING_IN_A_PART if said.span and said.span.warnings else NOTHING_TO_CHANGE)
        yield ScreenLine(f"Considered: {_considered(said)}")
        return
    yield ScreenLine(of + _verdict(said, first), "bold")
    if said.span and not (said.span.what_if.why_nothing or any(row.asks_for_change for row in rows)):
        yield from map(ScreenLine, (NOTHING_FASTER, ""))
    yield ScreenLine(_in_one_line(first, width), _style(first))
    yield from map(
        ScreenLine,
        wrap(f"Do: {first.next_step}", width, subsequent_indent="    ", max_lines=_TO_DO, placeholder="…"),
    )
    if first.code and first.code not in first.next_step:
        yield from (ScreenLine(f"    {line}", whole=True) for line in first.code.splitlines())


def _verdict(said: FirstAnswer, first: RunFinding) -> str:
    """Without what a finding says."""
    if said.job is None or all(row.title not in said.headline for row in said.job.findings):
        return said.headline.replace(f" → {first.title}", "")
    if said.span and said.worker:
        headline = said.span.overview.headline.replace(f" → {first.title}", "")
        return f"Job of {said.job.ranks} ranks, rank {said.worker.rank}: {headline}"
    steps = [row.step_us for row in said.job.by_rank if row.step_us is not None]
    step = f", {duration(max(steps))} a step as recorded" if steps else ""
    return f"Job of {said.job.ranks} ranks{step}. {said.job.basis}"


def _considered(said: FirstAnswer) -> str:
    reasons = said.span.overview.considered if said.span else []
    return "; ".join(reasons) or "every kind of finding; none applies here"


def _in_one_line(row: RunFinding, width: int) -> str:
    """Its title with its place and what it brings, which are kept where the title is too long."""
    place = next((where for where in row.where if where not in row.title), "")
    at = f" ({place})" if place else ""
    if len(row.title + at) <= width:
        return row.title + at
    step = row.predicted
    brings = f" {duration(step.step_us)} → {duration(step.after_us)} a step" if step else ""
    return cut(row.title, width - len(at + brings)) + at + brings


def _style(row: Finding) -> str:
    return {"critical": "red", "warning": "yellow"}.get(row.severity, "")


def _matter(row: RunFinding) -> tuple[object, ...]:
    """The same of what several workers suffer from alike, each by its own time."""
    return row.run, row.rule, row.fix or row.title, tuple(row.where)


def _findings(report: Report, said: FirstAnswer, width: int) -> Iterator[ScreenLine]:
    """Without the first one, which is there already. What several workers suffer from alike is one line."""
    rows = grouped((row for row in report.findings if row is not said.first), _matter)
    if rows:
        yield ScreenLine("Other findings, most important first", "bold")
    for alike in list(rows.values())[:_FINDINGS]:
        row = alike[0]
        where = f"{row.run}: " if len(report.runs) > 1 else ""
        often = f" ({len(alike)} times)" if len(alike) > 1 else ""
        head = f"  [{row.severity}]{often} {where}"
        yield ScreenLine(head + _in_one_line(row, width - len(head)), _style(row))
    if len(rows) > _FINDINGS:
        yield ScreenLine(f"  … and {len(rows) - _FINDINGS} more")


def _runs(report: Report) -> Iterator[ScreenLine]:
    if len(report.all_runs) < 2:
        return
    yield ScreenLine(f"{plural(len(report.all_runs), 'run')}", "bold")
    for row in report.all_runs[:_RUNS]:
        step = "no step" if row.step_us is None else f"{duration(row.step_us)} a step"
        yield ScreenLine(f"  {row.run}: {step}{f'; {row.finding}' if row.finding else ''}")
    if len(report.all_runs) > _RUNS:
        yield ScreenLine(f"  … and {len(report.all_runs) - _RUNS} more")


def _ranks(said: FirstAnswer) -> Iterator[ScreenLine]:
    """Those that the first finding names, then those that others wait for longest."""
    if (job := said.job) is None:
        return
    named = said.first.where if said.first else []
    rows = sorted(job.by_rank, key=lambda row: (f"rank {row.rank}" not in named, -row.late_us))
    yield ScreenLine(
        f"Ranks, {min(_RANKS, len(rows))} of {job.ranks}; waits are of all that was recorded", "bold"
    )
    for row in rows[:_RANKS]:
        step = "" if row.step_us is None else f"{duration(row.step_us)} a step, "
        host = f" on {row.host}" if row.host else ""
        yield ScreenLine(
            f"  rank {row.rank}{host}: {step}waits {duration(row.wait_us)} for others, "
            f"they {duration(row.late_us)} for it"
        )


def _parts(said: FirstAnswer) -> Iterator[ScreenLine]:
    """Where a step goes, or the span; without a trace where compiling goes."""
    if said.span and (rows := said.span.step_breakdown.mean_parts):
        report = said.span.step_breakdown
        what = (
            f"a step goes, mean of {plural(report.times.steps, 'step')}" if report.times else "the span goes"
        )
        what += " as recorded" if said.span.overview.recording else ""
        what += "" if report.gpu_us is None else ", while the host is in it, which runs ahead"
        gpu = "" if rows[0].kind == "host" else ": the GPU at work, or idle while the host does what is named"
        yield ScreenLine(f"Where {what}{_of_worker(said)}{_of_span(said)}{gpu}", "bold")
        if any(warning.tells_of_a_cut for warning in said.span.warnings):
            yield ScreenLine("  The trace is cut off: what is missing of it counts as idle")
        named = [(f"{row.kind} {row.part.replace('_', ' ')}", row.time_us, row.percent) for row in rows]
        yield from _shares(sorted(named, key=lambda row: -row[1]))
    elif said.compiled and (phases := said.compiled.phases_s):
        yield ScreenLine("Where compiling goes", "bold")
        share = said.compiled.phases_percent
        named = [(phase.replace("_", " "), 1e6 * s, share[phase]) for phase, s in phases.items()]
        yield from _shares(sorted(named, key=lambda row: -row[1]))


def _of_worker(said: FirstAnswer) -> str:
    """Of a job: whose numbers they are."""
    return f", on worker {said.worker.worker}" if said.job and said.worker else ""


def _of_span(said: FirstAnswer) -> str:
    """Of several: whose numbers they are."""
    spans = [one.span for one in said.worker.spans] if said.worker else []
    return (
        f", in span {spans.index(said.span.span) + 1} of {len(spans)}" if said.span and len(spans) > 1 else ""
    )


def _shares(rows: Sequence[tuple[str, float, float]]) -> Iterator[ScreenLine]:
    wide = max(len(name) for name, _, _ in rows)
    for name, time_us, share in rows[:_PARTS]:
        bar = "█" * round(share / 2.5)
        yield ScreenLine(f"  {name:<{wide}}  {duration(time_us):>8}  {percent(share):>7}  {bar}".rstrip())
    if rest := rows[_PARTS:]:
        time_us, share = sum(row[1] for row in rest), sum(row[2] for row in rest)
        yield ScreenLine(f"  {f'{len(rest)} more':<{wide}}  {duration(time_us):>8}  {percent(share):>7}")


def _compiled(said: FirstAnswer) -> Iterator[ScreenLine]:
    if said.compiled is None:
        return
    of_span = said.span.headlines if said.span else {}
    of_worker = said.compiled.headlines
    known = [
        of_worker.get("compile_time"),
        of_span.get("graph_breaks") or of_worker.get("graph_breaks"),
        of_worker.get("recompiles"),
    ]
    known += [said.span.overview.pays, said.span.overview.recording] if said.span else []
    if any(known):
        yield ScreenLine(f"Compiled{_of_worker(said)}", "bold")
    yield from (ScreenLine(f"  {sentence}") for sentence in known if sentence)


def _next(report: Report, said: FirstAnswer, ask: Commands) -> Iterator[ScreenLine]:
    yield ScreenLine("What to ask next", "bold")
    for why, command in _commands(report, said, ask):
        yield ScreenLine(f"  {command}  # {why}", whole=True)


def _commands(report: Report, said: FirstAnswer, ask: Commands) -> Iterator[tuple[str, str]]:
    first = said.first
    if first is not None:
        place = Address(first.run, first.worker, first.span or "")
        yield "evidence, prediction, how to verify it", ask.show(Table(Address(), "findings", [first]).ids[0])
        if first.fix and first.span:
            yield "where a step goes with it mended", ask.what_if(place, first.fix)
        yield "once it is mended and recorded", ask.compare(first.run, len(report.all_runs) > 1)
    if said.span:
        yield "the hottest kernels", f"{ask.tables(['kernels'])} --top 10"
    yield "all tables", ask.full()
