"""What did each call of an operator, label or CUDA function cost in time on host and GPU, and in memory?

Each figure is that of `torch.profiler`'s own events, whose sums `key_averages()` prints.
"""

from collections.abc import Callable

import msgspec
import numpy as np

from tb_torchcompile_plugin.profile.columns import Int64s, distinct, mask_of, sums, values_at
from tb_torchcompile_plugin.profile.gpu_work import gpu_work
from tb_torchcompile_plugin.profile.host.host_tree import HostTree, calling_tracks, host_tree
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.trace.kineto import Trace
from tb_torchcompile_plugin.reader.trace.nest import ancestors_of, first_ancestor
from tb_torchcompile_plugin.reader.trace.table import narrow
from tb_torchcompile_plugin.torch_names.python_frames import is_program_function, is_user_function
from tb_torchcompile_plugin.torch_names.slices import CALL_CATS, PYTHON_FUNCTION

# c10/core/DeviceType.h
CPU_TYPES = (0, 2, 5)  # CPU, MKLDNN, IDEEP
DEVICE_TYPES = (1, 6, 12, 20)  # CUDA, HIP, XPU, PrivateUse1


class OperatorCalls(msgspec.Struct, frozen=True):
    """Calls as parallel columns; the own part of a total is what no other call inside it accounts for.

    Their time on the host is `dur` of the trace and `self_ns` of the tree.
    """

    position: Int64s  # in the host tree
    index: Int64s  # rows of the trace
    device_ns: Int64s
    self_device_ns: Int64s
    cpu_bytes: Int64s  # allocated less freed while it ran, by any thread
    self_cpu_bytes: Int64s
    device_bytes: Int64s
    self_device_bytes: Int64s
    work: Int64s  # for each GPU event the call that it is work of, -1 unknown


def operator_calls(profile: Profile) -> OperatorCalls:
    """Return the calls of all but Python functions."""
    trace, tree, gpu = profile.trace, profile.of(host_tree), profile.of(gpu_work).index
    position = np.flatnonzero(~tree.python)
    number = np.full(len(tree.index) + 1, -1, np.int64)  # the last is read for "none"
    number[position] = np.arange(len(position))
    index = tree.index[position]
    around = number[tree.nearest(tree.parent[position], ~tree.python)]
    own = np.zeros(len(position), np.int64)
    work = number[_callers(trace, tree, gpu)]
    np.add.at(own, work[work >= 0], trace.dur[gpu[work >= 0]])
    # To each call's own time that of all calls inside it.
    total = own.copy()
    busy = np.flatnonzero(own)
    for which, above in ancestors_of(around, around[busy]):
        np.add.at(total, above, own[busy[which]])
    caller = number[tree.parent]
    functions = np.flatnonzero(tree.python & (caller >= 0))
    net = _net_bytes(trace, index, caller[position], tree.index[functions], caller[functions])
    return OperatorCalls(
        position=narrow(position),
        index=index,
        device_ns=total,
        self_device_ns=own,
        cpu_bytes=net[0],
        self_cpu_bytes=net[1],
        device_bytes=net[2],
        self_device_bytes=net[3],
        work=work,
    )


def _callers(trace: Trace, tree: HostTree, gpu: Int64s) -> Int64s:
    """Return for each GPU event the position of the call that it is work of, -1 unknown.

    The External id names it; where there is none, it is the innermost operator or label around the launch.
    """
    named = values_at(tree.place, trace.op_of()[gpu])
    launch = values_at(tree.place, trace.launch_of()[gpu])
    unnamed = named < 0
    is_call = mask_of(trace.cats, CALL_CATS.__contains__)[trace.cat[tree.index]]
    named[unnamed] = tree.nearest(launch[unnamed], is_call)
    return named


def _net_bytes(
    trace: Trace, calls: Int64s, caller: Int64s, functions: Int64s, caller_of_function: Int64s
) -> list[Int64s]:
    """Return the net bytes that were allocated while each call ran, and without those of its children; CPU, then GPU.

    functions: that a call runs. caller: the call that runs each, -1: none.
    """
    memory, events = trace.memory(), []
    for rows in (calls, functions):
        moment = trace.ts[rows]
        begin = narrow(np.searchsorted(memory["ts"], moment))
        moment += trace.dur[rows]
        events.append((begin, narrow(np.searchsorted(memory["ts"], moment, "right"))))
    net: list[Int64s] = []
    for types in (CPU_TYPES, DEVICE_TYPES):
        chosen = np.isin(memory["device_type"], types)
        before = np.append(0, np.cumsum(np.where(chosen, memory["memory_bytes"], 0)))
        total, of_functions = (before[end] - before[begin] for begin, end in events)
        own = total.copy()
        np.subtract.at(own, caller[caller >= 0], total[caller >= 0])
        np.subtract.at(own, caller_of_function, of_functions)
        net += [total, own]
    return net


def call_sites(trace: Trace, tree: HostTree, is_site: Callable[[str], bool] = is_user_function) -> Int64s:
    """Return for each position of the tree the code of the name of its call site, -1 where no stack shows it.

    It is the innermost function of the user's around it, by the stacks that `with_stack` records. Backward runs on a
    thread of the engine, without a stack: there it is the call site of the forward operator with the same sequence
    number. is_site: which functions, by their names, are one.
    """
    users = mask_of(trace.names, is_site)[trace.name[tree.index]] & tree.python
    everything = np.arange(len(tree.index), dtype=tree.index.dtype)
    site = tree.nearest(everything, users)
    lost = np.flatnonzero((site < 0) & ~tree.python)
    forward = forwards(trace, tree)
    backward = tree.nearest(lost, forward >= 0)
    site[lost] = values_at(site, values_at(forward, backward))
    return values_at(trace.name, values_at(tree.index, site))


def site_names(profile: Profile) -> Int64s:
    """Return the call sites of a profile's host tree."""
    return call_sites(profile.trace, profile.of(host_tree))


def site_ns(profile: Profile, *, program_only: bool = False) -> Int64s:
    """Return for each name the host time in which it was the innermost function of the user's (ns).

    With that of the backward of what it called; of threads that called operators, as others mostly wait.
    program_only: without libraries that people train with, which are then part of what called them.
    """
    is_site = is_program_function if program_only else is_user_function
    trace, tree = profile.trace, profile.of(host_tree)
    is_python = mask_of(trace.cats, PYTHON_FUNCTION.__eq__)[trace.cat]
    wanted = mask_of(trace.names, is_site)[trace.name] & is_python
    site = values_at(
        trace.name, first_ancestor(trace.parent, np.arange(len(trace), dtype=trace.parent.dtype), wanted)
    )
    backward = np.flatnonzero(site < 0)
    of_calls = call_sites(trace, tree, is_site) if program_only else profile.of(site_names)
    site[backward] = values_at(of_calls, tree.place[backward])
    site[~profile.of(calling_tracks)[trace.track]] = -1
    return sums(site, trace.self_ns, len(trace.names))


def forwards(trace: Trace, tree: HostTree) -> Int64s:
    """Return for each backward call the position of its forward: the first call with its sequence number, or -1.

    Numbers count per thread; one that two threads have counted to is ambiguous.
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
