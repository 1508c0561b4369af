"""Join the ranks of a run that were read to a job, with the reasons for excluded ranks."""

import logging
from collections.abc import Mapping

from tb_torchcompile_plugin.errors import NotFound, Notice, UserError, quoted
from tb_torchcompile_plugin.job import job
from tb_torchcompile_plugin.job.digest.make import digest
from tb_torchcompile_plugin.logdir.discovery import File
from tb_torchcompile_plugin.profile.profile import Profile

_log = logging.getLogger(__name__)


def job_of(read: Mapping[job.Member, Profile | Notice | None], like: str = "") -> job.TracedJob | None:
    """Join what was read of each member, or why it was not; None where fewer than two can be joined.

    like: the span whose time is meant; otherwise that of most of them.
    """
    profiles = {member: about for member, about in read.items() if isinstance(about, Profile)}
    notices = {member: about for member, about in read.items() if isinstance(about, Notice)}
    recorded = {member: job.recorded_at(profile) for member, profile in profiles.items()}
    selected = job.recorded_together(recorded, like)
    ranks = []
    for member, profile in sorted(profiles.items(), key=lambda item: item[0]):
        file = profile.span.file if profile.span else None
        if member not in selected:
            notices[member] = job.not_recorded_together(file.path if file else "")
            continue
        try:
            profile.of(digest)
            ranks.append(job.JobRank(member.rank, member.worker, profile))
        except Exception as error:  # a mistake of ours, or a trace that no program writes: it costs this rank
            notices[member] = unexpected(file, error)
    unread = {member.rank: notice for member, notice in notices.items()}
    return job.TracedJob(ranks, unread) if len(ranks) > 1 else None


def no_job(run: str, notices: list[Notice]) -> UserError:
    """Why a run has no job; notices: of its ranks, where any cannot be read."""
    if not notices:
        return NotFound(
            f"no two ranks of run {quoted(run)} were recorded at the same time",
            next_step="Record all ranks at the same steps",
        )
    return UserError.of(notices[0])


def why_not(file: File, error: Exception) -> Notice:
    """Return why a rank cannot be read. Whatever it is, it costs that rank alone."""
    return error.notice if isinstance(error, UserError) else unexpected(file, error)


def unexpected(file: File | None, error: Exception) -> Notice:
    """A bug, which affects only one file."""
    name = file.name if file else "a trace"
    _log.debug("%s could not be read", name, exc_info=error)
    return Notice(
        file.path if file else "",
        f"cannot be read ({type(error).__name__})",
        "Everything else in the logdir is shown",
        "This is a bug in tb-torchcompile-plugin: please report it, with the file if possible",
    )
