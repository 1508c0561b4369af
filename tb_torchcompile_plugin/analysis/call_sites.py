"""Which line of Python made a call? From the stacks that `with_stack` records.

The innermost function around it that is neither torch's own nor generated. Backward runs on a thread of the engine,
without a stack: there it is the call site of the forward operator with the same sequence number.
"""

from __future__ import annotations

import re

import numpy as np

from tb_torchcompile_plugin.analysis.columns import distinct
from tb_torchcompile_plugin.analysis.host_tree import HostTree
from tb_torchcompile_plugin.analysis.intervals import Int64s
from tb_torchcompile_plugin.reader.kineto import Trace

FUNCTION = re.compile(r"^(?P<file>.+)\((?P<line>\d+)\): (?P<name>.+)$")
_NOT_THE_USERS = re.compile(
    r"^<|(?:^|site-packages/)(?:torch|triton|functorch)/|"
    r"(?:^|python3\.\d+/)(?:contextlib|functools|threading|typing|concurrent/futures/\w+)\.py\(|"
    r"/[a-z0-9]{2}/c[a-z2-7]{51}\.py\("  # what inductor wrote
)


def is_users(name: str) -> bool:
    """Whether a Python function, as the profiler names it, is neither torch's, nor generated, nor built in."""
    return FUNCTION.match(name) is not None and not _NOT_THE_USERS.search(name)


def call_sites(trace: Trace, tree: HostTree) -> Int64s:
    """For each position of the tree the code of the name of its call site, -1 where no stack tells."""
    users = np.array([is_users(name) for name in trace.names], bool)[trace.name[tree.index]] & tree.python
    everything = np.arange(len(tree.index))
    site = tree.nearest(everything, users)
    lost = np.flatnonzero((site < 0) & ~tree.python)
    forward = forwards(trace, tree)
    backward = tree.nearest(lost, forward >= 0)
    site[lost] = np.append(site, -1)[np.append(forward, -1)[backward]]
    return np.where(site >= 0, trace.name[tree.index[site]], -1)


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
    found = np.full(len(tree.index), -1, np.int64)
    backward = np.flatnonzero((sequence >= 0) & (thread > 0))
    at = np.minimum(np.searchsorted(numbers, sequence[backward]), len(numbers) - 1)
    if len(numbers):
        found[backward] = np.where(numbers[at] == sequence[backward], by_time[first[at]], -1)
    return found
