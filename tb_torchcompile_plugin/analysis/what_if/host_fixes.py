"""What the host could do without: by the culprits of its time, and by the calls that wait."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from tb_torchcompile_plugin.analysis.what_if.change import (
    Bools,
    Change,
    both,
    without_calls,
    without_host_time,
    without_waiting,
)
from tb_torchcompile_plugin.analysis.what_if.eager_fixes import outside
from tb_torchcompile_plugin.analysis.what_if.fix import (
    Fix,
    FixKind,
    calls_of,
    launches_kernels,
    longest_call,
    outermost_operator,
    points_inside,
    slice_times,
    time_inside,
)
from tb_torchcompile_plugin.analysis.what_if.one_graph import compiled_whole
from tb_torchcompile_plugin.profile.columns import by_track, mask_of, order_of
from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.profile.model.attribution import (
    Culprit,
    CulpritCause,
    climbed,
    culprits,
    most_called_at,
    place_of,
)
from tb_torchcompile_plugin.profile.model.launch_sequence import Pieces, host_lane, host_pieces
from tb_torchcompile_plugin.profile.model.model import model
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.arrays import grouped
from tb_torchcompile_plugin.torch_names.operators import both_ways
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
