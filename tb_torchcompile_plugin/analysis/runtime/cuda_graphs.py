"""Show whether CUDA graphs work: what was to run as one, how its calls ran, what recording cost, and what helps."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis import formatting
from tb_torchcompile_plugin.analysis.compile import cuda_graph_recordings
from tb_torchcompile_plugin.analysis.compile.cuda_graph_recordings import GraphRecording, skipped_graphs
from tb_torchcompile_plugin.analysis.formatting import column_head
from tb_torchcompile_plugin.analysis.runtime.gpu_utilization import percentile_us
from tb_torchcompile_plugin.analysis.thresholds import MAX_NAMES
from tb_torchcompile_plugin.compile_log import record
from tb_torchcompile_plugin.compile_log.summary_pb2 import CudaGraphFunction
from tb_torchcompile_plugin.profile.columns import share_percent
from tb_torchcompile_plugin.profile.compiled.ownership import Ownership
from tb_torchcompile_plugin.profile.gpu.captures import EngineBatch, graph_origins, graph_runs
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import step_time
from tb_torchcompile_plugin.reader.arrays import grouped
from tb_torchcompile_plugin.torch_names.caches import MOVED_INPUT_ACTION, MOVED_INPUT_LIMIT
from tb_torchcompile_plugin.torch_names.slices import NEW_FUNCTION, is_of_cuda_graph

GraphState = Literal[
    "replayed", "recording", "recorded_again", "new_sizes", "waiting", "skipped", "partly", "not_run"
]
Graph = tuple[str, record.Direction]  # compile id and direction
NOT_REPLAYED: tuple[GraphState, ...] = ("recorded_again", "new_sizes", "waiting", "partly")
_WHY_AGAIN: dict[record.Reason, str] = {
    "size": "new sizes",
    "static_input": "inputs with a fixed address had moved",
    "earlier_result": "results of an earlier graph had moved",
    "liveness": "other results of earlier graphs were alive",
    "order": "it was called after another graph than before",
    "first": "it had not been recorded",
}
_MARK_STEP = "torch.compiler.cudagraph_mark_step_begin()"
_HELP: dict[record.Reason, tuple[str, str | None]] = {
    "size": (
        "Pad the sizes to a few buckets, so that each is recorded once, or use CUDA graphs only for sizes that repeat",
        "torch._inductor.config.triton.cudagraph_skip_dynamic_graphs = True",
    ),
    "static_input": (
        "Keep parameters, buffers and marked inputs in the same memory: update them with copy_() instead of assigning "
        "new tensors",
        "parameter.data.copy_(new)",
    ),
    "earlier_result": (
        "Call the compiled functions in the same order in each step, or clone what one passes to the next",
        None,
    ),
    "liveness": (
        f"Do not keep results of compiled functions across steps: clone them, and begin each step with {_MARK_STEP}",
        _MARK_STEP,
    ),
    "order": (
        f"Call the compiled functions in the same order in each step, and begin each step with {_MARK_STEP}",
        _MARK_STEP,
    ),
    "first": ("Warm up first: each function runs once and is recorded once before its replays", None),
}
_HELP_WAITING = (
    "Call backward, or run under torch.no_grad() if you need no gradients. Do not keep results across steps, and begin "
    f"each step with {_MARK_STEP}",
    "with torch.no_grad():",
)
_HELP_UNKNOWN = (
    "Call the function with the same sizes, keep parameters and inputs in the same memory, and do not keep results "
    "across steps: TORCH_LOGS=+cudagraphs shows which of these changed",
    "TORCH_LOGS=+cudagraphs",
)


class GraphedFunction(msgspec.Struct, frozen=True):
    """What torch.compile was to run as a CUDA graph, by compile id and direction."""

    compile_id: str
    direction: record.Direction
    function: str
    file: str
    line: int | None
    # In this span: `replayed` in each call; `recording`, as each graph does once; `recorded_again`; `new_sizes`: each
    # call warmed up for sizes of its own; `waiting`: ran kernel by kernel and could not be recorded; `skipped` by
    # torch; `partly` replayed; `not_run`.
    state: GraphState
    why: Annotated[str, column_head(grow=True, wrap=True)]  # reason for what is not replayed
    calls: int  # in the span, as are the next three
    replayed_calls: Annotated[int, column_head("Replayed")]
    recorded_calls: Annotated[int, column_head("Recorded")]
    plain_calls: Annotated[int, column_head("Kernel by kernel")]
    # In the process, from the log, as are `recording_us` and `recording_steps`.
    recordings: Annotated[int | None, column_head(hidden=True)]
    recording_us: Annotated[float | None, column_head(hidden=True)]  # host time
    # The same in steps.
    recording_steps: Annotated[float | None, column_head("Recording, in steps", hidden=True)]
    # Median host time of a call that replays.
    replay_us: Annotated[float | None, column_head("Replay", hidden=True)]
    launches_avoided: int | None  # in all of the span


class BatchSize(msgspec.Struct, frozen=True):
    """Batches of an inference engine that replayed graphs captured for one size, or ran without."""

    captured_size: int | None  # tokens, of SGLang requests; None: ran without a graph, or unknown
    batches: int
    requested: Annotated[str, column_head("Requested sizes", grow=True)]
    padded: int | None  # batches smaller than the captured size
    padding_percent: float | None  # share of the captured sizes that is padding
    # replayed: more than one are pieces of the model, none means that the batches ran eagerly
    graphs: Annotated[int, column_head("Graphs per batch")]
    # Share of the replays whose kernels have operators, modules and lines from a capture trace.
    joined_percent: float | None


class CudaGraphReport(msgspec.Struct, frozen=True):
    """Were CUDA graphs used? The tables are empty where torch was not asked for any."""

    sentences: tuple[str, ...]  # the first sentence is the answer
    functions: Annotated[tuple[GraphedFunction, ...], column_head("Functions that run as CUDA graphs")]
    skipped: Annotated[tuple[cuda_graph_recordings.SkippedGraph, ...], column_head("Skipped CUDA graphs")]
    recordings: Annotated[tuple[GraphRecording, ...], column_head("Recordings of CUDA graphs")]
    batches: Annotated[tuple[BatchSize, ...], column_head("Batches of the inference engine by size")]
    code: str | None


def cuda_graphs(profile: Profile) -> CudaGraphReport:
    """Return the CUDA graphs of one span, with what its process did before."""
    rows = [_row(profile, graph) for graph in profile.of(requested_graphs)]
    # What helps the function that is replayed least; where all are, or torch skips them, nothing does.
    not_replayed = [row for row in rows if row.state in NOT_REPLAYED]
    worst = min(not_replayed, key=lambda row: row.replayed_calls - row.calls, default=None)
    help_ = remedy(worst, profile.of(cuda_graph_recordings.graph_recordings)) if worst else None
    trees = profile.summary.cuda_graph_trees if profile.summary else ()
    pool_bytes = sum(record.optional_number(tree, "pool_bytes") or 0 for tree in trees)
    return CudaGraphReport(
        sentences=tuple(_says(rows, profile.of(batch_sizes), help_[0] if help_ else "", pool_bytes)),
        functions=tuple(rows),
        skipped=tuple(profile.data.of(skipped_graphs)) if profile.data else (),
        recordings=tuple(profile.of(cuda_graph_recordings.graph_recordings)),
        batches=tuple(profile.of(batch_sizes)),
        code=help_[1] if help_ else None,
    )


def batch_sizes(profile: Profile) -> list[BatchSize]:
    """Return the batches whose size is known by captured size and number of graphs, and sizes that none replayed."""
    captures = profile.of(graph_origins)
    sized = [batch for batch in captures.batches if batch.requested is not None]
    groups = grouped(sized, lambda batch: (batch.captured, batch.replays))
    unused = captures.sizes - {size for size, _ in groups} if sized else ()
    groups |= {(size, 0): [] for size in unused}
    rows = (_batch_size(*key, batches) for key, batches in groups.items())
    return sorted(rows, key=lambda row: (row.captured_size or 0, row.graphs))


def _batch_size(size: int | None, graphs: int, batches: list[EngineBatch]) -> BatchSize:
    requested = [batch.requested or 0 for batch in batches]
    whole = (size or 0) * len(batches)
    return BatchSize(
        captured_size=size,
        batches=len(batches),
        requested=", ".join(map(str, sorted({*requested}))),
        padded=None if size is None else sum(number < size for number in requested),
        padding_percent=share_percent(whole - sum(requested), whole),
        graphs=graphs,
        joined_percent=share_percent(sum(batch.joined for batch in batches), graphs * len(batches)),
    )


def requested_graphs(profile: Profile) -> list[Graph]:
    """Return what is to run as CUDA graphs, by the trace, the log and torch's own objects."""
    named: set[Graph] = set()
    if any(map(is_of_cuda_graph, profile.trace.names)):
        runs, names = profile.of(graph_runs), profile.of(Ownership).names
        uses = (runs.launches > 0) | (runs.preparations > 0) | runs.recorded
        named = {
            (names[code], "backward" if backward else "forward")
            for code, backward in zip(runs.compile_id[uses].tolist(), runs.backward[uses].tolist())
            if code >= 0
        }
    if profile.data is not None:
        named |= {*profile.of(_functions)}
        named |= {(row.compile_id, "forward") for row in profile.data.of(skipped_graphs) if row.compile_id}
        if not named:
            spans = profile.data.summary.spans
            named = {(row.key.compile_id, "forward") for row in spans if row.name == NEW_FUNCTION}

    def order(graph: Graph) -> tuple[list[int], bool]:
        numbers = [part.strip("!") for part in graph[0].split("/")]
        return [int(number) if number.isdigit() else -1 for number in numbers], graph[1] == "backward"

    return sorted((graph for graph in named if graph[0]), key=order)


