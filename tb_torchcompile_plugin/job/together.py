"""Which ranks that were read are of one job? Those that were recorded at one time, and of which all can be asked.

Names of files do not tell: what an earlier start of a job left lies beside what the later one wrote. Process groups and
numbers of steps do not either, as both are the same after a restart. So recorded times must meet.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tb_torchcompile_plugin.errors import Notice
from tb_torchcompile_plugin.job.digest.digest_pb2 import Digest
from tb_torchcompile_plugin.job.digest.make import host_of
from tb_torchcompile_plugin.job.members import Member
from tb_torchcompile_plugin.profile.profile import Profile

_MOST_CALLS = 240_000  # of all ranks together
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


def calls_of_each(ranks: int) -> int:
    """Of how many calls the model of a rank is made: walking those of a job is linear in the calls of all its ranks,
    and few leave room for more. It is the same one for what is asked of the rank alone, or its step had two lengths."""
    return max(Profile.most_calls, _MOST_CALLS // ranks) if ranks > 1 else Profile.most_calls


def of_another_time(file: str) -> Notice:
    """Why a rank is not of the job. file: what it was read from."""
    return Notice(
        file,
        "was recorded at another time than the other ranks",
        "It is not part of their job",
        "Record all ranks at the same steps, and each start of a job into a folder of its own",
    )
