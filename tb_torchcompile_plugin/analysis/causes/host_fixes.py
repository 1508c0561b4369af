"""What the host could do without: by the culprits of its time, and by the calls that wait."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from functools import partial

import numpy as np
import numpy.typing as npt

from tb_torchcompile_plugin.analysis.causes.change import (
    Bools,
    Change,
    at_once,
    both,
    with_durations,
    without_calls,
    without_host_time,
    without_waiting,
)
from tb_torchcompile_plugin.analysis.causes.eager_fixes import EAGER_FIXES, closed_breaks, outside
from tb_torchcompile_plugin.analysis.causes.fix import (
    OF_CHANGING_SIZES,
    Fix,
    FixKind,
    Times,
    calls_of,
    compiled_whole,
    graph_times,
    launches_kernels,
    longest_call,
    on_tracks,
    outermost_operator,
    points_inside,
    slice_times,
    time_inside,
)
from tb_torchcompile_plugin.analysis.causes.optimizer_fix import fused_optimizer
from tb_torchcompile_plugin.analysis.runtime.cuda_graph_functions import graphs
from tb_torchcompile_plugin.analysis.runtime.cuda_graphs import asks_for_graphs
from tb_torchcompile_plugin.profile.columns import (
    by_track,
    host_slices,
    mask_of,
    order_of,
    place_mask,
    values_of,
)
from tb_torchcompile_plugin.profile.compiled.ownership import Ownership
from tb_torchcompile_plugin.profile.gpu.graph_runs import graph_runs
from tb_torchcompile_plugin.profile.gpu.launches import launch_calls
from tb_torchcompile_plugin.profile.intervals import Int64s, Intervals, union, within
from tb_torchcompile_plugin.profile.model.attribution import (
    Culprit,
    CulpritCause,
    climbed,
    culprits,
    most_called_at,
    place_of,
)
from tb_torchcompile_plugin.profile.model.gpu_queue import gpu_queue
from tb_torchcompile_plugin.profile.model.launch_sequence import Pieces, host_lane, host_pieces
from tb_torchcompile_plugin.profile.model.model import CALL_NS, model
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import StepWindows
from tb_torchcompile_plugin.reader.arrays import grouped
from tb_torchcompile_plugin.torch_names.operators import ATEN, both_ways, is_cell
from tb_torchcompile_plugin.torch_names.python_frames import is_backward_call, is_torchs
from tb_torchcompile_plugin.torch_names.slices import gives_back

_USUAL_NS = 50_000  # of one operator or call: what takes longer does more than launch
_LOOP = 4  # values a step, of which each is asked for after the last
_AS_MANY = 2  # calls that ask for memory, for one that gives some back: with more of them it is not why
_FEW = 8  # launches between two of them: with more of them the loop is a program of its own

# What can go whole, wherever it happens: one fix each.
_WHOLE: tuple[FixKind, ...] = (
    "garbage",
    "data_loading",
    "compile",
    "guards",
    "allocation",
    "module_load",
    "graph_capture",
)
_WITH: dict[FixKind, tuple[CulpritCause, ...]] = {
    "compile": ("autotuning",)
}  # who does not compile tunes nothing
_BY_NAME: tuple[FixKind, ...] = ("operator", "library", "nothing")


def _without_culprits(profile: Profile) -> Iterator[Fix]:
    blamed = profile.of(culprits)
    causes = np.array([culprit.cause for culprit in blamed.culprits])
    for kind in _WHOLE:
        whole = np.isin(causes, (kind, *_WITH.get(kind, ())))
        yield from _gone(profile, kind, kind, np.flatnonzero(whole))
    for (kind, place), codes in _by_name(blamed.culprits).items():
        yield from _gone(profile, kind, place, np.array(codes))
    users = ((code, one) for code, one in enumerate(blamed.culprits) if _is_users_time(one))
    by_place = grouped(users, lambda row: (row[1].file, row[1].line))
    for (file, line), rows in sorted(by_place.items()):
        yield from _gone(profile, "python", f"python:{file}:{line}", np.array([code for code, _ in rows]))


def _by_name(culprits: list[Culprit]) -> dict[tuple[FixKind, str], list[int]]:
    """Codes of what is mended one by one, by kind and id; an operator and its backward have the same cause."""
    by_name: dict[tuple[FixKind, str], list[int]] = defaultdict(list)
    for code, culprit in enumerate(culprits):
        if is_backward_call(culprit.name) or _is_users_time(culprit):
            continue
        for kind in (kind for kind in _BY_NAME if kind == culprit.cause):
            name = both_ways(culprit.name)
            place = f":{culprit.file}:{culprit.line}" if name == culprit.name else ""
            by_name[kind, f"{kind}:{name or 'nothing recorded'}{place}"].append(code)
    return by_name


def _is_users_time(culprit: Culprit) -> bool:
    """Python that the user's function runs, by itself or in what it calls, but for torch's own."""
    of_others = culprit.cause == "library" and is_torchs(culprit.name)
    return culprit.cause in ("python", "library") and bool(culprit.file) and not of_others


def _gone(profile: Profile, kind: FixKind, fix_id: str, codes: Int64s) -> Iterator[Fix]:
    """Without the host time of these culprits: all of it, or what is beyond the usual of a call."""
    pieces, blamed, lane = profile.of(host_pieces), profile.of(culprits), profile.of(host_lane)
    by_culprit = profile.of(_pieces_by_culprit)
    mine = np.sort(np.concatenate([np.zeros(0, np.int64), *(by_culprit[code] for code in codes.tolist())]))
    ns, times = _excess(pieces.take(mine), kind)
    calls = profile.of(calls_of, kind)
    if not times and not calls.any():
        return
    own = lane.end - lane.begin
    subject = Culprit("query", "" if times else longest_call(profile, calls), "", 0)
    if times:
        subject = _subject(blamed.culprits, np.bincount(blamed.code[mine], ns))
    if kind == "allocation":
        subject = _allocating(profile, np.union1d(pieces.row[mine], lane.row[calls]))
    cut = np.zeros(len(pieces.point), np.int64)
    cut[mine] = ns
    gone = without_host_time(cut)
    if calls.any():
        gone = both(gone, without_calls(calls))
    whole = _with_all_inside(profile, np.unique(blamed.call[mine[ns > 0]])) if kind == "library" else None
    yield Fix(
        id=fix_id,
        kind=kind,
        subject=subject,
        change=both(gone, whole) if whole else gone,
        times=(times + int((calls & (own > 0)).sum())) / profile.of(host_lane).steps,
        surely=gone if whole else None,
    )


def _pieces_by_culprit(profile: Profile) -> list[Int64s]:
    """Which pieces of host time are each culprit's."""
    blamed = profile.of(culprits)
    counts = np.bincount(blamed.code, minlength=len(blamed.culprits))
    return np.split(order_of(blamed.code), np.cumsum(counts)[:-1])


