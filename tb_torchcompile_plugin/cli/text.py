"""Print a report: on one screen, or the sentences and tables of every run, job, worker and span.

The screen has the step time, what to change, where the time goes, and further commands. Its first three lines are
enough to act on: the verdict, the first finding with its place and prediction, and what to do. If no fix makes a step
faster they state that, and other findings follow.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import msgspec
from msgspec.structs import replace
from rich.console import Console
from rich.progress import DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

from tb_torchcompile_plugin.analysis.causes.doctor import Diagnosis
from tb_torchcompile_plugin.analysis.formatting import duration, function_at, listed_numbers, plural
from tb_torchcompile_plugin.analysis.ranks.job_rows import LateRank
from tb_torchcompile_plugin.analysis.runtime.ledger import KIND_WORDS
from tb_torchcompile_plugin.analysis.runtime.step_breakdown import MeanPart
from tb_torchcompile_plugin.api.answers.bounded import Commands
from tb_torchcompile_plugin.api.answers.sections import LOGDIR, Address, Table, tables
from tb_torchcompile_plugin.api.answers.show import FirstAnswer, first_answer
from tb_torchcompile_plugin.api.report import Report, Run, RunFinding, SpanReport, UnreadSpan
from tb_torchcompile_plugin.api.sheets import key_of
from tb_torchcompile_plugin.cli import text_table
from tb_torchcompile_plugin.reader.arrays import grouped
from tb_torchcompile_plugin.reader.trace.kineto import BytesRead
from tb_torchcompile_plugin.torch_names.slices import is_region

_MAX_CAUSES = 5  # of a late rank
# What a table of runs shows of each.
RUN_COLUMNS = ("run", "step_us", "gpu_busy_percent", "compile_s", "graph_breaks", "recompiles", "finding")
_COLUMNS = {"all_runs": RUN_COLUMNS, "doctor": ("outcome", "function", "file", "why", "next_step")}


def bar_on_stderr() -> Progress:
    """Return bars of bytes on stderr, which show nothing where stderr is not a terminal."""
    console = Console(stderr=True)
    columns = (
        *Progress.get_default_columns()[:2],
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


@contextmanager
def progress_bar() -> Iterator[Callable[[BytesRead], None]]:
    """Show a bar for each trace while it is read."""
    with bar_on_stderr() as bar:
        tasks: dict[str, int] = {}

        def advance(read: BytesRead) -> None:
            if not read.file:  # something is computed
                return
            if read.file not in tasks:
                tasks[read.file] = bar.add_task(read.file, total=read.bytes_total)
            bar.update(tasks[read.file], completed=read.bytes_read)  # type: ignore[arg-type]  # a TaskID is an int

        yield advance


def print_report(report: Report, rank: int | None = None) -> None:
    """Print all there is to stdout. Of the ranks of a job only this one has more than a row in the job's table."""
    console = text_table.stdout_console()
    at = grouped(tables(report), lambda table: table.place)
    for table in at.pop(LOGDIR, []):
        if table.section == "findings" or len(report.runs) > 1:
            _print(console, table, text_table.MAX_ROWS)
    for place, struct in _places(report, rank):
        if sentences := dict.fromkeys(_sentences(struct)):
            _print_place(console, place)
            text_table.print_lines(console, *sentences, indent="  ")
        if isinstance(struct, Run) and struct.job and rank is None:
            text_table.print_lines(console, "The tables of one rank: --rank N", indent="  ")
        print_tables(console, at.get(place, []), text_table.MAX_ROWS, place if sentences else LOGDIR)


def _places(report: Report, rank: int | None) -> Iterator[tuple[Address, msgspec.Struct]]:
    for run in report.runs:
        yield Address(run.run), run
        for worker in run.workers:
            if run.job is None or worker.rank in (None, rank):
                place = Address(run.run, worker.worker)
                yield place, worker
                yield from ((place._replace(span=span.span), span) for span in worker.spans)


def _sentences(struct: msgspec.Struct) -> Iterator[str]:
    """Yield what a run, worker or span says in words, without what its lists do."""
    if isinstance(struct, UnreadSpan):
        yield f"{struct.trace_file} could not be read"
        return
    for field in struct.__struct_fields__:
        value = getattr(struct, field)
        if field in ("headline", "basis", "trace_file"):
            yield value
        elif field in ("sentences", "headlines"):
            yield from value.values() if isinstance(value, dict) else value
        elif isinstance(value, msgspec.Struct):
            yield from _sentences(value)


