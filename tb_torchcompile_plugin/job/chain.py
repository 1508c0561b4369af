"""All ranks of a job replayed by their digests: each does what it did between two collectives, and each collective goes
on when the last of its ranks has come.

Coarser than the models of traces: what a rank did before a collective is one length. Nothing else is needed to tell
what the others would gain if a rank came as early as its peers, and thousands of ranks take a second.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from tb_torchcompile_plugin.job.clocks import medians
from tb_torchcompile_plugin.job.digest.rank_calls import Kind
from tb_torchcompile_plugin.job.instances import (
    Instances,
    anchors,
    calls,
    holding,
    instances,
    numbered,
    senders,
)
from tb_torchcompile_plugin.job.job import Job
from tb_torchcompile_plugin.job.late import Late, late, late_there
from tb_torchcompile_plugin.job.waits import all_here, waits
from tb_torchcompile_plugin.profile.columns import alike, distinct, sums
from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.reader.arrays import grouped


class Chain(NamedTuple):
    """Calls of the collectives that hold all, rank by rank in order of time, as columns. place: of the rank; instance:
    numbered from 0. gap: since the rank's call before ended; tail: from when all had come to its end (ns). row: in
    `calls`. first: of each rank in these columns, and their end."""

    row: Int64s
    place: Int64s
    instance: Int64s
    gap: Int64s
    tail: Int64s
    first: Int64s


def chain(job: Job) -> Chain:
    """As recorded."""
    known, times = job.of(instances), job.of(waits)
    some = known.where(job.of(holding))
    order = np.lexsort((times.begin[some.rows], job.of(calls).place[some.rows]))
    row, instance = some.rows[order], some.number[order]
    place, begin, end = job.of(calls).place[row], times.begin[row], times.end[row]
    is_first = np.diff(place, prepend=-1) > 0
    gap = np.where(is_first, begin, begin - np.roll(end, 1))
    first = np.searchsorted(place, np.arange(len(job.digests) + 1))
    return Chain(row, place, instance, gap, end - _latest(some, times.begin)[instance], first)


def _latest(some: Instances, begin: Int64s) -> Int64s:
    return np.maximum.reduceat(begin[some.rows], some.first) if len(some) else some.first


def ends(held: Chain) -> Int64s:
    """When each rank is done with its last call (ns). Ranks that wait for each other in a circle, as calls of two
    streams may seem to, go on in the order in which they were recorded."""
    ranks, count = len(held.first) - 1, int(held.instance.max(initial=-1)) + 1
    left = np.bincount(held.instance, minlength=count)
    latest = np.full(count, np.iinfo(np.int64).min)
    at, now = held.first[:-1].copy(), np.zeros(ranks, np.int64)
    came = np.zeros(ranks, bool)
    while (able := np.flatnonzero(at < held.first[1:])).size:
        coming = able[~came[able]]
        instance = held.instance[at[coming]]
        np.maximum.at(latest, instance, now[coming] + held.gap[at[coming]])
        np.subtract.at(left, instance, 1)
        came[coming] = True
        ready = able[left[held.instance[at[able]]] == 0]
        if not len(ready):
            stuck = int(held.instance[at[able]].min())
            ready = able[held.instance[at[able]] == stuck]
        now[ready] = latest[held.instance[at[ready]]] + held.tail[at[ready]]
        came[ready] = False
        at[ready] += 1
    return now


def saved_share(job: Job, places: list[int]) -> float:
    """By which share of its length a step of the job is shorter if these ranks do nothing beyond their peers."""
    held = job.of(chain)
    if not len(held.row):
        return 0.0
    length = int(job.of(_as_recorded).max() - job.of(waits).begin[held.row].min())
    return saved_ns(job, held._replace(gap=_left(job, held, places))) / max(length, 1)


def saved_ns(job: Job, other: Chain) -> float:
    """How much sooner the ranks are done with another chain of the same calls."""
    before, after = job.of(_as_recorded), ends(other)
    return max(float(np.median(before - after)), 0.0)


def _as_recorded(job: Job) -> Int64s:
    return ends(job.of(chain))


def _left(job: Job, held: Chain, places: list[int]) -> Int64s:
    """What is left of each gap of these ranks without what they do beyond their peers."""
    made, left = job.of(calls), np.array(held.gap)
    base = np.array([one.base_ns for one in job.digests], np.int64)
    launch = made.launch[held.row] - base[held.place]
    for one in (one for one in job.of(late) if one.place in places):
        mine = np.arange(held.first[one.place], held.first[one.place + 1])
        mine = mine[(launch[mine] > one.begin) & (launch[mine] <= one.end)]
        _cut(left, mine, min(_gone(one, len(job.digests)), one.lateness))
    return left


def _cut(left: Int64s, mine: Int64s, ns: int) -> None:
    """Takes it from the longest of these gaps first."""
    for call in mine[np.argsort(-left[mine], kind="stable")].tolist():
        part = min(max(ns, 0), max(int(left[call]), 0))
        left[call] -= part
        ns -= part


def _gone(one: Late, ranks: int) -> int:
    """More work than others have does not vanish: it is shared among all."""
    more = sum(ns for blamed, ns in one.parts.items() if blamed.cause == "more_work")
    return one.excess - max(more, 0) // ranks


# How much longer than its peers does each rank take before each collective? Of all ranks, by columns alone.
# What counts is the time since the rank's collective before: whoever had to wait in that one is not late by
# it. Peers are those that run the same collectives in the same order; they need not meet: all ranks of one
# host may be equally late when they meet each other.


_PEERS = 3  # that run the same collectives: of fewer those that meet are compared


class Beyond(NamedTuple):
    """By call of `chain`: how much longer than the peer in the middle its rank took since its call before (ns, 0 for a
    rank that did not). peer: the place of that one's call in `chain`."""

    ns: Int64s
    peer: Int64s


