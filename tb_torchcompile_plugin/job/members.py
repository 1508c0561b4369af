"""Which spans of a run were recorded together? One of each rank: those whose files were written at about one time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tb_torchcompile_plugin.logdir.discovery import SpanFile, WorkerFiles


class Member(NamedTuple):
    """A span of one rank."""

    rank: int
    worker: str
    span: str


def members(workers: Sequence[WorkerFiles], like: str = "") -> list[Member]:
    """In order of the ranks; of two workers with one rank the later name counts. like: a span of any of them, whose
    cycle is wanted; the newest of the first rank where it is not there. [] where fewer than two ranks have spans."""
    by_rank = {worker.rank: worker for worker in workers if worker.rank is not None and worker.spans}
    if len(by_rank) < 2:
        return []
    spans = {span.span: span for worker in by_rank.values() for span in worker.spans}
    wanted = spans.get(like) or max(by_rank[min(by_rank)].spans, key=_written)

    def nearest(worker: WorkerFiles) -> SpanFile:
        return min(worker.spans, key=lambda span: abs(_written(span) - _written(wanted)))

    return [Member(rank, by_rank[rank].worker, nearest(by_rank[rank]).span) for rank in sorted(by_rank)]


def _written(span: SpanFile) -> int:
    """When, in ns: torch's handler puts it into the name."""
    return int(span.span) if span.span.isdigit() else span.file.mtime_ns
