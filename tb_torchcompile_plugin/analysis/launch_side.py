"""What did it cost to give the GPUs their work: how many launch calls, how long, and how long until a kernel ran?

A launch is one call into the CUDA or HIP runtime or driver that put work on a GPU; the replay of a CUDA graph is one.
Its first GPU event tells how long the work took to begin: *latency* where the stream had nothing to do when the call
began, *queue wait* where it was still busy.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from tb_torchcompile_plugin.analysis.columns import distinct
from tb_torchcompile_plugin.analysis.gpu_utilization import GpuWork
from tb_torchcompile_plugin.analysis.intervals import Int64s
from tb_torchcompile_plugin.analysis.units import percent, us
from tb_torchcompile_plugin.reader.kineto import RUNTIME_CATS, Trace
from tb_torchcompile_plugin.summary_pb2 import CompileSummary

_REPLAY = re.compile(r"^(?:cuda|cu|hip)GraphLaunch")


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


class LaunchSide(msgspec.Struct, frozen=True):
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


@dataclass(frozen=True, eq=False)
class LaunchCalls:
    """The launches of a trace in order of time, as columns. `call`: row of the call; `event`: of the first GPU event
    that it launched; `events`: how many it launched; `replay`: whether it replayed a graph; `idle`: whether the
    stream had nothing to do when the call began."""

    call: Int64s
    start: Int64s
    dur: Int64s
    event: Int64s
    events: Int64s
    replay: npt.NDArray[np.bool_]
    idle: npt.NDArray[np.bool_]

    def between(self, begin: int, end: int) -> Made:
        """The launches whose call begins in the window [begin, end)."""
        low, high = np.searchsorted(self.start, (begin, end)).tolist()
        return Made(high - low, int(self.dur[low:high].sum()), int(self.replay[low:high].sum()))


class Made(NamedTuple):
    """Launches in a window, the time of their calls, and how many of them replayed a graph."""

    launches: int
    time_ns: int
    replays: int


def launch_calls(trace: Trace, work: GpuWork) -> LaunchCalls:
    """Every call that launched GPU work, of all host threads."""
    order = np.argsort(trace.ts[work.index], kind="stable")
    index = work.index[order]
    free = _free_at(trace, index, work.device[order])
    launch = trace.launch_of()[index]
    known = launch >= 0
    call, first, events = np.unique(launch[known], return_index=True, return_counts=True)
    by_time = np.argsort(trace.ts[call], kind="stable")
    call, first, events = call[by_time], np.flatnonzero(known)[first[by_time]], events[by_time]
    replays = [code for code, name in enumerate(trace.names) if _REPLAY.match(name)]
    return LaunchCalls(
        call=call,
        start=trace.ts[call],
        dur=trace.dur[call],
        event=index[first],
        events=events,
        replay=np.isin(trace.name[call], replays),
        idle=free[first] <= trace.ts[call],
    )


def _free_at(trace: Trace, index: Int64s, device: Int64s) -> Int64s:
    """For each GPU event, given in order of time: when all earlier work of its stream had ended."""
    lowest = np.iinfo(np.int64).min
    free = np.full(len(index), lowest)
    ends = trace.ts[index] + trace.dur[index]
    streams = trace.stream[index]
    found, place = distinct(device, streams)
    for stream in range(found.shape[1]):
        here = np.flatnonzero(place == stream)
        free[here[1:]] = np.maximum.accumulate(ends[here])[:-1]
    return free


def launch_side(
    trace: Trace, work: GpuWork, found: LaunchCalls, in_steps: list[int], summary: CompileSummary | None
) -> LaunchSide | None:
    """None without GPU events. in_steps: launches of each profiled step."""
    if not len(work.index):
        return None
    wait = trace.ts[found.event] - found.start
    latency, queued = wait[found.idle], wait[~found.idle]
    short, measured = _short(trace, work)
    return LaunchSide(
        launches=len(found.call),
        gpu_events=len(work.index),
        unmatched_events=len(work.index) - int(found.events.sum()),
        launches_per_step=sum(in_steps) / len(in_steps) if in_steps else None,
        call_us=us(found.dur.sum()),
        call_median_us=_median_us(found.dur) or 0.0,
        idle_launches=len(latency),
        latency_median_us=_median_us(latency),
        latency_p95_us=_p95_us(latency),
        queued_launches=len(queued),
        queue_wait_median_us=_median_us(queued),
        queue_wait_p95_us=_p95_us(queued),
        short_events=short,
        short_percent=percent(short, measured),
        calls=_by_function(trace, found),
        cuda_graphs=_cuda_graphs(trace, work, found, summary),
    )


def _short(trace: Trace, work: GpuWork) -> tuple[int, int]:
    """GPU events that were shorter than the call that launched them, and how many could be compared."""
    launch = trace.launch_of()[work.index]
    replays = [code for code, name in enumerate(trace.names) if _REPLAY.match(name)]
    alone = np.flatnonzero((launch >= 0) & ~np.isin(trace.name[launch], replays))
    shorter = trace.dur[work.index[alone]] < trace.dur[launch[alone]]
    return int(shorter.sum()), len(alone)


def _by_function(trace: Trace, found: LaunchCalls) -> list[LaunchCall]:
    """Most time first."""
    names = trace.name[found.call]
    rows = []
    for code in np.unique(names):
        here = names == code
        dur = found.dur[here]
        rows.append(
            LaunchCall(
                name=trace.names[code],
                calls=len(dur),
                gpu_events=int(found.events[here].sum()),
                time_us=us(dur.sum()),
                median_us=_median_us(dur) or 0.0,
                max_us=us(dur.max()),
            )
        )
    return sorted(rows, key=lambda row: -row.time_us)


def _cuda_graphs(
    trace: Trace, work: GpuWork, found: LaunchCalls, summary: CompileSummary | None
) -> CudaGraphs:
    codes = [code for code, name in enumerate(trace.names) if _REPLAY.match(name)]
    calls = trace.select(cat=RUNTIME_CATS)
    replayed = work.index[np.isin(trace.launch_of()[work.index], found.call[found.replay])]
    return CudaGraphs(
        replays=int(np.isin(trace.name[calls], codes).sum()),
        gpu_events=len(replayed),
        gpu_time_percent=percent(int(trace.dur[replayed].sum()), int(trace.dur[work.index].sum())),
        skips=cudagraph_skips(summary) if summary else None,
        skip_reasons=cudagraph_skip_reasons(summary) if summary else None,
    )


def cudagraph_skip_reasons(summary: CompileSummary) -> list[str]:
    """Why inductor did not use CUDA graphs though it was told to, each reason once."""
    told = (skip_reason(row.metrics) for row in (*summary.compilations, *summary.runtime_metrics))
    return list(dict.fromkeys(reason for reason in told if reason))


def skip_reason(metrics: Mapping[str, str]) -> str:
    """What one record of torch's metrics says of it, "" for nothing."""
    text = metrics.get("cudagraph_skip_reason")
    return str(msgspec.json.decode(text) or "").strip() if text else ""


def cudagraph_skips(summary: CompileSummary) -> int | None:
    """torch's own count, None where it was not recorded. Of a skip at run time torch records nothing else."""
    if not summary.counters:
        return None
    name = ("inductor", "cudagraph_skips")
    return sum(int(row.value) for row in summary.counters if (row.group, row.name) == name)


def _median_us(ns: Int64s) -> float | None:
    return float(np.median(ns)) / 1000 if len(ns) else None


def _p95_us(ns: Int64s) -> float | None:
    return float(np.percentile(ns, 95)) / 1000 if len(ns) else None
