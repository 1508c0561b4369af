"""Every call of every compiled region, as a tree: what ran inside it, and what the graph breaks in it cost.

A resume function's region is nested in its caller's, so the host time from the end of one graph execution to the
start of the next is the price of the break between them. A nested region is a resume only if its code is
`torch_dynamo_resume_in_*`; any other is a called frame. See docs/definitions.md for each term.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from tb_torchcompile_plugin.compile_log.record import known_number
from tb_torchcompile_plugin.compile_log.summary_pb2 import FORWARD, Compilation, CompileSummary
from tb_torchcompile_plugin.generated_code.generated_code import GeneratedCode
from tb_torchcompile_plugin.profile.columns import host_slices
from tb_torchcompile_plugin.profile.compiled.ownership import Ownership
from tb_torchcompile_plugin.profile.gpu_work import busy
from tb_torchcompile_plugin.profile.intervals import Int64s, Intervals, joined, union, within, without
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import StepWindows, profiled_time
from tb_torchcompile_plugin.reader.arrays import grouped
from tb_torchcompile_plugin.reader.trace.kineto import Trace
from tb_torchcompile_plugin.torch_names import slices
from tb_torchcompile_plugin.torch_names.python_frames import RESUME, frame_of
from tb_torchcompile_plugin.torch_names.slices import CALL_CATS, PYTHON_FUNCTION, is_compilation

# When did torch compile? By the trace's own slices; where it has none, by the clock of the compile log.


def compiling(profile: Profile, track: int) -> Intervals:
    """On this thread, which the log does not tell; on the clock of the trace (ns)."""
    trace, rows = profile.trace, profile.of(_slices)
    if len(rows) or not profile.summary:
        return busy(trace, rows[trace.track[rows] == track])
    return compiled_when(profile.summary.compilations, trace.base_ns)


def compiling_in_trace(profile: Profile) -> Intervals:
    """When the trace itself shows compilation, on any thread (ns)."""
    return busy(profile.trace, profile.of(_slices))


def _slices(profile: Profile) -> Int64s:
    return host_slices(profile.trace, is_compilation, (*CALL_CATS, PYTHON_FUNCTION))


def compiled_when(rows: Iterable[Compilation], base_ns: int) -> Intervals:
    """When these were compiled, by the log, on the clock of a trace that begins at `base_ns` (ns)."""
    known = [row for row in rows if row.HasField("start_ns") and row.HasField("duration_ns")]
    starts = np.array([row.start_ns - base_ns for row in known], np.int64)
    return union(starts, starts + np.array([row.duration_ns for row in known], np.int64))


# Which compile ids are resume functions, and where did the graph break that they go on from? The compile
# log tells. Without one, Python stacks in the trace do: dynamo calls a resume function
# `torch_dynamo_resume_in_FUNCTION_at_LINE`, and its frame runs inside its region. With neither, nobody
# knows.


class BreakLine(NamedTuple):
    """Where a graph broke; "" and None where nobody told."""

    file: str
    line: int | None


class Resumes(NamedTuple):
    """`ids`: the compile ids whose code is a resume function. `breaks`: compile id → the break that ended its graph.
    `frames`: resume compile id → the line it goes on from, where only stacks told."""

    ids: frozenset[str]
    breaks: dict[str, BreakLine]
    frames: dict[str, BreakLine]

    def place(self, broken: str, resumed: str) -> BreakLine:
        return self.breaks.get(broken) or self.frames.get(resumed) or BreakLine("", None)


def resumes(profile: Profile) -> Resumes | None:
    """Which regions are resume functions; None where neither a compile log nor stacks tell."""
    trace, ownership, summary = profile.trace, profile.of(Ownership), profile.summary
    frames = _from_stacks(trace, ownership)
    if summary is None or not summary.compilations:
        stacks = len(trace.select(cat=PYTHON_FUNCTION)) > 0
        return Resumes(frozenset(frames), {}, frames) if stacks else None
    alive = _alive(trace, summary)
    ids = {compile_id for compile_id, row in alive.items() if row.function.startswith(RESUME)}
    breaks = {
        row.key.compile_id: BreakLine(row.file, known_number(row, "line"))
        for row in summary.graph_breaks
        if row.key.compile_id in alive and alive[row.key.compile_id].key.epoch == row.key.epoch
    }
    return Resumes(frozenset(ids), breaks, frames)


def _alive(trace: Trace, summary: CompileSummary) -> dict[str, Compilation]:
    """compile id → what it stood for in this trace: torch._dynamo.reset() gives ids out anew."""
    end = trace.base_ns + trace.window()[1]
    forward = [row for row in summary.compilations if row.direction == FORWARD and row.start_ns <= end]
    return {row.key.compile_id: row for row in sorted(forward, key=lambda row: row.key.epoch)}


def _from_stacks(trace: Trace, ownership: Ownership) -> dict[str, BreakLine]:
    """A resume function's frame runs directly inside its own region."""
    known = ((code, frame_of(name)) for code, name in enumerate(trace.names) if RESUME in name)
    resumed = {code: frame for code, frame in known if frame and frame.function.startswith(RESUME)}
    if not resumed:
        return {}
    stacks = trace.select(cat=PYTHON_FUNCTION)
    lines: dict[str, BreakLine] = {}
    regions = np.array([index for index, _ in ownership.regions], np.int64)
    ids = [ownership.names[code] for _, code in ownership.regions]
    for row in stacks[np.isin(trace.name[stacks], list(resumed))]:
        around = (trace.track[regions] == trace.track[row]) & (trace.ts[regions] <= trace.ts[row])
        around &= trace.ts[row] < trace.ts[regions] + trace.dur[regions]
        if around.any():
            frame = resumed[int(trace.name[row])]
            innermost = int(np.flatnonzero(around)[-1])  # regions are in order of time
            lines[ids[innermost]] = BreakLine(frame.file, frame.line)
    return lines


