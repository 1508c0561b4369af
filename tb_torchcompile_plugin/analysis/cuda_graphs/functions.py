"""What was to run as CUDA graphs, by compile id: how its calls of the span ran, and what recording cost."""

from __future__ import annotations

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
from tb_torchcompile_plugin.compile_log.record import (
    Direction,
    direction_of,
    forward_compilations,
    known_number,
)
from tb_torchcompile_plugin.compile_log.summary_pb2 import CudaGraphFunction
from tb_torchcompile_plugin.profile.compiled.ownership import Ownership
from tb_torchcompile_plugin.profile.gpu.graph_runs import Bools, GraphRuns, graph_runs
from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import step_ns, unrecorded_step_ns

Graph = tuple[str, Direction]


class _KnownGraph(NamedTuple):
    """What the compile data tells of one; all is None without any."""

    functions: list[CudaGraphFunction]
    made: list[GraphRecording] | None
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
        known |= {
            (row.key.compile_id, direction_of(row.direction)) for row in profile.data.of(graph_functions)
        }
        known |= {(row.compile_id, "forward") for row in profile.data.of(skipped_graphs) if row.compile_id}
        if not known:
            known = {(row.key.compile_id, "forward") for row in profile.data.of(logged_graphs).preparations}
    return sorted(
        (one for one in known if one[0]),
        key=_order,
    )


def _order(graph: Graph) -> tuple[list[int], bool]:
    numbers = [part.strip("!") for part in graph[0].split("/")]
    return [int(one) if one.isdigit() else -1 for one in numbers], graph[1] == "backward"


def _rows_of(profile: Profile, runs: GraphRuns, graph: Graph) -> Bools:
    code = profile.of(Ownership).code(graph[0])
    return np.asarray((runs.compile_id == code) & (runs.backward == (graph[1] == "backward")))


def _row(profile: Profile, graph: Graph, runs: GraphRuns, mine: Bools) -> GraphedFunction:
    compile_id, direction = graph
    known = _known(profile, graph)
    replayed, recorded = mine & runs.replayed, mine & runs.recorded
    plain = mine & ~runs.recorded & (runs.launches == 0)
    prepared = mine & (runs.preparations > 0)
    state = _state(known, *(int(rows.sum()) for rows in (mine, replayed, recorded, plain, prepared)))
    frame = _frame(profile, compile_id)
    spent = None if known.made is None else _logged(known.made)
    step = _step_us(profile)
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
        recordings=None if known.made is None else len(known.made),
        functions=len(known.functions) or None,
        recording_us=None if spent is None else sum(spent),
        recording_steps=sum(spent) / step if spent is not None and step else None,
        recording_call_us=_median_us(profile, runs.row[recorded]),
        replay_us=_median_us(profile, runs.row[replayed]),
        replay_kernels=float(runs.events[replayed].mean()) if replayed.any() else None,
        launches_avoided=int((runs.events - runs.launches)[replayed].sum()) if replayed.any() else None,
    )


def _frame(profile: Profile, compile_id: str) -> tuple[str, str, int | None]:
    rows = forward_compilations(profile.summary).items() if profile.summary else ()
    row = next((one for (_, name), one in reversed([*rows]) if name == compile_id), None)
    return (row.function, row.file, known_number(row, "line")) if row else ("", "", None)


def _median_us(profile: Profile, rows: Int64s) -> float | None:
    return float(np.median(profile.trace.dur[rows])) / 1000 if len(rows) else None


def _step_us(profile: Profile) -> float | None:
    """Of a step unrecorded, where it was noted, else the median of the recorded ones: some may have compiled."""
    noted = profile.data.of(unrecorded_step_ns) if profile.data else None
    steps = profile.of(step_ns)
    return noted / 1000 if noted else float(np.median(steps)) / 1000 if len(steps) else None


def _known(profile: Profile, graph: Graph) -> _KnownGraph:
    if profile.data is None:
        return _KnownGraph([], None, "")
    functions = [
        row
        for row in profile.data.of(graph_functions)
        if (row.key.compile_id, direction_of(row.direction)) == graph
    ]
    made = [row for row in profile.of(graph_recordings) if (row.compile_id, row.direction) == graph]
    skips = [row.reason for row in profile.data.of(skipped_graphs) if row.compile_id == graph[0]]
    untold = any(row.direction is None and row.compile_id == graph[0] for row in profile.of(graph_recordings))
    return _KnownGraph(functions, None if untold else made, skips[0] if skips else "")


def _logged(made: list[GraphRecording]) -> list[float] | None:
    """What these took by the log (µs); None where it does not tell of all."""
    times = [row.recording_us for row in made if row.recording_us is not None]
    return times if len(times) == len(made) else None


def _state(
    known: _KnownGraph, calls: int, replayed: int, recorded: int, plain: int, prepared: int
) -> GraphState:
    if not calls:
        return "skipped" if known.skipped else "not_run"
    if replayed == calls:
        return "replayed"
    if known.skipped and not replayed and not recorded:
        return "skipped"
    if recorded:
        reasons = [row.reason for row in known.made or () if row.reason]
        again = any(reason != "first" for reason in reasons) or recorded > 1
        return "recorded_again" if again else "recording"
    if 2 * prepared > calls:
        return "new_sizes" if calls > 1 else "recording"
    return "waiting" if plain == calls else "partly"


def _why(known: _KnownGraph, state: GraphState) -> str:
    if state in ("replayed", "not_run", "recording"):
        return ""
    if known.skipped:
        return known.skipped
    if any(row.mutates for row in known.functions):
        return "it changes an input in place"
    if any(row.over_limit for row in known.functions):
        return "torch gave it up: it was recorded again too often"
    if state in ("waiting", "new_sizes"):
        return why_waiting(len(known.functions), bool(known.made)) if state == "waiting" else ""
    return why_recorded(known.made or [])
