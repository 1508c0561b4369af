"""Which collectives ran on the GPUs of a rank, and how fast were they?

A collective that waits for a slower rank runs all that time. Where the other ranks are known, waiting is separated from
transferring. Of one rank alone it is not, and bytes over the fastest call's time are a lower bound of the bandwidth.
"""

from typing import Annotated, Literal

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis.formatting import column_head
from tb_torchcompile_plugin.analysis.runtime.roofline import tensor_bytes
from tb_torchcompile_plugin.job.digest.rank_calls import collective_labels
from tb_torchcompile_plugin.job.instances import calls, rows_of_calls, waits
from tb_torchcompile_plugin.job.job import OneRank
from tb_torchcompile_plugin.profile import columns
from tb_torchcompile_plugin.profile.columns import Int64s, us
from tb_torchcompile_plugin.profile.gpu.launches import kernel_launches
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.trace.kineto import Trace
from tb_torchcompile_plugin.torch_names.collectives import collective
from tb_torchcompile_plugin.torch_names.kernels import CATEGORIES

Bandwidth = Literal["exact", "at_least"]


class Collective(msgspec.Struct, frozen=True):
    """The calls of one collective and size."""

    name: Annotated[str, column_head("Collective", grow=True)]  # the kernel's where torch wrote no label
    device: Annotated[int, column_head(hidden=True)]
    size_bytes: int | None  # input of one call; None without `record_shapes`
    kernels: Annotated[int, column_head(total=True)]
    time_us: Annotated[float, column_head(bar=True, total=True)]
    mean_us: float
    min_us: Annotated[float, column_head("Fastest")]
    max_us: Annotated[float, column_head("Slowest")]
    # Of the calls that are matched with those of other ranks; None without any.
    wait_us: float | None
    transfer_us: float | None
    unknown_us: float | None  # either waiting or transferring
    gb_s: float | None
    # "at_least": the time may include waiting
    gb_s_kind: Annotated[Bandwidth | None, column_head("Bandwidth is")]


class Collectives(msgspec.Struct, frozen=True):
    """The collectives of one rank."""

    rows: list[Collective]  # most time first


def collectives(profile: Profile) -> Collectives:
    """Return the collectives of a rank on its own, most time first."""
    return _collectives(profile, *np.zeros((3, 0), np.int64))


def rank_collectives(about: OneRank) -> Collectives:
    """Return the collectives of one rank of a job, with waiting separated from transferring."""
    own, times = about.job.of(calls).of_rank(about.rank_index), about.job.of(waits)
    transfer, unknown = times.transfer[own], times.unknown[own]
    matched = np.flatnonzero(transfer >= 0)
    return _collectives(about.profile, about.of(rows_of_calls)[matched], transfer[matched], unknown[matched])


def _collectives(profile: Profile, matched: Int64s, transfer: Int64s, unknown: Int64s) -> Collectives:
    """Group by device, name and size; `matched` are rows of the trace, with what may be transfer of each (ns)."""
    trace, wanted = profile.trace, CATEGORIES.index("communication")
    on_gpu = [rows for rows in profile.of(kernel_launches) if rows.device != "cpu"]
    parts = [rows.index[rows.category == wanted] for rows in on_gpu]
    index = np.concatenate(parts) if parts else np.zeros(0, np.int64)
    position = columns.indices_in(matched, index)
    transfer, unknown = columns.values_at(transfer, position), columns.values_at(unknown, position)
    label = collective_labels(trace, index)
    keys, group = columns.distinct(trace.device[index], trace.name[label], _sizes(trace, label))
    rows = []
    for number, (device, code, size) in enumerate(keys.T.tolist()):
        members = np.flatnonzero(group == number)
        times = trace.dur[index[members]]
        rows.append(_row(device, trace.names[code], size, times, transfer[members], unknown[members]))
    return Collectives(sorted(rows, key=lambda row: -row.time_us))


def _sizes(trace: Trace, label: Int64s) -> Int64s:
    """Return the bytes of the input of each call, -1 where unknown."""
    dims, types = (columns.codes_of(trace, column, label) for column in ("input_dims", "input_types"))
    keys, key = columns.distinct(dims, types)
    dim_texts, type_texts = trace.texts["input_dims"], trace.texts["input_types"]
    sizes = [
        tensor_bytes(dim_texts[shape], type_texts[kind]) if shape >= 0 and kind >= 0 else None
        for shape, kind in keys.T.tolist()
    ]
    return np.array([-1 if size is None else round(size) for size in sizes] or [0], np.int64)[key]


def _row(device: int, name: str, size: int, times: Int64s, transfer: Int64s, unknown: Int64s) -> Collective:
    is_matched, is_exact = transfer >= 0, unknown == 0
    any_matched = bool(is_matched.any())
    shortest = int(transfer[is_exact].min() if is_exact.any() else times.min())
    rate = size / shortest if size >= 0 and shortest else None
    unknown_ns = int(unknown[is_matched].sum())
    return Collective(
        device=device,
        name=collective(name) or name,
        size_bytes=size if size >= 0 else None,
        kernels=len(times),
        time_us=us(times.sum()),
        mean_us=float(times.mean()) / 1000,
        min_us=us(times.min()),
        max_us=us(times.max()),
        wait_us=us((times - transfer)[is_matched].sum()) if any_matched else None,
        transfer_us=us(int(transfer[is_matched].sum()) - unknown_ns) if any_matched else None,
        unknown_us=us(unknown_ns) if any_matched else None,
        gb_s=rate,
        gb_s_kind=None if rate is None else "exact" if is_exact.any() else "at_least",
    )
