"""What the compile data tells of CUDA graphs: each recording with its reason and price, and what torch skipped."""

from __future__ import annotations

import json
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Mapping
from typing import Annotated, Literal, NamedTuple

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis.sheet import head
from tb_torchcompile_plugin.compile_log.record import REASONS, Direction, Reason, direction_of, known_number
from tb_torchcompile_plugin.compile_log.summary_pb2 import CompileSummary, CudaGraphFunction, PhaseSpan
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import StepWindows
from tb_torchcompile_plugin.profile.units import us
from tb_torchcompile_plugin.reader.arrays import grouped
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.torch_names.graph_breaks import skip_reason
from tb_torchcompile_plugin.torch_names.python_frames import TracebackFrame, places
from tb_torchcompile_plugin.torch_names.records import CUDAGRAPH_SKIP_REASON, CUDAGRAPH_TIME, SYMBOLS
from tb_torchcompile_plugin.torch_names.slices import NEW_FUNCTION, RECORDING

# The rows of the panel *CUDA graphs*.


GraphState = Literal[
    "replayed", "recording", "recorded_again", "new_sizes", "waiting", "skipped", "partly", "not_run"
]


class GraphedFunction(msgspec.Struct, frozen=True):
    """What torch.compile was to run as a CUDA graph, by compile id and direction.

    state: in this span: `replayed` each call; `recording`, as each does once; `recorded_again`; `new_sizes`: each call
    warmed up for sizes of its own; `waiting`: it ran kernel by kernel and could not be recorded; `skipped` by torch;
    `partly` replayed, partly not; `not_run`. why: of what is not replayed. Of the span: calls, `replayed_calls`,
    `recorded_calls`, `plain_calls` kernel by kernel. Of the process, by the log: recordings, and how long they took
    (`recording_us`, of the host); `recording_steps`: in steps. functions: of torch's, one for each set of symbolic
    sizes and each part of a graph. `recording_call_us`, `replay_us`: median host time of a call that records and of one
    that replays; `replay_kernels`: of one such call, mean; `launches_avoided`: all of the span.
    """

    compile_id: str
    direction: Direction
    function: str
    file: str
    line: int | None
    state: GraphState
    why: Annotated[str, head(grow=True)]
    calls: int
    replayed_calls: Annotated[int, head("Replayed")]
    recorded_calls: Annotated[int, head("Recorded")]
    plain_calls: Annotated[int, head("Kernel by kernel")]
    recordings: int | None
    functions: Annotated[int | None, head(hidden=True)]
    recording_us: Annotated[float | None, head(hidden=True)]
    recording_steps: Annotated[float | None, head("Steps that record", hidden=True)]
    recording_call_us: Annotated[float | None, head("A call that records", hidden=True)]
    replay_us: Annotated[float | None, head("A replay", hidden=True)]
    replay_kernels: Annotated[float | None, head("Kernels a replay", hidden=True)]
    launches_avoided: int | None


class GraphRecording(msgspec.Struct, frozen=True):
    """One recording, in the order in which they were made. graph_id, function_id: torch's numbers; these and `reason`
    are None where its own objects were not read, and then direction is None where the log does not tell. sizes: the
    values of symbolic sizes. inputs: those that lay elsewhere; file, line: where the program uses the first. step: the
    profiled step that it fell into. recording_us: of the host."""

    compile_id: str
    direction: Direction | None
    graph_id: int | None
    function_id: int | None
    reason: Reason | None
    sizes: str
    inputs: list[str]
    file: str
    line: int | None
    step: str | None
    recording_us: float | None


class SkippedGraph(msgspec.Struct, frozen=True):
    """Why torch uses no CUDA graph, in its words, and the line that it names. compile_id: "" where it does not tell."""

    compile_id: str
    reason: str
    file: str
    line: int | None
    text: Annotated[str, head("In torch's words", grow=True)]