def print_tables(console: Console, tables: Iterable[Table], top: int | None, place: Address = LOGDIR) -> None:
    """Print tables under the place of each. place: the one that was printed last."""
    for table in tables:
        if table.place != place:
            place = table.place
            _print_place(console, place)
        _print(console, table, top)


def _print_place(console: Console, place: Address) -> None:
    levels = zip(("run", "worker", "span"), place[:3])
    title = "  ".join(f"{level} {name}" for level, name in levels if name)
    if len(title) + len(" ──") > console.width:  # a rule would cut it
        text_table.print_lines(console, title)
    else:
        console.rule(text_table.Plain(title), align="left")


def _print(console: Console, table: Table, top: int | None) -> None:
    if table.section == "findings":
        _print_findings(console, table.rows, top)
    else:
        text_table.print_table(console, table.section, table.rows, top, _COLUMNS.get(table.section, ()))
    for row in table.rows[:top]:
        if isinstance(row, Diagnosis) and row.command:
            text_table.print_command(console, row.command, function_at(row.function, row.file, row.line))
        if isinstance(row, LateRank):
            text_table.print_table(console, f"late {key_of(row)}, causes", row.causes, _MAX_CAUSES)


def _print_findings(console: Console, rows: Sequence[msgspec.Struct], top: int | None) -> None:
    text_table.print_title(console, "findings", rows=(len(rows[:top]), len(rows)))
    for row in rows[:top]:
        assert isinstance(row, RunFinding)
        place = Address(row.run, row.worker, row.span or "")
        text_table.print_lines(console, f"[{row.severity}] {row.title}")
        text_table.print_lines(console, row.next_step, f"{row.rule} of {place}", indent="  ")
    console.print()


NOTHING_TO_CHANGE = "No findings."
NOTHING_COMPILED_SHOWS = (
    "No findings about compilation. To see where the time of a step goes, also record a trace with "
    "tb_torchcompile_plugin.tensorboard_trace_handler."
)
NOTHING_IN_A_PART = "No findings in the part that could be read. The rest may contain some: see the warning."
_STYLES = {"critical": "red", "warning": "yellow"}  # by severity
_RANK_COLUMNS = ("rank", "host", "step_us", "wait_us", "late_us")
# Rows of each block, so that all blocks fit about 45 lines.
_FINDINGS, _PARTS, _RANKS, _RUNS = 5, 9, 5, 8


def print_screen(console: Console, report: Report, logdir: str) -> None:
    """Print the newest run, and the others as a table. Into a pipe, without colors."""
    report = _newest_run_first(report)
    answer, commands = first_answer(report), Commands(logdir)
    _print_first(console, report, answer)
    _print_other_findings(console, report, answer)
    _print_ranks(console, answer)
    _print_parts(console, answer)
    _print_compiled(console, answer)
    others = [row for row in report.all_runs if row.run != report.runs[0].run]
    text_table.print_table(console, "Other runs, newest first", others, _RUNS, RUN_COLUMNS)
    if logdir == "-":  # a command would wait for another standard input
        return
    text_table.print_title(console, "Next commands")
    for command, why in _next(report, answer, commands).items():
        text_table.print_command(console, command, why)


def _newest_run_first(report: Report) -> Report:
    if len(report.runs) < 2:
        return report
    rows = sorted(report.all_runs, key=lambda row: -(row.recorded_s or 0.0))
    order = [row.run for row in rows]
    runs = sorted(report.runs, key=lambda run: order.index(run.run) if run.run in order else len(order))
    findings = [row for row in report.findings if row.run == runs[0].run]
    return replace(report, runs=runs, all_runs=rows, findings=findings)


def _print_first(console: Console, report: Report, answer: FirstAnswer) -> None:
    """Print the verdict, the first finding and what to do. Lines are wrapped, never truncated."""
    span, first = answer.span, answer.first
    run = f"Run {answer.run.run}: " if answer.run and len(report.runs) > 1 else ""
    lost = span.coverage.worst() if span else None
    headline = _verdict(answer, first) if first else answer.headline or "Nothing was recorded."
    _print_text(console, run + headline, "bold")
    if _are_ranks(report):
        _print_text(
            console,
            f"The {len(report.runs)} runs are ranks of one job: put their traces into one folder to compare them.",
        )
    if lost:
        # If coverage is insufficient, the headline begins with this sentence.
        sentence = "" if lost.sentence in headline else f"{lost.sentence} "
        _print_text(console, f"{sentence}{lost.fix}")
    if first:
        _print_finding(console, report, answer, first)
    else:
        _print_nothing(console, answer, is_partial=lost is not None)
    console.print()