# What inductor generated for the worker of a profile, by graph: the source of a kernel and the user's
# lines.


def generated_code(profile: Profile) -> GeneratedCode:
    """That of all graphs of the worker; nothing where no compile data tells."""
    return profile.data.of(GeneratedCode) if profile.data else GeneratedCode(None)


Moment = tuple[int, int]  # start and end, ns


@dataclass(eq=False)
class RegionCall:
    """One call of one region. The lists hold what is its own, not what is in a nested region, in order of time."""

    index: int
    compile_id: str
    start: int
    end: int
    outer: RegionCall | None
    resume: bool
    lookups: list[Moment] = field(default_factory=list)  # guard evaluation that led to this call, if recorded
    overhead: list[Moment] = field(default_factory=list)
    graphs: list[Moment] = field(default_factory=list)
    nested: list[RegionCall] = field(default_factory=list)

    @property
    def begin(self) -> int:
        """Where this call's time starts: with the guards that chose it."""
        return self.lookups[0][0] if self.lookups else self.start

    @property
    def own_ns(self) -> int:
        """Its region's duration less what nested regions take of it."""
        return self.end - self.start - sum(min(call.end, self.end) - call.start for call in self.nested)

    @property
    def guard_ns(self) -> int:
        return _total(self.lookups)

    @property
    def overhead_ns(self) -> int:
        return _total(self.overhead)

    @property
    def graph_ns(self) -> int:
        return _total(self.graphs)

    @property
    def resumes(self) -> list[RegionCall]:
        return [call for call in self.nested if call.resume]

    def chain(self) -> Iterator[RegionCall]:
        """This call and the resumes nested in it, outer ones first: one frame of the user's program."""
        waiting = [self]
        while waiting:
            call = waiting.pop()
            yield call
            waiting += reversed(call.resumes)


@dataclass(frozen=True)
class Break:
    """One execution of a graph break: the gap [start, end) between two graphs of one frame."""

    call: RegionCall  # the region that broke
    resumed: RegionCall
    start: int
    end: int


def region_calls(profile: Profile) -> list[RegionCall]:
    """The outermost calls in order of time."""
    trace, ownership, known = profile.trace, profile.of(Ownership), profile.of(resumes)
    resumed = known.ids if known else ()
    regions = {index: ownership.names[code] for index, code in ownership.regions}
    parts = (*regions, *host_slices(trace, _is_part).tolist())
    tracks = grouped(parts, lambda index: int(trace.track[index]))
    calls = [call for rows in tracks.values() for call in _build(trace, sorted(rows), regions, resumed)]
    return sorted(calls, key=lambda call: call.start)


def every(calls: list[RegionCall]) -> Iterator[RegionCall]:
    """All calls, nested ones too, outer ones first."""
    waiting = list(reversed(calls))
    while waiting:
        call = waiting.pop()
        yield call
        waiting += reversed(call.nested)


def compiled_calls(profile: Profile) -> list[RegionCall]:
    """The outermost calls that ran a graph: torch may run a region that holds none, and everything in it eager."""
    made = profile.summary.compilations if profile.summary else ()
    empty = {row.key.compile_id for row in made if row.HasField("graph_ops") and not row.graph_ops}
    marked = marks_graphs(profile.trace)
    return [
        call
        for call in profile.of(region_calls)
        if any(one.graphs or (not marked and one.compile_id not in empty) for one in every([call]))
    ]


