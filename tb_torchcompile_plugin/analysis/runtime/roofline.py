"""How close does a kernel come to what its device can do? Bandwidth and arithmetic achieved, and the device's peaks.

Above 100 % is possible and stays: a kernel whose data lies in a cache is not bound by the device's memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis.runtime.op_shapes import (
    CallWork,
    asks_for_values,
    decoded,
    operator_work,
    tensor_bytes,
)
from tb_torchcompile_plugin.errors import Notice, UserError
from tb_torchcompile_plugin.generated_code.output_code import Definition
from tb_torchcompile_plugin.profile.columns import Floats, Mask, alike, codes_of, distinct, mask_of, values_of
from tb_torchcompile_plugin.profile.gpu.launches import Device, Launches, kernel_launches
from tb_torchcompile_plugin.profile.gpu_work import device_names
from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.units import us
from tb_torchcompile_plugin.reader.trace.kineto import Trace
from tb_torchcompile_plugin.torch_names.devices import Peak, peak_of
from tb_torchcompile_plugin.torch_names.kernels import (
    CATEGORIES,
    PRODUCTS,
    Category,
    gradient_of,
    is_triton,
    launches,
    multiplies,
    multiplies_three_times,
    rounds_to_tf32,
)
from tb_torchcompile_plugin.torch_names.operators import CONVOLUTION_BACKWARD, HALF_TYPES, Family, family_of

# How many bytes did each launch move, and how many floating point operations did it do? What inductor
# computed when it wrote the kernel is taken as it is: from the launch, else from the generated code. Where
# it computed nothing, recorded shapes give an estimate. Copies say themselves what they moved. The rest is
# not known.


_TRITON = [code for code, name in enumerate(CATEGORIES) if is_triton(name)]
_FAMILY: dict[Category, Family] = {
    "gemm": "library",
    "convolution": "library",
    "attention": "attention",
    "normalization": "aten",
    "aten": "aten",
}
_GRADIENTS = {None: 0, "dgrad": 1, "wgrad": 2}


@dataclass(frozen=True)
class Work:
    """Columns beside those of a `Launches`; NaN where not known. estimated: from shapes. types: of the operator's
    tensors, as codes of texts, -1 where not known."""

    bytes: Floats
    flop: Floats
    estimated: Mask
    types: Int64s


def launched_work(profile: Profile) -> list[Work]:
    """Of each of `kernel_launches`."""
    return [work_of(profile.trace, rows) for rows in profile.of(kernel_launches)]


def work_of(trace: Trace, rows: Launches) -> Work:
    """Bytes and operations of each launch, as far as the trace tells."""
    count = len(rows.index)
    types = codes_of(trace, "input_types", rows.op)
    work = Work(np.full(count, np.nan), np.full(count, np.nan), np.zeros(count, bool), types)
    _copies(trace, rows, work)
    _from_shapes(trace, rows, work)
    _from_launches(trace, rows, work)
    return work


def _copies(trace: Trace, rows: Launches, work: Work) -> None:
    recorded = values_of(trace, "bytes", rows.index)
    copies = np.isin(rows.category, [CATEGORIES.index("memcpy"), CATEGORIES.index("memset")])
    work.bytes[copies] = recorded[copies]


def _from_launches(trace: Trace, rows: Launches, work: Work) -> None:
    """kernel_num_gb and kernel_flop. No operation at all says that inductor does not count them for this kernel."""
    gb = values_of(trace, "kernel_num_gb", rows.op)
    flop = values_of(trace, "kernel_flop", rows.op)
    known = np.isin(rows.category, _TRITON) & (gb > 0)
    work.bytes[known] = gb[known] * 1e9
    work.estimated[known] = False
    counted = np.isin(rows.category, _TRITON) & (flop > 0) & _multiply(trace, rows)
    work.flop[counted] = flop[counted]


def _multiply(trace: Trace, rows: Launches) -> Mask:
    """Which launches may do the operations of a product."""
    kinds, place = distinct(rows.name, rows.category)
    able = [multiplies(trace.names[name], CATEGORIES[code]) for name, code in kinds.T.tolist()]
    return np.array(able, bool)[place]


def _from_shapes(trace: Trace, rows: Launches, work: Work) -> None:
    """Launches of equal shapes are looked at once."""
    dims, types = codes_of(trace, "input_dims", rows.op), work.types
    called = np.where(rows.op >= 0, trace.name[rows.op], -1).astype(np.int64)
    main = _is_main(trace, rows)
    for places in alike(
        np.flatnonzero(dims >= 0), dims, types, called, rows.name, codes_of(trace, "grid", rows.index)
    ):
        one = places[0]
        operator, kernel = trace.names[called[one]], trace.names[rows.name[one]]
        shapes = trace.texts["input_dims"][dims[one]]
        kinds = trace.texts["input_types"][types[one]] if types[one] >= 0 else "[]"
        if launches(operator, kernel):
            moved, flop = tensor_bytes(shapes, kinds), None
        elif family_of(operator) == _FAMILY.get(CATEGORIES[rows.category[one]], "none"):
            moved, flop = _of_operator(trace, int(rows.op[one]), operator, shapes, kinds)
            places = places[main[places]]
        else:
            continue
        work.estimated[places] = True
        work.bytes[places] = np.nan if moved is None else moved
        work.flop[places] = np.nan if flop is None else flop


def _of_operator(trace: Trace, op: int, operator: str, shapes: str, kinds: str) -> CallWork:
    values = None
    if asks_for_values(operator):
        try:
            values = trace.args(op).get("Concrete Inputs")
        except UserError:
            return None, None
    return operator_work(operator, shapes, kinds, values if isinstance(values, list) else None)


def _is_main(trace: Trace, rows: Launches) -> Mask:
    """An operator may launch several kernels of a family: the longest computes the result, others prepare it or sum
    it up. Two of ATen's own share the work in a way that is not known.

    The backward of a convolution computes two results: only names tell which kernel is for which.
    """
    of_category = [_FAMILY.get(name, "") for name in CATEGORIES]
    families = sorted(set(of_category))
    family = np.array([families.index(name) for name in of_category], np.int64)[rows.category]
    gradient = np.array([_GRADIENTS[gradient_of(name)] for name in trace.names] or [0], np.int64)[rows.name]
    backward = mask_of(trace.names, CONVOLUTION_BACKWARD.__eq__)
    of_two = np.where(rows.op >= 0, backward[trace.name[rows.op]], False)
    is_aten = family == families.index("aten")
    able = (family > 0) & (is_aten | _multiply(trace, rows))
    places = np.flatnonzero(able & (rows.op >= 0) & (~of_two | (gradient > 0)))
    main = np.zeros(len(rows.index), bool)
    if len(places):
        keys = np.stack([np.where(of_two, gradient, 0), family, rows.op])[:, places]
        order = np.lexsort((rows.dur[places], *keys))
        last = np.append((keys[:, order][:, 1:] != keys[:, order][:, :-1]).any(axis=0), True)
        alone = last & np.append(True, last[:-1])
        main[places[order[np.where(is_aten[places[order]], alone, last)]]] = True
    return main


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