def _print_text(console: Console, text: str, style: str = "", indent: str = "") -> None:
    text_table.print_lines(console, " ".join(text.split()), style=style, indent=indent)


def _print_nothing(console: Console, answer: FirstAnswer, is_partial: bool) -> None:
    span = answer.span
    is_lossy = answer.compiled is not None and answer.compiled.unreadable_records > 0
    nothing = NOTHING_TO_CHANGE if span or answer.job else NOTHING_COMPILED_SHOWS
    _print_text(console, NOTHING_IN_A_PART if is_partial or is_lossy else nothing)
    if span and span.coverage.level != "insufficient":
        reasons = "; ".join(span.overview.considered)
        _print_text(console, f"Considered: {reasons or 'all kinds of findings, none of which applies'}")


def _print_finding(console: Console, report: Report, answer: FirstAnswer, first: RunFinding) -> None:
    who = _who(first).strip()
    head = f"{who[1:-1].capitalize()}: " if who else ""
    _print_text(console, head + first.title + _location(first), _STYLES.get(first.severity, ""))
    _print_text(console, f"Do: {first.next_step}")
    if first.code and first.code not in first.next_step:
        for line in first.code.splitlines():
            text_table.print_whole(console, f"    {line}")


def _are_ranks(report: Report) -> bool:
    """Whether each run is a different rank: some programs write each rank into its own folder."""
    ranks = [worker.rank for run in report.runs for worker in run.workers]
    is_one_each = len(report.runs) == len(ranks) == len(set(ranks)) > 1
    return is_one_each and None not in ranks


def _verdict(answer: FirstAnswer, first: RunFinding) -> str:
    """Return the headline without the title of the finding that follows."""
    job, span = answer.job, answer.span
    if job is None or all(row.title not in answer.headline for row in job.findings):
        return answer.headline.replace(f" {first.title}.", "")
    if span and answer.worker:
        headline = span.overview.headline.replace(f" {first.title}.", "")
        return f"Job of {job.ranks} ranks, rank {answer.worker.rank}. {headline}"
    step = "" if job.step_us is None else f", {duration(job.step_us)} per step"
    return f"Job of {job.ranks} ranks{step}. {job.basis}"


def _location(row: RunFinding) -> str:
    location = next((where for where in row.where if where not in row.title), "")
    return f" ({location})" if location else ""


def _print_other_findings(console: Console, report: Report, answer: FirstAnswer) -> None:
    """Print all except the first. A finding that several workers share is printed once."""
    if not (rows := [row for row in report.findings if row != answer.first]):
        return
    text_table.print_title(console, "Other findings, most important first")
    for row in rows[:_FINDINGS]:
        style = _STYLES.get(row.severity, "")
        _print_text(console, f"[{row.severity}]{_who(row)} {row.title}{_location(row)}", style, "  ")
    if len(rows) > _FINDINGS:
        _print_text(console, f"… and {len(rows) - _FINDINGS} more", indent="  ")
    console.print()


def _who(row: RunFinding) -> str:
    """Return " (ranks 0, 1)", or the number of spans with the finding; "" for one."""
    if len(row.ranks) > 1:
        return f" (ranks {listed_numbers(row.ranks)})"
    return f" ({row.times} spans)" if row.times > 1 else ""


def _print_ranks(console: Console, answer: FirstAnswer) -> None:
    """Print the ranks of the first finding, then those that others wait for longest."""
    if (job := answer.job) is None:
        return
    named = answer.first.where if answer.first else []
    rows = sorted(job.by_rank, key=lambda row: (f"rank {row.rank}" not in named, -row.late_us))[:_RANKS]
    title = f"Ranks ({len(rows)} of {job.world_size or job.ranks}; waits are totals over the whole recording)"
    if missing := job.missing_ranks:
        names = ", ".join(map(str, missing[:_RANKS])) + (" …" if missing[_RANKS:] else "")
        title += f". Not read: {plural(len(missing), 'rank')} ({names}). Others may wait longer than shown"
    text_table.print_table(console, title, rows, names=_RANK_COLUMNS)