def _row(profile: Profile, graph: Graph) -> GraphedFunction:
    compile_id, direction = graph
    runs, code, dur = profile.of(graph_runs), profile.of(Ownership).code(compile_id), profile.trace.dur
    called = np.asarray((runs.compile_id == code) & (runs.backward == (direction == "backward")))
    replayed, recorded = called & runs.replayed, called & runs.recorded
    plain = called & ~runs.recorded & (runs.launches == 0)
    functions, recordings, skip_reason = _compile_data(profile, graph)
    masks = called, replayed, recorded, plain, called & (runs.preparations > 0)
    calls, replays, recording_calls, plain_calls, preparations = (int(mask.sum()) for mask in masks)
    is_again = bool(_reasons_again(recordings or []))
    state = _state(calls, replays, recording_calls, plain_calls, preparations, is_again, skip_reason)
    why = _why(functions, recordings or [], skip_reason, state)
    # Of the latest compilation of this id.
    frames = record.forward_compilations(profile.summary).items() if profile.summary else ()
    frame = next((row for (_, name), row in reversed([*frames]) if name == compile_id), None)
    times = [row.recording_us for row in recordings or () if row.recording_us is not None]
    spent = sum(times, 0.0) if recordings is not None and len(times) == len(recordings) else None
    # An unprofiled step, else the median of the profiled ones: some may have compiled.
    step = profile.of(step_time).step_us
    return GraphedFunction(
        compile_id=compile_id,
        direction=direction,
        function=frame.function if frame else "",
        file=frame.file if frame else "",
        line=record.optional_number(frame, "line") if frame else None,
        state=state,
        why=f"{why}{_after_limit(profile, recordings or [])}" if why else "",
        calls=calls,
        replayed_calls=replays,
        recorded_calls=recording_calls,
        plain_calls=plain_calls,
        recordings=None if recordings is None else len(recordings),
        recording_us=spent,
        recording_steps=spent / step if spent is not None and step else None,
        replay_us=percentile_us(dur[runs.row[replayed]]),
        launches_avoided=int((runs.events - runs.launches)[replayed].sum()) if replayed.any() else None,
    )


