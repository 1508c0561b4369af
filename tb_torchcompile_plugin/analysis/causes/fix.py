"""One thing to mend, and what finding such things needs: which points and which host time lie inside of what."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from tb_torchcompile_plugin.analysis.causes.change import (
    Bools,
    Change,
    at_once,
    both,
    fused,
    no_longer,
    without_host_time,
)
from tb_torchcompile_plugin.analysis.compile.dynamic_sizes import changing_sizes
from tb_torchcompile_plugin.profile.columns import mask_of, place_mask
from tb_torchcompile_plugin.profile.compiled.ownership import Ownership
from tb_torchcompile_plugin.profile.compiled.regions import every, region_calls
from tb_torchcompile_plugin.profile.intervals import Int64s, Intervals, union, within
from tb_torchcompile_plugin.profile.model.attribution import Culprit
from tb_torchcompile_plugin.profile.model.gpu_queue import gpu_queue
from tb_torchcompile_plugin.profile.model.launch_sequence import host_lane, host_pieces
from tb_torchcompile_plugin.profile.model.model import CALL_NS, model, summed
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.trace.kineto import Trace
from tb_torchcompile_plugin.reader.trace.nest import ways_up
from tb_torchcompile_plugin.torch_names.kernels import category_of
from tb_torchcompile_plugin.torch_names.operators import ATEN, is_fusible
from tb_torchcompile_plugin.torch_names.slices import KERNEL, OPERATOR, call_kind

FixKind = Literal[
    "garbage",
    "data_loading",
    "python",
    "library",
    "operator",
    "nothing",
    "compile",
    "guards",
    "allocation",
    "module_load",
    "graph_capture",
    "synchronise",
    "copies",
    "cuda_graphs",
    "graph_breaks",
    "fused_optimizer",
    "dense_embedding",
    "eager",
    "frames",
    "backend",
    "anomaly_mode",
    "repeated_backward",
    "recomputed",
    "recurrent_cells",
    "zeroed_gradients",
    "deterministic",
    "batch",
    "reduced_once",
    "small_collectives",
    "joined",
    "attention",
    "tensor_cores",
    "double_precision",
    "layout",
    "casts",
    "weight_casts",
    "roofline",
    "communication",
]


OF_CHANGING_SIZES = "cuda_graphs:changing sizes"  # the id of this fix


@dataclass(frozen=True, eq=False)
class Fix:
    """One thing to mend. subject: what it is about. change: of the model. surely, perhaps: changes that take out less
    and more, None where the change is as sure as the recording. times: how often a step it happens."""

    id: str
    kind: FixKind
    subject: Culprit
    change: Change
    times: float
    surely: Change | None = None
    perhaps: Change | None = None


Times = dict[int, Intervals]  # by track


class _Ran(NamedTuple):
    """When a compiled graph ran. row: a slice of its thread."""

    compile_id: str
    row: int
    begin: int
    end: int


def graph_times(profile: Profile, changing: bool | None = None) -> Times:
    """When each thread ran compiled graphs. changing: only those whose sizes change, or only the others."""
    ran, named = profile.of(_graphs_that_ran), profile.of(changing_graphs)
    wanted = [one for one in ran if changing is None or (one.compile_id in named) == changing]
    row, begin, end = (np.array([one[column] for one in wanted], np.int64) for column in (1, 2, 3))
    return on_tracks(profile, row, begin, end)


def changing_graphs(profile: Profile) -> dict[str, list[str]]:
    """The compiled graphs that ran and whose sizes are not fixed, with the symbols of these: {"0/0": ["s77"]}."""
    made = profile.data.of(changing_sizes) if profile.data else {}
    ran = {one.compile_id for one in profile.of(_graphs_that_ran)}
    return {compile_id: symbols for compile_id, symbols in made.items() if compile_id in ran}


def _graphs_that_ran(profile: Profile) -> list[_Ran]:
    """The calls of regions, of those that others run inside of the graphs alone, and backward graphs."""
    trace, ownership = profile.trace, profile.of(Ownership)
    ran = []
    for call in every(profile.of(region_calls)):
        times = call.graphs if call.nested else call.graphs and [(call.start, call.end)]
        ran += [_Ran(call.compile_id, call.index, *moment) for moment in times]
    for row, code in ownership.backwards:
        begin = int(trace.ts[row])
        ran.append(_Ran(ownership.name(code) or "", row, begin, begin + int(trace.dur[row])))
    return ran


def slice_times(profile: Profile, rows: Int64s) -> Times:
    """When each thread ran these slices."""
    begin = profile.trace.ts[rows]
    return on_tracks(profile, rows, begin, begin + profile.trace.dur[rows])


def on_tracks(profile: Profile, rows: Int64s, begin: Int64s, end: Int64s) -> Times:
    track = profile.trace.track[rows] if len(rows) else np.zeros(0, np.int64)
    return {int(one): union(begin[track == one], end[track == one]) for one in np.unique(track)}


def points_inside(profile: Profile, times: Times) -> tuple[Bools, Bools]:
    """Whether each point lies inside of one of these times of its thread, and is the first launch there."""
    lane = profile.of(host_lane)
    which = np.full(len(lane), -1)
    for track, moments in times.items():
        here = np.flatnonzero(lane.track == track)
        place = within(moments, lane.begin[here])
        which[here] = np.where(place >= 0, place + (track << 32), -1)
    inside = which >= 0
    first = np.zeros(len(lane), bool)
    launching = np.flatnonzero(inside & lane.launches)
    _, earliest = np.unique(which[launching], return_index=True)
    first[launching[earliest]] = True
    return inside, first


def time_inside(profile: Profile, times: Times) -> Int64s:
    """Of each host piece the part inside of these times of the thread that ran it."""
    lane, pieces = profile.of(host_lane), profile.of(host_pieces)
    track = np.where(pieces.row >= 0, profile.trace.track[pieces.row], lane.track[pieces.point])
    ns = np.zeros(len(pieces.point), np.int64)
    for one, moments in times.items():
        here = np.flatnonzero(track == one)
        inside = within(moments, pieces.begin[here]) >= 0
        ns[here[inside]] = pieces.ns[here[inside]]
    return ns


def calls_of(profile: Profile, kind: FixKind) -> Bools:
    """The points that are calls of this kind: those that take long are points of their own."""
    trace, lane = profile.trace, profile.of(host_lane)
    of_kind = profile.of(_call_kinds)[trace.name[lane.row]] == kind
    return np.asarray((lane.row >= 0) & ~lane.launches & ~lane.synchronises & of_kind)


def _call_kinds(profile: Profile) -> npt.NDArray[np.str_]:
    """What a call of each name of the trace would be for."""
    return np.array([call_kind(name) for name in profile.trace.names], np.str_)


def longest_call(profile: Profile, points: Bools) -> str:
    """The name of the longest of these calls."""
    trace, lane = profile.trace, profile.of(host_lane)
    places = np.flatnonzero(points)
    longest = places[np.argmax((lane.end - lane.begin)[places])]
    return str(trace.names[trace.name[lane.row[longest]]])


def are_kernels(profile: Profile) -> Bools:
    """Which work of the queue is a kernel, and no copy or fill."""
    trace = profile.trace
    return np.asarray(mask_of(trace.cats, KERNEL.__eq__)[trace.cat[profile.of(gpu_queue).row]])


def work_named(profile: Profile, wanted: Callable[[str], bool]) -> Bools:
    """Which work of the queue has a name that is wanted."""
    names = profile.trace.names
    return np.asarray(mask_of(names, wanted)[profile.trace.name[profile.of(gpu_queue).row]])


def are_collectives(profile: Profile) -> Bools:
    """Which work of the queue is a kernel with which ranks communicate."""
    return work_named(profile, communicates) & profile.of(are_kernels)


def communicates(kernel: str) -> bool:
    """A kernel with which ranks exchange data, by its name."""
    return category_of(kernel, KERNEL) == "communication"


def launches_kernels(profile: Profile) -> Bools:
    """Points that launch kernels: they stay where only the waiting goes."""
    return place_mask(profile.of(gpu_queue).point[profile.of(are_kernels)], len(profile.of(host_lane)))


def outermost_operator(trace: Trace, rows: Int64s) -> Int64s:
    """The outermost operator around each slice, inside of compiled code or of a Python function; -1 for none."""
    operator = mask_of(trace.cats, OPERATOR.__eq__)
    plain = mask_of(trace.names, lambda name: name.startswith(ATEN))
    outermost = np.full(len(rows), -1)
    for which, at in ways_up(trace.parent, rows):
        mine = operator[trace.cat[at]] & plain[trace.name[at]]
        outermost[which[mine]] = at[mine]
    return outermost


# Launches that inductor would make one graph of: its kernels are fused, and one launch follows the other.


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
