"""What did it cost to give the GPUs their work: how many launch calls, how long, and how long until a kernel ran?"""

from __future__ import annotations

import json
from collections.abc import Mapping

import msgspec
import numpy as np

from tb_torchcompile_plugin.profile.gpu.launches import LaunchCalls, launch_calls
from tb_torchcompile_plugin.profile.gpu_work import GpuWork, gpu_work
from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import StepWindows
from tb_torchcompile_plugin.profile.units import share_percent, us
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.reader.trace.kineto import Trace
from tb_torchcompile_plugin.torch_names.graph_breaks import CUDAGRAPH_SKIPS
from tb_torchcompile_plugin.torch_names.records import CUDAGRAPH_SKIP_REASON
from tb_torchcompile_plugin.torch_names.slices import RUNTIME_CATS, is_replay


class LaunchCall(msgspec.Struct, frozen=True):
    """All launches through one function of the runtime or driver."""

    name: str
    calls: int
    gpu_events: int
    time_us: float
    median_us: float
    max_us: float


class CudaGraphs(msgspec.Struct, frozen=True):
    """`replays`: calls that launched a whole graph. `gpu_events`, `gpu_time_percent`: what ran out of graphs, of the
    summed GPU event time. `skips`: how often inductor used none though it was told to, `skip_reasons`: why, in torch's
    words, as far as it says; None where not recorded."""

    replays: int
    gpu_events: int
    gpu_time_percent: float | None
    skips: int | None
    skip_reasons: list[str] | None


class LaunchStats(msgspec.Struct, frozen=True):
    """`unmatched_events`: GPU events whose launch is not in the trace. Medians are None where there was no such launch.

    latency: start of the call to start of the kernel, the stream being idle at the start of the call; queue wait: the
    same, the stream being busy. `short_events`: GPU events that took less time than the call that launched them,
    replays apart.
    """

    launches: int
    gpu_events: int
    unmatched_events: int
    launches_per_step: float | None
    call_us: float
    call_median_us: float
    idle_launches: int
    latency_median_us: float | None
    latency_p95_us: float | None
    queued_launches: int
    queue_wait_median_us: float | None
    queue_wait_p95_us: float | None
    short_events: int
    short_percent: float | None
    calls: list[LaunchCall]
    cuda_graphs: CudaGraphs


def launch_stats(profile: Profile) -> LaunchStats | None:
    """None without GPU events."""
    trace, work, launches = profile.trace, profile.of(gpu_work), profile.of(launch_calls)
    steps = profile.of(StepWindows)
    windows = zip(steps.starts.tolist(), steps.ends.tolist())
    in_steps = sum(launches.between(begin, end).launches for begin, end in windows)
    if not len(work.index):
        return None
    wait = trace.ts[launches.event] - launches.start
    latency, queued = wait[launches.idle], wait[~launches.idle]
    short, measured = _short(trace, work)
    return LaunchStats(
        launches=len(launches.call),
        gpu_events=len(work.index),
        unmatched_events=len(work.index) - int(launches.events.sum()),
        launches_per_step=in_steps / len(steps) if len(steps) else None,
        call_us=us(launches.dur.sum()),
        call_median_us=_median_us(launches.dur) or 0.0,
        idle_launches=len(latency),
        latency_median_us=_median_us(latency),
        latency_p95_us=_p95_us(latency),
        queued_launches=len(queued),
        queue_wait_median_us=_median_us(queued),
        queue_wait_p95_us=_p95_us(queued),
        short_events=short,
        short_percent=share_percent(short, measured),
        calls=_by_function(trace, launches),
        cuda_graphs=_cuda_graphs(trace, work, launches, profile.data),
    )


def _short(trace: Trace, work: GpuWork) -> tuple[int, int]:
    """GPU events that were shorter than the call that launched them, and how many could be compared."""
    launch = trace.launch_of()[work.index]
    replays = [code for code, name in enumerate(trace.names) if is_replay(name)]
    alone = np.flatnonzero((launch >= 0) & ~np.isin(trace.name[launch], replays))
    shorter = trace.dur[work.index[alone]] < trace.dur[launch[alone]]
    return int(shorter.sum()), len(alone)


def _by_function(trace: Trace, launches: LaunchCalls) -> list[LaunchCall]:
    """Most time first."""
    names = trace.name[launches.call]
    rows = []
    for code in np.unique(names):
        here = names == code
        dur = launches.dur[here]
        rows.append(
            LaunchCall(
                name=trace.names[code],
                calls=len(dur),
                gpu_events=int(launches.events[here].sum()),
                time_us=us(dur.sum()),
                median_us=_median_us(dur) or 0.0,
                max_us=us(dur.max()),
            )
        )
    return sorted(rows, key=lambda row: -row.time_us)


def _cuda_graphs(trace: Trace, work: GpuWork, launches: LaunchCalls, data: CompileData | None) -> CudaGraphs:
    codes = [code for code, name in enumerate(trace.names) if is_replay(name)]
    calls = trace.select(cat=RUNTIME_CATS)
    replayed = work.index[np.isin(trace.launch_of()[work.index], launches.call[launches.replay])]
    return CudaGraphs(
        replays=int(np.isin(trace.name[calls], codes).sum()),
        gpu_events=len(replayed),
        gpu_time_percent=share_percent(int(trace.dur[replayed].sum()), int(trace.dur[work.index].sum())),
        skips=data.of(cudagraph_skips) if data else None,
        skip_reasons=data.of(cudagraph_skip_reasons) if data else None,
    )


def cudagraph_skip_reasons(data: CompileData) -> list[str]:
    """Why inductor did not use CUDA graphs though it was told to, each reason once."""
    reasons = (
        skip_reason(row.metrics) for row in (*data.summary.compilations, *data.summary.runtime_metrics)
    )
    return list(dict.fromkeys(reason for reason in reasons if reason))


def skip_reason(metrics: Mapping[str, str]) -> str:
    """What one record of torch's metrics says of it, "" for nothing."""
    text = metrics.get(CUDAGRAPH_SKIP_REASON)
    return str(json.loads(text) or "").strip() if text else ""


def cudagraph_skips(data: CompileData) -> int | None:
    """torch's own count, None where it was not recorded. Of a skip at run time torch records nothing else."""
    if not data.summary.counters:
        return None
    return sum(int(row.value) for row in data.summary.counters if (row.group, row.name) == CUDAGRAPH_SKIPS)


def _median_us(ns: Int64s) -> float | None:
    return float(np.median(ns)) / 1000 if len(ns) else None


def _p95_us(ns: Int64s) -> float | None:
    return float(np.percentile(ns, 95)) / 1000 if len(ns) else None
