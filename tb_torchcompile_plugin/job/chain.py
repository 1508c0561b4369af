"""Which ranks, hosts and links of a job are slow, and what do they cost? By the digests of all ranks alone.

All ranks are replayed together: each does what it did between two collectives, and each collective goes on when the
last of its ranks has come. That is coarser than the models of traces, as what a rank did before a collective is one
length, but it is enough for what the others would gain if a rank came as early as its peers, and thousands of ranks
take a second.
"""

from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np

from tb_torchcompile_plugin.job.digest.rank_calls import Kind, numbered
from tb_torchcompile_plugin.job.instances import (
    calls,
    holds_all_ranks,
    instances,
    is_complete,
    medians,
    senders,
    waits,
)
from tb_torchcompile_plugin.job.job import Job
from tb_torchcompile_plugin.job.late import Late, early_ranks, late
from tb_torchcompile_plugin.profile.columns import (
    NORMAL_DEVIATIONS,
    Int64s,
    Mask,
    distinct,
    groups_of_equal,
    mask_at,
    sums,
)
from tb_torchcompile_plugin.reader.arrays import grouped
from tb_torchcompile_plugin.torch_names.collectives import PAIRED

_LIKES = 3  # groups that do the same: of fewer none can be called slow
_SLOW_LINK = 1.5  # times as long as usual; chosen by eye on the recordings
_DEVIATIONS = 8.0  # standard deviations from the rank in the middle; chosen by eye on the recordings
_LEAST = 0.01  # share of what is compared: less is not worth a report


class Chain(NamedTuple):
    """Calls of the collectives that hold all, rank by rank in order of time, as columns."""

    row: Int64s  # of `calls`
    rank_index: Int64s  # index of the rank
    instance: Int64s  # numbered from 0
    gap: Int64s  # since the rank's call before ended (ns)
    tail: Int64s  # from when all had come to its end (ns)
    first: Int64s  # of each rank in these columns, and their end


def chain(job: Job) -> Chain:
    """Return the calls as recorded."""
    calls_, times = job.of(calls), job.of(waits)
    instances_ = job.of(instances).where(job.of(holds_all_ranks))
    order = np.lexsort((times.begin[instances_.rows], calls_.rank_index[instances_.rows]))
    row, instance = instances_.rows[order], instances_.number[order]
    rank_index, begin, end = calls_.rank_index[row], times.begin[row], times.end[row]
    is_first = np.diff(rank_index, prepend=-1) > 0
    gap = np.where(is_first, begin, begin - np.roll(end, 1))
    latest = instances_.largest(times.begin)
    first = np.searchsorted(rank_index, np.arange(len(job.digests) + 1))
    return Chain(row, rank_index, instance, gap, end - latest[instance], first)


def ends(calls_: Chain) -> Int64s:
    """Return when each rank is done with its last call (ns).

    Ranks that wait for each other in a circle, as calls of two streams may seem to, go on in the recorded order.
    """
    ranks, count = len(calls_.first) - 1, int(calls_.instance.max(initial=-1)) + 1
    left = np.bincount(calls_.instance, minlength=count)
    latest = np.full(count, np.iinfo(np.int64).min)
    at, now = calls_.first[:-1].copy(), np.zeros(ranks, np.int64)
    has_come = np.zeros(ranks, bool)
    while (able := np.flatnonzero(at < calls_.first[1:])).size:
        coming = able[~has_come[able]]
        instance = calls_.instance[at[coming]]
        np.maximum.at(latest, instance, now[coming] + calls_.gap[at[coming]])
        np.subtract.at(left, instance, 1)
        has_come[coming] = True
        ready = able[left[calls_.instance[at[able]]] == 0]
        if not len(ready):
            stuck = int(calls_.instance[at[able]].min())
            ready = able[calls_.instance[at[able]] == stuck]
        now[ready] = latest[calls_.instance[at[ready]]] + calls_.tail[at[ready]]
        has_come[ready] = False
        at[ready] += 1
    return now


