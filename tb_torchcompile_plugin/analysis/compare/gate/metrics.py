"""What a condition can be about: one row of METRICS each, and nothing else knows their names."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import chain
from typing import Literal, NamedTuple

from tb_torchcompile_plugin.analysis.compare.gate.measures import (
    CPU,
    Measure,
    MeasuredRun,
    RunSource,
    item_of,
    largest,
    unknown,
    why_damaged,
)
from tb_torchcompile_plugin.analysis.compare.gate.timed import compile_time, kernels, memory_peak, steps
from tb_torchcompile_plugin.compile_log.counts import COUNTS, CountName, counted, together
from tb_torchcompile_plugin.job.digest.make import claimed
from tb_torchcompile_plugin.profile.gpu_work import device_names, gpu_work

Unit = Literal["time", "bytes", "count"]


class GateMetric(NamedTuple):
    """noise: whether a change must be more than noise ("needed": where it is not known, nobody can tell; "known": where
    several runs tell it), or is exact. by_name: a pattern may choose among its items."""

    label: str
    unit: Unit
    noise: Literal["exact", "known", "needed"]
    measure: Callable[[RunSource], Measure]
    by_name: bool = False


def _count(name: CountName, recording: RunSource) -> Measure:
    """Of all ranks together: one that counts otherwise must show."""
    if len(recording.data) < recording.ranks:
        who = (
            f"{recording.ranks - len(recording.data)} of {recording.ranks} ranks have"
            if recording.data
            else "it has"
        )
        return unknown(f"{who} no compile data (an eager run has none)")
    if damaged := why_damaged(recording):
        return unknown(damaged)
    rows = [counted(data.summary, name) for data in recording.data]
    if None in rows:
        return unknown(COUNTS[name].why_not)
    items = [item_of(row) for row in together(chain.from_iterable(filter(None, rows)))]
    return Measure(sum(item.value for item in items), items=largest(items))


METRICS: dict[str, GateMetric] = {
    "step": GateMetric("Step time", "time", "needed", steps),
    "kernel": GateMetric("Kernel time of a step", "time", "needed", kernels, by_name=True),
    "memory": GateMetric("Peak memory", "bytes", "known", memory_peak),
    "compile": GateMetric("Compile time", "time", "needed", compile_time),
    **{
        name: GateMetric(kind.many[:1].upper() + kind.many[1:], "count", "exact", partial(_count, name))
        for name, kind in COUNTS.items()
    },
}


def recorded(recording: RunSource) -> MeasuredRun:
    """All that a gate may ask of a run."""
    return MeasuredRun(
        name=recording.name,
        devices=_devices(recording),
        torch=next((one.summary.environment.torch_version for one in recording.data), ""),
        ranks=recording.ranks,
        world_size=_world_size(recording),
        measures={name: metric.measure(recording) for name, metric in METRICS.items()},
    )


def _devices(recording: RunSource) -> list[str]:
    names = [name for profile in recording.profiles for name in device_names(profile.trace).values() if name]
    names = names or [name for one in recording.data for name in one.summary.environment.device_names]
    if (
        not names
        and recording.profiles
        and not any(len(one.of(gpu_work).index) for one in recording.profiles)
    ):
        return [CPU]
    return sorted(set(names))


def _world_size(recording: RunSource) -> int:
    """That of the ranks which are here, where nothing tells of more."""
    traced = [claimed(profile.trace, "world_size") for profile in recording.profiles]
    logged = [one.summary.environment.world_size for one in recording.data]
    return max((size for size in (*traced, *logged) if size), default=recording.ranks)
