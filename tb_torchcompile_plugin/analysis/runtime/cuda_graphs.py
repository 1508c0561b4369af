"""Show whether CUDA graphs work, what recording them cost, and whether the log and the trace agree."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tb_torchcompile_plugin.analysis.compile.cuda_graph_recordings import (
    CudaGraphReport,
    GraphCount,
    GraphPool,
    ReplayedKernel,
    graph_functions,
    graph_recordings,
    logged_graphs,
    skipped_graphs,
)
from tb_torchcompile_plugin.analysis.formatting import counted, duration, plural, significant
from tb_torchcompile_plugin.analysis.runtime.cuda_graph_functions import (
    NOT_REPLAYED,
    graphed_functions,
    graphs,
    headline,
    remedy,
)
from tb_torchcompile_plugin.compile_log.record import known_number
from tb_torchcompile_plugin.compile_log.summary_pb2 import PhaseSpan
from tb_torchcompile_plugin.profile.columns import alike
from tb_torchcompile_plugin.profile.compiled.ownership import Ownership
from tb_torchcompile_plugin.profile.gpu.graph_runs import graph_runs
from tb_torchcompile_plugin.profile.gpu.launches import kernel_launches, launch_calls
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.units import us
from tb_torchcompile_plugin.torch_names.kernels import CATEGORIES
from tb_torchcompile_plugin.torch_names.slices import is_capture


def cuda_graphs(profile: Profile) -> CudaGraphReport:
    """Return the CUDA graphs of one span, with what its process did before."""
    rows, help_ = profile.of(graphed_functions), profile.of(graph_remedy)
    counts = tuple(_counts(profile)) if rows else ()
    pools = tuple(_pools(profile))
    return CudaGraphReport(
        says=tuple(_says(profile, counts, pools)),
        functions=tuple(rows),
        skipped=tuple(profile.data.of(skipped_graphs)) if profile.data else (),
        recordings=tuple(profile.of(graph_recordings)),
        counts=counts,
        replayed_kernels=tuple(_replayed_kernels(profile)),
        pools=pools,
        code=help_[1] if help_ else None,
    )


def asks_for_graphs(profile: Profile) -> bool:
    """Return whether torch was told to use CUDA graphs, by the log, torch's own objects or the trace."""
    return bool(profile.of(graphs))


def graph_remedy(profile: Profile) -> tuple[str, str | None] | None:
    """Return what helps the function that is replayed least, and its code; None where all are, or torch skips them."""
    rows = [row for row in profile.of(graphed_functions) if row.state in NOT_REPLAYED]
    worst = min(rows, key=lambda row: row.replayed_calls - row.calls, default=None)
    return remedy(worst, profile.of(graph_recordings)) if worst else None


def _counts(profile: Profile) -> Iterator[GraphCount]:
    runs, data = profile.of(graph_runs), profile.data
    logged = data.of(logged_graphs) if data else None
    recorded = _in_span(profile, logged.recordings) if logged else None
    prepared = _in_span(profile, logged.preparations) if logged else None
    yield _count("Recordings in this span", recorded, int(runs.recordings.sum()))
    if any(map(is_capture, profile.trace.names)):  # not every profiler records these calls
        yield _count("Captures in this span", recorded, int(runs.captures.sum()))
    yield _count("New functions in this span", prepared, int(runs.preparations.sum()))
    yield _count("Replays in this span", None, int(runs.replays.sum()))
    if data and logged and data.of(graph_functions):
        recordings = len(profile.of(graph_recordings))
        yield _count("Recordings of the process", len(logged.recordings), None, recordings)


def _in_span(profile: Profile, spans: list[PhaseSpan]) -> int:
    first, last = profile.trace.window()
    middles = [span.start_ns + span.duration_ns // 2 - profile.trace.base_ns for span in spans]
    return sum(first <= middle < last for middle in middles)


def _count(counted: str, log: int | None, trace: int | None, torch: int | None = None) -> GraphCount:
    numbers = [number for number in (log, trace, torch) if number is not None]
    return GraphCount(counted, log, trace, torch, len(set(numbers)) == 1 if len(numbers) > 1 else None)


def _pools(profile: Profile) -> Iterator[GraphPool]:
    for tree in profile.summary.cuda_graph_trees if profile.summary else ():
        yield GraphPool(
            device=tree.device,
            pool_bytes=known_number(tree, "pool_bytes"),
            graphs=sum(len(row.recordings) for row in tree.functions),
            functions=len(tree.functions),
            warm_ups=known_number(tree, "warm_ups"),
        )


def _says(profile: Profile, counts: tuple[GraphCount, ...], pools: tuple[GraphPool, ...]) -> Iterator[str]:
    rows = profile.of(graphed_functions)
    yield headline(rows)
    if (help_ := profile.of(graph_remedy)) is not None:
        yield f"{help_[0]}."
    if recordings := sum(row.recordings or 0 for row in rows):
        steps = sum(row.recording_steps or 0.0 for row in rows)
        as_steps = f", the time of {counted(steps, 'step')}" if steps else ""
        spent = duration(sum(row.recording_us or 0.0 for row in rows))
        yield f"{plural(recordings, 'recording')} took {spent} of the host in this process{as_steps}."
    if pool_bytes := sum(pool.pool_bytes or 0 for pool in pools):
        yield f"The graphs share {significant(pool_bytes / 1e6)} MB of GPU memory."
    for count in counts:
        if count.agree is False:
            sources = {"log": count.log, "trace": count.trace, "torch’s objects": count.torch}
            numbers = [f"{name} {number:,}" for name, number in sources.items() if number is not None]
            yield f"{count.counted} do not agree: {', '.join(numbers)}."


def _replayed_kernels(profile: Profile) -> list[ReplayedKernel]:
    """Return the kernels that graphs replayed, most time first."""
    trace, ownership, calls = profile.trace, profile.of(Ownership), profile.of(launch_calls)
    rows: list[ReplayedKernel] = []
    for launches in profile.of(kernel_launches):
        replayed = np.flatnonzero(np.isin(launches.launch, calls.call[calls.replay]))
        columns = launches.backward.astype(np.int64), launches.compile_id, launches.category, launches.name
        for indices in alike(replayed, *columns):
            index = int(indices[0])
            rows.append(
                ReplayedKernel(
                    kernel=trace.names[int(launches.name[index])],
                    compile_id=ownership.name(int(launches.compile_id[index])) or "",
                    direction="backward" if launches.backward[index] else "forward",
                    category=CATEGORIES[int(launches.category[index])],
                    launches=len(indices),
                    device_us=us(int(launches.dur[indices].sum())),
                )
            )
    return sorted(rows, key=lambda row: -row.device_us)