def _with_all_inside(profile: Profile, rows: Int64s) -> Change | None:
    """Without all that happens inside of these slices: of long ones that launch no kernel, which compute nothing that
    the step needs. None where there is no such slice."""
    trace, lane = profile.trace, profile.of(host_lane)
    rows = rows[(rows >= 0) & (trace.dur[rows] > 2 * _USUAL_NS)]
    computing = np.flatnonzero(profile.of(launches_kernels))
    for track, mine in by_track(trace, rows):
        launched = np.sort(lane.begin[computing[lane.track[computing] == track]])
        window = trace.ts[mine], trace.ts[mine] + trace.dur[mine]
        needed = np.diff(np.searchsorted(launched, window), axis=0)[0] > 0
        rows = rows[~np.isin(rows, mine[needed])]
    times = slice_times(profile, rows)
    if not times:
        return None
    inside, _ = points_inside(profile, times)
    return both(
        without_host_time(time_inside(profile, times)), without_waiting(inside), without_calls(inside)
    )


def _subject(culprits: list[Culprit], ns: npt.NDArray[np.float64] | Int64s) -> Culprit:
    """The largest, with the names of all, at a place of the user's if one of them has any."""
    largest = [culprits[code] for code in np.argsort(-ns) if ns[code] > 0]
    place = next((one for one in largest if one.file), largest[0])
    names = {one.name for one in largest}
    pair = len({both_ways(name) for name in names}) == 1 < len(names)
    name = f"{both_ways(largest[0].name)}_forward and _backward" if pair else largest[0].name
    return Culprit(largest[0].cause, name, place.file, place.line)


