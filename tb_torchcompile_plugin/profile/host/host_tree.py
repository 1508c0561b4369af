"""What ran inside what on the host, and what did each call cost in time on host and GPU, and in memory?

The tree behind `key_averages()` of `torch.profiler`; each figure is that of its events. Slices may cross: a label that
begins in `__enter__` and ends in `__exit__` outlasts the call that opened it. torch then takes the outer call as ended
where the label begins: a slice has the parent that holds all of it, or none. A `Trace`'s own `parent` cuts the label
instead, which is right for drawing and wrong for sums.
"""

from collections.abc import Callable
from itertools import pairwise

import msgspec
import numpy as np

from tb_torchcompile_plugin.profile.columns import (
    Int64s,
    Mask,
    distinct,
    groups_of_equal,
    mask_at,
    mask_of,
    sums,
    union,
    values_at,
)
from tb_torchcompile_plugin.profile.gpu_work import gpu_work
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.trace.kineto import Trace
from tb_torchcompile_plugin.reader.trace.nest import ancestors_of, first_ancestor, first_ancestor_where
from tb_torchcompile_plugin.reader.trace.table import narrow
from tb_torchcompile_plugin.torch_names.operators import UNCOUNTED
from tb_torchcompile_plugin.torch_names.python_frames import (
    is_program_function,
    is_user_function,
    without_address,
)
from tb_torchcompile_plugin.torch_names.slices import CALL_CATS, OVERHEAD, PYTHON_FUNCTION, RUNTIME_CATS

_HOST_CATS = (*CALL_CATS, PYTHON_FUNCTION, OVERHEAD, *RUNTIME_CATS)


class HostTree(msgspec.Struct, frozen=True):
    """Host slices as parallel columns, in the order of the trace's rows. Rows and positions may have 32 bits.

    A call that does nothing but call itself again under the same name is one call with it.
    """

    index: Int64s  # rows of the trace
    parent: Int64s  # positions in `index`, -1: none
    self_ns: Int64s  # duration less that of the children
    python: Mask  # whether it is a Python function
    place: Int64s  # for each row of the trace its position, or that of the call it is one with; -1: not on the host

    def nearest(self, start: Int64s, wanted: Mask) -> Int64s:
        """Return for each position the nearest one around it, itself included, that is wanted; -1: none."""
        return first_ancestor(self.parent, start, wanted)


def host_tree(profile: Profile) -> HostTree:
    """Return the host slices of the trace and their nesting."""
    trace = profile.trace
    on_host = mask_of(trace.cats, _HOST_CATS.__contains__)[trace.cat]
    counted = on_host & ~mask_of(trace.names, UNCOUNTED.__contains__)[trace.name]
    index = narrow(np.flatnonzero(counted))
    position = np.full(len(trace) + 1, -1, index.dtype)  # the last is read for "no parent"
    position[index] = np.arange(len(index))
    above = trace.parent[index]
    parent = position[above]
    hidden = np.flatnonzero((parent < 0) & (above >= 0))
    parent[hidden] = position[first_ancestor(trace.parent, above[hidden], counted)]
    del above
    start = trace.ts[index]
    end = start + trace.dur[index]
    bounds = bounds_in(index, trace).tolist()
    behind = np.searchsorted(hidden, bounds).tolist()
    for (first, last), inside in zip(pairwise(bounds), pairwise(behind)):
        track = slice(first, last)
        _uncross(start[track], end[track], parent[track], hidden[slice(*inside)] - first, first)
    _place_overhead(trace, index, start, end, parent)
    del start, end  # as long as the trace, as all that follows
    python = mask_of(trace.cats, PYTHON_FUNCTION.__eq__)[trace.cat[index]]
    into = _merge(trace.name[index], parent, python)
    own = trace.dur[index]
    # a call that becomes one with another is no child of it
    children = np.flatnonzero((parent >= 0) & (into < 0))
    np.subtract.at(own, parent[children], own[children])
    return _without_merged(index, parent, own, python, position[:-1], into)


def bounds_in(index: Int64s, trace: Trace) -> Int64s:
    """Return where the tracks begin and end among these rows, which ascend."""
    # Of two types numpy would copy all rows.
    return np.searchsorted(index, trace.track_bounds.astype(index.dtype))


def calling_tracks(profile: Profile) -> Mask:
    """Return by track whether an operator or a runtime call ran on it: threads that called nothing mostly wait."""
    trace = profile.trace
    return mask_at(trace.track[trace.select(cat=(*CALL_CATS, *RUNTIME_CATS))], len(trace.tracks))


def _uncross(start: Int64s, end: Int64s, parent: Int64s, inside: Int64s, base: int) -> None:
    """Give every slice of a track a parent that holds all of it, in place.

    A slice that is outlasted by one that began inside it ends there. That changes the parent of the slice that
    outlasts it, and of what begins behind its end while the other still runs, except what is inside of a slice that
    began later than the other: such a parent is the right one. base: position of the track's first slice. inside:
    what began inside of a slice that does not count, and may have outlasted that.
    """
    inner = np.maximum(parent - base, -1)
    crossing = np.flatnonzero((inner >= 0) & (end > end[inner]))
    if not len(crossing) and not len(inside):
        return
    # When the first of each slice's ancestors ends; what does not count may have ended at once.
    ends = end[inner[crossing]]
    for which, around in ancestors_of(inner, inner[crossing]):
        ends[which] = np.minimum(ends[which], end[around])
    ended = np.append(ends, start[inside])
    outlasting = np.append(crossing, inside)
    first, last = np.searchsorted(start, ended), np.searchsorted(start, end[outlasting])
    stretches = union(narrow(first), narrow(last))
    sizes = stretches.ends - stretches.starts
    skipped = stretches.ends - np.cumsum(sizes, dtype=sizes.dtype)
    behind = np.arange(sizes.sum(), dtype=sizes.dtype) + np.repeat(skipped, sizes)

    def holds(which: Int64s, around: Int64s) -> Mask:
        return np.asarray(end[around] >= end[crossing[which]])

    inner[crossing] = first_ancestor_where(inner, inner[crossing], holds)
    outlasting = np.sort(outlasting).astype(behind.dtype)
    latest = outlasting[np.searchsorted(outlasting, behind, side="right") - 1]
    _put_right(start, end, inner, behind[inner[behind] < latest])
    parent[:] = np.where(inner >= 0, inner + base, -1)


