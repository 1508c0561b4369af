"""The rows of the panel *CUDA graphs*."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from tb_torchcompile_plugin.analysis.sheet import head
from tb_torchcompile_plugin.compile_log.record import Direction, Reason

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
