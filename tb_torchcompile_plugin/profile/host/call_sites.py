"""Which line of Python made a call? From the stacks that `with_stack` records.

The innermost function of the user's around it. Backward runs on a thread of the engine,
without a stack: there it is the call site of the forward operator with the same sequence number.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tb_torchcompile_plugin.profile.columns import distinct, picked, sums
from tb_torchcompile_plugin.profile.host.host_tree import (
    HostTree,
    calling_tracks,
    host_tree,
)
from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.slices import mask_of
from tb_torchcompile_plugin.reader.trace.kineto import Trace
from tb_torchcompile_plugin.reader.trace.nest import climb
from tb_torchcompile_plugin.torch_names.python_frames import is_programs, is_users
from tb_torchcompile_plugin.torch_names.slices import PYTHON_FUNCTION


def call_sites(trace: Trace, tree: HostTree, is_site: Callable[[str], bool] = is_users) -> Int64s:
    """For each position of the tree the code of the name of its call site, -1 where no stack tells. is_site: which
    functions, by their names, are one."""
    users = mask_of(trace.names, is_site)[trace.name[tree.index]] & tree.python
    everything = np.arange(len(tree.index), dtype=tree.index.dtype)
    site = tree.nearest(everything, users)
    lost = np.flatnonzero((site < 0) & ~tree.python)
    forward = forwards(trace, tree)
    backward = tree.nearest(lost, forward >= 0)
    site[lost] = picked(site, picked(forward, backward))
    return picked(trace.name, picked(tree.index, site))


def site_names(profile: Profile) -> Int64s:
    """The call sites of a profile's host tree."""
    return call_sites(profile.trace, profile.of(host_tree))


def site_ns(profile: Profile) -> Int64s:
    """For each name of the trace the host time in which it was the innermost function of the user's, and that of the
    backward of what it called (ns). Of threads that called operators: others mostly wait."""
    return _sums(profile, is_users, profile.of(site_names))


def program_ns(profile: Profile) -> Int64s:
    """The same of the functions of the program itself: what it calls of frameworks is part of them."""
    of_calls = call_sites(profile.trace, profile.of(host_tree), is_programs)
    return _sums(profile, is_programs, of_calls)


def _sums(profile: Profile, is_site: Callable[[str], bool], of_calls: Int64s) -> Int64s:
    """By the innermost slice at each moment; where no function is around it, by the call site of its forward.
    of_calls: see `call_sites`."""
    trace, tree = profile.trace, profile.of(host_tree)
    wanted = (
        mask_of(trace.names, is_site)[trace.name] & mask_of(trace.cats, PYTHON_FUNCTION.__eq__)[trace.cat]
    )
    site = picked(trace.name, climb(trace.parent, np.arange(len(trace), dtype=trace.parent.dtype), wanted))
    backward = np.flatnonzero(site < 0)
    site[backward] = picked(of_calls, tree.place[backward])
    site[~profile.of(calling_tracks)[trace.track]] = -1
    return sums(site, trace.self_ns, len(trace.names))


def forwards(trace: Trace, tree: HostTree) -> Int64s:
    """For each backward call the position of its forward: the first call with its sequence number, else -1.

    Numbers count per thread; one that two threads have counted to tells nothing.
    """
    sequence, thread = trace.sequence[tree.index], trace.forward_thread[tree.index]
    forward = np.flatnonzero((sequence >= 0) & (thread <= 0))
    by_time = forward[np.argsort(trace.ts[tree.index[forward]], kind="stable")]
    numbers, first = np.unique(sequence[by_time], return_index=True)
    tracks = trace.track[tree.index[by_time]]
    if len(np.unique(tracks)) > 1:
        pairs, _ = distinct(sequence[by_time], tracks)
        once = np.unique(pairs[0], return_counts=True)[1] == 1
        numbers, first = numbers[once], first[once]
    rows = np.full_like(tree.index, -1)
    backward = np.flatnonzero((sequence >= 0) & (thread > 0))
    at = np.minimum(np.searchsorted(numbers, sequence[backward]), len(numbers) - 1)
    if len(numbers):
        rows[backward] = np.where(numbers[at] == sequence[backward], by_time[first[at]], -1)
    return rows
