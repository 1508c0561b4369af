"""What does overlapping cost? Each kernel's time next to a collective compared with the same kernel's alone.

A collective takes cores and bandwidth of its GPU, also while it only waits for another rank. The same kernel has one
name, compilation, grid and, where they were recorded, input shapes, and one position among its likes in its step:
libraries run one kernel on one grid for products of any depth. It is looked for alone on the same rank, then on
others that do the same work, if all of it is faster or slower alike. Only generated kernels, and those with known
shapes, are the same at any position.
"""

from typing import NamedTuple

import numpy as np

from tb_torchcompile_plugin.job.as_early import by_rank, tied
from tb_torchcompile_plugin.job.digest.rank_calls import communication_rows
from tb_torchcompile_plugin.job.job import TracedJob
from tb_torchcompile_plugin.job.waits import waiting
from tb_torchcompile_plugin.profile.columns import Floats, Mask, codes_of, distinct, ordinals
from tb_torchcompile_plugin.profile.compiled.ownership import Ownership
from tb_torchcompile_plugin.profile.gpu.launches import Launches, kernel_launches
from tb_torchcompile_plugin.profile.gpu_work import busy
from tb_torchcompile_plugin.profile.intervals import Int64s, Intervals, covered_ns
from tb_torchcompile_plugin.profile.model.gpu_queue import overlappable_share
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import launching, marked_steps
from tb_torchcompile_plugin.torch_names.kernels import CATEGORIES, has_triton_prefix

_NO_COMPUTE = [CATEGORIES.index(name) for name in ("communication", "memcpy", "memset")]
# By which times of ranks that do the same may differ, and the share of their time that may differ more; by eye.
_ALIKE = 0.1
_BESIDE = 0.5  # share of a kernel's time that a collective must overlap


class SameKernel(NamedTuple):
    """What makes two launches alike; None is unknown."""

    name: str
    compile_id: str | None
    grid: str | None
    shapes: str | None

    @property
    def at_any_position(self) -> bool:
        """Whether all of them do as much."""
        return self.shapes is not None or has_triton_prefix(self.name)


class Overlapped(NamedTuple):
    """Launches of kernels of which any overlapped a collective, as columns over all ranks (ns)."""

    kernels: list[SameKernel]
    rank: Int64s  # index of the rank
    kernel: Int64s  # index into `kernels`
    dur: Int64s
    covered: Int64s  # for how long a collective ran next to it
    waited: Int64s  # and waited meanwhile
    alone: Int64s  # median of the same kernel alone, -1 where it never was

    @property
    def beside(self) -> Mask:
        """Whether a collective overlapped it; for less than half of its time it counts neither so nor as alone."""
        return np.asarray((self.covered > 0) & (self.covered >= _BESIDE * self.dur))


class _Launched(NamedTuple):
    """Launches on one device of one rank, as columns."""

    kernels: list[SameKernel]
    kernel: Int64s
    at: Int64s  # number among its likes in its step
    of: Int64s  # how many these are
    dur: Int64s
    covered: Int64s
    waited: Int64s


def overlap(job: TracedJob) -> Overlapped:
    """Return the kernels that overlap collectives, of all ranks."""
    codes: dict[SameKernel, int] = {}
    columns: list[list[Int64s]] = [[np.zeros(0, np.int64)] for _ in range(7)]
    for index, rank in enumerate(job.ranks):
        for launches in rank.profile.of(kernel_launches):
            if launches.device == "cpu":
                continue
            part = _of_device(rank.profile, launches, job.of(waiting, index))
            code = np.array(
                [codes.setdefault(kernel, len(codes)) for kernel in part.kernels] or [0], np.int64
            )
            rows = (np.full(len(part.dur), index), code[part.kernel], *part[2:])
            for column, more in zip(columns, rows):
                column.append(more)
    rank_index, kernel, at, of, dur, covered, waited = (np.concatenate(column) for column in columns)
    alone = _alone(list(codes), rank_index, kernel, at, of, dur, covered == 0)
    every = Overlapped(list(codes), rank_index, kernel, dur, covered, waited, alone)
    overlaps = np.isin(kernel, np.unique(kernel[every.beside]))
    return Overlapped(every.kernels, *(column[overlaps] for column in every[1:]))


def _of_device(profile: Profile, launches: Launches, waits: Intervals) -> _Launched:
    trace, collectives = profile.trace, profile.of(communication_rows)
    collectives = collectives[trace.device[collectives] == launches.device]
    rows = np.flatnonzero(~np.isin(launches.category, _NO_COMPUTE))
    index, dur, launch = launches.index[rows], launches.dur[rows], launches.launch[rows]
    begin = trace.ts[index]
    name, compile_id = launches.name[rows], _filled(launches.name[rows], launches.compile_id[rows])
    grid, shapes = codes_of(trace, "grid", index), codes_of(trace, "input_dims", launches.op[rows])
    keys, kernel = distinct(name, compile_id, grid, shapes)
    step = launching(profile.of(marked_steps).windows, trace, launch)
    _, group = distinct(kernel, step)
    order = np.argsort(begin, kind="stable")
    at = np.empty(len(group), np.int64)
    at[order] = ordinals(group[order])
    return _Launched(
        kernels=[_kernel(profile, *codes) for codes in keys.T.tolist()],
        kernel=kernel,
        at=np.where(step >= 0, at, -1),
        of=np.bincount(group)[group] if len(group) else group,
        dur=dur,
        covered=covered_ns(busy(trace, collectives), begin, begin + dur),
        waited=covered_ns(waits, begin, begin + dur),
    )


