"""What is one slice of the timeline, to which others is it related, and where are those whose name contains a text?"""

from collections.abc import Collection
from functools import partial
from typing import Any, NamedTuple

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis.formatting import plural
from tb_torchcompile_plugin.analysis.runtime.kernel_rows import KernelName
from tb_torchcompile_plugin.analysis.timeline.lanes import ItemSlices, Lane, TrackSlices
from tb_torchcompile_plugin.analysis.timeline.timeline import Fact, Timeline, exact, time_fact
from tb_torchcompile_plugin.errors import BadRequest, UserError
from tb_torchcompile_plugin.profile.columns import Int64s
from tb_torchcompile_plugin.profile.compiled.ownership import Ownership
from tb_torchcompile_plugin.profile.gpu.idle import idle_before
from tb_torchcompile_plugin.profile.gpu_work import gpu_work
from tb_torchcompile_plugin.reader.trace.kineto import Trace
from tb_torchcompile_plugin.torch_names.python_frames import frame_of, is_user_function
from tb_torchcompile_plugin.torch_names.slices import CALL_CATS, GPU_CATS, PYTHON_FUNCTION, RUNTIME_CATS

_MAX_RELATED = 20  # slices listed in one group


class SliceRef(msgspec.Struct, frozen=True):
    """A slice at another position of the timeline."""

    row: int
    lane: int
    name: str
    start_ns: int
    dur_ns: int


class SourceLine(msgspec.Struct, frozen=True):
    """A line of the user's code."""

    file: str
    line: int
    function: str


class RelatedSlices(msgspec.Struct, frozen=True):
    """The slices that have one relation to another one."""

    title: str
    slices: list[SliceRef]
    more: int  # how many are left out


class TimelineSlice(msgspec.Struct, frozen=True, kw_only=True):
    """One slice. Fields are None where unknown."""

    row: int
    lane: int
    name: str
    color: int
    start_ns: int
    dur_ns: int
    depth: int
    parent: int | None  # row of the slice around it in its lane
    args_problem: str = ""  # why `arguments` are unknown: the file is gone
    launch: SliceRef | None = None  # the call that launched this GPU work
    kernels: list[SliceRef] = []  # launched by this call
    forward: SliceRef | None = None  # the operator whose gradient this one computes, by autograd's arrows
    backward: list[SliceRef] = []  # the operators that compute this one's gradients
    slice: SliceRef | None = None  # this item in the trace
    compile_id: str | None
    epoch: int | None = None
    kernel: str | None
    kernel_row: str | None = None  # key of its row among the kernels
    number: int | None = None  # of the launches of a kernel on its device, by time, from 1
    of: int | None = None  # how many launches there are
    previous: SliceRef | None = None
    following: SliceRef | None = None
    user_line: SourceLine | None = None
    facts: list[Fact]  # shown first
    related: list[RelatedSlices]
    arguments: list[Fact]  # as recorded


def timeline_slice(timeline: Timeline, lane: int, row: int) -> TimelineSlice:
    """Return the details of one slice; raises BadRequest where the lane has no such slice.

    lane -1: the lane of this row of the trace.
    """
    if lane < 0 and row < len(timeline.rows.trace):
        lane = timeline.lane_of_track[int(timeline.rows.trace.track[row])]
    timeline.check_lanes([lane])
    slices = timeline.slices.get(lane)
    if isinstance(slices, ItemSlices) and 0 <= row < len(slices.start):
        return _item(timeline, slices, lane, row)
    if isinstance(slices, TrackSlices) and slices.holds(row):
        return _trace_slice(timeline, slices, lane, row)
    next_step = "Request a row that `timeline_window` returned"
    raise BadRequest(f"lane {lane} has no slice {row}", next_step=next_step)


def _arguments(args: dict[str, Any]) -> list[Fact]:
    return [
        Fact(name, value if isinstance(value, str) else msgspec.json.encode(value).decode())
        for name, value in args.items()
    ]