class GraphCount(msgspec.Struct, frozen=True):
    """One count by several witnesses; None for one that cannot know it. agree: None where there is one alone."""

    counted: str
    log: int | None
    trace: int | None
    torch: int | None
    agree: bool | None


class GraphPool(msgspec.Struct, frozen=True):
    """The memory that all CUDA graphs of a device share, when the summary was written. warm_ups: runs kernel by kernel
    inside of it."""

    device: int
    pool_bytes: int | None
    graphs: int
    functions: int
    warm_ups: int | None


class ReplayedKernel(msgspec.Struct, frozen=True):
    """A kernel that ran out of replayed graphs of a compilation."""

    kernel: str
    compile_id: str
    direction: Direction
    category: str
    launches: int
    device_us: float


class CudaGraphReport(msgspec.Struct, frozen=True):
    """Did CUDA graphs serve? says: the first sentence is the answer. Empty tables where torch was not told to use
    any."""

    says: tuple[str, ...]
    functions: tuple[GraphedFunction, ...]
    skipped: tuple[SkippedGraph, ...]
    recordings: tuple[GraphRecording, ...]
    counts: tuple[GraphCount, ...]
    replayed_kernels: Annotated[tuple[ReplayedKernel, ...], head("Kernels out of replayed graphs")]
    pools: tuple[GraphPool, ...]
    code: str | None


class LoggedGraphs(NamedTuple):
    """torch's spans of its log, in order of time."""

    preparations: list[PhaseSpan]
    recordings: list[PhaseSpan]


def logged_graphs(data: CompileData) -> LoggedGraphs:
    """Since recording began: of what was there before the log says nothing."""
    spans = sorted(data.summary.spans, key=lambda span: span.start_ns)
    return LoggedGraphs(
        [span for span in spans if span.name == NEW_FUNCTION],
        [span for span in spans if span.name == RECORDING],
    )


def graph_functions(data: CompileData) -> list[CudaGraphFunction]:
    """torch's own objects, as they were when the summary was written."""
    return [row for tree in data.summary.cuda_graph_trees for row in tree.functions]


def graph_recordings(profile: Profile) -> list[GraphRecording]:
    """In the order in which they were made: by torch's own objects; where they were not read, by the log."""
    data = profile.data
    if data is None:
        return []
    logged = _by_graph(data)
    known = [
        _row(profile, function, place, logged)
        for function in data.of(graph_functions)
        for place in range(len(function.recordings))
    ]
    return sorted(known, key=lambda row: row.graph_id or 0) or _logged_rows(profile, data)


def _logged_rows(profile: Profile, data: CompileData) -> list[GraphRecording]:
    spans, directions = data.of(logged_graphs).recordings, data.of(logged_directions)
    sizes, numbers = _met_sizes(data), _numbered(spans)
    return [
        GraphRecording(
            compile_id=span.key.compile_id,
            direction=direction,
            graph_id=None,
            function_id=None,
            reason=("first" if number == 0 else "size") if span.key.compile_id in sizes else None,
            sizes="",
            inputs=[],
            file="",
            line=None,
            step=_step(profile, span),
            recording_us=us(span.duration_ns),
        )
        for span, direction, number in zip(spans, directions, numbers)
    ]


def _numbered(spans: list[PhaseSpan]) -> list[int]:
    """Which recording of its compile id each is, from 0."""
    seen = Counter[str]()
    numbers = []
    for span in spans:
        numbers.append(seen[span.key.compile_id])
        seen[span.key.compile_id] += 1
    return numbers


def _met_sizes(data: CompileData) -> set[str]:
    """Compile ids with symbolic sizes of which torch prepared as many functions as it recorded: each for sizes of its
    own."""
    logged = data.of(logged_graphs)
    made = Counter(span.key.compile_id for span in logged.recordings)
    prepared = Counter(span.key.compile_id for span in logged.preparations)
    symbols = {row.key.compile_id for row in data.summary.shape_events if row.kind in SYMBOLS}
    return {name for name, times in made.items() if 1 < times <= prepared[name] and name in symbols}


