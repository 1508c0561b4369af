"""Which process groups are slow? Those whose transfers take far longer than the same ones of other groups do.

Transfers alone count, never waiting: of a collective the shortest among its ranks.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tb_torchcompile_plugin.job.calls import calls, numbered
from tb_torchcompile_plugin.job.chain import chain
from tb_torchcompile_plugin.job.clocks import medians
from tb_torchcompile_plugin.job.digest.rank_calls import Kind
from tb_torchcompile_plugin.job.instances import instances, senders
from tb_torchcompile_plugin.job.job import Job
from tb_torchcompile_plugin.job.waits import all_here, waits
from tb_torchcompile_plugin.profile.columns import alike, distinct, sums
from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.reader.arrays import grouped

_LIKES = 3  # groups that do the same, from which on one can be slow
_TIMES = 1.5  # as long as usual


class SlowLink(NamedTuple):
    """A process group that is slow, or two ranks that send to each other; groups between the same hosts are one link.
    kind: what loses most in it; ns, usual_ns: how long that takes here, and elsewhere. places: of its ranks. hosts:
    between which it is, [] where nothing tells. groups: how many. instances: which are slow, excess_ns: of the slowest
    group, in all."""

    kind: Kind
    places: list[int]
    hosts: list[str]
    groups: int
    ns: int
    usual_ns: int
    instances: Int64s
    excess_ns: int


class _OfGroups(NamedTuple):
    """Instances of which all ranks are here. shape: what it is and how much; link: whose; ns: how long it takes, usual:
    how long in the middle of the groups that do the same, where there are enough of them."""

    number: Int64s
    shape: Int64s
    link: Int64s
    ns: Int64s
    usual: Int64s


def slow_links(job: Job) -> list[SlowLink]:
    """Most excess first."""
    known = job.of(_of_groups)
    far = known.ns >= _TIMES * known.usual
    pairs, pair = distinct(known.link, known.shape)
    often = medians(pair, far.astype(np.int64), pairs.shape[1])[pair] > 0
    slow = far & often & (known.usual > 0)
    links = [_link(job, known, rows) for rows in alike(np.flatnonzero(slow), known.link)]
    together = grouped(links, lambda one: (*one.hosts,) if one.hosts else str(one.places)).values()
    return sorted(map(_as_one, together), key=lambda one: -one.excess_ns)


def _as_one(links: list[SlowLink]) -> SlowLink:
    """Those between the same hosts."""
    worst = max(links, key=lambda one: one.excess_ns)
    return worst._replace(
        places=sorted({place for one in links for place in one.places}),
        groups=len(links),
        instances=np.concatenate([one.instances for one in links]),
    )


def _link(job: Job, known: _OfGroups, rows: Int64s) -> SlowLink:
    excess = known.ns[rows] - known.usual[rows]
    of_shape = sums(known.shape[rows], excess, int(known.shape.max()) + 1)
    mine = rows[known.shape[rows] == of_shape.argmax()]
    members, made = job.of(instances).some(known.number[mine[:1]]).rows, job.of(calls)
    places = np.sort(made.place[members]).tolist()
    hosts = {job.digests[place].host for place in places}
    return SlowLink(
        kind=made.kind_of(members[0]),
        places=places,
        hosts=sorted(host for host in hosts if host) if None not in hosts and len(hosts) > 1 else [],
        groups=1,
        ns=int(np.median(known.ns[mine])),
        usual_ns=int(known.usual[mine[0]]),
        instances=known.number[rows],
        excess_ns=int(excess.sum()),
    )


def _of_groups(job: Job) -> _OfGroups:
    made, every = job.of(calls), job.of(instances)
    if not len(every):
        return _OfGroups(*np.zeros((5, 0), np.int64))
    number = np.flatnonzero(job.of(all_here))
    row, paired = every.rows[every.first[number]], job.of(senders)[number] >= 0
    kind, last = made.kind[row], every.rows[every.first[number] + every.sizes[number] - 1]
    shape = numbered((one.what, one.dtype, one.message_bytes, one.group_size) for one in made.kinds)[kind]
    pair = np.where(paired, made.place[row] * len(job.digests) + made.place[last], -1)
    _, link = distinct(numbered(one.group for one in made.kinds)[kind], pair)
    ns = np.minimum.reduceat(job.of(waits).transfer[every.rows], every.first)[number]
    return _OfGroups(number, shape, link, ns, _usual(shape, link, ns))


def _usual(shape: Int64s, link: Int64s, ns: Int64s) -> Int64s:
    """The median of the medians of all links of a shape."""
    pairs, pair = distinct(shape, link)
    of_link = medians(pair, ns, pairs.shape[1])
    count = int(shape.max(initial=-1)) + 1
    links = np.bincount(pairs[0], minlength=count)
    return np.where(links >= _LIKES, medians(pairs[0], of_link, count), 0)[shape]


def longer(job: Job, links: list[SlowLink]) -> Int64s:
    """By call of `chain`, how much longer these links take (ns)."""
    known, held = job.of(_of_groups), job.of(chain)
    usual, slow = np.ones(len(job.of(instances))), np.zeros(len(job.of(instances)), bool)
    usual[known.number] = known.usual / np.maximum(known.ns, 1)
    for one in links:
        slow[one.instances] = True
    instance = job.of(instances).of_call[held.row]
    share = np.where(slow[instance], 1 - usual[instance], 0.0)
    return (held.tail * share).astype(np.int64)
