"""What was to run as CUDA graphs, by compile id: how its calls of the span ran, and what recording cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tb_torchcompile_plugin.analysis.compile.cuda_graph_recordings import (
    GraphedFunction,
    GraphRecording,
    GraphState,
    graph_functions,
    graph_recordings,
    logged_graphs,
    skipped_graphs,
)
from tb_torchcompile_plugin.analysis.formatting import (
    at_line,
    both,
    counted,
    duration,
    function_at,
    often,
    plural,
    significant,
)
from tb_torchcompile_plugin.compile_log.record import (
    Direction,
    Reason,
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

# What is said of CUDA graphs: why they were recorded again, and whether they serve.


NOT_ASKED = "CUDA graphs are not used: torch.compile was not told to."
_NAMED = 3
NOT_REPLAYED: tuple[GraphState, ...] = ("recorded_again", "new_sizes", "waiting", "partly")
_AGAIN: dict[Reason, str] = {
    "size": "sizes that it had not seen",
    "static_input": "inputs that are to stay where they are lay elsewhere",
    "earlier_result": "results of an earlier graph lay elsewhere",
    "liveness": "other results of earlier graphs were alive",
    "order": "it was called behind another graph than before",
    "first": "it had not been recorded",
}
_HELP: dict[Reason, tuple[str, str | None]] = {
    "size": (
        "Pad the sizes to a few buckets, so that each is recorded once; or leave CUDA graphs to sizes that repeat",
        "torch._inductor.config.triton.cudagraph_skip_dynamic_graphs = True",
    ),
    "static_input": (
        "Keep parameters, buffers and marked inputs in the same memory: write into them with copy_() in place of "
        "assigning new tensors",
        "parameter.data.copy_(new)",
    ),
    "earlier_result": (
        "Call the compiled functions in the same order in each step, or clone what one hands to the next",
        None,
    ),
    "liveness": (
        "Keep no results of compiled functions over steps: clone them, and begin each step with "
        "torch.compiler.cudagraph_mark_step_begin()",
        "torch.compiler.cudagraph_mark_step_begin()",
    ),
    "order": (
        "Call the compiled functions in the same order in each step, and begin it with "
        "torch.compiler.cudagraph_mark_step_begin()",
        "torch.compiler.cudagraph_mark_step_begin()",
    ),
    "first": ("Warm up before what counts: each function is run once and recorded once", None),
}
WAITING = (
    "Call backward, or run under torch.no_grad() where none is wanted; keep no results over steps, and begin each with "
    "torch.compiler.cudagraph_mark_step_begin()",
    "with torch.no_grad():",
)
UNKNOWN = (
    "Give it the same sizes, parameters and inputs in the same memory, and no results that are kept: "
    "TORCH_LOGS=+cudagraphs tells which of these changed",
    "TORCH_LOGS=+cudagraphs",
)


def why_recorded(made: Sequence[GraphRecording]) -> str:
    """ "sizes that it had not seen, 5 times"; "" where torch's objects were not read."""
    again = Counter(row.reason for row in made if row.reason and row.reason != "first").most_common()
    return "; ".join(f"{_AGAIN[reason]}, {often(times)}{_place(reason, made)}" for reason, times in again)


def _place(reason: Reason, made: Sequence[GraphRecording]) -> str:
    rows = [row for row in made if row.reason == reason]
    names = list(dict.fromkeys(name for row in rows for name in row.inputs))
    where = next((at_line(row.file, row.line) for row in rows if row.file), "")
    shown = ", ".join(names[:_NAMED]) + (" …" if len(names) > _NAMED else "")
    return (f" ({shown})" if shown else "") + (f" at {where}" if where else "")


def why_waiting(functions: int, recorded: bool) -> str:
    """Of what is called, and neither recorded nor skipped."""
    if recorded:
        return "it was recorded before"
    prepared = f"torch warmed up {plural(functions, 'function')} and recorded none: " if functions else ""
    return f"{prepared}results of the call before were alive, or waited for their backward"


def remedy(row: GraphedFunction, made: Sequence[GraphRecording]) -> tuple[str, str | None]:
    """What helps, and the code of it."""
    if row.state == "waiting":
        return WAITING
    mine = [one for one in made if (one.compile_id, one.direction) == (row.compile_id, row.direction)]
    reasons = Counter(one.reason for one in mine if one.reason and one.reason != "first")
    if reasons:
        return _HELP[reasons.most_common(1)[0][0]]
    return _HELP["size"] if row.state == "new_sizes" else UNKNOWN


def name_of(row: GraphedFunction) -> str:
    """ "forward (model.py:12)", "the backward of forward (model.py:12)" """
    name = function_at(row.function, row.file, row.line) or row.compile_id
    return f"the backward of {name}" if row.direction == "backward" else name


def served(rows: Sequence[GraphedFunction]) -> str:
    """The answer, in a sentence."""
    if not rows:
        return NOT_ASKED
    bad = [row for row in rows if row.state in (*NOT_REPLAYED, "skipped")]
    if bad:
        return "CUDA graphs do not serve all: " + "; ".join(map(complaint, bad[:_NAMED])) + "."
    replaying = [row for row in rows if row.replay_us is not None]
    if not replaying:
        return "CUDA graphs are on; none was replayed in this span."
    launches = sum(row.launches_avoided or 0 for row in replaying)
    calls = sum(row.replayed_calls for row in replaying)
    names = list(dict.fromkeys(map(name_of, replaying)))
    return (
        f"CUDA graphs serve: {both(names[:_NAMED])} {'was' if len(names) == 1 else 'were'} replayed {often(calls)}, "
        f"which saved {plural(launches, 'launch', 'launches')}."
    )


def complaint(row: GraphedFunction) -> str:
    """ "forward (model.py:12) was recorded in 4 calls of 9 (sizes that it had not seen, 4 times)" """
    verb = {
        "recorded_again": f"was recorded in {plural(row.recorded_calls, 'call')} of {row.calls:,}",
        "new_sizes": f"met new sizes in {plural(row.plain_calls, 'call')} of {row.calls:,}, and ran kernel by kernel",
        "waiting": f"ran kernel by kernel in all of its {plural(row.calls, 'call')}",
        "skipped": "is skipped",
    }.get(row.state, f"was replayed in {row.replayed_calls:,} of {plural(row.calls, 'call')}")
    return f"{name_of(row)} {verb}" + (f" ({row.why})" if row.why else "")


def price(rows: Sequence[GraphedFunction]) -> str | None:
    """What recording cost in the process, by the log."""
    spent = sum(row.recording_us or 0.0 for row in rows)
    made = sum(row.recordings or 0 for row in rows)
    if not made:
        return None
    steps = sum(row.recording_steps or 0.0 for row in rows)
    as_steps = f", the time of {counted(steps, 'step')}" if steps else ""
    return f"{plural(made, 'recording')} took {duration(spent)} of the host in this process{as_steps}."


def pool_words(pool_bytes: float) -> str:
    """ "The graphs' memory has 12.3 MB." """
    return f"The graphs share {significant(pool_bytes / 1e6)} MB of GPU memory."


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