def logged_directions(data: CompileData) -> list[Direction | None]:
    """Of each recording of the log. It names the compile id alone; the metrics that torch writes behind it say the
    direction, and the same time. None where none of them has it."""
    waiting = defaultdict[tuple[str, str], deque[Direction]](deque)
    for row in data.summary.runtime_metrics:
        time_us = row.metrics.get(CUDAGRAPH_TIME, "")
        waiting[row.key.compile_id, time_us].append(direction_of(row.direction))
    spans = data.of(logged_graphs).recordings
    mine = (waiting[span.key.compile_id, str(span.duration_ns // 1000)] for span in spans)
    return [rows.popleft() if rows else None for rows in mine]


def _by_graph(data: CompileData) -> Mapping[int, PhaseSpan]:
    """The log's span of each recording, by the number of its graph: of one compile id both are in order of time.
    Nothing where one of the two has seen more of them."""
    functions = data.of(graph_functions)
    made = sorted((one.graph_id, row.key.compile_id) for row in functions for one in row.recordings)
    ids = grouped(made, lambda pair: pair[1])
    spans = grouped(data.of(logged_graphs).recordings, lambda span: span.key.compile_id)
    return {
        graph: span
        for compile_id, pairs in ids.items()
        if len(pairs) == len(spans.get(compile_id, ()))
        for (graph, _), span in zip(pairs, spans[compile_id])
    }


def _row(
    profile: Profile, function: CudaGraphFunction, place: int, logged: Mapping[int, PhaseSpan]
) -> GraphRecording:
    made = function.recordings[place]
    span = logged.get(made.graph_id)
    return GraphRecording(
        compile_id=function.key.compile_id,
        direction=direction_of(function.direction),
        graph_id=made.graph_id,
        function_id=function.function_id,
        reason=next((one for one in REASONS if one == made.reason), "order"),
        sizes=", ".join(map(str, made.sizes)),
        inputs=list(made.inputs),
        file=made.file,
        line=known_number(made, "line"),
        step=_step(profile, span) if span else None,
        recording_us=us(span.duration_ns) if span else None,
    )


def _step(profile: Profile, span: PhaseSpan) -> str | None:
    steps = profile.of(StepWindows)
    middle = span.start_ns + span.duration_ns // 2 - profile.trace.base_ns
    at = int(steps.of(np.array([middle], np.int64))[0])
    return steps.names[at] if at >= 0 else None


def skipped_graphs(data: CompileData) -> list[SkippedGraph]:
    """Each reason once for each compile id; one that torch gave at run time belongs to what it quotes."""
    rows = dict.fromkeys(_skips(data.summary))
    named = {(row.reason, row.file, row.line) for row in rows if row.compile_id}
    return [row for row in rows if row.compile_id or (row.reason, row.file, row.line) not in named]


def _skips(summary: CompileSummary) -> Iterator[SkippedGraph]:
    for row in (*summary.compilations, *summary.runtime_metrics):
        text = json.loads(row.metrics.get(CUDAGRAPH_SKIP_REASON) or '""') or ""
        if not str(text).strip():
            continue
        frames = list(places(str(text)))
        place = frames[-1] if frames else None
        yield SkippedGraph(
            compile_id=row.key.compile_id or _quoted(summary, frames),
            reason=skip_reason(str(text)),
            file=place.file if place else "",
            line=place.line if place else None,
            text=str(text).strip(),
        )


def _quoted(summary: CompileSummary, frames: list[TracebackFrame]) -> str:
    """The one compilation whose function is among these frames, "" for none or several."""
    at = {(frame.file, frame.function) for frame in frames}
    ids = {row.key.compile_id for row in summary.compilations if (row.file, row.function) in at}
    return ids.pop() if len(ids) == 1 else ""