def _filled(name: Int64s, compile_id: Int64s) -> Int64s:
    """Give kernels the compilation of their likes: where the trace begins inside a call, those of the call lack it."""
    pairs, _ = distinct(name[compile_id >= 0], compile_id[compile_id >= 0])
    names, count = np.unique(pairs[0], return_counts=True)
    only = dict(pairs[:, np.isin(pairs[0], names[count == 1])].T.tolist())
    usual = np.array([only.get(code, -1) for code in name.tolist()], np.int64)
    return np.where(compile_id >= 0, compile_id, usual)


def _kernel(profile: Profile, name: int, compile_id: int, grid: int, shapes: int) -> SameKernel:
    trace, owners = profile.trace, profile.of(Ownership)

    def text(column: str, code: int) -> str | None:
        return trace.texts[column][code] if code >= 0 else None

    return SameKernel(
        trace.names[name], owners.name(compile_id), text("grid", grid), text("input_dims", shapes)
    )


def _alone(
    kernels: list[SameKernel],
    rank: Int64s,
    kernel: Int64s,
    at: Int64s,
    of: Int64s,
    dur: Int64s,
    is_alone: Mask,
) -> Int64s:
    """Return the median alone: of this rank at this position, of any rank there, or of this rank anywhere."""
    anywhere = (
        np.array([key.at_any_position for key in kernels] or [False])[kernel] if len(kernel) else is_alone
    )
    position = np.where(at >= 0, at, -1 - np.arange(len(at)))  # an unknown position is no other kernel's
    speed = _speeds(distinct(kernel, position, of)[1], rank, dur, is_alone & (at >= 0))[rank]
    is_even = np.isfinite(speed)
    speed = np.where(is_even, speed, 1.0)
    alone = _medians(dur, is_alone, kernel, position, of, rank)
    usual = _medians((dur / speed).astype(np.int64), is_alone & is_even, kernel, position, of)
    elsewhere = np.where(is_even & (usual >= 0), (usual * speed).astype(np.int64), -1)
    alone = np.where(alone >= 0, alone, elsewhere)
    return np.where((alone < 0) & anywhere, _medians(dur, is_alone, kernel, rank), alone)


def _speeds(group: Int64s, rank: Int64s, dur: Int64s, counted: Mask) -> Floats:
    """Return by rank how long its kernels take alone, relative to the median of the ranks at the same positions.

    NaN where that differs by kernel: such a rank has other work, and none of its times is another's.
    """
    ranks = int(rank.max(initial=-1)) + 1
    (of_rank, _), _ = distinct(group[counted], rank[counted])
    widely = np.bincount(of_rank, minlength=int(group.max(initial=-1)) + 1) >= max(2, ranks / 2)
    rows = np.flatnonzero(counted & widely[group]) if len(group) else np.zeros(0, np.int64)
    ratio = dur[rows] / np.maximum(_medians(dur, counted, group)[rows], 1)
    return np.array(
        [_speed(ratio[rank[rows] == number], dur[rows[rank[rows] == number]]) for number in range(ranks)]
    )


def _speed(ratio: Floats, weight: Int64s) -> float:
    if not weight.sum():
        return np.nan
    order = np.argsort(ratio)
    middle = float(ratio[order][np.searchsorted(np.cumsum(weight[order]), weight.sum() / 2)])
    differs = np.abs(ratio / middle - 1) > _ALIKE
    return middle if weight[differs].sum() <= _ALIKE * weight.sum() else np.nan


def _medians(values: Int64s, counted: Mask, *columns: Int64s) -> Int64s:
    """Return by row the median of the counted ones that agree with it in all columns, the lower of two; -1 for none."""
    keys, group = distinct(*columns)
    order = np.lexsort((values, ~counted, group))
    first = np.searchsorted(group[order], np.arange(keys.shape[1]))
    count = np.bincount(group[counted], minlength=keys.shape[1])
    if not len(order):
        return values
    middle = values[order[np.minimum(first + np.maximum(count - 1, 0) // 2, len(order) - 1)]]
    return np.asarray(np.where(count > 0, middle, -1)[group], np.int64)


def hideable_share(job: TracedJob) -> Floats:
    """Return by tied call the share of its transfer that could overlap compute, the least among its ranks.

    A transfer is over on all of its ranks at once.
    """
    calls = job.of(tied)
    share, least = np.ones(len(calls.rank_index)), np.ones(int(calls.instance.max(initial=-1)) + 1)
    for rank, rows in zip(job.ranks, by_rank(calls.rank_index, len(job.ranks))):
        share[rows] = overlappable_share(rank.profile, calls.work[rows], np.maximum(calls.transfer[rows], 0))
    np.minimum.at(least, calls.instance, share)
    return least[calls.instance]
