"""`tb-torchcompile index LOGDIR`: write the missing digests of traces."""

import sys
from collections import Counter
from contextlib import closing

from tb_torchcompile_plugin.api.catalog import no_trace
from tb_torchcompile_plugin.api.indexing.index import in_processes, plan
from tb_torchcompile_plugin.cli.text import bar_on_stderr
from tb_torchcompile_plugin.errors import Notice, UserError, visible
from tb_torchcompile_plugin.reader.trace.kineto import usable_cores

_FREE_SPACE = (
    "Free disk space, or choose another folder with --out DIR, then run this again: it continues where it "
    "stopped"
)
_MAX_WARNINGS = 50  # traces that could not be read, by name; the others are counted


def show_index(logdir: str, workers: int | None, out: str) -> None:
    """Write the digests and print a summary. workers: number of processes, None for one per core.

    Raises UserError if nothing could be read, and if the disk is full.
    """
    orders, warnings = plan(logdir, out)
    kinds: Counter[str] = Counter()
    total = sum(order.span.file.size for order in orders)
    answers = in_processes(orders, workers or usable_cores())
    with bar_on_stderr() as bar, closing(answers) as outcomes:
        task = bar.add_task(f"0 of {len(orders)} traces", total=total)
        for order, outcome in outcomes:
            if outcome.kind == "no room" and outcome.notice:
                raise UserError(
                    f"{outcome.notice.problem}, after {kinds['written']} digests",
                    file=outcome.notice.file,
                    next_step=_FREE_SPACE,
                )
            kinds[outcome.kind] += 1
            warnings += [outcome.notice] if outcome.notice else []
            read = order.span.file.size
            if outcome.kind == "there already":  # excluded: reading the others takes longer
                total, read = total - read, 0
            description = f"{kinds.total()} of {len(orders)} traces"
            bar.update(task, total=total, advance=read, description=description)
    if not kinds["written"] + kinds["there already"]:
        raise _failure(logdir, warnings)
    _warn(warnings)
    failed = f", {kinds['failed']} failed" if kinds["failed"] else ""
    print(f"{kinds['written']} digests written, {kinds['there already']} existed already{failed}")


def _failure(logdir: str, warnings: list[Notice]) -> UserError:
    if len(warnings) == 1:
        return UserError.of(warnings[0])
    _warn(warnings)
    if warnings:
        return UserError("nothing could be read: see the warnings above", file=logdir)
    return no_trace(logdir)


def _warn(warnings: list[Notice]) -> None:
    for notice in warnings[:_MAX_WARNINGS]:
        print(visible(f"warning: {notice}"), file=sys.stderr)
    if len(warnings) > _MAX_WARNINGS:
        print(f"warning: {len(warnings) - _MAX_WARNINGS} more warnings", file=sys.stderr)