def cut_short(profile: Profile) -> list[RegionCall]:
    """Calls whose graph broke, and behind the break nothing was compiled: Python calls one such after the other where a
    module breaks in each of its layers. By the compile log: a trace alone does not tell that they were cut."""
    known = profile.of(resumes)
    broke = known.breaks if known else {}
    calls = every(profile.of(region_calls))
    return [call for call in calls if call.graphs and not call.resumes and call.compile_id in broke]


def frames(calls: list[RegionCall]) -> Iterator[RegionCall]:
    """The calls that begin a frame: the outermost ones, and the called frames nested in any."""
    return (call for call in every(calls) if not call.resume or call.outer is None)


def lookups_in_vain(profile: Profile) -> int:
    """How often dynamo looked a frame up in its cache and no compiled region followed: torch has given it up. 0 where
    something was compiled meanwhile, for that follows a lookup, too, and outside of marked steps, where frames are met
    for the first time."""
    trace, steps = profile.trace, profile.of(profiled_time)
    if not len(profile.of(StepWindows)) or len(host_slices(trace, slices.is_compilation)):
        return 0
    lookups, regions = (
        host_slices(trace, wanted) for wanted in (slices.LOOKUPS.__contains__, slices.is_region)
    )
    inside = [int((within(steps, trace.ts[rows]) >= 0).sum()) for rows in (lookups, regions)]
    return max(inside[0] - inside[1], 0)


def marks_graphs(trace: Trace) -> bool:
    """Whether the trace marks each graph that inductor made. Other back ends, and torch before 2.11, mark only those
    that have a backward: of a region without marks nobody knows when its graph ran."""
    return any(slices.is_graph_call(name) for name in trace.names)


def marks_overhead(trace: Trace) -> bool:
    """Whether the trace marks pregraph bytecode and runtime wrappers: torch before 2.8 does not."""
    return not set(slices.WRAPPERS).isdisjoint(trace.names)


def breaks(frame: RegionCall) -> Iterator[Break]:
    """The graph breaks that one frame went through, in order of time. Their gaps do not overlap."""
    for call in frame.chain():
        for resumed in call.resumes:
            start = _resumed_from(call, resumed)
            yield Break(call, resumed, start, max(start, _resumed_at(resumed)))


def every_break(calls: list[RegionCall]) -> Iterator[Break]:
    """The graph breaks of all frames, frame by frame."""
    return (gap for frame in frames(calls) for gap in breaks(frame))


def host_ns(profile: Profile, gaps: Sequence[Break], besides: Intervals | None = None) -> Int64s:
    """What each break cost the host (ns): its gap less what its thread compiled meanwhile, of which recompiles tell,
    and less what else is given."""
    starts, ends = (np.array([getattr(gap, edge) for gap in gaps], np.int64) for edge in ("start", "end"))
    tracks, host = profile.trace.track[[gap.call.index for gap in gaps]], ends - starts
    for track in np.unique(tracks).tolist():
        mine, taken = tracks == track, profile.of(compiling, track)
        if besides:
            taken = joined(taken, besides)
        host[mine] = without(taken, starts[mine], ends[mine])
    return host


def _resumed_from(call: RegionCall, resumed: RegionCall) -> int:
    """End of the last graph before the break; else of what prepared the region; else the region's start."""
    before = [end for _, end in call.graphs if end <= resumed.begin]
    prepared = [end for _, end in call.overhead if end <= resumed.begin]
    return max(before or prepared or [call.start])


def _resumed_at(resumed: RegionCall) -> int:
    """Start of the first graph after the break. A further break before any graph begins its own gap."""
    own = [start for start, _ in resumed.graphs]
    if own and (not resumed.resumes or own[0] < resumed.resumes[0].begin):
        return own[0]
    return max([end for _, end in resumed.overhead] or [resumed.start])


def _total(moments: list[Moment]) -> int:
    return sum(end - start for start, end in moments)


def _is_part(name: str) -> bool:
    return (
        name in slices.LOOKUPS
        or name in slices.WRAPPERS
        or slices.is_forward_graph(name)
        or slices.is_compilation(name)
    )


def _build(
    trace: Trace, rows: list[int], regions: dict[int, str], resumes: Collection[str]
) -> list[RegionCall]:
    """The outermost calls of one thread. Slices are in order of time; a region may outlive the one around it."""
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
            call = RegionCall(index, regions[index], start, end, around, regions[index] in resumes, lookup)
            (around.nested if around else outermost).append(call)
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
