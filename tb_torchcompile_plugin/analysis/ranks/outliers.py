"""Which of many ranks, hosts and links are slow, and what would a step take without them?

Several may be slow at once, and the slowest hides the others: each is priced with those before it mended.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tb_torchcompile_plugin.analysis.findings.finding import Predicted
from tb_torchcompile_plugin.analysis.ranks.job_predictions import now_ns, shorter
from tb_torchcompile_plugin.analysis.ranks.job_rows import LateRank, late_rows
from tb_torchcompile_plugin.job.chain import (
    Slow,
    SlowLink,
    explained,
    saved_without,
    slow,
    slow_links,
    why_slow,
)
from tb_torchcompile_plugin.job.job import Job, TracedJob

MANY = 8  # ranks that are few
_TOLD = 10  # outliers that are held against each other


class Outlier(NamedTuple):
    """A slow rank or host, or a slow link. why: what its slowest rank does, None where nothing tells. predicted: with
    those before it mended, too; None where no step is known. first: nothing is before it."""

    what: Slow | SlowLink
    why: LateRank | None
    predicted: Predicted | None
    first: bool


def is_many(job: Job) -> bool:
    """Whether outliers are looked for: several may be to blame, and no trace tells more."""
    return len(job.digests) > MANY and not isinstance(job, TracedJob)


def outliers(job: Job) -> list[Outlier]:
    """Most gain first; none of few ranks, nor where traces tell more."""
    if not is_many(job):
        return []
    slowest: list[Slow | SlowLink] = [*job.of(slow)[:_TOLD], *job.of(slow_links)[:_TOLD]]
    alone = sorted((_Priced(job, one) for one in slowest), key=lambda one: -one.alone)
    return list(_one_by_one(job, alone[:_TOLD]))


class _Priced:
    """known: which share of it is of its own doing. alone: by which share a step is shorter without it."""

    def __init__(self, job: Job, what: Slow | SlowLink) -> None:
        self.what = what
        self.why = job.of(why_slow, what.places[0]) if isinstance(what, Slow) else []
        self.known = explained(self.why) if isinstance(what, Slow) else 1.0
        self.alone = saved_without(job, self.shares, self.links)

    @property
    def shares(self) -> dict[int, float]:
        return dict.fromkeys(self.what.places, self.known) if isinstance(self.what, Slow) else {}

    @property
    def links(self) -> list[SlowLink]:
        return [self.what] if isinstance(self.what, SlowLink) else []


def _one_by_one(job: Job, wanted: list[_Priced]) -> Iterator[Outlier]:
    shares: dict[int, float] = {}
    links: list[SlowLink] = []
    gone, now = 0.0, job.of(now_ns)
    for one in wanted:
        shares |= one.shares
        links += one.links
        more = max(saved_without(job, shares, links), gone)
        predicted = shorter(now * (1 - gone), (more - gone) / max(1 - gone, 1e-9), one.known)
        yield Outlier(one.what, next(iter(late_rows(job, one.why)), None), predicted, one is wanted[0])
        gone = more