def _facts(lane: Lane, start_ns: int, dur_ns: int, self_ns: int | None, *more: Fact) -> list[Fact]:
    group = "" if lane.group in ("", "compile") else f", {lane.group}"
    return [
        time_fact("Duration", dur_ns),
        time_fact("Self", self_ns, unknown="What runs inside is unknown"),
        *more,
        Fact("Start", exact(start_ns), "From the trace’s first event"),
        Fact("Lane", f"{lane.title}{group}"),
    ]


def _related(timeline: Timeline, groups: dict[str, list[int]]) -> list[RelatedSlices]:
    """Return the groups that have any slices; of rows of the trace, -1 for none."""
    refs = {title: _refs(timeline, rows) for title, rows in groups.items()}
    return [
        RelatedSlices(title, slices[:_MAX_RELATED], max(0, len(slices) - _MAX_RELATED))
        for title, slices in refs.items()
        if slices
    ]


def _item(timeline: Timeline, slices: ItemSlices, lane: int, row: int) -> TimelineSlice:
    item = slices.items[row]
    return TimelineSlice(
        row=row,
        lane=lane,
        name=item.name,
        color=int(slices.colors(np.array([row]))[0]),
        start_ns=item.start,
        dur_ns=item.dur,
        depth=int(slices.line[row]),
        parent=slices.parent(row),
        slice=None if item.row is None else _ref(timeline, item.row),
        compile_id=item.compile_id,
        epoch=item.epoch,
        kernel=item.facts.get("kernel"),
        facts=_facts(timeline.lanes[lane], item.start, item.dur, None),
        related=_related(timeline, {"In the trace": [] if item.row is None else [item.row]}),
        arguments=_arguments(item.facts),
    )


def _trace_slice(timeline: Timeline, slices: TrackSlices, lane: int, row: int) -> TimelineSlice:
    trace = timeline.rows.trace
    cat, name = trace.cats[trace.cat[row]], trace.names[trace.name[row]]
    args: dict[str, Any] = {}
    args_problem = ""
    try:
        args = trace.args(row)
    except (UserError, OSError) as error:
        args_problem = str(error)
    launch, op, parent = int(trace.launch_of()[row]), int(trace.op_of()[row]), int(trace.parent[row])
    forward, backward = _gradients(trace, row)
    host = launch if launch >= 0 else row
    ownership = timeline.profile.of(Ownership)
    compile_id = ownership.name(int(ownership.compile_ids(np.array([host]))[0]))
    graph_key = ownership.name(int(ownership.graph_keys(np.array([host]))[0]))
    is_gpu_work = cat in GPU_CATS
    kernels = _launched(trace, row)
    start, dur = int(trace.ts[row]) - timeline.origin, int(trace.dur[row])
    is_excluded = is_gpu_work and row not in timeline.profile.of(gpu_work).index
    launch_fields, launch_facts = _launch(timeline, row) if is_gpu_work and not is_excluded else ({}, [])
    kernel = row if is_gpu_work else next(iter(kernels), -1)
    kernel_name = trace.names[trace.name[kernel]] if kernel >= 0 else None
    kernel_row = kernel_name and KernelName(int(trace.device[kernel]), kernel_name, compile_id, graph_key).key
    line = timeline.rows.line_of(row)
    facts = _facts(timeline.lanes[lane], start, dur, int(trace.self_ns[row]), *launch_facts)
    if graph_key:
        facts.append(Fact("Graph key", graph_key))
    if is_excluded:
        facts.append(Fact("Excluded", "Its time is implausible"))
    if line >= timeline.rows.depths[slices.track]:
        facts.append(Fact("Crosses", "Outlasts its parent slice"))
    groups = {
        "Launched by": [launch],
        f"Launched {plural(len(kernels), 'kernel')}": kernels,
        "Operator": [op] if op != row else [],
        "Forward": forward[:1],
        "Backward": backward,
    }
    return TimelineSlice(
        row=row,
        lane=lane,
        name=name,
        color=int(slices.colors(np.array([row]))[0]),
        start_ns=start,
        dur_ns=dur,
        depth=line,
        parent=parent if parent >= 0 else None,
        args_problem=args_problem,
        launch=_ref(timeline, launch),
        kernels=_refs(timeline, kernels),
        forward=next(iter(_refs(timeline, forward)), None),
        backward=_refs(timeline, backward),
        compile_id=compile_id,
        kernel=kernel_name,
        kernel_row=kernel_row,
        user_line=_user_line(trace, host),
        facts=facts,
        related=_related(timeline, groups),
        arguments=_arguments(args),
        **launch_fields,
    )


