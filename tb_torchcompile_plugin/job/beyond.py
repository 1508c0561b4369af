"""How much longer than its peers does each rank take before each collective? Of all ranks, by columns alone.

What counts is the time since the rank's collective before: whoever had to wait in that one is not late by it. Peers are
those that run the same collectives in the same order; they need not meet: all ranks of one host may be equally late
when they meet each other.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tb_torchcompile_plugin.job.calls import calls, numbered
from tb_torchcompile_plugin.job.chain import Chain, chain
from tb_torchcompile_plugin.job.instances import anchors
from tb_torchcompile_plugin.job.job import Job
from tb_torchcompile_plugin.profile.columns import distinct, sums
from tb_torchcompile_plugin.profile.intervals import Int64s

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
