"""Which spans of a run were recorded together? One of each rank: those whose files were written at about one time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tb_torchcompile_plugin.logdir.discovery import File, WorkerFiles

_SMALL = 8  # ranks


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
    ranks = sorted(by_rank)
    spans = of_one_cycle([[(one.span, one.file) for one in by_rank[rank].spans] for rank in ranks], like)
    return [Member(rank, by_rank[rank].worker, span) for rank, (span, _) in zip(ranks, spans)]


class DigestFile(NamedTuple):
    """A digest of one worker, of whichever rank that is."""

    worker: str
    span: str
    file: File


def asks_digests(workers: Sequence[WorkerFiles]) -> bool:
    """Whether the job is looked at by its digests: of few ranks traces are read, which tell more."""
    known = sum(1 for one in workers if one.digests)
    return known > 1 and (known > _SMALL or not all(one.spans for one in workers if one.digests))


def digest_files(workers: Sequence[WorkerFiles], like: str = "") -> list[DigestFile]:
    """The same of those that have digests, one each."""
    known = [one for one in workers if one.digests]
    if not known:
        return []
    spans = of_one_cycle([sorted(one.digests.items()) for one in known], like)
    return [DigestFile(one.worker, *span) for one, span in zip(known, spans)]


_Span = tuple[str, File]  # its id, and what holds it


def of_one_cycle(spans: Sequence[Sequence[_Span]], like: str) -> list[_Span]:
    """Of each worker the span that was written nearest in time to the wanted one."""
    named = {name: file for its in spans for name, file in its}
    wanted = _written((like, named[like])) if like in named else max(map(_written, spans[0]))
    return [min(its, key=lambda span: abs(_written(span) - wanted)) for its in spans]


def _written(span: _Span) -> int:
    """When, in ns: torch's handler puts it into the name."""
    return int(span[0]) if span[0].isdigit() else span[1].mtime_ns
