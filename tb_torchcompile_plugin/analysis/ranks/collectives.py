"""Which collectives ran on the GPUs of one rank, how large were they, and how fast?

A collective that waits for a slower rank runs all that time. Where all ranks are known waiting is told apart; of one
rank alone nothing tells, and bytes over the fastest call's time are the least that the link may have carried.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis.kernels.op_shapes import tensor_bytes
from tb_torchcompile_plugin.job.instances import calls, rows_of_calls
from tb_torchcompile_plugin.job.job import OneRank
from tb_torchcompile_plugin.job.waits import waits
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
