"""What is said of CUDA graphs: why they were recorded again, and whether they serve."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tb_torchcompile_plugin.analysis.cuda_graphs.rows import GraphedFunction, GraphRecording, GraphState
from tb_torchcompile_plugin.analysis.words import (
    at_line,
    both,
    counted,
    duration,
    function_at,
    often,
    plural,
    significant,
)
from tb_torchcompile_plugin.compile_log.record import Reason

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
