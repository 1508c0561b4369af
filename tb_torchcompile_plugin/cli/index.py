"""`tb-torchcompile index LOGDIR`: find the traces without a digest, and write the digests."""

import os
import sys
from collections import Counter
from contextlib import closing
from dataclasses import replace

from tb_torchcompile_plugin.api.catalog import Catalog, Ids, no_trace
from tb_torchcompile_plugin.api.indexing.index import Order, in_processes
from tb_torchcompile_plugin.api.session import check
from tb_torchcompile_plugin.cli.text import bar_on_stderr
from tb_torchcompile_plugin.errors import Notice, UserError, visible
from tb_torchcompile_plugin.logdir.discovery import digest_name
from tb_torchcompile_plugin.logdir.filesystem import File, is_remote, plain_path
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


def plan(logdir: str, out: str = "") -> tuple[list[Order], list[Notice]]:
    """Return an order for the digest of each span, and what could not be looked at.

    It is written next to the span, or below `out` in a folder of the run's name. Raises UserError where there is no
    such logdir.
    """
    check(logdir)
    root, target = _absolute(logdir), _absolute(out) if out else ""
    listing = Catalog([("", root)]).look()
    there: dict[Ids, File] = {}
    if is_remote(target or root):  # to look for a local file is cheap
        there = {
            (run.run, worker.worker, span): file
            for run, workers in Catalog([("", target or root)]).look().runs
            for worker in workers
            for span, file in worker.digests.items()
        }
    notices, orders = list(listing.notices), []
    for run, workers in listing.runs:
        folder = run.folder if not target else target if run.run == "." else os.path.join(target, run.run)
        for worker in workers:
            for span in worker.spans:
                if not span.span.isdigit():
                    problem = "another trace has the same worker and time in its name"
                    problem += ", so no digest is written for this one"
                    next_step = "Rename it, or remove the one that you do not need"
                    notices.append(Notice(span.file.path, problem, next_step=next_step))
                    continue
                path = os.path.join(folder, digest_name(worker.worker, span.span))
                next_to_trace = worker.digests.get(span.span) if target else None
                existing = there.get((run.run, worker.worker, span.span))
                # without what the digest is not made of: it travels with each order
                alone = replace(worker, spans=[], digests={})
                orders.append(Order(alone, span, path, existing, next_to_trace))
    return orders, notices


def _absolute(path: str) -> str:
    """Return an absolute path: processes elsewhere have another working directory."""
    plain = plain_path(path)
    return plain if is_remote(plain) else os.path.abspath(plain)


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
