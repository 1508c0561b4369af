"""What does overlapping cost? Each kernel's time beside a collective against the same kernel's alone.

A collective takes cores and bandwidth of its GPU, also while it only waits for another rank. The same kernel is that of
one name, compilation, grid and, where they were recorded, input shapes, at the same place among its likes in its step:
libraries run one kernel on one grid for products of any depth. It is looked for alone on the same rank, then on others
that do the same work, faster or slower alike. Only generated kernels, and those whose shapes are known, are the same at
any place.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tb_torchcompile_plugin.job.as_early import by_place, tied
from tb_torchcompile_plugin.job.digest.rank_calls import communication_rows
from tb_torchcompile_plugin.job.job import TracedJob
from tb_torchcompile_plugin.job.waits import waiting
from tb_torchcompile_plugin.profile.columns import Floats, codes_of, distinct
from tb_torchcompile_plugin.profile.compiled.ownership import Ownership
from tb_torchcompile_plugin.profile.gpu.launches import Launches, kernel_launches
from tb_torchcompile_plugin.profile.gpu_work import busy
from tb_torchcompile_plugin.profile.intervals import Int64s, Intervals, covered_ns
from tb_torchcompile_plugin.profile.model.gpu_queue import beside_compute
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import StepWindows
from tb_torchcompile_plugin.torch_names.kernels import CATEGORIES, is_generated_name

_NO_COMPUTE = [CATEGORIES.index(name) for name in ("communication", "memcpy", "memset")]
_ALIKE = 0.1  # by which times of ranks may differ that do the same, and the share of their time that may differ more
_BESIDE = 0.5  # of a kernel's time, from which on it runs beside a collective


class SameKernel(NamedTuple):
    """What makes two launches alike. compile_id, grid, shapes: None where that is not known."""

    name: str
    compile_id: str | None
    grid: str | None
    shapes: str | None

    @property
    def at_any_place(self) -> bool:
        """Whether all of them do as much."""
        return self.shapes is not None or is_generated_name(self.name)


class Overlapped(NamedTuple):
    """Launches of kernels of which any ran beside a collective, as columns over all ranks. kernel: place in `kernels`;
    covered, waited: for how long a collective ran beside it, and waited meanwhile; alone: the median of the same kernel
    alone, -1 where it never was (ns)."""

    kernels: list[SameKernel]
    rank: Int64s
    kernel: Int64s
    dur: Int64s
    covered: Int64s
    waited: Int64s
    alone: Int64s

    @property
    def beside(self) -> npt.NDArray[np.bool_]:
        """Those that did so for less than half of their time count neither so nor alone."""
        return np.asarray((self.covered > 0) & (self.covered >= _BESIDE * self.dur))


class _Launched(NamedTuple):
    """Of one device of one rank, as columns; at, of: the number among its likes in its step, and how many they are."""

    kernels: list[SameKernel]
    kernel: Int64s
    at: Int64s
    of: Int64s
    dur: Int64s
    covered: Int64s
    waited: Int64s


def overlap(job: TracedJob) -> Overlapped:
    """Over all ranks."""
    parts = [
        (place, part)
        for place, one in enumerate(job.ranks)
        for part in _of_rank(one.profile, job.of(waiting, place))
    ]
    codes: dict[SameKernel, int] = {}
    columns: list[list[Int64s]] = [[np.zeros(0, np.int64)] for _ in range(7)]
    for place, part in parts:
        code = np.array([codes.setdefault(one, len(codes)) for one in part.kernels] or [0], np.int64)
        rows = (np.full(len(part.dur), place), code[part.kernel], *part[2:])
        for column, more in zip(columns, rows):
            column.append(more)
    rank, kernel, at, of, dur, covered, waited = (np.concatenate(column) for column in columns)
    alone = _alone(list(codes), rank, kernel, at, of, dur, covered == 0)
    return _besides(Overlapped(list(codes), rank, kernel, dur, covered, waited, alone))


def _besides(all_of_them: Overlapped) -> Overlapped:
    """Without kernels that are beside no collective at all."""
    mine = np.isin(all_of_them.kernel, np.unique(all_of_them.kernel[all_of_them.beside]))
    return Overlapped(all_of_them.kernels, *(column[mine] for column in all_of_them[1:]))


def _alone(
    kernels: list[SameKernel],
    rank: Int64s,
    kernel: Int64s,
    at: Int64s,
    of: Int64s,
    dur: Int64s,
    is_alone: npt.NDArray[np.bool_],
) -> Int64s:
    """The median alone: of this rank at this place, of any rank at this place, or of this rank at any place."""
    anywhere = np.array([one.at_any_place for one in kernels] or [False])[kernel] if len(kernel) else is_alone
    place = np.where(at >= 0, at, -1 - np.arange(len(at)))  # an unknown place is nobody else's
    speed = _speeds(distinct(kernel, place, of)[1], rank, dur, is_alone & (at >= 0))[rank]
    even = np.isfinite(speed)
    speed = np.where(even, speed, 1.0)
    here = _medians(dur, is_alone, kernel, place, of, rank)
    usual = _medians((dur / speed).astype(np.int64), is_alone & even, kernel, place, of)
    elsewhere = np.where(even & (usual >= 0), (usual * speed).astype(np.int64), -1)
    here = np.where(here >= 0, here, elsewhere)
    return np.where((here < 0) & anywhere, _medians(dur, is_alone, kernel, rank), here)


def _speeds(group: Int64s, rank: Int64s, dur: Int64s, counted: npt.NDArray[np.bool_]) -> Floats:
    """By rank how long its kernels take alone, in those of the ranks at the same places, by the median; NaN where that
    is another one for each kernel: such a rank has other work, and none of its times is another's."""
    ranks = int(rank.max(initial=-1)) + 1
    (of_rank, _), _ = distinct(group[counted], rank[counted])
    widely = np.bincount(of_rank, minlength=int(group.max(initial=-1)) + 1) >= max(2, ranks / 2)
    mine = np.flatnonzero(counted & widely[group]) if len(group) else np.zeros(0, np.int64)
    ratio = dur[mine] / np.maximum(_medians(dur, counted, group)[mine], 1)
    return np.array([_speed(ratio[rank[mine] == one], dur[mine[rank[mine] == one]]) for one in range(ranks)])