def _compile_data(
    profile: Profile, graph: Graph
) -> tuple[list[CudaGraphFunction], list[GraphRecording] | None, str]:
    """Return one graph's functions, recordings (None where some may be of either direction) and why torch skips it."""
    if profile.data is None:
        return [], None, ""
    rows = [row for row in profile.of(cuda_graph_recordings.graph_recordings) if row.compile_id == graph[0]]
    recordings = [row for row in rows if row.direction == graph[1]]
    is_certain = all(row.direction is not None for row in rows)
    skips = (row.reason for row in profile.data.of(skipped_graphs) if row.compile_id == graph[0])
    return profile.of(_functions).get(graph, []), recordings if is_certain else None, next(skips, "")


def _functions(profile: Profile) -> dict[Graph, list[CudaGraphFunction]]:
    rows = profile.data.of(cuda_graph_recordings.graph_functions) if profile.data else ()
    return grouped(rows, lambda row: (row.key.compile_id, record.direction_of(row.direction)))


def _state(
    calls: int, replayed: int, recorded: int, plain: int, prepared: int, is_again: bool, skip_reason: str
) -> GraphState:
    if not calls:
        return "skipped" if skip_reason else "not_run"
    if replayed == calls:
        return "replayed"
    if skip_reason and not replayed and not recorded:
        return "skipped"
    if recorded:
        return "recorded_again" if recorded > 1 or is_again else "recording"
    if 2 * prepared > calls:
        return "new_sizes" if calls > 1 else "recording"
    return "waiting" if plain == calls else "partly"