def _print_parts(console: Console, answer: FirstAnswer) -> None:
    """Print where the time of a step or of the span goes; without a trace, where compile time goes."""
    span = answer.span
    if span and span.coverage.level == "insufficient":
        return  # causes of waiting are unknown
    if span and (rows := span.step.mean_parts):
        title = _title_of_parts(answer, span, rows[0].kind)
        if any(warning.is_truncated for warning in span.warnings):
            title += ". The trace is cut off: the missing part counts as idle"
        if rows[-1].kind == "profiler":
            title += f". The profiler adds {duration(rows[-1].time_us)} per step"
        _print_shares(console, title, _named(span, [row for row in rows if row.kind != "profiler"]))
    elif answer.compiled and (phases := answer.compiled.phases_s):
        percents = answer.compiled.phases_percent
        parts = [_part("", name.replace("_", " "), 1e6 * s, percents[name]) for name, s in phases.items()]
        _print_shares(console, "Where compile time goes", parts)


def _part(kind: str, words: str, time_us: float, percent: float) -> MeanPart:
    return MeanPart(kind, words, time_us, percent)  # type: ignore[arg-type]


def _named(span: SpanReport, rows: Sequence[MeanPart]) -> list[MeanPart]:
    """Return each part with a readable name; Python that was not recorded is unaccounted time."""
    named = {name for row in span.ledger if row.kind == "python" for name in row.names}
    words = {str(kind): words for kind, words in KIND_WORDS.items()}
    if all(map(is_region, named)):
        words["python"] = KIND_WORDS["unaccounted"]
    parts = grouped(rows, lambda row: (row.kind, words.get(row.part, row.part.replace("_", " "))))
    return [
        _part(kind, name, sum(row.time_us for row in same), sum(row.percent for row in same))
        for (kind, name), same in parts.items()
    ]


def _print_shares(console: Console, title: str, rows: Sequence[MeanPart]) -> None:
    rows = sorted(rows, key=lambda row: -row.time_us)
    shown, rest = rows[:_PARTS], rows[_PARTS:]
    if rest:
        sums = sum(row.time_us for row in rest), sum(row.percent for row in rest)
        shown.append(_part("", f"{len(rest)} more", *sums))
    text_table.print_table(console, title, shown, None)


def _title_of_parts(answer: FirstAnswer, span: SpanReport, kind: str) -> str:
    report = span.step
    count = report.step_time.steps
    steps = f"the time of a step goes (mean of {count:,})" if count else "the time of the span goes"
    spans = [other.span for other in answer.worker.spans] if answer.worker else []
    number = spans.index(span.span) + 1 if span.span.isdigit() else span.span
    which = f", in span {number} of {len(spans)}" if len(spans) > 1 else ""
    gpu = "" if kind == "host" else ": GPU busy by kernel, idle by host activity"
    return f"Where {steps}{_worker(answer)}{which}{gpu}"


def _worker(answer: FirstAnswer) -> str:
    """Return which worker of a job the numbers are from."""
    return f", on worker {answer.worker.worker}" if answer.job and answer.worker else ""


def _print_compiled(console: Console, answer: FirstAnswer) -> None:
    if answer.compiled is None:
        return
    span, of_worker = answer.span, answer.compiled.headlines
    of_span = span.headlines if span else {}
    sentences = [
        of_worker.get("compile_time"),
        of_span.get("graph_breaks") or of_worker.get("graph_breaks"),
        of_worker.get("recompiles"),
        *((span.overview.payback,) if span else ()),
    ]
    if any(sentences):
        text_table.print_title(console, f"Compiled{_worker(answer)}")
        for sentence in filter(None, sentences):
            _print_text(console, sentence, indent="  ")
        console.print()


def _next(report: Report, answer: FirstAnswer, commands: Commands) -> dict[str, str]:
    reasons: dict[str, str] = {}
    if (first := answer.first) is not None:
        span = Address(first.run, first.worker, first.span or "")
        id = Table(Address(), "findings", [first]).ids[0]
        reasons[commands.show(id)] = "evidence, prediction, and how to verify the fix"
        if first.fix and first.span:
            reasons[commands.what_if(span, first.fix)] = "the step after the fix"
        reasons[commands.compare(first.run, len(report.all_runs) > 1)] = "after recording the fix"
    if answer.span:
        reasons[f"{commands.tables(['kernels'])} --top 10"] = "the most expensive kernels"
    if len(report.all_runs) > _RUNS + 1:
        reasons[commands.rows("all_runs")] = "all runs"
    reasons[commands.full()] = "all tables"
    return reasons