def _ref(timeline: Timeline, row: int) -> SliceRef | None:
    return next(iter(_refs(timeline, [row])), None)


def _refs(timeline: Timeline, rows: list[int]) -> list[SliceRef]:
    """Locate rows of the trace on the timeline; -1 is left out."""
    trace = timeline.rows.trace
    return [
        SliceRef(
            row=row,
            lane=timeline.lane_of_track[int(trace.track[row])],
            name=trace.names[trace.name[row]],
            start_ns=int(trace.ts[row]) - timeline.origin,
            dur_ns=int(trace.dur[row]),
        )
        for row in rows
        if row >= 0
    ]


def _launched(trace: Trace, row: int) -> list[int]:
    correlation = int(trace.correlation[row])
    if trace.cats[trace.cat[row]] not in RUNTIME_CATS or correlation < 0:
        return []
    rows: list[int] = np.flatnonzero(trace.correlation == correlation).tolist()
    return [other for other in rows if trace.cats[trace.cat[other]] in GPU_CATS]


def _gradients(trace: Trace, row: int) -> tuple[list[int], list[int]]:
    """Return the operators whose gradient this one computes, and those that compute this one's gradients.

    They are at the other ends of autograd's arrows.
    """
    if trace.cats[trace.cat[row]] not in CALL_CATS:
        return [], []
    flows = trace.flows()
    low, high = np.searchsorted(flows["ts"], [trace.ts[row], trace.ts[row] + 1])
    at_slice = low + np.flatnonzero(flows["track"][low:high] == trace.track[row])
    operators = []
    for is_start in (False, True):
        ids = flows["id"][at_slice[flows["start"][at_slice] == is_start]]
        ends = np.flatnonzero(np.isin(flows["id"], ids) & (flows["start"] != is_start))
        rows = [_operator_at(trace, int(flows["track"][end]), int(flows["ts"][end])) for end in ends]
        operators.append([other for other in rows if other >= 0])
    return operators[0], operators[1]


def _operator_at(trace: Trace, track: int, ts: int) -> int:
    """Return the operator that starts there, -1 for none.

    Arrows belong to operators with a sequence number; without one the outermost operator counts.
    """
    first, last = trace.track_bounds[track : track + 2].tolist()
    low, high = first + np.searchsorted(trace.ts[first:last], (ts, ts + 1))
    ops = [row for row in range(low, high) if trace.cats[trace.cat[row]] in CALL_CATS]
    numbered = [row for row in ops if trace.sequence[row] >= 0]
    return (numbered or ops or [-1])[0]


def _user_line(trace: Trace, row: int) -> SourceLine | None:
    """Return the innermost line of the user's code around a host slice; None without recorded Python stacks."""
    while row >= 0:
        name = trace.names[trace.name[row]]
        frame = frame_of(name) if trace.cats[trace.cat[row]] == PYTHON_FUNCTION else None
        if frame and is_user_function(name):
            return SourceLine(*frame[:3])
        row = int(trace.parent[row])
    return None


