"""How close does a kernel come to what its device can do? Bandwidth and arithmetic achieved, and the device's peaks.

Above 100 % is possible and stays: a kernel whose data lies in a cache is not bound by the device's memory.
"""

from __future__ import annotations

from typing import Literal

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis.kernels.bandwidth import Work
from tb_torchcompile_plugin.analysis.kernels.op_shapes import decoded
from tb_torchcompile_plugin.errors import Notice
from tb_torchcompile_plugin.generated_code.output_code import Definition
from tb_torchcompile_plugin.profile.columns import Floats, Mask
from tb_torchcompile_plugin.profile.gpu.launches import Device, Launches
from tb_torchcompile_plugin.profile.gpu_work import device_names
from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.profile.units import us
from tb_torchcompile_plugin.reader.trace.kineto import Trace
from tb_torchcompile_plugin.torch_names.devices import Peak, peak_of
from tb_torchcompile_plugin.torch_names.kernels import (
    CATEGORIES,
    PRODUCTS,
    multiplies,
    multiplies_three_times,
    rounds_to_tf32,
)
from tb_torchcompile_plugin.torch_names.operators import HALF_TYPES

WorkFrom = Literal["inductor", "shapes", "copy"]
Precision = Literal["fp32", "tf32", "bf16"]

_BEYOND = 1.1  # of a peak: clocks vary
_COPIES = [CATEGORIES.index("memcpy"), CATEGORIES.index("memset")]


class Achieved(msgspec.Struct, frozen=True):
    """What the launches did whose bytes (or operations) are known, over their time. `*_percent`: of the device's peak.

    from: "inductor" computed it, "shapes" is an estimate from recorded shapes, "copy" is what a copy says of itself.
    `flop_per_byte` is of launches where both are known. `precision`: whose peak `tflop_percent` refers to; bf16
    stands for float16 too. bytes_per_launch: the mean. floor_us: as long as the launches take at least, at the peak of
    what bounds them, above_floor_us: how much longer they took; None where their floor is not known.
    """

    bandwidth_gb_s: float | None = None
    bandwidth_percent: float | None = None
    bandwidth_from: WorkFrom | None = None
    tflop_s: float | None = None
    tflop_percent: float | None = None
    tflop_from: WorkFrom | None = None
    flop_per_byte: float | None = None
    precision: Precision | None = None
    bytes_per_launch: float | None = None
    floor_us: float | None = None
    above_floor_us: float | None = None


class DevicePeak(msgspec.Struct, frozen=True):
    """`known` is false for a device that the table does not have: then shares of a peak are None."""

    device: int
    name: str | None
    known: bool
    bandwidth_gb_s: float | None
    fp32_tflop_s: float | None
    tf32_tflop_s: float | None
    bf16_tflop_s: float | None


def device_peaks(trace: Trace, devices: list[Device]) -> tuple[list[DevicePeak], list[Notice]]:
    """One row a GPU that worked, and what is wrong with the user's own figures."""
    names = device_names(trace)
    rows: list[DevicePeak] = []
    notices: list[Notice] = []
    for device in devices:
        if device == "cpu":
            continue
        try:
            peak = peak_of(names.get(device))
        except ValueError as error:
            peak, notices = None, [Notice("", str(error), "Bandwidths are shown without their share", "")]
        figures = msgspec.structs.asdict(peak or Peak())
        rows.append(DevicePeak(device, names.get(device), peak is not None, **figures))
    return rows, notices