def _allocating(profile: Profile, calls: Int64s) -> Culprit:
    """Calls that ask for memory; where about as many give it back these, too, and their place: more is asked for
    because of them. calls: rows of the trace."""
    names, name = profile.trace.names, profile.trace.name
    back = mask_of(names, gives_back)[name[calls]]
    frees, asks = calls[back], calls[~back]
    which = [frees, asks] if _AS_MANY * len(frees) >= len(asks) else [asks]
    called = [names[np.bincount(name[rows]).argmax()] for rows in which if len(rows)]
    return Culprit("allocation", " and ".join(called), *most_called_at(profile, which[0]))


def _excess(pieces: Pieces, kind: FixKind) -> tuple[Int64s, int]:
    """What each piece has beyond the usual of its slice, and how many slices have any."""
    row, ns = pieces.row, pieces.ns
    _, slice_ = np.unique(np.where(row < 0, -1 - np.arange(len(row)), row), return_inverse=True)
    total = np.bincount(slice_, ns)
    usual = _USUAL_NS if kind in _BY_NAME else 0
    share = np.maximum(total - usual, 0) / np.maximum(total, 1)
    return (ns * share[slice_]).astype(np.int64), int((total > usual).sum())


def _without_waits(profile: Profile) -> Iterator[Fix]:
    """Values that the host waits for, by the operator that asks and the user's function; without the operator, too."""
    trace, lane, made = profile.trace, profile.of(host_lane), profile.of(model)
    waits = lane.synchronises & made.waits.any(axis=1)
    asks = outermost_operator(trace, np.where(lane.row >= 0, lane.row, -1))
    asked_by = climbed(
        profile, np.where(asks >= 0, asks, np.where(lane.row >= 0, trace.parent[lane.row], -1))
    )
    for name, user in sorted({*zip(asked_by.name[waits].tolist(), asked_by.user[waits].tolist())}):
        mine = waits & (asked_by.name == name) & (asked_by.user == user)
        rows = np.unique(asks[mine & (asks >= 0)])
        times = slice_times(profile, rows)
        inside, _ = points_inside(profile, times)
        inside &= ~profile.of(launches_kernels)
        place = place_of(profile, user)
        called = trace.names[name] if name >= 0 else longest_call(profile, mine)
        gone = both(
            without_host_time(time_inside(profile, times)),
            without_waiting(mine),
            without_calls(inside | mine),
        )
        looped = _in_loops(profile, mine)
        yield Fix(
            id=f"synchronise:{called}:{place[0]}:{place[1]}",
            kind="synchronise",
            subject=Culprit("synchronise", called, *place),
            change=both(gone, compiled_whole(profile, looped)) if looped.any() else gone,
            times=int(mine.sum()) / profile.of(host_lane).steps,
            surely=gone,
        )


