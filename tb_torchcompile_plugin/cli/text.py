"""Print the full report: the sentences and tables of every run, job, worker and span."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import msgspec
from rich.console import Console
from rich.progress import DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

from tb_torchcompile_plugin.analysis.causes.doctor import Diagnosis
from tb_torchcompile_plugin.analysis.formatting import function_at
from tb_torchcompile_plugin.analysis.ranks.job_rows import LateRank
from tb_torchcompile_plugin.api.answers.sections import Address, Table, tables
from tb_torchcompile_plugin.api.report import Report, Run, RunFinding, UnreadSpan
from tb_torchcompile_plugin.api.sheets import key_of
from tb_torchcompile_plugin.cli import text_table
from tb_torchcompile_plugin.reader.arrays import grouped
from tb_torchcompile_plugin.reader.trace.kineto import BytesRead

_MAX_CAUSES = 5  # of a late rank
# What a table of runs shows of each.
RUN_COLUMNS = ("run", "step_us", "gpu_busy_percent", "compile_s", "graph_breaks", "recompiles", "finding")
_COLUMNS = {"all_runs": RUN_COLUMNS, "doctor": ("outcome", "function", "file", "why", "next_step")}
_LOGDIR = Address()  # the place of the tables of all runs


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
    for table in at.pop(_LOGDIR, []):
        if table.section == "findings" or len(report.runs) > 1:
            _print(console, table, text_table.MAX_ROWS)
    for place, struct in _places(report, rank):
        if sentences := dict.fromkeys(_sentences(struct)):
            _print_place(console, place)
            text_table.print_lines(console, *sentences, indent="  ")
        if isinstance(struct, Run) and struct.job and rank is None:
            text_table.print_lines(console, "The tables of one rank: --rank N", indent="  ")
        print_tables(console, at.get(place, []), text_table.MAX_ROWS, place if sentences else _LOGDIR)


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


def print_tables(
    console: Console, tables: Iterable[Table], top: int | None, place: Address = _LOGDIR
) -> None:
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
