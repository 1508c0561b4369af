"""Which collectives ran on the GPUs of one rank, how large were they, and how fast?

A collective that waits for a slower rank runs all that time. Where all ranks are known waiting is told apart; of one
rank alone nothing tells, and bytes over the fastest call's time are the least that the link may have carried.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis import thresholds
from tb_torchcompile_plugin.analysis.formatting import duration, percent
from tb_torchcompile_plugin.analysis.runtime.op_shapes import tensor_bytes
from tb_torchcompile_plugin.job.instances import calls, rows_of_calls
from tb_torchcompile_plugin.job.job import Job, OneRank, TracedJob
from tb_torchcompile_plugin.job.overlap import Overlapped, overlap
from tb_torchcompile_plugin.job.steps import job_lengths, job_steps, marked_steps
from tb_torchcompile_plugin.job.waits import blame, waits
from tb_torchcompile_plugin.profile.columns import codes_of, distinct, mask_of, places_in
from tb_torchcompile_plugin.profile.gpu.launches import kernel_launches
from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.units import us
from tb_torchcompile_plugin.reader.trace.kineto import Trace
from tb_torchcompile_plugin.reader.trace.nest import climb
from tb_torchcompile_plugin.torch_names.collectives import collective
from tb_torchcompile_plugin.torch_names.kernels import CATEGORIES

Bandwidth = Literal["exact", "at_least"]


class Collective(msgspec.Struct, frozen=True):
    """Calls of one collective and size. `name` is the kernel's where torch wrote no label.

    size_bytes: of the input of one call, None without `record_shapes`. wait_us, transfer_us: of all calls that are
    matched with those of other ranks, None where none is; unknown_us: of these what nothing tells of which it is.
    gb_s: the size over the shortest transfer; where that is not known over the shortest time, which may hold waiting:
    the link was `at_least` as fast.
    """

    device: int
    name: str
    size_bytes: int | None
    kernels: int
    time_us: float
    mean_us: float
    min_us: float
    max_us: float
    wait_us: float | None
    transfer_us: float | None
    unknown_us: float | None
    gb_s: float | None
    gb_s_is: Bandwidth | None


class Collectives(msgspec.Struct, frozen=True):
    rows: list[Collective]


def collectives(profile: Profile) -> Collectives:
    """Of a rank on its own, most time first."""
    none = np.zeros(0, np.int64)
    return _collectives(profile, none, _Transfers(none, none))


def rank_collectives(about: OneRank) -> Collectives:
    """Of one rank of a job: waiting is told from transferring."""
    mine, times = about.job.of(calls).of_rank(about.place), about.job.of(waits)
    matched = np.flatnonzero(times.transfer[mine] >= 0)
    transfers = _Transfers(times.transfer[mine][matched], times.unknown[mine][matched])
    return _collectives(about.profile, about.of(rows_of_calls)[matched], transfers)


class _Transfers(NamedTuple):
    """Of calls, what is not known to wait, and what of that may (ns); -1 for calls that are not matched."""

    whole: Int64s
    unknown: Int64s

    def at(self, places: Int64s) -> _Transfers:
        if not len(self.whole):
            return _Transfers(*np.full((2, len(places)), -1))
        return _Transfers(*(np.where(places >= 0, column[places], -1) for column in self))


def _collectives(profile: Profile, matched: Int64s, transfers: _Transfers) -> Collectives:
    """matched: rows of the calls that are matched with those of other ranks, of which `transfers` are."""
    trace, wanted = profile.trace, CATEGORIES.index("communication")
    parts = [
        rows.index[rows.category == wanted] for rows in profile.of(kernel_launches) if rows.device != "cpu"
    ]
    index = np.concatenate(parts) if parts else np.zeros(0, np.int64)
    known = transfers.at(places_in(matched, index))
    label = _labels(trace, index)
    name = np.where(label >= 0, trace.name[label], trace.name[index])
    keys, place = distinct(trace.device[index], name, _sizes(trace, label))
    rows = [
        _row(device, trace.names[code], size, trace.dur[index[mine]], known.at(mine))
        for at, (device, code, size) in enumerate(keys.T.tolist())
        for mine in [np.flatnonzero(place == at)]
    ]
    return Collectives(sorted(rows, key=lambda row: -row.time_us))


def _row(device: int, name: str, size: int, times: Int64s, transfers: _Transfers) -> Collective:
    matched, known = transfers.whole >= 0, transfers.unknown == 0
    least = int(transfers.whole[known].min() if known.any() else times.min())
    rate = size / least if size >= 0 and least else None
    exactness: Bandwidth = "exact" if known.any() else "at_least"
    unknown = int(transfers.unknown[matched].sum())
    return Collective(
        device=device,
        name=collective(name) or name,
        size_bytes=size if size >= 0 else None,
        kernels=len(times),
        time_us=us(times.sum()),
        mean_us=float(times.mean()) / 1000,
        min_us=us(times.min()),
        max_us=us(times.max()),
        wait_us=us((times - transfers.whole)[matched].sum()) if matched.any() else None,
        transfer_us=us(int(transfers.whole[matched].sum()) - unknown) if matched.any() else None,
        unknown_us=us(unknown) if matched.any() else None,
        gb_s=rate,
        gb_s_is=None if rate is None else exactness,
    )


def _labels(trace: Trace, index: Int64s) -> Int64s:
    """The innermost label of a collective around the launch of each kernel, -1 without one."""
    wanted = mask_of(trace.names, lambda name: collective(name) is not None)[trace.name]
    return climb(trace.parent, trace.launch_of()[index], wanted)


def _sizes(trace: Trace, label: Int64s) -> Int64s:
    """Bytes of the input of each call, -1 unknown."""
    dims, types = (codes_of(trace, column, label) for column in ("input_dims", "input_types"))
    keys, place = distinct(dims, types)
    texts = trace.texts["input_dims"], trace.texts["input_types"]
    sizes = [
        tensor_bytes(texts[0][shape], texts[1][kind]) if shape >= 0 and kind >= 0 else None
        for shape, kind in keys.T.tolist()
    ]
    known = np.array([-1 if size is None else round(size) for size in sizes] or [0], np.int64)
    return known[place]


# How much of its time does a rank of a job wait for another one, and for which?


def waiting_words(job: Job, place: int) -> str:
    """ "waits for rank 1 for 98.2 % of its steps"; "" where it does not wait to speak of."""
    steps, waited = job.of(job_steps)[place], job.of(blame)
    most = waited.of(place)
    if steps is None or not len(most):
        return ""
    share = 100 * int(steps.exposed_wait.sum()) / max(int(steps.span.sum()), 1)
    if share < thresholds.communication_percent:
        return ""
    return f"waits for rank {job.numbers[waited.awaited[most[0]]]} for {percent(share)} of its steps"


# The price of overlap in rows: kernels that take longer beside a collective than alone, and what that costs
# a step.


_CONSIDERABLE_PERCENT = 2.0  # of a step: less is no sentence
_NAME = 60  # characters of a kernel in a sentence


class OverlapRow(msgspec.Struct, frozen=True):
    """One kernel of all ranks. beside: how many launches ran beside a collective; known: of how many of these it is
    known how long they take alone. alone_us, beside_us: medians of these, None and of all where nothing tells.
    wait_percent: of the time beside a collective, in which that waited for another rank. loss_us: what they take longer
    than alone in an average step of a rank."""

    name: str
    compile_id: str | None
    grid: str | None
    beside: int
    known: int
    alone_us: float | None
    beside_us: float
    wait_percent: float
    loss_us: float | None


def overlap_rows(job: TracedJob) -> list[OverlapRow]:
    """Most loss first, those of which it is not known last."""
    ran, steps = job.of(overlap), job.of(marked_steps) * len(job.ranks)
    rows = [_overlap_row(ran, launches, steps) for launches in _by_kernel(ran)]
    return sorted(rows, key=lambda row: (row.loss_us is None, -(row.loss_us or 0.0)))


def _by_kernel(ran: Overlapped) -> list[Int64s]:
    """Which launches of each ran beside a collective."""
    beside = np.flatnonzero(ran.beside)
    order = beside[np.argsort(ran.kernel[beside], kind="stable")]
    first = np.flatnonzero(np.diff(ran.kernel[order])) + 1
    return np.split(order, first) if len(order) else []


def _overlap_row(ran: Overlapped, rows: Int64s, steps: int) -> OverlapRow:
    kernel = ran.kernels[int(ran.kernel[rows[0]])]
    known = rows[ran.alone[rows] >= 0]
    return OverlapRow(
        name=kernel.name,
        compile_id=kernel.compile_id,
        grid=kernel.grid,
        beside=len(rows),
        known=len(known),
        alone_us=float(np.median(ran.alone[known])) / 1000 if len(known) else None,
        beside_us=float(np.median(ran.dur[known if len(known) else rows])) / 1000,
        wait_percent=100 * float(ran.waited[rows].sum() / ran.covered[rows].sum()),
        loss_us=float((ran.dur[known] - ran.alone[known]).sum()) / 1000 / steps if len(known) else None,
    )


def overlap_us(job: TracedJob) -> float | None:
    """What kernels beside collectives take longer in an average step of a rank, as far as it is known."""
    known = [row.loss_us for row in job.of(overlap_rows) if row.loss_us is not None]
    return sum(known) if known else None


def overlap_headline(job: TracedJob) -> str | None:
    """Only where it is considerable."""
    loss, lengths = job.of(overlap_us), [one.ns.mean() for one in job.of(job_lengths) if len(one.ns)]
    if loss is None or not lengths:
        return None
    share = 100 * loss / (max(lengths) / 1000)
    if share < _CONSIDERABLE_PERCENT:
        return None
    most = job.of(overlap_rows)[0]
    assert most.alone_us is not None
    return (
        f"Kernels that run beside a collective take {duration(loss)} a step longer than alone, {percent(share)} of it: "
        f"{most.name[:_NAME]} takes {duration(most.beside_us)} beside one, {duration(most.alone_us)} alone."
    )
