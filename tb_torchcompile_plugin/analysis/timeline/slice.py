"""All that is known of one slice of the timeline: its place, its args, and what it belongs together with."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis.formatting import plural
from tb_torchcompile_plugin.analysis.runtime.kernel_rows import KernelName
from tb_torchcompile_plugin.analysis.timeline.lanes import ItemSlices, Lane, Slices, TrackSlices
from tb_torchcompile_plugin.analysis.timeline.timeline import Fact, Timeline, exact, time_fact
from tb_torchcompile_plugin.errors import BadRequest, UserError
from tb_torchcompile_plugin.profile.compiled.ownership import Ownership
from tb_torchcompile_plugin.profile.gpu.idle import idle_before
from tb_torchcompile_plugin.profile.gpu_work import gpu_work
from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.trace.kineto import Trace
from tb_torchcompile_plugin.torch_names.python_frames import frame_of, is_users
from tb_torchcompile_plugin.torch_names.slices import CALL_CATS, GPU_CATS, PYTHON_FUNCTION, RUNTIME_CATS

# Where one launch of a kernel stands: among all launches of it, behind its call, and behind what ran
# before.


class KernelPlace(NamedTuple):
    """number: of its launches on its device, by time, from 1; previous, following: the ones beside it, -1 for none.
    queued_ns: from the begin of the call that launched it, None where that is not in the trace. idle_before_ns: how
    long its device did nothing before it began; 0 where it did not wait for it, None before the first event."""

    number: int
    of: int
    previous: int
    following: int
    queued_ns: int | None
    idle_before_ns: int | None


def kernel_place(profile: Profile, row: int) -> KernelPlace:
    """row: of the trace, a GPU event."""
    trace, work = profile.trace, profile.of(gpu_work)
    mine = work.where(work.device == trace.device[row]).index
    same = mine[trace.name[mine] == trace.name[row]]
    same = same[np.argsort(trace.ts[same], kind="stable")]
    place = int(np.flatnonzero(same == row)[0])
    call = int(trace.launch_of()[row])
    waited = int(idle_before(profile, int(trace.device[row]), trace.ts[[row]])[0])
    return KernelPlace(
        number=place + 1,
        of=len(same),
        previous=_at(same, place - 1),
        following=_at(same, place + 1),
        queued_ns=int(trace.ts[row] - trace.ts[call]) if call >= 0 else None,
        idle_before_ns=waited if waited >= 0 else None,
    )


def _at(rows: Int64s, place: int) -> int:
    return int(rows[place]) if 0 <= place < len(rows) else -1


_MOST = 20  # related slices that are told
_ASK = "Ask for a row that `timeline_window` gave"


class SliceRef(msgspec.Struct, frozen=True):
    """A slice that is somewhere else on the timeline."""

    row: int
    lane: int
    name: str
    start_ns: int
    dur_ns: int


class SourceLine(msgspec.Struct, frozen=True):
    file: str
    line: int
    function: str


class RelatedSlices(msgspec.Struct, frozen=True):
    """The first of them; `more`: how many are left out."""

    title: str
    slices: list[SliceRef]
    more: int


class TimelineSlice(msgspec.Struct, frozen=True, kw_only=True):
    """`parent`: the row around it in its lane. `args`: as recorded; null with `args_problem` where the file is gone.

    `launch` is the call that launched this GPU work and `kernels` what this call launched; `forward` and `backward` are
    the ends of autograd's arrows, `op` is the host op of the same External id. `slice`: what this item is in the trace.
    `facts`: what is told of it first; `related`: the slices named so far, `arguments`: the args, as they are told.
    Of GPU work: the `number` of its launches on its device, by time, with those beside it; `queued_ns` from the begin
    of its launch on, `idle_before_ns`: how long the device did nothing before. All are null where they are not known.
    """

    row: int
    lane: int
    name: str
    cat: str
    color: int
    start_ns: int
    dur_ns: int
    self_ns: int | None = None
    depth: int
    crossing: bool = False
    parent: int | None
    args: dict[str, Any] | None
    args_problem: str = ""
    launch: SliceRef | None = None
    kernels: list[SliceRef] = []
    op: SliceRef | None = None
    forward: SliceRef | None = None
    backward: list[SliceRef] = []
    slice: SliceRef | None = None
    compile_id: str | None
    epoch: int | None = None
    graph_key: str | None = None
    kernel: str | None
    kernel_row: str | None = None
    number: int | None = None
    of: int | None = None
    previous: SliceRef | None = None
    following: SliceRef | None = None
    queued_ns: int | None = None
    idle_before_ns: int | None = None
    user_line: SourceLine | None = None
    facts: list[Fact] = []
    related: list[RelatedSlices] = []
    arguments: list[Fact] = []


def timeline_slice(timeline: Timeline, lane: int, row: int) -> TimelineSlice:
    """lane -1: the one that has this row of the trace. Raises BadRequest where the lane has no such slice."""
    if lane < 0 and row < len(timeline.rows.trace):
        lane = timeline.lane_of_track[int(timeline.rows.trace.track[row])]
    timeline.check_lanes([lane])
    slices = timeline.slices.get(lane)
    if isinstance(slices, ItemSlices) and 0 <= row < len(slices.start):
        answer = _item(timeline, slices, lane, row)
    elif isinstance(slices, TrackSlices) and slices.holds(row):
        answer = _Details(timeline, slices, lane, row).answer()
    else:
        raise BadRequest(f"lane {lane} has no slice {row}", next_step=_ASK)
    return msgspec.structs.replace(
        answer,
        facts=_facts(answer, timeline.lanes[lane]),
        related=_related(answer),
        arguments=[Fact(name, _text(value)) for name, value in (answer.args or {}).items()],
    )


def _text(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _facts(known: TimelineSlice, lane: Lane) -> list[Fact]:
    facts = [
        time_fact("Duration", known.dur_ns),
        time_fact("Self", known.self_ns, unknown="What is inside of it is not known"),
    ]
    if known.number is not None:
        meaning = "How long the GPU did nothing before it began"
        facts.append(time_fact("Idle before", known.idle_before_ns, meaning, "Nothing ran before it"))
        meaning = "From the begin of the call that launched it to its own"
        facts.append(time_fact("Queue time", known.queued_ns, meaning, "Its launch is not in the trace"))
    facts.append(Fact("Start", exact(known.start_ns), "From the trace’s first event"))
    facts.append(
        Fact("Lane", f"{lane.title}, {lane.group}" if lane.group not in ("", "compile") else lane.title)
    )
    if known.graph_key:
        facts.append(Fact("Graph key", known.graph_key))
    if known.crossing:
        facts.append(Fact("Crosses", "It outlasts the slice around it"))
    return facts


def _related(known: TimelineSlice) -> list[RelatedSlices]:
    groups: dict[str, list[SliceRef | None]] = {
        "Launched by": [known.launch],
        f"Launched {plural(len(known.kernels), 'kernel')}": [*known.kernels],
        "Operator": [known.op],
        "Forward": [known.forward],
        "Backward": [*known.backward],
        "In the trace": [known.slice],
    }
    listed = {title: [one for one in slices if one] for title, slices in groups.items()}
    return [
        RelatedSlices(title, slices[:_MOST], max(0, len(slices) - _MOST))
        for title, slices in listed.items()
        if slices
    ]


def slice_ref(timeline: Timeline, row: int) -> SliceRef:
    """A row of the trace as it is found on the timeline."""
    trace = timeline.rows.trace
    return SliceRef(
        row=row,
        lane=timeline.lane_of_track[int(trace.track[row])],
        name=trace.names[trace.name[row]],
        start_ns=int(trace.ts[row]) - timeline.origin,
        dur_ns=int(trace.dur[row]),
    )


def _item(timeline: Timeline, slices: ItemSlices, lane: int, row: int) -> TimelineSlice:
    item = slices.items[row]
    parent = slices.parent(row)
    return TimelineSlice(
        row=row,
        lane=lane,
        name=item.name,
        cat="",
        color=_color(slices, row),
        start_ns=item.start,
        dur_ns=item.dur,
        depth=int(slices.line[row]),
        parent=parent,
        args=item.facts,
        slice=None if item.row is None else slice_ref(timeline, item.row),
        compile_id=item.compile_id,
        epoch=item.epoch,
        kernel=item.facts.get("kernel"),
    )


def _color(slices: Slices, row: int) -> int:
    return int(slices.colors(np.array([row]))[0])


class _Details:
    """What a row of the trace is, and what leads from it to others."""

    def __init__(self, timeline: Timeline, slices: TrackSlices, lane: int, row: int) -> None:
        self._timeline, self._slices, self._lane, self._row = timeline, slices, lane, row
        self._trace = timeline.rows.trace
        self._cat = self._trace.cats[self._trace.cat[row]]
        self._name = self._trace.names[self._trace.name[row]]

    def answer(self) -> TimelineSlice:
        trace, row, rows = self._trace, self._row, self._timeline.rows
        args, problem = self._args()
        launch = int(trace.launch_of()[row])
        kernels = self._kernels()
        parent = int(trace.parent[row])
        host = launch if launch >= 0 else row
        owner, key = self._ownership(host)
        line = rows.line_of(row)
        track = int(trace.track[row])
        place = kernel_place(self._timeline.profile, row) if self._cat in GPU_CATS else None
        return TimelineSlice(
            row=row,
            lane=self._lane,
            name=self._name,
            cat=self._cat,
            color=_color(self._slices, row),
            start_ns=int(trace.ts[row]) - self._timeline.origin,
            dur_ns=int(trace.dur[row]),
            self_ns=int(trace.self_ns[row]),
            depth=line,
            crossing=line >= rows.depths[track],
            parent=parent if parent >= 0 else None,
            args=args,
            args_problem=problem,
            launch=self._ref(launch),
            kernels=[slice_ref(self._timeline, kernel) for kernel in kernels],
            op=self._op(),
            forward=self._ref(self._forward()),
            backward=[slice_ref(self._timeline, other) for other in self._backward()],
            compile_id=owner,
            graph_key=key,
            kernel=self._kernel_name(kernels),
            kernel_row=self._kernel_row(kernels, owner, key),
            user_line=user_line(trace, host),
            number=place and place.number,
            of=place and place.of,
            previous=self._ref(place.previous) if place else None,
            following=self._ref(place.following) if place else None,
            queued_ns=place and place.queued_ns,
            idle_before_ns=place and place.idle_before_ns,
        )

    def _ref(self, row: int) -> SliceRef | None:
        return slice_ref(self._timeline, row) if row >= 0 else None

    def _args(self) -> tuple[dict[str, Any] | None, str]:
        try:
            return self._trace.args(self._row), ""
        except (UserError, OSError) as error:
            return None, str(error)

    def _kernels(self) -> list[int]:
        correlation = int(self._trace.correlation[self._row])
        if self._cat not in RUNTIME_CATS or correlation < 0:
            return []
        same = self._trace.slices_of("correlation", correlation)
        return [int(row) for row in same if self._trace.cats[self._trace.cat[row]] in GPU_CATS]

    def _kernel_name(self, kernels: list[int]) -> str | None:
        if self._cat in GPU_CATS:
            return str(self._name)
        return slice_ref(self._timeline, kernels[0]).name if kernels else None

    def _kernel_row(self, kernels: list[int], owner: str | None, graph: str | None) -> str | None:
        """The key of its row among the kernels."""
        row = self._row if self._cat in GPU_CATS else kernels[0] if kernels else None
        if row is None:
            return None
        trace = self._trace
        return KernelName(int(trace.device[row]), trace.names[trace.name[row]], owner, graph).key

    def _op(self) -> SliceRef | None:
        row = int(self._trace.op_of()[self._row])
        return self._ref(row) if row != self._row else None

    def _ownership(self, host: int) -> tuple[str | None, str | None]:
        ownership, at = self._timeline.profile.of(Ownership), np.array([host])
        owner, key = int(ownership.compile_ids(at)[0]), int(ownership.graph_keys(at)[0])
        return ownership.name(owner), ownership.name(key)

    def _forward(self) -> int:
        """The op whose gradient this one computes."""
        return next(iter(self._across(starts_here=False)), -1)

    def _backward(self) -> list[int]:
        """The ops that compute this one's gradients."""
        return self._across(starts_here=True)

    def _across(self, *, starts_here: bool) -> list[int]:
        """The slices at the other ends of the forward → backward arrows that start, or end, where this slice starts."""
        if self._cat not in CALL_CATS:
            return []
        flows = self._trace.flows()
        low, high = np.searchsorted(flows["ts"], [self._trace.ts[self._row], self._trace.ts[self._row] + 1])
        here = np.flatnonzero(
            (flows["track"][low:high] == self._slices.track) & (flows["start"][low:high] == starts_here)
        )
        ids = flows["id"][low:high][here]
        ends = np.flatnonzero(np.isin(flows["id"], ids) & (flows["start"] != starts_here))
        rows = [_row_at(self._trace, int(flows["track"][end]), int(flows["ts"][end])) for end in ends]
        return [row for row in rows if row >= 0]


def _row_at(trace: Trace, track: int, ts: int) -> int:
    """The host op that starts there: the one with a sequence number, as arrows belong to those, else the outermost."""
    first, last = trace.track_bounds[track : track + 2].tolist()
    low, high = first + np.searchsorted(trace.ts[first:last], (ts, ts + 1))
    ops = [row for row in range(low, high) if trace.cats[trace.cat[row]] in CALL_CATS]
    numbered = [row for row in ops if trace.sequence[row] >= 0]
    return (numbered or ops or [-1])[0]


def user_line(trace: Trace, row: int) -> SourceLine | None:
    """The innermost line of the user's code around a host slice; None where no Python stacks were recorded."""
    while row >= 0:
        name = trace.names[trace.name[row]]
        frame = frame_of(name) if trace.cats[trace.cat[row]] == PYTHON_FUNCTION else None
        if frame and is_users(name):
            return SourceLine(*frame)
        row = int(trace.parent[row])
    return None
