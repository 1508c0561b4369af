"""`tb-torchcompile index LOGDIR`: a digest of each trace that has none."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich import progress
from rich.console import Console

from tb_torchcompile_plugin.api.indexing.index import Done, index, plan
from tb_torchcompile_plugin.api.indexing.pool import Attempted, Order
from tb_torchcompile_plugin.errors import Notice, UserError, visible
from tb_torchcompile_plugin.reader.trace.kineto import usable_cores

_MAX_WARNINGS = 50  # traces that could not be read, by name; the others are counted


def show_index(logdir: str, workers: int | None, scheduler: str, out: str) -> None:
    """Write the digests and print a summary. workers: how many processes, None for one per core.

    Raises UserError where nothing could be read, where the disk is full, and where the scheduler cannot be reached.
    """
    orders, notices = plan(logdir, out)
    with _bar(orders) as done:
        result = index(orders, workers or usable_cores(), scheduler, done)
    warnings = [*notices, *result.warnings]
    if not result.written + result.there_already:
        raise _failure(logdir, warnings)
    _warn(warnings)
    failed = f", {len(result.warnings)} failed" if result.warnings else ""
    print(f"{result.written} digests written, {result.there_already} were there already{failed}")


@contextmanager
def _bar(orders: list[Order]) -> Iterator[Done]:
    """Show a bar on stderr, by bytes of traces; nothing where stderr is not a terminal."""
    console = Console(stderr=True)
    columns = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.DownloadColumn(),
        progress.TransferSpeedColumn(),
        progress.TimeRemainingColumn(),
    )
    with progress.Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        total, count = sum(order.span.file.size for order in orders), 0
        task = bar.add_task(f"0 of {len(orders)} traces", total=total)

        def done(order: Order, outcome: Attempted) -> None:
            nonlocal total, count
            count += 1
            advance = order.span.file.size
            if outcome.kind == "there already":  # it does not count: others are read more slowly
                total, advance = total - advance, 0
            description = f"{count} of {len(orders)} traces"
            bar.update(task, total=total, advance=advance, description=description)

        yield done


def _failure(logdir: str, warnings: list[Notice]) -> UserError:
    if len(warnings) == 1:
        (notice,) = warnings
        return UserError(notice.problem, file=notice.file, next_step=notice.next_step)
    _warn(warnings)
    if warnings:
        return UserError("nothing could be read; see the warnings above", file=logdir)
    next_step = "Name a folder with one, or a trace file"
    return UserError("there is no trace in it", file=logdir, next_step=next_step)


def _warn(warnings: list[Notice]) -> None:
    for notice in warnings[:_MAX_WARNINGS]:
        print(visible(f"warning: {notice}"), file=sys.stderr)
    if len(warnings) > _MAX_WARNINGS:
        print(f"warning: and {len(warnings) - _MAX_WARNINGS} more", file=sys.stderr)
