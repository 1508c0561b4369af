"""Launches that inductor would make one graph of: its kernels are fused, and one launch follows the other."""

from __future__ import annotations

import numpy as np

from tb_torchcompile_plugin.analysis.what_if.change import (
    Bools,
    Change,
    at_once,
    both,
    fused,
    no_longer,
    without_host_time,
)
from tb_torchcompile_plugin.analysis.what_if.fix import are_kernels, work_named
from tb_torchcompile_plugin.profile.columns import place_mask
from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.profile.model.gpu_queue import gpu_queue
from tb_torchcompile_plugin.profile.model.launch_sequence import host_pieces
from tb_torchcompile_plugin.profile.model.model import CALL_NS, model, summed
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.torch_names.operators import is_fusible

CALL_OF_GRAPH_NS = 20_000  # of calling the graph that stands for a run of eager operators
_USUAL_NS = 50_000  # of the host between two launches: what takes longer is no dispatching


def compiled_whole(profile: Profile, mine: Bools) -> Change:
    """Each run of these points as one graph, with its copies and fills."""
    fusible = profile.of(fusible_work) | ~profile.of(are_kernels)
    return as_one_graph(profile, mine, fusible, call_ns=CALL_OF_GRAPH_NS)


def fusible_work(profile: Profile) -> Bools:
    """Whether each work of the queue is a kernel of ATen's that inductor would fuse."""
    return work_named(profile, is_fusible)


def as_one_graph(
    profile: Profile,
    mine: Bools,
    fusible: Bools,
    rest: float = 0.0,
    call_ns: int | None = None,
    as_before: bool = False,
) -> Change:
    """Each run of these points as a graph. fusible: whether each work of the queue can be fused with what is before and
    behind it. rest: share of the kernels of a run that is left beside the longest. call_ns: of calling the graph of a
    run; None where a run is part of a graph that runs anyway. as_before: whether launches that are left take the host
    as long as they do now, else as long as a call."""
    queue, pieces = profile.of(gpu_queue), profile.of(host_pieces)
    if call_ns is not None:
        mine = _worth_a_call(profile, mine, call_ns)
    first = mine & ~np.concatenate(([False], mine[:-1]))
    places, longest = _fusible_runs(profile, mine[queue.point] & fusible)
    dur = np.where(longest > 0, longest + (rest * (queue.dur[places] - longest)).astype(np.int64), 0)
    gone = place_mask(queue.point[places[longest == 0]], len(mine))
    called = first if call_ns is not None else np.zeros(len(mine), bool)
    quicker = mine & ~first & (gone | (not as_before))
    led = np.isin(pieces.point, np.flatnonzero(quicker))
    return both(
        without_host_time(np.where(led, np.minimum(pieces.ns, _USUAL_NS), 0)),
        at_once(mine & gone & ~first, called, call_ns or 0),
        no_longer(quicker & ~gone, CALL_NS),
        fused(places, dur),
    )


def _fusible_runs(profile: Profile, fusible: Bools) -> tuple[Int64s, Int64s]:
    """Places in the queue of kernels that could be fused, and for the first of each run of them the time of the longest
    (ns); 0 for the others."""
    queue = profile.of(gpu_queue)
    order = np.argsort(queue.stream, kind="stable")
    mine = fusible[order]
    other_stream = np.diff(queue.stream[order], prepend=-1) != 0
    leads = mine & (other_stream | ~np.concatenate(([False], mine[:-1])))
    places, run = order[mine], np.cumsum(leads)[mine] - 1
    longest = np.zeros(int(leads.sum()), np.int64)
    np.maximum.at(longest, run, queue.dur[places])
    return places, np.where(leads[mine], longest[run], 0)


def _worth_a_call(profile: Profile, mine: Bools, call_ns: int) -> Bools:
    """Without the runs that take the host no longer than a call of their graph would."""
    pieces = profile.of(host_pieces)
    begins = mine & ~np.concatenate(([False], mine[:-1]))
    leading = np.where(begins, 0, summed(pieces.point, pieces.ns, len(mine)))
    run = np.cumsum(begins)  # 0 before the first
    taken = np.bincount(run, mine * (leading + profile.of(model).own))
    return np.asarray(mine & (taken[run] > call_ns))
