"""Find the spans of a run that were recorded together, one per rank, and form a job.

File names do not show it: files of an earlier start of a job are next to those of a later one. Process groups and step
numbers are the same after a restart. So the recorded times must overlap.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from tb_torchcompile_plugin.errors import NotFound, Notice, UserError
from tb_torchcompile_plugin.job.digest.file import load_all
from tb_torchcompile_plugin.job.digest.make import MOST_RANKS, digest_columns, host_of
from tb_torchcompile_plugin.job.digest.rank_digest import RankDigest, columns_from_message
from tb_torchcompile_plugin.logdir.discovery import File, WorkerFiles
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.memo import Memoized, cached_once

_SMALL = 8  # ranks: a job of more is read from its digests, where it has them
_CLOCKS_NS = 60_000_000_000  # maximum difference of unsynchronized clocks of hosts


@dataclass(eq=False)
class Job(Memoized):
    """The ranks of a job by their digests: at least two, each once, in ascending order.

    No trace is opened for it.
    """

    digests: tuple[RankDigest, ...]
    # By rank, why it cannot be read; by -1 and below if the rank is unknown.
    unread: Mapping[int, Notice] = field(default_factory=dict)

    @cached_once
    def numbers(self) -> list[int]:
        """The numbers of its ranks."""
        return [digest.rank for digest in self.digests]

    @property
    def world_size(self) -> int | None:
        """The number of ranks as torch recorded it; None where it did not."""
        return max((size for digest in self.digests if (size := digest.world_size) is not None), default=None)

    @property
    def missing(self) -> list[int]:
        """Ranks that were not read: how long others waited for them is unknown."""
        expected = {*range(min(self.world_size or 0, MOST_RANKS))} | {*self.unread}
        return sorted(rank for rank in expected - {*self.numbers} if rank >= 0)


class JobRank(NamedTuple):
    """One process of the job whose trace was read."""

    rank: int
    worker: str  # the name of its files
    profile: Profile


class TracedJob(Job):
    """A job whose traces were read, so that its ranks can be replayed.

    Its digests hold what their files would, so that all numbers are the same with and without traces.
    """

    def __init__(self, ranks: Sequence[JobRank], unread: Mapping[int, Notice] | None = None) -> None:
        """Raise the errors of questions about the traces."""
        self.ranks = tuple(ranks)
        digests = []
        for rank, worker, profile in ranks:
            span = profile.span.span if profile.span else ""
            digests.append(RankDigest(rank, worker, span, profile.of(digest_columns)))
        super().__init__(tuple(digests), unread or {})


@dataclass(eq=False)
class OneRank(Memoized):
    """A rank of a job with its trace, whether those of the others were read or not."""

    job: Job
    rank_index: int  # index in the job
    profile: Profile

    @property
    def rank(self) -> int:
        """Its number in the job."""
        return self.job.numbers[self.rank_index]


def one_rank(job: TracedJob, rank: int) -> OneRank:
    """Return a rank with its trace. Raises NotFound."""
    index = index_of_rank(job, rank)
    return OneRank(job, index, job.ranks[index].profile)


def index_of_rank(job: Job, rank: int) -> int:
    """Return the index of a rank in the job. Raises NotFound."""
    if rank not in job.numbers:
        raise NotFound(f"no trace of rank {rank} can be read", next_step="Choose one that `job` lists")
    return job.numbers.index(rank)


class Member(NamedTuple):
    """A span of one rank."""

    rank: int
    worker: str
    span: str


def members(workers: Sequence[WorkerFiles], like: str = "") -> list[Member]:
    """Return one span of each rank, written at about one time, in order of the ranks; [] for fewer than two ranks.

    like: a span whose recording is wanted; the newest one of the first rank where it is not there. Of two workers with
    one rank the later name counts.
    """
    by_rank = {worker.rank: worker for worker in workers if worker.rank is not None and worker.spans}
    if len(by_rank) < 2:
        return []
    ranks = sorted(by_rank)
    spans = _nearest_in_time(
        [[(span.span, span.file) for span in by_rank[rank].spans] for rank in ranks], like
    )
    return [Member(rank, by_rank[rank].worker, span) for rank, (span, _) in zip(ranks, spans)]


class DigestFile(NamedTuple):
    """A digest of one worker, whichever its rank is."""

    worker: str
    span: str
    file: File


def prefers_digests(workers: Sequence[WorkerFiles]) -> bool:
    """Whether the job is read from its digests: of few ranks traces are read, which show more."""
    with_digests = [worker for worker in workers if worker.digests]
    is_large = len(with_digests) > _SMALL or not all(worker.spans for worker in with_digests)
    return len(with_digests) > 1 and is_large


def digest_files(workers: Sequence[WorkerFiles], like: str = "") -> list[DigestFile]:
    """Return one digest of each worker that has any, like `members`."""
    with_digests = [worker for worker in workers if worker.digests]
    if not with_digests:
        return []
    spans = _nearest_in_time([sorted(worker.digests.items()) for worker in with_digests], like)
    return [DigestFile(worker.worker, *span) for worker, span in zip(with_digests, spans)]


_Span = tuple[str, File]  # its id and its file


def _nearest_in_time(spans: Sequence[Sequence[_Span]], like: str) -> list[_Span]:
    """Return of each worker the span that was written nearest in time to the wanted one."""
    named = {name: file for of_worker in spans for name, file in of_worker}
    if like not in named:
        like = max(spans[0], key=_written_ns)[0]
    wanted = _written_ns((like, named[like]))
    # Stages of a server have the same names on each rank.
    return [
        min(of_worker, key=lambda span: (span[0] != like, abs(_written_ns(span) - wanted)))
        for of_worker in spans
    ]


def _written_ns(span: _Span) -> int:
    """Return when it was written: torch's handler puts it into the name."""
    return int(span[0]) if span[0].isdigit() else span[1].mtime_ns


