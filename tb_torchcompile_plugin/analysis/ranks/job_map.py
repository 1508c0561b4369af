"""All ranks and steps of a job by one measure, as columns: small enough for thousands of ranks."""

from __future__ import annotations

from typing import Literal, cast, get_args

import msgspec
import numpy as np

from tb_torchcompile_plugin.errors import BadRequest
from tb_torchcompile_plugin.job.chain import beyond, chain
from tb_torchcompile_plugin.job.digest.rank_digest import windows_of
from tb_torchcompile_plugin.job.instances import calls
from tb_torchcompile_plugin.job.job import Job
from tb_torchcompile_plugin.job.steps import job_steps
from tb_torchcompile_plugin.profile.columns import sums
from tb_torchcompile_plugin.profile.intervals import Int64s

Measure = Literal[
    "late_us",
    "span_us",
    "exposed_wait_us",
    "exposed_transfer_us",
    "exposed_unknown_us",
    "compute_us",
    "overlapped_us",
    "exposed_memory_us",
    "idle_us",
    "compile_us",
]
_CELLS = 1 << 16  # of how many at most values are told


class JobMap(msgspec.Struct, frozen=True):
    """workers, spans: whose files those of each rank are. hosts: by rank, null where nothing tells. mean_us: by rank,
    of its steps; us: step by step, those of all ranks; null where a rank has no such step. steps_left_out: how many
    more there are, which are in the mean."""

    measure: Measure
    ranks: list[int]
    workers: list[str]
    spans: list[str]
    hosts: list[str | None]
    mean_us: list[float | None]
    steps: list[str]
    us: list[list[float | None]]
    steps_left_out: int


def measure_named(text: str) -> Measure:
    """Raises BadRequest."""
    for one in get_args(Measure):
        if one == text:
            return cast(Measure, one)
    raise BadRequest(f"no measure {text!r}", next_step=f"Ask for one of: {', '.join(get_args(Measure))}")


def job_map(job: Job, measure: str) -> JobMap:
    """measure: a column of a step, or `late_us`: how much longer than its peers the rank took before collectives.
    Raises BadRequest for another one."""
    wanted = measure_named(measure)
    columns = _of_ranks(job, wanted)
    names = list(dict.fromkeys(name for one in columns for name in one))
    shown = names[: max(1, _CELLS // len(job.digests))]
    return JobMap(
        measure=wanted,
        ranks=job.numbers,
        workers=[one.worker for one in job.digests],
        spans=[one.span for one in job.digests],
        hosts=[one.host for one in job.digests],
        mean_us=[_us(np.mean([*one.values()])) if one else None for one in columns],
        steps=shown,
        us=[[_us(one[name]) if name in one else None for one in columns] for name in shown],
        steps_left_out=len(names) - len(shown),
    )


def _us(ns: float | np.floating) -> float:
    return round(float(ns) / 1000, 1)


def _of_ranks(job: Job, measure: Measure) -> list[dict[str, int]]:
    """By rank and step (ns)."""
    if measure == "late_us":
        return _late(job)
    if measure == "compile_us":
        windows = [one.of(windows_of) for one in job.digests]
        return [dict(zip(one.names, one.compile.tolist())) for one in windows]
    column = measure.removesuffix("_us")
    return [
        dict(zip(steps.step, getattr(steps, column).tolist())) if steps else {} for steps in job.of(job_steps)
    ]


def _late(job: Job) -> list[dict[str, int]]:
    """What was launched before the first step is of none."""
    held, ns = job.of(chain), job.of(beyond).ns
    launch = job.of(calls).launch[held.row]
    rows = []
    for place, one in enumerate(job.digests):
        windows, mine = one.of(windows_of), slice(int(held.first[place]), int(held.first[place + 1]))
        step = np.searchsorted(windows.begin, launch[mine] - one.base_ns, side="right") - 1
        rows.append(dict(zip(windows.names, _summed(step, ns[mine], len(windows.names)))))
    return rows


def _summed(step: Int64s, ns: Int64s, count: int) -> list[int]:
    total: list[int] = sums(step, ns, count).tolist()
    return total