def _speed(ratio: Floats, weight: Int64s) -> float:
    if not weight.sum():
        return np.nan
    order = np.argsort(ratio)
    middle = float(ratio[order][np.searchsorted(np.cumsum(weight[order]), weight.sum() / 2)])
    other = np.abs(ratio / middle - 1) > _ALIKE
    return middle if weight[other].sum() <= _ALIKE * weight.sum() else np.nan


def _medians(values: Int64s, counted: npt.NDArray[np.bool_], *columns: Int64s) -> Int64s:
    """By row the median of the counted ones that agree with it in all columns, the lower one of two; -1 for none."""
    keys, group = distinct(*columns)
    order = np.lexsort((values, ~counted, group))
    first = np.searchsorted(group[order], np.arange(keys.shape[1]))
    count = np.bincount(group[counted], minlength=keys.shape[1])
    if not len(order):
        return values
    middle = values[order[np.minimum(first + np.maximum(count - 1, 0) // 2, len(order) - 1)]]
    return np.asarray(np.where(count > 0, middle, -1)[group], np.int64)


def _of_rank(profile: Profile, waits: Intervals) -> list[_Launched]:
    trace, rows = profile.trace, profile.of(communication_rows)
    devices = [one for one in profile.of(kernel_launches) if one.device != "cpu"]
    return [
        _of_device(profile, one, busy(trace, rows[trace.device[rows] == one.device]), waits)
        for one in devices
    ]


def _of_device(profile: Profile, launches: Launches, collectives: Intervals, waits: Intervals) -> _Launched:
    trace = profile.trace
    mine = np.flatnonzero(~np.isin(launches.category, _NO_COMPUTE))
    index, dur, launch = launches.index[mine], launches.dur[mine], launches.launch[mine]
    begin = trace.ts[index]
    name, compile_id = launches.name[mine], _filled(launches.name[mine], launches.compile_id[mine])
    grid, shapes = codes_of(trace, "grid", index), codes_of(trace, "input_dims", launches.op[mine])
    keys, kernel = distinct(name, compile_id, grid, shapes)
    at, of = _numbered(kernel, profile.of(StepWindows).launching(trace, launch), begin)
    return _Launched(
        kernels=[_kernel(profile, *codes) for codes in keys.T.tolist()],
        kernel=kernel,
        at=at,
        of=of,
        dur=dur,
        covered=covered_ns(collectives, begin, begin + dur),
        waited=covered_ns(waits, begin, begin + dur),
    )


def _filled(name: Int64s, compile_id: Int64s) -> Int64s:
    """Where the trace begins inside of a call, those of its kernels lack the id that their likes have."""
    pairs, _ = distinct(name[compile_id >= 0], compile_id[compile_id >= 0])
    names, count = np.unique(pairs[0], return_counts=True)
    only = dict(pairs[:, np.isin(pairs[0], names[count == 1])].T.tolist())
    usual = np.array([only.get(one, -1) for one in name.tolist()], np.int64)
    return np.where(compile_id >= 0, compile_id, usual)


def _numbered(kernel: Int64s, step: Int64s, begin: Int64s) -> tuple[Int64s, Int64s]:
    """The number of each among its likes in its step, and how many these are; -1 outside of all steps."""
    _, group = distinct(kernel, step)
    order = np.lexsort((begin, group))
    first = np.searchsorted(group[order], np.arange(int(group.max(initial=-1)) + 1))
    at = np.empty(len(group), np.int64)
    at[order] = np.arange(len(group)) - first[group[order]]
    return np.where(step >= 0, at, -1), np.bincount(group)[group] if len(group) else group


def _kernel(profile: Profile, name: int, compile_id: int, grid: int, shapes: int) -> SameKernel:
    trace, owners = profile.trace, profile.of(Ownership)

    def text(column: str, code: int) -> str | None:
        return trace.texts[column][code] if code >= 0 else None

    return SameKernel(
        trace.names[name], owners.name(compile_id), text("grid", grid), text("input_dims", shapes)
    )


# How much of each transfer could take place beside compute? A transfer is over on all of its ranks at once.


def hideable(job: TracedJob) -> Floats:
    """By tied call the share of its transfer, the least among the ranks of its instance."""
    held = job.of(tied)
    share, least = np.ones(len(held.place)), np.ones(int(held.instance.max(initial=-1)) + 1)
    for one, mine in zip(job.ranks, by_place(held.place, len(job.ranks))):
        share[mine] = beside_compute(one.profile, held.work[mine], np.maximum(held.transfer[mine], 0))
    np.minimum.at(least, held.instance, share)
    return least[held.instance]
