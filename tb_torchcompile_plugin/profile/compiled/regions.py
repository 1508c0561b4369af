"""What ran inside each call of each compiled region, and what do the graph breaks in it cost?

A resume function's region is nested in its caller's, so the host time from the end of one graph execution to the
start of the next is the price of the break between them. A nested region is a resume only if its code is
`torch_dynamo_resume_in_*`; any other is a called frame. See docs/concepts/compile-time.md.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from tb_torchcompile_plugin.compile_log.record import optional_number
from tb_torchcompile_plugin.compile_log.summary_pb2 import FORWARD, Compilation, CompilerCall
from tb_torchcompile_plugin.generated_code.generated_code import GeneratedCode
from tb_torchcompile_plugin.profile.columns import Int64s, Intervals, covered_ns, host_slices, joined, union
from tb_torchcompile_plugin.profile.compiled.ownership import Ownership, Timelines
from tb_torchcompile_plugin.profile.gpu_work import busy
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.arrays import grouped
from tb_torchcompile_plugin.reader.trace.kineto import Trace
from tb_torchcompile_plugin.torch_names import slices
from tb_torchcompile_plugin.torch_names.python_frames import RESUME, frame_of


class BreakLine(NamedTuple):
    """Where a graph broke; "" and None where unknown."""

    file: str
    line: int | None


class Resumes(NamedTuple):
    """Which compile ids are resume functions."""

    ids: frozenset[str]
    breaks: dict[str, BreakLine]  # compile id → the break that ended its graph
    frames: dict[str, BreakLine]  # resume compile id → the line it goes on from, where only stacks show it

    def place(self, broken: str, resumed: str) -> BreakLine:
        """Return where the graph of one compile id broke, from which another one resumes."""
        return self.breaks.get(broken) or self.frames.get(resumed) or BreakLine("", None)


Moment = tuple[int, int]  # start and end, ns


@dataclass(eq=False)
class RegionCall:
    """One call of one region. The lists hold what is its own, not what is in a nested region, in order of time."""

    index: int
    compile_id: str
    start: int
    end: int
    begin: int  # where its time starts: with the guards that chose it
    outer: "RegionCall | None"
    resume: bool
    lookups: list[Moment]  # guard evaluation that led to this call, if recorded
    overhead: list[Moment] = field(default_factory=list)
    graphs: list[Moment] = field(default_factory=list)
    nested: "list[RegionCall]" = field(default_factory=list)
    resumes: "list[RegionCall]" = field(default_factory=list)  # those of `nested` that are resume functions

    @property
    def own_ns(self) -> int:
        """Its region's duration without nested regions."""
        return self.end - self.start - sum(min(call.end, self.end) - call.start for call in self.nested)

    @property
    def guard_ns(self) -> int:
        """Time of its guards."""
        return _total(self.lookups)

    @property
    def overhead_ns(self) -> int:
        """Time of pregraph bytecode and runtime wrappers."""
        return _total(self.overhead)

    @property
    def graph_ns(self) -> int:
        """Time in its graphs."""
        return _total(self.graphs)

    def chain(self) -> "Iterator[RegionCall]":
        """Yield this call and the resumes nested in it, outer ones first: one frame of the user's program."""
        waiting = [self]
        while waiting:
            call = waiting.pop()
            yield call
            waiting += reversed(call.resumes)


def _total(moments: list[Moment]) -> int:
    return sum(end - start for start, end in moments)


@dataclass(frozen=True)
class Break:
    """One execution of a graph break: the gap [start, end) between two graphs of one frame."""

    call: RegionCall  # the region that broke
    resumed: RegionCall
    start: int
    end: int


def compiling(profile: Profile, track: int) -> Intervals:
    """Return when a thread compiled, by the trace; without such slices when any did, by the compile log (ns)."""
    trace, rows = profile.trace, profile.of(_compilations)
    if len(rows) or not profile.summary:
        return busy(trace, rows[trace.track[rows] == track])
    return logged_times(profile.summary.compilations, trace.base_ns)


def compiling_in_trace(profile: Profile) -> Intervals:
    """Return when the trace itself shows compilation, on any thread (ns)."""
    return busy(profile.trace, profile.of(_compilations))


def _compilations(profile: Profile) -> Int64s:
    return host_slices(profile.trace, slices.is_compilation, (*slices.CALL_CATS, slices.PYTHON_FUNCTION))