def _launch(timeline: Timeline, row: int) -> tuple[dict[str, Any], list[Fact]]:
    """Locate a GPU event of the trace among the launches of its kernel, after its call, and after what ran before."""
    trace, work = timeline.rows.trace, timeline.profile.of(gpu_work)
    # The device by the args, otherwise by the process of the track.
    device = int(work.device[np.searchsorted(work.index, row)])
    on_device = work.where(work.device == device).index
    launches = on_device[trace.name[on_device] == trace.name[row]]
    launches = launches[np.argsort(trace.ts[launches], kind="stable")]
    number = int(np.flatnonzero(launches == row)[0])
    call = int(trace.launch_of()[row])
    idle = int(idle_before(timeline.profile, device, trace.ts[[row]])[0])
    fields = {
        "number": number + 1,
        "of": len(launches),
        "previous": _ref(timeline, int(launches[number - 1])) if number else None,
        "following": _ref(timeline, int(launches[number + 1])) if number + 1 < len(launches) else None,
    }
    meaning = "How long the GPU was idle before this began"
    before = time_fact("Idle before", idle if idle >= 0 else None, meaning, "Nothing ran before it")
    queued = int(trace.ts[row] - trace.ts[call]) if call >= 0 else None
    meaning = "From the begin of the launch call to its own"
    return fields, [before, time_fact("Queue time", queued, meaning, "Its launch is not in the trace")]


_MAX_HITS = 1000  # in one answer


class TimelineHits(msgspec.Struct, frozen=True):
    """All hits are numbered by time, from 0."""

    query: str
    count: int
    offset: int
    hits: list[SliceRef]  # those from `offset` on
    position: int  # how many begin before the requested time, which is the number of the first one after it


class _Hits(NamedTuple):
    """Columns of equal length; ns."""

    start: Int64s
    end: Int64s
    lane: Int64s
    row: Int64s


def timeline_search(
    timeline: Timeline,
    query: str,
    window: tuple[int, int] | None,
    lanes: Collection[int],
    at: int,
    offset: int,
    limit: int,
) -> TimelineHits:
    """Return slices whose name contains `query`, ignoring case, and what belongs to a compile id.

    window, lanes: search only there; no lanes: in all. At most `limit` hits from `offset` on are listed.
    """
    timeline.check_lanes(lanes)
    hits = timeline.last_search.get(query, partial(_find, timeline, query))
    selected = np.ones(len(hits.row), bool)
    if window is not None:
        selected &= (hits.start < window[1]) & ((hits.end > window[0]) | (hits.start >= window[0]))
    if lanes:
        selected &= np.isin(hits.lane, list(lanes))
    found = np.flatnonzero(selected)
    refs = []
    for index in found[offset : offset + min(limit, _MAX_HITS)].tolist():
        lane, row, start = int(hits.lane[index]), int(hits.row[index]), int(hits.start[index])
        slices = timeline.slices[lane]
        (name,) = slices.name_codes(np.array([row]))
        refs.append(SliceRef(row, lane, slices.texts[name], start, int(hits.end[index]) - start))
    return TimelineHits(query, len(found), offset, refs, int(np.searchsorted(hits.start[found], at)))


def _find(timeline: Timeline, query: str) -> _Hits:
    """Return every hit by (start, lane, row).

    An empty query hits nothing. Idle time is left out: it only has the name of the work after it.
    """
    nothing = np.zeros(0, np.int64)
    parts = [_Hits(nothing, nothing, nothing, nothing)]
    trace, folded = timeline.rows.trace, query.casefold()
    for lane, slices in timeline.slices.items():
        if not query or timeline.lanes[lane].kind == "gaps":
            continue
        is_hit = np.array([folded in text.casefold() for text in slices.texts] or [False])
        if isinstance(slices, TrackSlices):
            first, last = trace.track_bounds[slices.track : slices.track + 2].tolist()
            row = first + np.flatnonzero(is_hit[trace.name[first:last]])
            start, dur = trace.ts[row] - timeline.origin, trace.dur[row]
        else:
            has_compile_id = np.array([item.compile_id == query for item in slices.items])
            row = np.flatnonzero(has_compile_id | is_hit[slices.name_codes(np.arange(len(slices.items)))])
            start, dur = slices.start[row], slices.dur[row]
        parts.append(_Hits(start, start + dur, np.full(len(row), lane), row))
    hits = _Hits(*(np.concatenate(columns) for columns in zip(*parts)))
    order = np.argsort(hits.start, kind="stable")  # lanes ascend, and rows in each
    return _Hits(*(column[order] for column in hits))