def _in_loops(profile: Profile, waits: Bools) -> Bools:
    """The points of loops that ask for one value after the other and launch a few eager operators between two of them:
    asked for at once, those are one graph. Where compiled code runs between them the values decide what comes next."""
    lane, places = profile.of(host_lane), np.flatnonzero(waits)
    behind = np.searchsorted(places, np.arange(len(lane)), side="right")
    compiled = np.bincount(behind, ~profile.of(outside), len(places) + 1) > 0
    compiled |= np.bincount(behind, lane.launches, len(places) + 1) > _FEW
    step = np.searchsorted(lane.marks, places, side="right")
    repeats = np.concatenate(([False], step[1:] == step[:-1], [False])) & ~compiled
    if repeats.sum() < _LOOP * lane.steps:
        return np.zeros(len(lane), bool)
    return np.asarray(repeats[behind] & (lane.launches | lane.synchronises))


HOST_FIXES = (_without_culprits, _without_waits)


# How the work could reach the GPU: in fewer launches, without waiting for copies.


_REPLAY_NS = 60_000  # of one CUDA graph: copying its inputs and launching it
_PINNED_BYTES_NS = 40  # bytes that a copy from pinned memory moves in a ns, at least
_CELLS = 8  # one behind the other: of fewer a loop costs little
_NEAR_NS = 2_000_000  # between two cells of a loop, while recorded
_SEQUENCE_NS = 250_000  # of the launches of a whole sequence, one way
_SMALL_BYTES = 1 << 16  # a copy of less is a value that somebody waits for


def _without_blocking_copies(profile: Profile) -> Iterator[Fix]:
    """Copies to or from memory that is not pinned: the call comes back when the GPU is done with it."""
    trace, lane, queue, made = profile.trace, profile.of(host_lane), profile.of(gpu_queue), profile.of(model)
    for way in ("Pageable -> Device", "Device -> Pageable"):
        named = mask_of(trace.names, partial(_goes, way))
        work = np.flatnonzero(named[trace.name[queue.row]])
        bytes_ = values_of(trace, "bytes", queue.row[work])
        work, bytes_ = work[bytes_ > _SMALL_BYTES], bytes_[bytes_ > _SMALL_BYTES]
        if not len(work):
            continue
        points = place_mask(queue.point[work], len(lane))
        dur = np.minimum((bytes_ / _PINNED_BYTES_NS).astype(np.int64) + CALL_NS, queue.dur[work])
        behind = np.concatenate(([False], points[:-1])) & lane.synchronises & made.waits.any(axis=1)
        largest = int(np.argmax(queue.dur[work]))
        user = climbed(profile, lane.row[queue.point[work[largest : largest + 1]]]).user
        yield Fix(
            id=f"copies:{way}",
            kind="copies",
            subject=Culprit(
                "memory_copy",
                trace.names[trace.name[queue.row[work[largest]]]],
                *place_of(profile, int(user[0])),
            ),
            change=both(without_waiting(points | behind), with_durations(work, dur)),
            times=len(work) / profile.of(host_lane).steps,
        )


def _goes(way: str, copy: str) -> bool:
    return way in copy


def _cuda_graphs(profile: Profile) -> Iterator[Fix]:
    """Every compiled graph, forward and backward, launched as one: what the host does outside of them stays. Where some
    are, those that are not; those whose sizes change by themselves, as one would be recorded for each."""
    asked, replayed = profile.of(asks_for_graphs), bool(profile.of(launch_calls).replay.any())
    if asked:
        times = profile.of(not_replayed) if replayed else profile.of(graph_times)
        yield from _at_once(profile, "cuda_graphs", "graph_capture", times, replayed)
    elif not replayed:
        yield from _at_once(profile, "cuda_graphs", "cuda_graphs", profile.of(graph_times, False))
        yield from _at_once(profile, OF_CHANGING_SIZES, "cuda_graphs", profile.of(graph_times, True))


