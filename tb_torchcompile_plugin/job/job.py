"""The spans of one run that were recorded together, one of each rank: what questions about ranks are asked of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tb_torchcompile_plugin.errors import NotFound, Notice
from tb_torchcompile_plugin.job.digest.make import MOST_RANKS, digest
from tb_torchcompile_plugin.job.digest.rank_digest import RankDigest
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.memo import Memoized, once


@dataclass(eq=False)
class Job(Memoized):
    """Its ranks by their digests, which ascend, each there once. Two at least, or there is nothing to compare. unread:
    by rank, why nothing of it can be read; by -1 and below where the rank is not known."""

    digests: tuple[RankDigest, ...]
    unread: Mapping[int, Notice] = field(default_factory=dict)

    @once
    def numbers(self) -> list[int]:
        """Of its ranks."""
        return [one.rank for one in self.digests]

    @property
    def world_size(self) -> int | None:
        """As torch recorded it; None where it did not."""
        return max((size for one in self.digests if (size := one.world_size) is not None), default=None)

    @property
    def missing(self) -> list[int]:
        """Ranks that are not here: what others waited for them is not known."""
        return sorted(
            {*range(min(self.world_size or 0, MOST_RANKS)), *(rank for rank in self.unread if rank >= 0)}
            - {*self.numbers}
        )


class JobRank(NamedTuple):
    """One process of the job whose trace was read. worker: the name of its files."""

    rank: int
    worker: str
    profile: Profile


class TracedJob(Job):
    """A job whose traces were read: its ranks can be replayed. The digests are made of the traces, so that all numbers
    are the same with and without them."""

    def __init__(self, ranks: Sequence[JobRank], unread: Mapping[int, Notice] | None = None) -> None:
        self.ranks = tuple(ranks)
        super().__init__(tuple(map(digest_of, self.ranks)), unread or {})


@dataclass(eq=False)
class OneRank(Memoized):
    """A rank of a job with its trace, whether those of the others were read or not. place: in the job."""

    job: Job
    place: int
    profile: Profile

    @property
    def rank(self) -> int:
        return self.job.numbers[self.place]


def one_rank(job: TracedJob, rank: int) -> OneRank:
    """Raises NotFound."""
    place = place_of_rank(job, rank)
    return OneRank(job, place, job.ranks[place].profile)


def place_of_rank(job: Job, rank: int) -> int:
    """Its place in the job. Raises NotFound."""
    if rank not in job.numbers:
        raise NotFound(f"no trace of rank {rank} can be read", next_step="Ask for one that `job` lists")
    return job.numbers.index(rank)


def digest_of(one: JobRank) -> RankDigest:
    """Of a rank whose trace was read. Raises whatever a question about the trace raises."""
    span = one.profile.span.span if one.profile.span else ""
    return RankDigest(one.rank, one.worker, span, one.profile.of(digest))
