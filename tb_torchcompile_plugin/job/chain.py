"""All ranks of a job replayed by their digests: each does what it did between two collectives, and each collective goes
on when the last of its ranks has come.

Coarser than the models of traces: what a rank did before a collective is one length. Nothing else is needed to tell
what the others would gain if a rank came as early as its peers, and thousands of ranks take a second.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tb_torchcompile_plugin.job.calls import calls
from tb_torchcompile_plugin.job.instances import Instances, holding, instances
from tb_torchcompile_plugin.job.job import Job
from tb_torchcompile_plugin.job.late import Late, late
from tb_torchcompile_plugin.job.waits import waits
from tb_torchcompile_plugin.profile.intervals import Int64s


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