def logged_times(rows: Iterable[Compilation | CompilerCall], base_ns: int = 0) -> Intervals:
    """Return when these were at work, by the log, on the clock of a trace that begins at `base_ns` (ns)."""
    timed = [row for row in rows if row.HasField("start_ns") and row.HasField("duration_ns")]
    starts = np.array([row.start_ns for row in timed], np.int64) - base_ns
    return union(starts, starts + np.array([row.duration_ns for row in timed], np.int64))


def resumes(profile: Profile) -> Resumes | None:
    """Return which regions are resume functions, by the compile log; None where neither it nor stacks show it.

    In stacks dynamo calls a resume function `torch_dynamo_resume_in_FUNCTION_at_LINE`, and its frame runs inside its
    region.
    """
    trace, summary = profile.trace, profile.summary
    frames = _from_stacks(trace, profile.of(Ownership))
    if summary is None or not summary.compilations:
        stacks = len(trace.select(cat=slices.PYTHON_FUNCTION)) > 0
        return Resumes(frozenset(frames), {}, frames) if stacks else None
    # What each compile id was in this trace: torch._dynamo.reset() gives ids out again.
    end = trace.base_ns + trace.window()[1]
    forward = [row for row in summary.compilations if row.direction == FORWARD and row.start_ns <= end]
    alive = {row.key.compile_id: row for row in sorted(forward, key=lambda row: row.key.epoch)}
    ids = {compile_id for compile_id, row in alive.items() if row.function.startswith(RESUME)}
    breaks = {
        row.key.compile_id: BreakLine(row.file, optional_number(row, "line"))
        for row in summary.graph_breaks
        if row.key.compile_id in alive and alive[row.key.compile_id].key.epoch == row.key.epoch
    }
    return Resumes(frozenset(ids), breaks, frames)


def _from_stacks(trace: Trace, ownership: Ownership) -> dict[str, BreakLine]:
    """Return the lines of resume functions, whose frames run directly inside their own regions."""
    named = ((code, frame_of(name)) for code, name in enumerate(trace.names) if RESUME in name)
    resumed = {code: frame for code, frame in named if frame and frame.function.startswith(RESUME)}
    if not resumed:
        return {}
    stacks = trace.select(cat=slices.PYTHON_FUNCTION)
    rows = stacks[np.isin(trace.name[stacks], list(resumed))]
    owners = Timelines(trace, ownership.regions).at(rows)
    frames = zip(owners.tolist(), (resumed[name] for name in trace.name[rows].tolist()))
    return {ownership.names[code]: BreakLine(*frame[:2]) for code, frame in frames if code >= 0}


def generated_code(profile: Profile) -> GeneratedCode:
    """Return what inductor generated for all graphs of the worker; nothing without compile data."""
    return profile.data.of(GeneratedCode) if profile.data else GeneratedCode(None)


def region_calls(profile: Profile) -> list[RegionCall]:
    """Return the outermost calls in order of time."""
    trace, ownership, resumed = profile.trace, profile.of(Ownership), profile.of(resumes)
    resume_ids = resumed.ids if resumed else ()
    regions = {index: ownership.names[code] for index, code in ownership.regions}
    marks = (*slices.LOOKUPS, *slices.WRAPPERS)
    parts = host_slices(
        trace, lambda name: name in marks or slices.is_forward_graph(name) or slices.is_compilation(name)
    )
    tracks = grouped((*regions, *parts.tolist()), lambda index: int(trace.track[index]))
    calls = [call for rows in tracks.values() for call in _build(trace, sorted(rows), regions, resume_ids)]
    return sorted(calls, key=lambda call: call.start)


def all_calls(calls: list[RegionCall]) -> Iterator[RegionCall]:
    """Yield all calls, nested ones too, outer ones first."""
    waiting = list(reversed(calls))
    while waiting:
        call = waiting.pop()
        yield call
        waiting += reversed(call.nested)


def calls_by_id(profile: Profile) -> Counter[str]:
    """Count how often the span ran the region of each compile id."""
    return Counter(call.compile_id for call in all_calls(profile.of(region_calls)))


def compiled_calls(profile: Profile) -> list[RegionCall]:
    """Return the outermost calls that ran a graph: torch may run a region without one, and everything in it eager."""
    rows = profile.summary.compilations if profile.summary else ()
    empty = {row.key.compile_id for row in rows if row.HasField("graph_ops") and not row.graph_ops}
    marked = marks_graphs(profile.trace)
    return [
        call
        for call in profile.of(region_calls)
        if any(inner.graphs or (not marked and inner.compile_id not in empty) for inner in all_calls([call]))
    ]