def _at_once(profile: Profile, fix_id: str, kind: FixKind, times: Times, anew: bool = False) -> Iterator[Fix]:
    """What runs in these times launched as one. anew: though it was to be, and was recorded again or waited."""
    lane = profile.of(host_lane)
    inside, first = points_inside(profile, times)
    if not inside.any():
        return
    gone = without_host_time(time_inside(profile, times))
    busy = inside & ~lane.launches & anew  # captures, and waiting for the GPU

    def launched_at_once(replay_ns: int) -> Change:
        return both(
            gone,
            without_waiting(busy & lane.synchronises),
            without_calls(busy),
            at_once(inside & lane.launches, first, replay_ns),
        )

    yield Fix(
        id=fix_id,
        kind=kind,
        subject=Culprit("launch", "", "", 0),
        change=launched_at_once(_REPLAY_NS),
        times=int(first.sum()) / lane.steps,
        surely=launched_at_once(3 * _REPLAY_NS),
        perhaps=launched_at_once(_REPLAY_NS // 3),
    )


def not_replayed(profile: Profile) -> Times:
    """When each thread ran graphs that are to be replayed and were not: recorded, or run kernel by kernel."""
    runs, names = profile.of(graph_runs), profile.of(Ownership).names
    asked = set(profile.of(graphs))
    owners = zip(runs.compile_id.tolist(), runs.backward.tolist())
    mine = [code >= 0 and (names[code], "backward" if back else "forward") in asked for code, back in owners]
    rows, whole = runs.row[np.array(mine, bool) & ~runs.replayed], profile.of(graph_times)
    return {track: _widened(one, whole.get(track)) for track, one in slice_times(profile, rows).items()}


def _widened(inner: Intervals, outer: Intervals | None) -> Intervals:
    """With the whole of the outer ones that hold any: behind a recording torch goes on, with metrics of it."""
    if outer is None:
        return inner
    held = np.unique(within(outer, inner.starts))
    held = held[held >= 0]
    starts, ends = np.append(inner.starts, outer.starts[held]), np.append(inner.ends, outer.ends[held])
    return union(starts, ends)


def _whole_sequence(profile: Profile) -> Iterator[Fix]:
    """A recurrent network that gets its whole sequence at once: its kernels, and those of what reads each state, in a
    few launches each way."""
    trace, lane = profile.trace, profile.of(host_lane)
    cells = host_slices(trace, is_cell)
    loops = [loop for _, rows in by_track(trace, cells) for loop in _near_each_other(profile, rows)]
    if not loops:
        return
    first, last = (np.array([loop[end] for loop in loops], np.int64) for end in (0, -1))
    times = on_tracks(profile, first, trace.ts[first], trace.ts[last] + trace.dur[last])
    inside, begins = points_inside(profile, times)

    def in_few(call_ns: int) -> Change:
        return both(
            without_host_time(time_inside(profile, times)),
            at_once(inside & lane.launches, begins, call_ns),
        )

    forward = np.concatenate(loops)
    forward = forward[mask_of(trace.names, lambda name: name.startswith(ATEN))[trace.name[forward]]]
    yield Fix(
        id="recurrent_cells",
        kind="recurrent_cells",
        subject=Culprit("operator", "", *most_called_at(profile, forward)),
        change=in_few(_SEQUENCE_NS),
        # The model holds the first of very many steps.
        times=int(points_inside(profile, slice_times(profile, forward))[1].sum()) / lane.steps,
        surely=in_few(_SEQUENCE_NS * 4),
    )


def _near_each_other(profile: Profile, rows: Int64s) -> list[Int64s]:
    """Cells of one thread, run by run: between two of one loop little else happens."""
    trace = profile.trace
    rows = rows[np.argsort(trace.ts[rows], kind="stable")]
    gap = trace.ts[rows][1:] - (trace.ts[rows] + trace.dur[rows])[:-1]
    other_step = np.diff(np.searchsorted(profile.of(StepWindows).starts, trace.ts[rows], "right")) > 0
    runs = np.split(rows, np.flatnonzero((gap > _NEAR_NS) | other_step) + 1)
    return [run for run in runs if len(run) >= _CELLS]


LAUNCH_FIXES = (
    *(_without_blocking_copies, _cuda_graphs, closed_breaks, fused_optimizer, _whole_sequence),
    *EAGER_FIXES,
)