def achieved(
    trace: Trace, rows: Launches, work: Work, places: Int64s, peak: DevicePeak | None, code: Definition | None
) -> Achieved:
    """Of the launches at `places`, which are of one kernel. code: what inductor wrote it as."""
    one, dur = places[0], rows.dur[places]
    category, name = CATEGORIES[rows.category[one]], trace.names[rows.name[one]]
    is_copy = int(rows.category[one]) in _COPIES
    inductor_bytes = code.num_gb * 1e9 if code and code.num_gb else None
    inductor_flop = code.flop if code and multiplies(name, category) else None
    moved, is_estimate = _amount(work.bytes[places], work.estimated[places], inductor_bytes)
    flop, is_flop_estimate = _amount(work.flop[places], work.estimated[places], inductor_flop)
    precision = _precision(trace, work.types[places], name)
    limit = _limit(peak, precision)
    if not _possible(_rate(flop, dur, 1e3), limit or _fastest(peak)):
        flop = np.full(len(flop), np.nan)
    gb_s, tflop_s = _rate(moved, dur), _rate(flop, dur, 1e3)
    both = ~np.isnan(moved) & ~np.isnan(flop) & (moved > 0)
    needs_flop = category in PRODUCTS
    least = _floor_ns(moved, flop, peak, limit) if not is_copy and (limit or not needs_flop) else None
    if least is not None and needs_flop:
        least = np.where(np.isnan(flop), np.nan, least)
    floor_us, above_us = (None, None) if least is None else _beside(least, dur)
    return Achieved(
        bandwidth_gb_s=gb_s,
        bandwidth_percent=None if is_copy else _share(gb_s, peak.bandwidth_gb_s if peak else None),
        bandwidth_from="copy" if is_copy and gb_s is not None else _told_by(gb_s, is_estimate),
        tflop_s=tflop_s,
        tflop_percent=_share(tflop_s, limit),
        tflop_from=_told_by(tflop_s, is_flop_estimate),
        flop_per_byte=float(flop[both].sum() / moved[both].sum()) if both.any() else None,
        precision=None if tflop_s is None else precision,
        bytes_per_launch=None if np.isnan(moved).all() else float(np.nanmean(moved)),
        floor_us=floor_us,
        above_floor_us=above_us,
    )


def _possible(tflop_s: float | None, limit: float | None) -> bool:
    """More than the device can do is none of the kernel's own work."""
    return tflop_s is None or limit is None or tflop_s <= _BEYOND * limit


def _fastest(peak: DevicePeak | None) -> float | None:
    return peak.bf16_tflop_s if peak else None


def _floor_ns(moved: Floats, flop: Floats, peak: DevicePeak | None, tflop_s: float | None) -> Floats | None:
    """How long each launch takes at least; NaN where neither amount is known. A byte a ns is a GB/s."""
    if peak is None or not peak.bandwidth_gb_s:
        return None
    by_memory = moved / peak.bandwidth_gb_s
    return np.fmax(by_memory, flop / (1e3 * tflop_s)) if tflop_s else by_memory


def _beside(least: Floats, dur: Int64s) -> tuple[float | None, float | None]:
    """The floor and what is above it, of the launches whose floor is known."""
    known = ~np.isnan(least)
    if not known.any():
        return None, None
    floor = np.minimum(least[known], dur[known]).round().astype(np.int64)
    return us(floor.sum()), us((dur[known] - floor).sum())


def _told_by(rate: float | None, is_estimate: bool) -> WorkFrom | None:
    return None if rate is None else "shapes" if is_estimate else "inductor"


def _amount(known: Floats, estimated: Mask, exact: float | None) -> tuple[Floats, bool]:
    """The amount of each launch, and whether any is an estimate. told: what the generated code says of one launch,
    which is better than an estimate; nothing at all says that inductor does not count it for this kernel."""
    weak = np.isnan(known) | estimated
    if exact:
        return np.where(weak, exact, known), False
    return known, bool((estimated & ~np.isnan(known)).any())


def _rate(amount: Floats, dur_ns: Int64s, unit: float = 1.0) -> float | None:
    """Amount per ns, over the launches where it is known: bytes give GB/s."""
    known = ~np.isnan(amount)
    time = int(dur_ns[known].sum())
    return float(amount[known].sum()) / time / unit if time else None


def _share(value: float | None, limit: float | None) -> float | None:
    return 100 * value / limit if value is not None and limit else None


def _limit(peak: DevicePeak | None, precision: Precision | None) -> float | None:
    return getattr(peak, f"{precision}_tflop_s") if peak and precision else None


def _precision(trace: Trace, codes: Int64s, name: str) -> Precision | None:
    """By the type of the first tensor; for float32 the kernel's name says whether tensor cores took part."""
    types = decoded(trace.texts["input_types"][codes.max()]) if codes.max() >= 0 else []
    first = next((kind for kind in types if kind), "")
    if first in HALF_TYPES:
        return "bf16"
    if first != "float":
        return None
    rounds = None if multiplies_three_times(name) else rounds_to_tf32(name)
    return None if rounds is None else "tf32" if rounds else "fp32"