def beyond(job: Job) -> Beyond:
    """The first call of a rank counts from the first step that all have to its launch, as when the GPU's time before it
    began is not known; where that is not known either, it is compared with nothing."""
    held = job.of(chain)
    is_first = np.isin(np.arange(len(held.row)), held.first[:-1])
    gap = np.where(is_first, _launched(job, held), held.gap)
    _, key = distinct(*_alike(job, held), is_first.astype(np.int64))
    order = np.lexsort((gap, key))
    first = np.flatnonzero(np.diff(key[order], prepend=-1))
    count = np.diff(np.append(first, len(order)))
    peer = order[first + (count - 1) // 2][key] if len(order) else order
    return Beyond(np.maximum(gap - gap[peer], 0), peer)


def _launched(job: Job, held: Chain) -> Int64s:
    """How long after the begin of the first step that all ranks have each call was launched (ns); 0 where that is not
    known."""
    begin, launch = job.of(anchors), job.of(calls).launch[held.row]
    if not begin:
        return np.zeros_like(launch)
    since = launch - np.array(begin, np.int64)[held.place]
    return np.where(launch >= 0, np.maximum(since, 0), 0)


def _alike(job: Job, held: Chain) -> tuple[Int64s, Int64s]:
    """What calls have in common that are compared: the ranks that run the same ones, and their number on the rank; or
    the instance, by numbers below 0."""
    ranks = len(held.first) - 1
    kinds = job.of(calls).kinds
    shapes = numbered((one.operation, one.dtype, one.message_bytes, one.group_size) for one in kinds)
    shape = shapes[job.of(calls).kind[held.row]]
    runs = numbered(
        shape[begin:end].tobytes() for begin, end in zip(held.first[:-1].tolist(), held.first[1:].tolist())
    )
    many = np.bincount(runs)[runs][:ranks] >= _PEERS
    here = many[held.place] if len(held.row) else np.zeros(0, bool)
    number = np.arange(len(held.row)) - held.first[held.place]
    return np.where(here, runs[held.place], -1), np.where(here, number, held.instance)


def beyond_of(job: Job) -> Int64s:
    """By place the sum of it."""
    return sums(job.of(chain).place, job.of(beyond).ns, len(job.digests))


# Which process groups are slow? Those whose transfers take far longer than the same ones of other groups
# do. Transfers alone count, never waiting: of a collective the shortest among its ranks.


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


# Which of many ranks are slow, and which hosts? Those that take far longer between collectives than most
# ranks do. Several may be at once, so each is held against the ranks in the middle and not against the sum
# of all.


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