class RecordedAt(NamedTuple):
    """Where and when a rank was recorded (Unix time, ns)."""

    host: str | None
    begin: int
    end: int


def recorded_at(profile: Profile) -> RecordedAt:
    """Return where and when a rank was recorded, by its trace."""
    (begin, end), base = profile.trace.window(), profile.trace.base_ns
    return RecordedAt(host_of(profile.trace.metadata), base + begin, base + end)


def recorded_together(ranks: Mapping[Member, RecordedAt], like: str = "") -> list[Member]:
    """Return the ranks that were recorded at the time of a span.

    Where the span is not named, or not there, it is the time of most ranks; of equally many the latest. Spans of one
    host must overlap in time, those of several hosts may be a minute apart.
    """
    hosts = {recorded.host for recorded in ranks.values()}
    apart = 0 if len(hosts) == 1 and None not in hosts else _CLOCKS_NS
    groups: list[list[Member]] = []
    reach = 0
    for member in sorted(ranks, key=lambda member: ranks[member][1:]):
        _, begin, end = ranks[member]
        if not groups or begin > reach + apart:
            groups.append([])
        groups[-1].append(member)
        reach = max(reach, end)
    wanted = [group for group in groups if like and any(member.span == like for member in group)]
    return max(reversed(wanted or groups), key=len, default=[])


def not_recorded_together(file: str) -> Notice:
    """Return why a rank is not of the job; file: what it was read from."""
    return Notice(
        file,
        "was recorded at a different time from the other ranks",
        "It is excluded from their job",
        "Record all ranks at the same steps, and each start of a job into its own folder",
    )


def job_of_digests(files: Sequence[DigestFile], like: str = "") -> Job | None:
    """Return the job of these digests; None where fewer than two ranks can be read, or were recorded at one time.

    like: the span whose time is meant. Of two files of one rank the later worker's counts.
    """
    unread: dict[int, Notice] = {}
    ranks = {digest.rank: digest for digest in _readable(files, unread)}
    times = {}
    for digest in ranks.values():
        header, base = digest.columns.header, digest.base_ns
        recorded = RecordedAt(digest.host, base + header.begin_ns, base + header.end_ns)
        times[Member(digest.rank, digest.worker, digest.span)] = recorded
    selected = {member.rank for member in recorded_together(times, like)}
    for rank in ranks.keys() - selected:
        unread[rank] = not_recorded_together(ranks[rank].worker)
    return Job(tuple(ranks[rank] for rank in sorted(selected)), unread) if len(selected) > 1 else None


def _readable(files: Sequence[DigestFile], unread: dict[int, Notice]) -> Iterator[RankDigest]:
    """Read digests; a damaged one costs only its own rank, and is noted by a number below 0."""
    for number, (file, message) in enumerate(zip(files, load_all([file.file for file in files]))):
        try:
            if isinstance(message, UserError):
                raise message
            if not message.HasField("rank"):
                raise UserError(
                    "the digest does not contain its rank",
                    next_step="Record with torch.distributed initialized",
                )
            yield RankDigest(
                int(message.rank), file.worker, file.span, columns_from_message(message, file.file)
            )
        except UserError as error:
            unread[-1 - number] = replace(error.notice, file=file.file.path)
