"""The price of overlap in rows: kernels that take longer beside a collective than alone, and what that costs a step."""

from __future__ import annotations

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis.words import duration, percent
from tb_torchcompile_plugin.job.job import TracedJob
from tb_torchcompile_plugin.job.overlap import Overlapped, overlap
from tb_torchcompile_plugin.job.steps import job_lengths, marked_steps
from tb_torchcompile_plugin.profile.intervals import Int64s

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
    rows = [_row(ran, launches, steps) for launches in _by_kernel(ran)]
    return sorted(rows, key=lambda row: (row.loss_us is None, -(row.loss_us or 0.0)))


def _by_kernel(ran: Overlapped) -> list[Int64s]:
    """Which launches of each ran beside a collective."""
    beside = np.flatnonzero(ran.beside)
    order = beside[np.argsort(ran.kernel[beside], kind="stable")]
    first = np.flatnonzero(np.diff(ran.kernel[order])) + 1
    return np.split(order, first) if len(order) else []


def _row(ran: Overlapped, rows: Int64s, steps: int) -> OverlapRow:
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
