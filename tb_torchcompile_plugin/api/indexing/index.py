"""Find and write the missing digests of a logdir: `tb-torchcompile index`."""

import os
from dataclasses import replace

from tb_torchcompile_plugin.api.catalog import Catalog, Ids
from tb_torchcompile_plugin.api.indexing.pool import Order
from tb_torchcompile_plugin.api.session import check
from tb_torchcompile_plugin.errors import Notice
from tb_torchcompile_plugin.logdir.discovery import digest_name
from tb_torchcompile_plugin.logdir.filesystem import File, is_remote, plain_path


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