def _put_right(start: Int64s, end: Int64s, parent: Int64s, positions: Int64s) -> None:
    """Set the parents of these slices, in place: the first that holds it of the slice before and its ancestors."""
    ends, parents = end.data, parent.data  # their elements are numbers of Python
    for position, until in zip(positions.tolist(), np.maximum(end[positions], start[positions] + 1).tolist()):
        around = position - 1
        while around >= 0 and ends[around] < until:
            around = parents[around]
        parents[position] = around


def _place_overhead(trace: Trace, index: Int64s, start: Int64s, end: Int64s, parent: Int64s) -> None:
    """Move the profiler's own work with a track of its own into what the main thread was doing, as torch does."""
    main = [code for code, track in enumerate(trace.tracks) if track.pid == track.tid]
    overhead = mask_of(trace.cats, OVERHEAD.__eq__)[trace.cat[index]]
    if not main or not overhead.any():
        return
    first, last = bounds_in(index, trace)[main[0] : main[0] + 2].tolist()
    overhead[first:last] = False
    placed = np.flatnonzero(overhead & ~(overhead[parent] & (parent >= 0)))
    before = first + np.searchsorted(start[first:last], start[placed], side="right") - 1
    before = np.where(before >= first, before, -1)
    parent[placed] = first_ancestor_where(parent, before, lambda row, around: end[around] >= end[placed[row]])


def _merge(name: Int64s, parent: Int64s, python: Mask) -> Int64s:
    """Return for each only child of a parent of its name the call it becomes one with, else -1; fix `parent`."""
    into = np.full_like(parent, -1)
    while True:
        is_child = (parent >= 0) & (into < 0)
        same = np.flatnonzero(is_child & (name == name[parent]) & ~python)
        siblings = np.flatnonzero(is_child & mask_at(parent[same], len(parent))[parent])
        parents, count = np.unique(parent[siblings], return_counts=True)
        same = same[count[np.searchsorted(parents, parent[same])] == 1]
        if not len(same):
            return into
        into[same] = first_ancestor(parent, same, ~mask_at(same, len(name)))
        moved = np.flatnonzero(is_child & (into[parent] >= 0) & (into < 0))
        parent[moved] = into[parent[moved]]


def _without_merged(
    index: Int64s, parent: Int64s, own: Int64s, python: Mask, position: Int64s, into: Int64s
) -> HostTree:
    if (into >= 0).any():
        kept = into < 0
        moved = np.append(np.cumsum(kept, dtype=index.dtype) - 1, index.dtype.type(-1))  # the last: of "none"
        gone = np.flatnonzero(~kept)
        moved[gone] = moved[first_ancestor(into, gone, kept)]
        position = moved[position]
        index, parent, own, python = index[kept], moved[parent[kept]], own[kept], python[kept]
    return HostTree(narrow(index), narrow(parent), own, python, narrow(position))


def merged_stacks(caller: Int64s, *keys: Int64s) -> tuple[Int64s, Int64s]:
    """Return the rows (parent, *keys) of a tree of calls, callers before what they called; and the row of each call.

    Calls are one row where their callers are one and all keys agree. caller: the index of each call's caller among
    the calls, -1 for none.
    """
    frame = np.full(len(caller) + 1, -1, np.int64)  # the last is read for "none"
    frames = [np.zeros((1 + len(keys), 0), np.int64)]
    count = 0
    depth = np.zeros(len(caller), np.int64)
    for inner, _ in ancestors_of(caller, caller):
        depth[inner] += 1
    for calls in groups_of_equal(np.arange(len(caller)), depth):
        rows, which = distinct(frame[caller[calls]], *(key[calls] for key in keys))
        frame[calls] = count + which
        count += rows.shape[1]
        frames.append(rows)
    return np.hstack(frames), frame[:-1]


def plain_names(profile: Profile) -> tuple[list[str], Int64s]:
    """Return names without addresses, and for each name of the trace its index among them.

    So calls of one function have one name, whatever object it is of.
    """
    codes: dict[str, int] = {}
    index = [codes.setdefault(without_address(name), len(codes)) for name in profile.trace.names]
    return list(codes), np.array(index, np.int64)


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
    unnamed = named < 0
    is_call = mask_of(trace.cats, CALL_CATS.__contains__)[trace.cat[tree.index]]
    named[unnamed] = tree.nearest(values_at(tree.place, trace.launch_of()[gpu[unnamed]]), is_call)
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
    site = tree.nearest(np.arange(len(tree.index), dtype=tree.index.dtype), users)
    lost = np.flatnonzero((site < 0) & ~tree.python)
    forward = forwards(trace, tree)
    site[lost] = values_at(site, values_at(forward, tree.nearest(lost, forward >= 0)))
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
