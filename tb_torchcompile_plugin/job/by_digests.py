"""A job by its digests: no trace is opened for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tb_torchcompile_plugin.errors import Notice, UserError
from tb_torchcompile_plugin.job.digest.digest_pb2 import Digest
from tb_torchcompile_plugin.job.digest.file import load_all
from tb_torchcompile_plugin.job.digest.packed import spread
from tb_torchcompile_plugin.job.digest.rank_digest import RankDigest, calls_of, cuts_of, gpu_of, windows_of
from tb_torchcompile_plugin.job.job import Job
from tb_torchcompile_plugin.job.members import DigestFile, Member
from tb_torchcompile_plugin.job.together import of_another_time, recorded, together


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
