"""Show what launching GPU work cost: how many calls, how long they took, and how long until a kernel ran."""

import json
from collections.abc import Mapping

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis.compile.cuda_graph_recordings import skipped_graphs
from tb_torchcompile_plugin.profile.columns import groups_of_equal, mask_of
from tb_torchcompile_plugin.profile.gpu.launches import LaunchCalls, launch_calls
from tb_torchcompile_plugin.profile.gpu_work import GpuWork, gpu_work
from tb_torchcompile_plugin.profile.intervals import Int64s, share_percent, us
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import StepWindows
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
    """How much of the GPU work was launched as CUDA graphs."""

    replays: int  # calls that launched a whole graph
    gpu_events: int  # that ran as part of graphs
    gpu_time_percent: float | None  # of the summed GPU event time
    skip_reasons: (
        list[str] | None
    )  # why there was none though asked for, in torch's words; None without compile data


class LaunchStats(msgspec.Struct, frozen=True):
    """The launches of one span. Medians are None where there was no such launch."""

    launches: int
    gpu_events: int
    unmatched_events: int  # GPU events whose launch is not in the trace
    launches_per_step: float | None
    call_us: float
    call_median_us: float
    idle_launches: int  # the stream was idle at the start of the call
    latency_median_us: float | None  # of these, from the start of the call to the start of the kernel
    latency_p95_us: float | None
    queued_launches: int  # the stream was busy at the start of the call
    queue_wait_median_us: float | None
    queue_wait_p95_us: float | None
    short_events: int  # GPU events shorter than the call that launched them, replays apart
    short_percent: float | None
    calls: list[LaunchCall]
    cuda_graphs: CudaGraphs


def launch_stats(profile: Profile) -> LaunchStats | None:
    """Return the launches of a span; None without GPU events."""
    trace, work, launches = profile.trace, profile.of(gpu_work), profile.of(launch_calls)
    if not len(work.index):
        return None
    steps = profile.of(StepWindows)
    windows = zip(steps.starts.tolist(), steps.ends.tolist())
    in_steps = sum(launches.between(begin, end).launches for begin, end in windows)
    wait = trace.ts[launches.event] - launches.start
    latency, queued = wait[launches.idle], wait[~launches.idle]
    launch = trace.launch_of()[work.index]
    compared = np.flatnonzero((launch >= 0) & ~mask_of(trace.names, is_replay)[trace.name[launch]])
    short = int((trace.dur[work.index[compared]] < trace.dur[launch[compared]]).sum())
    return LaunchStats(
        launches=len(launches.call),
        gpu_events=len(work.index),
        unmatched_events=len(work.index) - int(launches.events.sum()),
        launches_per_step=in_steps / len(steps) if len(steps) else None,
        call_us=us(launches.dur.sum()),
        call_median_us=percentile_us(launches.dur) or 0.0,
        idle_launches=len(latency),
        latency_median_us=percentile_us(latency),
        latency_p95_us=percentile_us(latency, 95),
        queued_launches=len(queued),
        queue_wait_median_us=percentile_us(queued),
        queue_wait_p95_us=percentile_us(queued, 95),
        short_events=short,
        short_percent=share_percent(short, len(compared)),
        calls=_by_function(trace, launches),
        cuda_graphs=_cuda_graphs(trace, work, launches, profile.data),
    )


def percentile_us(ns: Int64s, percent: int = 50) -> float | None:
    """Return a percentile of times, by default the median, in µs; None without any."""
    return float(np.percentile(ns, percent)) / 1000 if len(ns) else None


def _by_function(trace: Trace, launches: LaunchCalls) -> list[LaunchCall]:
    """Return one row per function, most time first."""
    rows = []
    for same in groups_of_equal(np.arange(len(launches.call)), trace.name[launches.call]):
        dur = launches.dur[same]
        row = LaunchCall(
            name=trace.names[trace.name[launches.call[same[0]]]],
            calls=len(dur),
            gpu_events=int(launches.events[same].sum()),
            time_us=us(dur.sum()),
            median_us=percentile_us(dur) or 0.0,
            max_us=us(dur.max()),
        )
        rows.append(row)
    return sorted(rows, key=lambda row: -row.time_us)


def _cuda_graphs(trace: Trace, work: GpuWork, launches: LaunchCalls, data: CompileData | None) -> CudaGraphs:
    calls = trace.select(cat=RUNTIME_CATS)
    replayed = work.index[np.isin(trace.launch_of()[work.index], launches.call[launches.replay])]
    return CudaGraphs(
        replays=int(mask_of(trace.names, is_replay)[trace.name[calls]].sum()),
        gpu_events=len(replayed),
        gpu_time_percent=share_percent(int(trace.dur[replayed].sum()), int(trace.dur[work.index].sum())),
        skip_reasons=list(dict.fromkeys(row.text for row in data.of(skipped_graphs))) if data else None,
    )


def cudagraph_skips(data: CompileData) -> int | None:
    """Return torch's own count, None where it was not recorded; skips at run time leave no other record."""
    if not data.summary.counters:
        return None
    return sum(int(row.value) for row in data.summary.counters if (row.group, row.name) == CUDAGRAPH_SKIPS)


def skip_reason(metrics: Mapping[str, str]) -> str:
    """Return the reason in one record of torch's metrics, "" where it has none."""
    text = metrics.get(CUDAGRAPH_SKIP_REASON)
    return str(json.loads(text) or "").strip() if text else ""
