"""Which of many ranks are slow, and which hosts? Those that take far longer between collectives than most ranks do.

Several may be at once, so each is held against the ranks in the middle and not against the sum of all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from tb_torchcompile_plugin.job.beyond import beyond, beyond_of
from tb_torchcompile_plugin.job.chain import chain, saved_ns
from tb_torchcompile_plugin.job.instances import anchors
from tb_torchcompile_plugin.job.job import Job
from tb_torchcompile_plugin.job.late import Late, late_there
from tb_torchcompile_plugin.job.links import SlowLink, longer
from tb_torchcompile_plugin.job.waits import waits
from tb_torchcompile_plugin.profile.intervals import Int64s

_DEVIATIONS = 8.0  # from the rank in the middle, as many times as ranks differ anyway
_NORMAL = 1.4826  # what the median of distances is to be multiplied by to be a standard deviation
_LEAST = 0.01  # of what is compared: less is nobody's concern
_WHY = 32  # calls of which it is told why a rank is late


class Slow(NamedTuple):
    """A rank that is slow, or several of a host. places: the slowest first. ns: by how much that one is, in all that
    was recorded."""

    places: list[int]
    host: str | None
    ns: int


def slow(job: Job) -> list[Slow]:
    """Slowest first. A host is where more than half of its ranks are, and it is not the only one."""
    total = job.of(beyond_of)
    far = _far(total, job.of(compared_ns))
    hosts = _hosts(job)
    of_hosts: dict[int, Slow] = {}
    for host, places in hosts.items() if len(hosts) > 1 else ():
        mine = places[far[places]]
        if len(mine) > 1 and 2 * len(mine) > len(places):
            of_hosts |= dict.fromkeys(mine.tolist(), _slow(mine, host, total))
    alone = [
        _slow(np.array([place]), None, total)
        for place in np.flatnonzero(far).tolist()
        if place not in of_hosts
    ]
    return sorted([*{one.host: one for one in of_hosts.values()}.values(), *alone], key=lambda one: -one.ns)


def _slow(places: Int64s, host: str | None, total: Int64s) -> Slow:
    places = places[np.argsort(-total[places], kind="stable")]
    return Slow(places.tolist(), host, int(total[places[0]]))


def _far(total: Int64s, length: int) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    middle = np.median(total)
    usual = _DEVIATIONS * _NORMAL * np.median(np.abs(total - middle))
    return np.asarray(total - middle > max(usual, _LEAST * length))


def _hosts(job: Job) -> dict[str, Int64s]:
    """The places of the ranks of each, where all tell theirs."""
    names = [one.host for one in job.digests]
    known = [name for name in names if name is not None]
    if len(known) < len(names):
        return {}
    hosts, code = np.unique(np.array(known), return_inverse=True)
    order = np.argsort(code, kind="stable")
    return dict(zip(hosts.tolist(), np.split(order, np.searchsorted(code[order], np.arange(1, len(hosts))))))


def hosts_of(job: Job, places: Sequence[int]) -> list[str]:
    """The hosts whose ranks these are, all of each; [] where they are not whole hosts."""
    mine = set(places)
    hosts = {name: set(its.tolist()) for name, its in _hosts(job).items() if mine & set(its.tolist())}
    return list(hosts) if all(its <= mine for its in hosts.values()) else []


def compared_ns(job: Job) -> int:
    """To the end of the last collective: from the first begin of one, or, where no first call is compared, from when
    all ranks had come to theirs."""
    held, times = job.of(chain), job.of(waits)
    first = held.first[:-1][held.first[:-1] < held.first[1:]]
    if not len(first):
        return 0
    begin = times.begin[held.row[first]]
    return int(times.end[held.row].max() - (begin.min() if job.of(anchors) else begin.max()))


def why_slow(job: Job, place: int) -> list[Late]:
    """What a rank did beyond the peers in the middle where it took longest, in order of time."""
    held, known = job.of(chain), job.of(beyond)
    mine = slice(int(held.first[place]), int(held.first[place + 1]))
    most = np.argsort(-known.ns[mine], kind="stable")[:_WHY] + mine.start
    made = (
        late_there(job, int(held.row[at]), int(held.row[known.peer[at]]), int(known.ns[at]))
        for at in np.sort(most[known.ns[most] > 0]).tolist()
    )
    return [one for one in made if one is not None]


def explained(ones: list[Late]) -> float:
    """Which share of the lateness is known to be of the rank's own doing: it need not cost what a rank is behind whose
    peers run ahead."""
    lateness = sum(one.lateness for one in ones)
    return sum(min(max(one.excess, 0), one.lateness) for one in ones) / lateness if lateness else 0.0


def saved_without(job: Job, shares: Mapping[int, float], links: list[SlowLink]) -> float:
    """By which share a step of the job is shorter without such a share of what these ranks, by place, take beyond their
    peers, and with these links as fast as others."""
    held = job.of(chain)
    share = np.array([shares.get(place, 0.0) for place in range(len(job.digests))])
    gap = held.gap - (job.of(beyond).ns * share[held.place]).astype(np.int64)
    return saved_ns(job, held._replace(gap=gap, tail=held.tail - longer(job, links))) / max(
        job.of(compared_ns), 1
    )
