"""Did CUDA graphs serve, what did recording them cost, and do the log and the trace agree?"""

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
from tb_torchcompile_plugin.analysis.runtime.cuda_graph_functions import (
    NOT_REPLAYED,
    graphed_functions,
    graphs,
    pool_words,
    price,
    remedy,
    served,
)
from tb_torchcompile_plugin.compile_log.record import known_number
from tb_torchcompile_plugin.compile_log.summary_pb2 import PhaseSpan
from tb_torchcompile_plugin.profile.columns import alike
from tb_torchcompile_plugin.profile.compiled.ownership import Ownership
from tb_torchcompile_plugin.profile.gpu.graph_runs import graph_runs
from tb_torchcompile_plugin.profile.gpu.launches import Launches, kernel_launches, launch_calls
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.units import us
from tb_torchcompile_plugin.torch_names.kernels import CATEGORIES
from tb_torchcompile_plugin.torch_names.slices import is_capture


def cuda_graphs(profile: Profile) -> CudaGraphReport:
    """Of one span, with what its process did before."""
    rows = profile.of(graphed_functions)
    counts = tuple(_counts(profile)) if rows else ()
    pools = tuple(_pools(profile))
    return CudaGraphReport(
        says=tuple(_says(profile, counts, pools)),
        functions=tuple(rows),
        skipped=tuple(profile.data.of(skipped_graphs)) if profile.data else (),
        recordings=tuple(profile.of(graph_recordings)),
        counts=counts,
        replayed_kernels=tuple(_kernels(profile)),
        pools=pools,
        code=helps[1] if (helps := profile.of(graph_remedy)) else None,
    )


def asks_for_graphs(profile: Profile) -> bool:
    """Whether torch was told to use CUDA graphs, as far as the log, torch's own objects or the trace tell."""
    return bool(profile.of(graphs))


def graph_remedy(profile: Profile) -> tuple[str, str | None] | None:
    """What helps the function that is replayed least, and the code of it; None where all are, or torch skips them."""
    rows = [row for row in profile.of(graphed_functions) if row.state in NOT_REPLAYED]
    worst = min(rows, key=lambda row: row.replayed_calls - row.calls, default=None)
    return remedy(worst, profile.of(graph_recordings)) if worst else None


def _says(profile: Profile, counts: tuple[GraphCount, ...], pools: tuple[GraphPool, ...]) -> Iterator[str]:
    rows = profile.of(graphed_functions)
    yield served(rows)
    if (helps := profile.of(graph_remedy)) is not None:
        yield f"{helps[0]}."
    if (said := price(rows)) is not None:
        yield said
    if reserved := sum(pool.pool_bytes or 0 for pool in pools):
        yield pool_words(reserved)
    for count in counts:
        if count.agree is False:
            witnesses = {"log": count.log, "trace": count.trace, "torch’s objects": count.torch}
            numbers = ", ".join(
                f"{name} {number:,}" for name, number in witnesses.items() if number is not None
            )
            yield f"{count.counted} do not agree: {numbers}."


def _counts(profile: Profile) -> Iterator[GraphCount]:
    runs = profile.of(graph_runs)
    made = len(profile.of(graph_recordings)) if profile.data and profile.data.of(graph_functions) else None
    logged = profile.data.of(logged_graphs) if profile.data else None
    recorded = _in_span(profile, logged.recordings) if logged else None
    prepared = _in_span(profile, logged.preparations) if logged else None
    yield _count("Recordings in this span", recorded, int(runs.recordings.sum()), None)
    if any(map(is_capture, profile.trace.names)):  # not every profiler records these calls
        yield _count("Captures in this span", recorded, int(runs.captures.sum()), None)
    yield _count("New functions in this span", prepared, int(runs.preparations.sum()), None)
    yield _count("Replays in this span", None, int(runs.replays.sum()), None)
    if logged and made is not None:
        yield _count("Recordings of the process", len(logged.recordings), None, made)


def _in_span(profile: Profile, spans: list[PhaseSpan]) -> int:
    first, last = profile.trace.window()
    middles = [span.start_ns + span.duration_ns // 2 - profile.trace.base_ns for span in spans]
    return sum(first <= middle < last for middle in middles)


def _count(counted: str, log: int | None, trace: int | None, torch: int | None) -> GraphCount:
    known = [number for number in (log, trace, torch) if number is not None]
    return GraphCount(counted, log, trace, torch, len(set(known)) == 1 if len(known) > 1 else None)


def _pools(profile: Profile) -> Iterator[GraphPool]:
    for tree in profile.summary.cuda_graph_trees if profile.summary else ():
        yield GraphPool(
            device=tree.device,
            pool_bytes=known_number(tree, "pool_bytes"),
            graphs=sum(len(row.recordings) for row in tree.functions),
            functions=len(tree.functions),
            warm_ups=known_number(tree, "warm_ups"),
        )


def _kernels(profile: Profile) -> list[ReplayedKernel]:
    """Most time first."""
    launches = profile.of(launch_calls)
    graph_launches = launches.call[launches.replay]
    rows = [
        _kernel(profile, launched, places)
        for launched in profile.of(kernel_launches)
        for places in alike(
            np.flatnonzero(np.isin(launched.launch, graph_launches)),
            launched.backward.astype(np.int64),
            launched.compile_id,
            launched.category,
            launched.name,
        )
    ]
    return sorted(rows, key=lambda row: -row.device_us)


def _kernel(
    profile: Profile, launched: Launches, places: np.ndarray[tuple[int], np.dtype[np.int64]]
) -> ReplayedKernel:
    one = int(places[0])
    return ReplayedKernel(
        kernel=profile.trace.names[int(launched.name[one])],
        compile_id=profile.of(Ownership).name(int(launched.compile_id[one])) or "",
        direction="backward" if launched.backward[one] else "forward",
        category=CATEGORIES[int(launched.category[one])],
        launches=len(places),
        device_us=us(int(launched.dur[places].sum())),
    )
