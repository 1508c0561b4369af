"""The collectives of all ranks as columns, with their kinds and groups as numbers that all ranks share."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tb_torchcompile_plugin.errors import UserError
from tb_torchcompile_plugin.job.digest.rank_calls import Kind, rank_calls
from tb_torchcompile_plugin.job.digest.rank_digest import DigestCalls, calls_of
from tb_torchcompile_plugin.job.job import Job, OneRank, TracedJob
from tb_torchcompile_plugin.profile.intervals import Int64s


class Calls(NamedTuple):
    """One row a collective that a rank ran, rank by rank in order of time. place: of the rank among the job's. begin,
    end, launch (-1 where that was not recorded): Unix time in ns, each rank's by its own clock. seq: the group's own
    number of it, comms: a hash of torch's id of it; -1 unknown. kind: place in `kinds`."""

    place: Int64s
    begin: Int64s
    end: Int64s
    launch: Int64s
    seq: Int64s
    kind: Int64s
    comms: Int64s
    kinds: list[Kind]

    @property
    def dur(self) -> Int64s:
        return self.end - self.begin

    def of_rank(self, place: int) -> slice:
        """The rows of one rank."""
        return slice(*np.searchsorted(self.place, (place, place + 1)).tolist())

    def kind_of(self, row: int | np.integer) -> Kind:
        """What the call in this row is."""
        return self.kinds[int(self.kind[row])]

    def groups(self) -> Int64s:
        """Of each call a number of its group, -1 where that is not known."""
        number = numbered(kind.group for kind in self.kinds)[self.kind]
        return np.where(self.of_kind(kind.group is not None for kind in self.kinds), number, -1)

    def of_kind(self, of_each: Iterable[bool]) -> npt.NDArray[np.bool_]:
        """By call what holds for its kind; of_each: one for each of `kinds`."""
        return np.array([*of_each, False])[self.kind]


def calls(job: Job) -> Calls:
    """Of all ranks."""
    parts = [one.of(calls_of) for one in job.digests]
    codes: dict[Kind, int] = {}
    kinds = [_shared(part, codes) for part in parts]
    return Calls(
        place=np.repeat(np.arange(len(parts)), [len(part.begin) for part in parts]),
        begin=np.concatenate([part.begin for part in parts]),
        end=np.concatenate([part.end for part in parts]),
        launch=np.concatenate([part.launch for part in parts]),
        seq=np.concatenate([part.seq for part in parts]),
        kind=np.concatenate(kinds),
        comms=np.concatenate([part.comms for part in parts]),
        kinds=list(codes),
    )


def _shared(part: DigestCalls, codes: dict[Kind, int]) -> Int64s:
    """The kinds of one rank by the numbers of all."""
    return np.array([codes.setdefault(one, len(codes)) for one in part.kinds] or [0], np.int64)[part.kind]


def numbered(of_kinds: Iterable[Hashable]) -> Int64s:
    """Equal numbers for what is equal, from 0 on; one for each kind."""
    codes: dict[Hashable, int] = {}
    return np.array([codes.setdefault(one, len(codes)) for one in of_kinds] or [0], np.int64)


def rows_of_calls(about: OneRank) -> Int64s:
    """Of a rank's calls, in their order, the rows in its trace. Raises UserError where its digest is of another one."""
    rows = about.profile.of(rank_calls).row
    if len(rows) != len(about.job.digests[about.place].of(calls_of).begin):
        raise UserError(
            "the digest of this rank is not of its trace",
            file=about.job.digests[about.place].worker,
            next_step="Write it again with: tb-torchcompile index",
        )
    return rows


def trace_rows(job: TracedJob) -> Int64s:
    """By call its row in the trace of its rank."""
    return np.concatenate([one.profile.of(rank_calls).row for one in job.ranks])
