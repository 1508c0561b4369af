"""The spans of one run that were recorded together, one of each rank: what questions about ranks are asked of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from tb_torchcompile_plugin.errors import NotFound, Notice, UserError
from tb_torchcompile_plugin.job.digest.digest_pb2 import Digest
from tb_torchcompile_plugin.job.digest.file import load_all, spread
from tb_torchcompile_plugin.job.digest.make import MOST_RANKS, digest, host_of
from tb_torchcompile_plugin.job.digest.rank_digest import RankDigest, calls_of, cuts_of, gpu_of, windows_of
from tb_torchcompile_plugin.logdir.discovery import File, WorkerFiles
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


# Which spans of a run were recorded together? One of each rank: those whose files were written at about one
# time.


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


# Which ranks that were read are of one job? Those that were recorded at one time, and of which all can be
# asked. Names of files do not tell: what an earlier start of a job left lies beside what the later one
# wrote. Process groups and numbers of steps do not either, as both are the same after a restart. So
# recorded times must meet.


_CLOCKS_NS = 60_000_000_000  # by which clocks of hosts may be wrong that nobody sets


class RecordedAt(NamedTuple):
    """Where and from when to when a rank was recorded (Unix time, ns)."""

    host: str | None
    begin: int
    end: int


def recorded(made: Digest) -> RecordedAt:
    """Of a rank, by its digest."""
    host = str(made.host_name) if made.HasField("host_name") else None
    return RecordedAt(host, made.base_ns + made.begin_ns, made.base_ns + made.end_ns)


def recorded_trace(profile: Profile) -> RecordedAt:
    """Of a rank, by its trace."""
    (begin, end), base = profile.trace.window(), profile.trace.base_ns
    return RecordedAt(host_of(profile.trace.metadata), base + begin, base + end)


def together(ranks: Mapping[Member, RecordedAt], like: str = "") -> list[Member]:
    """The ranks that were recorded at the time of a span; where it is not named, or not there, at the time of most of
    them, of equally many at the latest. Spans of one host must overlap in time, those of several may be a minute
    apart."""
    hosts = {one.host for one in ranks.values()}
    apart = 0 if len(hosts) == 1 and None not in hosts else _CLOCKS_NS
    groups: list[list[Member]] = []
    reach = 0
    for member in sorted(ranks, key=lambda one: ranks[one][1:]):
        _, begin, end = ranks[member]
        if not groups or begin > reach + apart:
            groups.append([])
        groups[-1].append(member)
        reach = max(reach, end)
    wanted = [group for group in groups if like and any(member.span == like for member in group)]
    return max(reversed(wanted or groups), key=len, default=[])


def of_another_time(file: str) -> Notice:
    """Why a rank is not of the job. file: what it was read from."""
    return Notice(
        file,
        "was recorded at another time than the other ranks",
        "It is not part of their job",
        "Record all ranks at the same steps, and each start of a job into a folder of its own",
    )


# A job by its digests: no trace is opened for it.


def by_digests(files: Sequence[DigestFile], like: str = "") -> Job | None:
    """None where fewer than two ranks can be read, or were recorded at one time. like: the span whose time is meant.
    Of two files of one rank the later worker's counts."""
    unread: dict[int, Notice] = {}
    ranks = {one.rank: one for one in _ranks(files, unread)}
    members = {Member(one.rank, one.worker, one.span): recorded(one.message) for one in ranks.values()}
    here = {member.rank for member in together(members, like)}
    unread |= {rank: of_another_time(one.worker) for rank, one in ranks.items() if rank not in here}
    digests = tuple(ranks[rank] for rank in sorted(here))
    return Job(digests, unread) if len(digests) > 1 else None


def _ranks(files: Sequence[DigestFile], unread: dict[int, Notice]) -> Iterator[RankDigest]:
    """What is damaged costs itself: -1 and below are ranks that nobody can tell."""
    for number, (one, made) in enumerate(zip(files, load_all([one.file for one in files]))):
        try:
            if isinstance(made, UserError):
                raise made
            yield _checked(one, made)
        except UserError as error:
            unread[-1 - number] = replace(error.notice, file=one.file.path)


def _checked(one: DigestFile, made: Digest) -> RankDigest:
    """With what every job asks of each rank. Raises UserError."""
    if not made.HasField("rank"):
        raise UserError(
            "the digest does not tell its rank", next_step="Record with torch.distributed initialised"
        )
    about = RankDigest(int(made.rank), one.worker, one.span, made, one.file)
    for question in (calls_of, cuts_of, windows_of, gpu_of):
        about.of(question)
    for section in (made.host, made.kernels):  # looked at later, and of few
        spread(section)
    about.message = _often(made)
    return about


def _often(made: Digest) -> Digest:
    """Without the sections that are columns now, and those that are read again for few: there may be thousands."""
    rest = Digest()
    for section in ("calls", "steps", "host", "kernels"):
        made.ClearField(section)
    rest.CopyFrom(made)  # a message gives nothing back as long as it lives
    return rest
