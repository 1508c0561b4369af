"""Which ranks that were read are of one job? Those that were recorded at one time, and of which all can be asked.

Names of files do not tell: what an earlier start of a job left lies beside what the later one wrote. Process groups and
numbers of steps do not either, as both are the same after a restart. So recorded times must meet.
"""

from __future__ import annotations

from collections.abc import Mapping

from tb_torchcompile_plugin.job.digest.make import digest, host_of
from tb_torchcompile_plugin.job.members import Member
from tb_torchcompile_plugin.profile.profile import Profile

_MOST_CALLS = 240_000  # of all ranks together
_CLOCKS_NS = 60_000_000_000  # by which clocks of hosts may be wrong that nobody sets


def together(profiles: Mapping[Member, Profile], like: str = "") -> list[Member]:
    """The ranks that were recorded at the time of a span; where it is not named, or not there, at the time of most of
    them, of equally many at the latest. Spans of one host must overlap in time, those of several may be a minute
    apart."""
    hosts = {host_of(profile.trace.metadata) for profile in profiles.values()}
    apart = 0 if len(hosts) == 1 and None not in hosts else _CLOCKS_NS
    groups: list[list[Member]] = []
    reach = 0
    for member in sorted(profiles, key=lambda one: _recorded(profiles[one])):
        begin, end = _recorded(profiles[member])
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


def _recorded(profile: Profile) -> tuple[int, int]:
    """From when to when, in Unix time (ns)."""
    begin, end = profile.trace.window()
    return begin + profile.trace.base_ns, end + profile.trace.base_ns


def ask_all(profile: Profile) -> None:
    """Makes what a job asks of each of its ranks on its own. Raises whatever one of them raises: then that rank cannot
    be one of the job, and the others can."""
    profile.of(digest)