def _why(
    functions: list[CudaGraphFunction], recordings: list[GraphRecording], skip_reason: str, state: GraphState
) -> str:
    if state in ("replayed", "not_run", "recording"):
        return ""
    if skip_reason:
        return skip_reason
    if any(row.mutates for row in functions):
        return "it changes an input in place"
    if any(row.over_limit for row in functions):
        return "torch stopped recording it because it was recorded too often"
    if state != "waiting":
        return "" if state == "new_sizes" else _why_recorded(recordings)
    if recordings:
        return "it had been recorded before"
    warmed_up = formatting.plural(len(functions), "function")
    prepared = f"torch warmed up {warmed_up} and recorded none because " if functions else ""
    return f"{prepared}results of the previous call were still alive, or their backward had not run"


def _why_recorded(recordings: Sequence[GraphRecording]) -> str:
    """Return "new sizes, 5 times (x) at model.py:12"; "" where torch's objects were not read."""
    sentences = []
    for reason, times in _reasons_again(recordings).most_common():
        rows = [row for row in recordings if row.reason == reason]
        names = list(dict.fromkeys(name for row in rows for name in row.inputs))
        where = next((formatting.at_line(row.file, row.line) for row in rows if row.file), "")
        shown = ", ".join(names[:MAX_NAMES]) + (" …" if len(names) > MAX_NAMES else "")
        inputs, at = f" ({shown})" if shown else "", f" at {where}" if where else ""
        sentences.append(f"{_WHY_AGAIN[reason]}, {formatting.often(times)}{inputs}{at}")
    return "; ".join(sentences)


def _after_limit(profile: Profile, recordings: Sequence[GraphRecording]) -> str:
    """Return what torch does about results of an earlier graph that move often, "" where they did not (torch 2.15)."""
    settings = profile.summary.environment.settings if profile.summary else {}
    limit, action = settings.get(MOVED_INPUT_LIMIT, ""), settings.get(MOVED_INPUT_ACTION)
    if not limit.isdecimal() or _reasons_again(recordings)["earlier_result"] < int(limit):
        return ""
    does = "copies these inputs" if action == "copy" else "runs the function without CUDA graphs"
    return f"; after {limit} times, torch {does} ({MOVED_INPUT_ACTION})"


