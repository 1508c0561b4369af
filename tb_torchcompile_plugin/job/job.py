"""The spans of one run that were recorded together, one of each rank: what questions about ranks are asked of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tb_torchcompile_plugin.errors import Notice
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.memo import Memoized

_MOST_RANKS = 1 << 20  # that a damaged number may claim


class JobRank(NamedTuple):
    """One process of the job. worker: the name of its files."""

    rank: int
    worker: str
    profile: Profile


@dataclass(eq=False)
class Job(Memoized):
    """`ranks` ascend, each there once. Two at least, or there is nothing to compare. unread: by rank, why its trace
    cannot be read."""

    ranks: tuple[JobRank, ...]
    unread: Mapping[int, Notice] = field(default_factory=dict)

    @property
    def numbers(self) -> list[int]:
        return [one.rank for one in self.ranks]

    @property
    def world_size(self) -> int | None:
        """As torch recorded it; None where it did not."""
        sizes = [one.profile.trace.distributed.get("world_size") for one in self.ranks]
        return max((size for size in sizes if isinstance(size, int)), default=None)

    @property
    def missing(self) -> list[int]:
        """Ranks that are not here: what others waited for them is not known."""
        return sorted({*range(min(self.world_size or 0, _MOST_RANKS)), *self.unread} - set(self.numbers))
