"""Which collectives ran on the GPUs, how large were they, and how fast? Of one rank.

A collective that waits for a slower rank runs all that time: the fastest call of a size is nearest to the transfer.
"""

from __future__ import annotations

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis.kernels.op_shapes import tensor_bytes
from tb_torchcompile_plugin.profile.columns import codes_of, distinct
from tb_torchcompile_plugin.profile.gpu.launches import kernel_launches
from tb_torchcompile_plugin.profile.host.host_tree import climb
from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.slices import mask_of
from tb_torchcompile_plugin.profile.units import us
from tb_torchcompile_plugin.reader.trace.kineto import Trace
from tb_torchcompile_plugin.torch_names.collectives import collective
from tb_torchcompile_plugin.torch_names.kernels import CATEGORIES


class Collective(msgspec.Struct, frozen=True):
    """Calls of one collective and size. `name` is the kernel's where torch wrote no label.

    size_bytes: of the input of one call, None without `record_shapes`. gb_s: that over the time of the fastest call.
    """

    device: int
    name: str
    size_bytes: int | None
    kernels: int
    time_us: float
    mean_us: float
    min_us: float
    max_us: float
    gb_s: float | None


class Collectives(msgspec.Struct, frozen=True):
    rows: list[Collective]


def collectives(profile: Profile) -> Collectives:
    """Most time first."""
    trace, wanted = profile.trace, CATEGORIES.index("communication")
    parts = [
        rows.index[rows.category == wanted] for rows in profile.of(kernel_launches) if rows.device != "cpu"
    ]
    index = np.concatenate(parts) if parts else np.zeros(0, np.int64)
    label = _labels(trace, index)
    name = np.where(label >= 0, trace.name[label], trace.name[index])
    keys, place = distinct(trace.device[index], name, _sizes(trace, label))
    rows = [
        _row(device, trace.names[code], size, trace.dur[index[place == at]])
        for at, (device, code, size) in enumerate(keys.T.tolist())
    ]
    return Collectives(sorted(rows, key=lambda row: -row.time_us))


def _row(device: int, name: str, size: int, times: Int64s) -> Collective:
    least = int(times.min())
    return Collective(
        device=device,
        name=collective(name) or name,
        size_bytes=size if size >= 0 else None,
        kernels=len(times),
        time_us=us(times.sum()),
        mean_us=float(times.mean()) / 1000,
        min_us=us(least),
        max_us=us(times.max()),
        gb_s=size / least if size >= 0 and least else None,
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
