"""What was to run as CUDA graphs, compile id by compile id: how its calls of the span ran, and what it cost to record."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np

from tb_torchcompile_plugin.analysis.cuda_graphs.recordings import (
    graph_functions,
    graph_recordings,
    logged_graphs,
    skipped_graphs,
)
from tb_torchcompile_plugin.analysis.cuda_graphs.rows import GraphedFunction, GraphRecording, GraphState
from tb_torchcompile_plugin.analysis.cuda_graphs.words import why_recorded, why_waiting
from tb_torchcompile_plugin.compile_log.fields import Direction, direction_of, forwards, known_number
from tb_torchcompile_plugin.compile_log.summary_pb2 import BACKWARD, CudaGraphFunction, PhaseSpan
from tb_torchcompile_plugin.profile.compiled.graph_runs import Bools, GraphRuns, graph_runs
from tb_torchcompile_plugin.profile.compiled.ownership import Ownership
from tb_torchcompile_plugin.profile.model.step_clock import step_clock
from tb_torchcompile_plugin.profile.noted_steps import unrecorded_step_ns
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.units import us

Graph = tuple[str, Direction]


class _Known(NamedTuple):
    """What the compile data tells of one. spans: of the log, None where it does not tell whose they are."""

    functions: list[CudaGraphFunction]
    made: list[GraphRecording]
    spans: list[PhaseSpan] | None
    skipped: str


def graphed_functions(profile: Profile) -> list[GraphedFunction]:
    """In the order of their compile ids; [] where torch was not told to use CUDA graphs."""
    runs = profile.of(graph_runs)
    mine = {graph: _rows_of(profile, runs, graph) for graph in profile.of(graphs)}
    return [_row(profile, graph, runs, rows) for graph, rows in mine.items()]


def graphs(profile: Profile) -> list[Graph]:
    """Compile id and direction of all that is to run as CUDA graphs, as far as anything tells."""
    runs, names = profile.of(graph_runs), profile.of(Ownership).names
    uses = (runs.launches > 0) | (runs.preparations > 0) | runs.recorded
    known: set[Graph] = {
        (names[code], "backward" if back else "forward")
        for code, back in zip(runs.compile_id[uses].tolist(), runs.backward[uses].tolist())
        if code >= 0
    }
    if profile.data is not None:
        known |= {(row.key.compile_id, direction_of(row.direction)) for row in profile.data.of(graph_functions)}
        known |= {(row.compile_id, "forward") for row in profile.data.of(skipped_graphs) if row.compile_id}
        if not known:
            known = {(row.key.compile_id, "forward") for row in profile.data.of(logged_graphs).preparations}
    return sorted((one for one in known if one[0]), key=lambda one: ([_number(part) for part in one[0].split("/")], one[1] == "backward"))


def _number(part: str) -> int:
    digits = part.strip("!")
    return int(digits) if digits.isdigit() else -1


def _rows_of(profile: Profile, runs: GraphRuns, graph: Graph) -> Bools:
    code = profile.of(Ownership).code(graph[0])
    return np.asarray((runs.compile_id == code) & (runs.backward == (graph[1] == "backward")))


def _row(profile: Profile, graph: Graph, runs: GraphRuns, mine: Bools) -> GraphedFunction:
    compile_id, direction = graph
    known = _known(profile, graph)
    replayed, recorded = mine & runs.replayed, mine & runs.recorded
    plain = mine & ~runs.recorded & (runs.launches == 0)
    state = _state(known, *(int(rows.sum()) for rows in (mine, replayed, recorded, plain)))
    frame = _frame(profile, compile_id)
    spent = None if known.spans is None else sum(span.duration_ns for span in known.spans)
    step = _step_ns(profile)
    dur = profile.trace.dur[runs.row[replayed]]
    return GraphedFunction(
        compile_id=compile_id,
        direction=direction,
        function=frame[0],
        file=frame[1],
        line=frame[2],
        state=state,
        why=_why(known, state),
        calls=int(mine.sum()),
        replayed_calls=int(replayed.sum()),
        recorded_calls=int(recorded.sum()),
        plain_calls=int(plain.sum()),
        recordings=None if known.spans is None else len(known.spans),
        functions=len(known.functions) or None,
        recording_us=None if spent is None else us(spent),
        recording_steps=spent / step if spent is not None and step else None,
        replay_us=float(np.median(dur)) / 1000 if len(dur) else None,
        replay_kernels=float(runs.events[replayed].mean()) if replayed.any() else None,
        launches_avoided=int((runs.events - runs.launches)[replayed].sum()) if replayed.any() else None,
    )


def _frame(profile: Profile, compile_id: str) -> tuple[str, str, int | None]:
    rows = forwards(profile.summary).items() if profile.summary else ()
    row = next((one for (_, name), one in reversed([*rows]) if name == compile_id), None)
    return (row.function, row.file, known_number(row, "line")) if row else ("", "", None)


def _step_ns(profile: Profile) -> float | None:
    """Of a step unrecorded, where it was noted, else as recorded."""
    noted = profile.data.of(unrecorded_step_ns) if profile.data else None
    pace = profile.of(step_clock)
    return noted or (pace.step if pace else None)


def _known(profile: Profile, graph: Graph) -> _Known:
    if profile.data is None:
        return _Known([], [], None, "")
    functions = [
        row
        for row in profile.data.of(graph_functions)
        if (row.key.compile_id, direction_of(row.direction)) == graph
    ]
    made = [row for row in profile.of(graph_recordings) if (row.compile_id, row.direction) == graph]
    skips = [row.reason for row in profile.data.of(skipped_graphs) if row.compile_id == graph[0]]
    return _Known(functions, made, _spans(profile, graph, made), skips[0] if skips else "")


def _spans(profile: Profile, graph: Graph, made: list[GraphRecording]) -> list[PhaseSpan] | None:
    """The log's recordings of one direction: it names the compile id alone, torch's objects tell which is whose."""
    assert profile.data is not None
    spans = [one for one in profile.data.of(logged_graphs).recordings if one.key.compile_id == graph[0]]
    others = [row for row in profile.of(graph_recordings) if row.compile_id == graph[0]]
    if len(others) == len(spans):
        return [span for row, span in zip(others, spans) if row.direction == graph[1]]
    rows = profile.data.summary.compilations
    both = any(row.direction == BACKWARD and row.key.compile_id == graph[0] for row in rows)
    return None if both else spans


def _state(known: _Known, calls: int, replayed: int, recorded: int, plain: int) -> GraphState:
    if not calls:
        return "skipped" if known.skipped else "not_run"
    if replayed == calls:
        return "replayed"
    if known.skipped and not replayed and not recorded:
        return "skipped"
    if recorded:
        again = any(row.reason != "first" for row in known.made) or recorded > max(len(known.functions), 1)
        return "recorded_again" if again else "recording"
    return "waiting" if plain == calls else "partly"


def _why(known: _Known, state: GraphState) -> str:
    if state in ("replayed", "not_run", "recording"):
        return ""
    if known.skipped:
        return known.skipped
    if any(row.mutates for row in known.functions):
        return "it changes an input in place"
    if any(row.over_limit for row in known.functions):
        return "torch gave it up: it was recorded again too often"
    if state == "waiting":
        return why_waiting(len(known.functions), known.spans)
    return why_recorded(Counter(row.reason for row in known.made), known.made)