def calls_cut_by_breaks(profile: Profile) -> list[RegionCall]:
    """Return calls whose graph broke, and behind the break nothing was compiled.

    Python calls one such after the other where a module breaks in each of its layers. Only the compile log shows them.
    """
    resumed = profile.of(resumes)
    broke = resumed.breaks if resumed else {}
    calls = all_calls(profile.of(region_calls))
    return [call for call in calls if call.graphs and not call.resumes and call.compile_id in broke]


def frames(calls: list[RegionCall]) -> Iterator[RegionCall]:
    """Return the calls that begin a frame: the outermost ones, and the called frames nested in any."""
    return (call for call in all_calls(calls) if not call.resume or call.outer is None)


def marks_graphs(trace: Trace) -> bool:
    """Return whether the trace marks each graph that inductor made.

    Other back ends, and torch before 2.11, mark only those that have a backward: when the graph of a region without
    marks ran is unknown.
    """
    return any(slices.is_graph_call(name) for name in trace.names)


def marks_overhead(trace: Trace) -> bool:
    """Return whether the trace marks pregraph bytecode and runtime wrappers: torch before 2.8 does not."""
    return not set(slices.WRAPPERS).isdisjoint(trace.names)


def breaks(frame: RegionCall) -> Iterator[Break]:
    """Yield the graph breaks that one frame went through, in order of time. Their gaps do not overlap."""
    for call in frame.chain():
        for resumed in call.resumes:
            # From the end of the last graph before the break, or of what prepared the region, or from its start,
            before = [end for _, end in call.graphs if end <= resumed.begin]
            prepared = [end for _, end in call.overhead if end <= resumed.begin]
            start = max(before or prepared or [call.start])
            # to the first graph after it. A further break before any graph begins its own gap.
            graphs = [begin for begin, _ in resumed.graphs]
            if resumed.resumes and graphs and graphs[0] >= resumed.resumes[0].begin:
                graphs = []
            until = graphs[0] if graphs else max([end for _, end in resumed.overhead] or [resumed.start])
            yield Break(call, resumed, start, max(start, until))


def all_breaks(calls: list[RegionCall]) -> Iterator[Break]:
    """Return the graph breaks of all frames, frame by frame."""
    return (gap for frame in frames(calls) for gap in breaks(frame))


def break_host_ns(profile: Profile, gaps: Sequence[Break], besides: Intervals | None = None) -> Int64s:
    """Return what each break cost the host (ns): its gap without what its thread compiled meanwhile.

    besides: more to leave out. The time of compiling is counted by recompiles.
    """
    starts, ends = (np.array([getattr(gap, edge) for gap in gaps], np.int64) for edge in ("start", "end"))
    tracks, host = profile.trace.track[[gap.call.index for gap in gaps]], ends - starts
    for track in np.unique(tracks).tolist():
        rows, taken = tracks == track, profile.of(compiling, track)
        if besides:
            taken = joined(taken, besides)
        host[rows] -= covered_ns(taken, starts[rows], ends[rows])
    return host


def _build(
    trace: Trace, rows: list[int], regions: dict[int, str], resume_ids: Collection[str]
) -> list[RegionCall]:
    """Return the outermost calls of one thread. Slices are in order of time; a region may outlive the one around it."""
    outermost: list[RegionCall] = []
    open_calls: list[RegionCall] = []
    # By the call around it: the lookup that may lead to its next region.
    lookups: dict[RegionCall | None, Moment] = {}
    graph_until = -1
    for index in rows:
        start = int(trace.ts[index])
        end = start + int(trace.dur[index])
        open_calls = [call for call in open_calls if call.end > start]
        around = open_calls[-1] if open_calls else None
        name = trace.names[trace.name[index]]
        if index in regions:
            lookup = [lookups.pop(around)] if around in lookups else []
            begin, is_resume = lookup[0][0] if lookup else start, regions[index] in resume_ids
            call = RegionCall(index, regions[index], start, end, begin, around, is_resume, lookup)
            (around.nested if around else outermost).append(call)
            if around and is_resume:
                around.resumes.append(call)
            open_calls.append(call)
        elif name in slices.LOOKUPS:
            lookups[around] = (start, end)  # an earlier one led to eager code
        elif slices.is_compilation(name):
            lookups.pop(around, None)  # no entry held: it led to a compilation
        elif around and name in slices.WRAPPERS:
            around.overhead.append((start, end))
        elif around and start >= graph_until:
            around.graphs.append((start, end))
            graph_until = end
    return outermost