def _reasons_again(recordings: Sequence[GraphRecording]) -> Counter[record.Reason]:
    return Counter(row.reason for row in recordings if row.reason and row.reason != "first")


def _says(
    rows: list[GraphedFunction], batches: list[BatchSize], help_: str, pool_bytes: int
) -> Iterator[str]:
    if rows or not batches:
        yield _headline(rows)
    if batches:  # "15 of 18 batches replayed CUDA graphs, 6 of them padded to the size that was captured."
        replayed = sum(row.batches for row in batches if row.graphs)
        padded = sum(row.padded or 0 for row in batches)
        were = f", {padded} of them padded to the size that was captured" if padded else ""
        all_batches = formatting.plural(sum(row.batches for row in batches), "batch", "batches")
        yield f"{replayed} of {all_batches} replayed CUDA graphs{were}."
    if help_:
        yield f"{help_}."
    if recordings := sum(row.recordings or 0 for row in rows):
        steps = sum(row.recording_steps or 0.0 for row in rows)
        as_steps = f" (as long as {formatting.plural_of_mean(steps, 'step')})" if steps else ""
        spent = formatting.duration(sum(row.recording_us or 0.0 for row in rows))
        yield f"{formatting.plural(recordings, 'recording')} took {spent} of host time in this process{as_steps}."
    if pool_bytes:
        yield f"The graphs share {formatting.significant(pool_bytes / 1e6)} MB of GPU memory."


def _headline(rows: Sequence[GraphedFunction]) -> str:
    if not rows:
        return 'CUDA graphs are off (`mode="reduce-overhead"` turns them on).'
    if unused := [row for row in rows if row.state in (*NOT_REPLAYED, "skipped")]:
        return "Not all CUDA graphs are replayed: " + "; ".join(map(complaint, unused[:MAX_NAMES])) + "."
    replaying = [row for row in rows if row.replay_us is not None]
    if not replaying:
        return "CUDA graphs are on, but none was replayed in this span."
    launches = sum(row.launches_avoided or 0 for row in replaying)
    calls = sum(row.replayed_calls for row in replaying)
    names = list(dict.fromkeys(map(_name, replaying)))
    were = "was" if len(names) == 1 else "were"
    return (
        f"CUDA graphs are working: {formatting.joined_names(names[:MAX_NAMES])} {were} replayed "
        f"{formatting.often(calls)}, which saved {formatting.plural(launches, 'launch', 'launches')}."
    )


def complaint(row: GraphedFunction) -> str:
    """Return "forward (model.py:12) was re-recorded in 4 of 9 calls (new sizes, 4 times)"."""
    verb = {
        "recorded_again": f"was re-recorded in {row.recorded_calls:,} of {formatting.plural(row.calls, 'call')}",
        "new_sizes": f"ran kernel by kernel in {row.plain_calls:,} of {formatting.plural(row.calls, 'call')}, for new "
        "sizes",
        "waiting": f"ran kernel by kernel in all {formatting.plural(row.calls, 'call')}",
        "skipped": "is skipped",
    }.get(row.state, f"was replayed in {row.replayed_calls:,} of {formatting.plural(row.calls, 'call')}")
    return f"{_name(row)} {verb}" + (f" ({row.why})" if row.why else "")


def remedy(row: GraphedFunction, recordings: Sequence[GraphRecording]) -> tuple[str, str | None]:
    """Return what helps, and the code of it."""
    if row.state == "waiting":
        return _HELP_WAITING
    graph = row.compile_id, row.direction
    reasons = _reasons_again([other for other in recordings if (other.compile_id, other.direction) == graph])
    if reasons:
        return _HELP[reasons.most_common(1)[0][0]]
    return _HELP["size"] if row.state == "new_sizes" else _HELP_UNKNOWN


def _name(row: GraphedFunction) -> str:
    """Return "forward (model.py:12)" or "the backward of forward (model.py:12)"."""
    name = formatting.function_at(row.function, row.file, row.line) or row.compile_id
    return f"the backward of {name}" if row.direction == "backward" else name