def own_excess(job: Job) -> Int64s:
    """Return by call of `chain` how much of its gap is what its rank did beyond its peers (ns)."""
    calls_, excess = job.of(chain), np.zeros(len(job.of(chain).row), np.int64)
    base = np.array([digest.base_ns for digest in job.digests], np.int64)
    launch = job.of(calls).launch[calls_.row] - base[calls_.rank_index]
    for row in job.of(late):
        rows = np.arange(calls_.first[row.rank_index], calls_.first[row.rank_index + 1])
        rows = rows[(launch[rows] > row.begin) & (launch[rows] <= row.end)]
        # More work than others have does not vanish: it is shared among all.
        more = sum(ns for blamed, ns in row.parts.items() if blamed.cause == "more_work")
        ns = min(row.excess - max(more, 0) * row.together // len(job.digests), row.lateness)
        for call in rows[np.argsort(excess[rows] - calls_.gap[rows], kind="stable")].tolist():
            part = min(max(ns, 0), max(int(calls_.gap[call] - excess[call]), 0))
            excess[call] += part
            ns -= part
    return excess


def saved_share(job: Job, rank_indices: Collection[int], links: Sequence["SlowLink"] = ()) -> float:
    """Return by which share the job is shorter if these ranks do nothing beyond their peers.

    links: they are as fast as others, too.
    """
    calls_ = job.of(chain)
    if not len(calls_.row):
        return 0.0
    is_fixed = np.isin(calls_.rank_index, list(rank_indices))
    gap = calls_.gap - np.where(is_fixed, job.of(own_excess), 0)
    tail = calls_.tail - _longer(job, calls_, links)
    saved = np.median(job.of(_recorded_ends) - ends(calls_._replace(gap=gap, tail=tail)))
    return max(float(saved), 0.0) / job.of(recorded_ns)


def _longer(job: Job, calls_: Chain, links: Sequence["SlowLink"]) -> Int64s:
    """Return by call how much longer its transfer takes in a slow link than elsewhere."""
    groups, count = job.of(_of_groups), len(job.of(instances))
    share = np.zeros(count)
    share[groups.number] = 1 - groups.usual / np.maximum(groups.ns, 1)
    is_slow = mask_at(np.concatenate([np.zeros(0, np.int64), *(link.instances for link in links)]), count)
    instance = job.of(instances).of_call[calls_.row]
    return (calls_.tail * (share * is_slow)[instance]).astype(np.int64)


def _recorded_ends(job: Job) -> Int64s:
    return ends(job.of(chain))


def recorded_ns(job: Job) -> int:
    """Return how long these calls take, from the begin of the first one on; 1 without any."""
    begin = job.of(waits).begin[job.of(chain).row]
    return max(int(job.of(_recorded_ends).max() - begin.min()), 1) if len(begin) else 1


class SlowLink(NamedTuple):
    """A slow process group, or two ranks that send to each other; groups between the same hosts are one link.

    Only transfers count, never waiting: of a collective the shortest among its ranks.
    """

    kind: Kind  # what loses most in it
    rank_indices: list[int]  # indices of its ranks
    hosts: list[str]  # between which it is, [] where unknown
    groups: int
    ns: int  # how long `kind` takes in it
    usual_ns: int  # and in other groups
    instances: Int64s  # which are slow
    excess_ns: int  # of the slowest group, in all


class _OfGroups(NamedTuple):
    """Instances of which all ranks were read, as columns."""

    number: Int64s
    shape: Int64s  # what it is and how much
    link: Int64s  # whose it is
    ns: Int64s
    usual: Int64s  # in the middle of the groups that do the same; 0 where these are too few


def slow_links(job: Job) -> list[SlowLink]:
    """Return links whose transfers take far longer than the same ones of others, most excess first."""
    groups = job.of(_of_groups)
    is_far = groups.ns >= _SLOW_LINK * groups.usual
    pairs, pair = distinct(groups.link, groups.shape)
    is_often = medians(pair, is_far.astype(np.int64), pairs.shape[1])[pair] > 0
    slow_rows = np.flatnonzero(is_far & is_often & (groups.usual > 0))
    links = [_link(job, groups, rows) for rows in groups_of_equal(slow_rows, groups.link)]
    joined = []
    for same in grouped(
        links, lambda link: (*link.hosts,) if link.hosts else str(link.rank_indices)
    ).values():
        worst = max(same, key=lambda link: link.excess_ns)
        rank_indices = sorted({rank_index for link in same for rank_index in link.rank_indices})
        slow_instances = np.concatenate([link.instances for link in same])
        joined.append(worst._replace(rank_indices=rank_indices, groups=len(same), instances=slow_instances))
    return sorted(joined, key=lambda link: -link.excess_ns)


def _link(job: Job, groups: _OfGroups, rows: Int64s) -> SlowLink:
    excess = groups.ns[rows] - groups.usual[rows]
    of_shape = sums(groups.shape[rows], excess, int(groups.shape.max()) + 1)
    worst = rows[groups.shape[rows] == of_shape.argmax()]
    members, calls_ = job.of(instances).some(groups.number[worst[:1]]).rows, job.of(calls)
    rank_indices = np.sort(calls_.rank_index[members]).tolist()
    hosts = {job.digests[rank_index].host for rank_index in rank_indices}
    return SlowLink(
        kind=calls_.kind_of(members[0]),
        rank_indices=rank_indices,
        hosts=sorted(host for host in hosts if host) if None not in hosts and len(hosts) > 1 else [],
        groups=1,
        ns=int(np.median(groups.ns[worst])),
        usual_ns=int(groups.usual[worst[0]]),
        instances=groups.number[rows],
        excess_ns=int(excess.sum()),
    )


def _of_groups(job: Job) -> _OfGroups:
    calls_, instances_ = job.of(calls), job.of(instances)
    number = np.flatnonzero(job.of(is_complete))
    row, is_pair = instances_.rows[instances_.first[number]], job.of(senders)[number] >= 0
    kind, last = calls_.kind[row], instances_.rows[instances_.first[number] + instances_.sizes[number] - 1]
    kinds = calls_.kinds
    shapes = numbered((kind.what, kind.dtype, kind.message_bytes, kind.group_size) for kind in kinds)
    pair = np.where(is_pair, calls_.rank_index[row] * len(job.digests) + calls_.rank_index[last], -1)
    _, link = distinct(numbered(kind.group for kind in kinds)[kind], pair)
    ns = instances_.smallest(job.of(waits).transfer)[number]
    return _OfGroups(number, shapes[kind], link, ns, _usual(shapes[kind], link, ns))


def _usual(shape: Int64s, link: Int64s, ns: Int64s) -> Int64s:
    """Return the median of the medians of all links of a shape."""
    pairs, pair = distinct(shape, link)
    of_link = medians(pair, ns, pairs.shape[1])
    count = int(shape.max(initial=-1)) + 1
    links = np.bincount(pairs[0], minlength=count)
    return np.where(links >= _LIKES, medians(pairs[0], of_link, count), 0)[shape]


class Slow(NamedTuple):
    """A slow rank, or several that are slow together."""

    rank_indices: list[int]  # indices of ranks, the slowest first
    hosts: list[str]  # whose late ranks they are; [] where others of it are in time, or hosts are unknown
    ns: int  # by how much the first one is slower, in all that was recorded


def slow(job: Job) -> list[Slow]:
    """Return the ranks that take far longer between collectives than most, and their hosts; slowest first.

    Several ranks may be slow at once, so each is compared with the ranks in the middle and not with the sum of all.
    """
    total = sums(job.of(chain).rank_index, job.of(own_excess), len(job.digests))
    early = early_ranks(total)
    # Of two in the middle the earlier one: half of the ranks may be late, as on one of two hosts.
    excess = total - np.percentile(total[early], 50, method="lower")
    usual = _DEVIATIONS * NORMAL_DEVIATIONS * np.percentile(np.abs(excess[early]), 50, method="lower")
    return by_host(job, np.asarray(excess > max(usual, _LEAST * job.of(recorded_ns))), total)


def by_host(job: Job, is_far: Mask, total: Int64s) -> list[Slow]:
    """Return slow ranks, and slow hosts instead of their ranks; slowest first. total: by how much each is slower.

    A host is slow where more than half of its ranks are, two at least, unless all hosts are: they then share no host.
    """
    hosts = grouped(range(len(job.digests)), lambda index: job.digests[index].host or "")
    known = {} if "" in hosts else hosts  # only where all ranks tell theirs
    far = {host: [index for index in indices if is_far[index]] for host, indices in known.items()}
    far = {host: late for host, late in far.items() if len(late) > 1 and 2 * len(late) > len(hosts[host])}
    groups = [(late, [host]) for host, late in far.items()] if len(far) < len(hosts) else []
    of_hosts = {index for late, _ in groups for index in late}
    groups += [([index], []) for index in np.flatnonzero(is_far).tolist() if index not in of_hosts]
    rows = [
        Slow(sorted(late, key=lambda index: -total[index]), names, int(total[late].max()))
        for late, names in groups
    ]
    return sorted(rows, key=lambda row: -row.ns)


def shared_by(job: Job, rank_indices: Sequence[int]) -> str:
    """Return what these ranks and few others are part of: "stage 1 of the pipeline", "process group 3"; "" for none.

    A stage is a position in the groups that hand work on by send and recv.
    """
    stages, sets = defaultdict[int, set[int]](set), dict[str, set[int]]()
    for group, operation in dict.fromkeys((kind.group, kind.operation) for kind in job.of(calls).kinds):
        if group and operation in PAIRED:
            for position, rank in enumerate(group.ranks):
                stages[position].add(rank)
        elif group and len(group.ranks) < len(job.digests):
            sets[f"process group {group.name}"] = set(group.ranks)
    sets = {f"stage {position} of the pipeline": ranks for position, ranks in stages.items()} | sets
    late_ranks = {job.numbers[index] for index in rank_indices}
    shared = (
        name for name, ranks in sets.items() if late_ranks <= ranks and len(ranks) < 2 * len(late_ranks)
    )
    return next(shared, "")


def explained(lates: list[Late]) -> float:
    """Return which share of the lateness is known to be of the rank's own doing.

    The rest need not be: its peers may run ahead.
    """
    lateness = sum(row.lateness for row in lates)
    return sum(min(max(row.excess, 0), row.lateness) for row in lates) / lateness if lateness else 0.0
