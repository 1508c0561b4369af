"""What the GPU could do faster, or without."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from math import ceil
from typing import NamedTuple

import numpy as np

from tb_torchcompile_plugin.analysis.causes.change import (
    Bools,
    Change,
    both,
    shortened,
    with_durations,
    without_calls,
    without_host_time,
    without_waiting,
)
from tb_torchcompile_plugin.analysis.causes.fix import (
    Fix,
    FixKind,
    are_collectives,
    are_kernels,
    communicates,
    points_inside,
    slice_times,
    time_inside,
    work_named,
)
from tb_torchcompile_plugin.analysis.runtime.attention import WrittenAttention, written_attention
from tb_torchcompile_plugin.analysis.runtime.kernel_code import extern_lines
from tb_torchcompile_plugin.analysis.runtime.kernel_rows import MOVERS, one_dominates
from tb_torchcompile_plugin.analysis.runtime.kernels import kernel_table
from tb_torchcompile_plugin.analysis.runtime.op_shapes import shapes_in, texts_of
from tb_torchcompile_plugin.analysis.runtime.roofline import DevicePeak, device_peaks
from tb_torchcompile_plugin.profile.columns import (
    Floats,
    called_by,
    codes_of,
    host_slices,
    mask_of,
    place_mask,
    places_in,
)
from tb_torchcompile_plugin.profile.gpu.launches import kernel_launches
from tb_torchcompile_plugin.profile.gpu_work import device_properties
from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.profile.model.attribution import Culprit, most_called_at
from tb_torchcompile_plugin.profile.model.gpu_queue import SAVED, beside_compute, gpu_queue
from tb_torchcompile_plugin.profile.model.launch_sequence import host_lane
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.trace.kineto import Trace
from tb_torchcompile_plugin.reader.trace.nest import climb
from tb_torchcompile_plugin.torch_names.collectives import (
    MERGEABLE,
    PARAM_COMMS,
    element_bytes,
    is_group_call,
    is_of_fsdp,
    operation_of,
)
from tb_torchcompile_plugin.torch_names.kernels import (
    is_double_product,
    is_layout_change,
    is_plain_fp32_product,
)
from tb_torchcompile_plugin.torch_names.operators import (
    ALLOCATES_ONLY,
    CAST,
    CONTIGUOUS,
    CONVOLUTION_BACKWARD,
    FILLED,
    HALF_TYPES,
    JOIN,
    SCATTERS,
    SORTED_INSTEAD,
    WINDOWS,
    is_backward,
    is_generated_cast,
    reduces_gradients,
    scatters,
)
from tb_torchcompile_plugin.torch_names.slices import OPERATOR, is_optimizer


class Speed(NamedTuple):
    """What is left of the time of kernels, of all or by kernel: most likely, at most, at least."""

    likely: Floats | float
    most: Floats | float
    least: Floats | float


# Matrix products on tensor cores against those without: measured on H100 and H200, 5 times as fast for large ones.
_TF32, _FLOAT32 = Speed(0.2, 0.5, 0.12), Speed(0.2, 0.5, 0.1)
_GONE = Speed(0.0, 0.1, 0.0)
# Not all that normalizes volumes keeps their layout (nn.InstanceNorm3d does not): of a U-Net nearly all of it stayed.
_GONE_OF_VOLUMES = Speed(0.0, 1.0, 0.0)
# Shares of a device's peak that fused attention reaches, forward and backward alike: most likely, at least, at most. In
# bfloat16 the median of 22 kernels of 500 positions and more in recordings on H100s and H200s, four fifths of which lie
# between the others; in float32, outside of tensor cores, of four.
_FUSED = {"bf16": (0.21, 0.1, 0.37), "fp32": (0.4, 0.28, 0.53)}
_FUSED_NS = 8_000  # of the shortest ones
_DOMINANT_PERCENT = 10.0  # of the GPU time: kernels of less are not looked at one by one


def _faster_kernels(profile: Profile) -> Iterator[Fix]:
    if _has_tf32(profile):
        yield from _kernels(profile, "tensor_cores", is_plain_fp32_product, _TF32)
    yield from _kernels(profile, "double_precision", is_double_product, _FLOAT32)
    yield from _kernels(
        profile, "layout", is_layout_change, _GONE_OF_VOLUMES if _has_volumes(profile) else _GONE
    )
    yield from _under(profile, "layout", CONTIGUOUS, _GONE)
    yield from _under(profile, "casts", CAST, _GONE)
    yield from _under(profile, "joined", JOIN, _GONE)
    yield from _weight_casts(profile)
    yield from _deterministic(profile)
    yield from _overlapped(profile)
    yield from _fused_attention(profile)
    for name, speed in profile.of(_slow_movers).items():
        yield from _kernels(profile, "roofline", name.__eq__, speed, name)


def _has_volumes(profile: Profile) -> bool:
    """Whether tensors of five dimensions are convolved, where shapes were recorded."""
    rows = host_slices(profile.trace, {*WINDOWS, CONVOLUTION_BACKWARD}.__contains__)
    texts = {text for _, text in texts_of(profile, "input_dims", rows)}
    return any(len(shape) == 5 for text in texts for shape in shapes_in(text)[:1])


def _weight_casts(profile: Profile) -> Iterator[Fix]:
    """Casts that a graph makes anew in each call, of a program that goes nowhere back: its weights could be of that
    type already. Who trains wants them in float32."""
    trace = profile.trace
    if len(host_slices(trace, is_backward)) or len(host_slices(trace, is_optimizer)):
        return
    yield from _kernels(profile, "weight_casts", is_generated_cast, _GONE)


def _deterministic(profile: Profile) -> Iterator[Fix]:
    """torch.use_deterministic_algorithms: additions at places that indices name sort these; new memory is filled."""
    trace, queue, lane = profile.trace, profile.of(gpu_queue), profile.of(host_lane)
    names, parent = trace.name, trace.parent
    sorting = host_slices(trace, SORTED_INSTEAD.__eq__)
    sorting = sorting[called_by(trace, sorting, SCATTERS.__contains__)]
    if not len(sorting):
        return  # who fills memory may do so on purpose
    filling = host_slices(trace, FILLED.__eq__)
    filling = filling[called_by(trace, filling, ALLOCATES_ONLY.__contains__)]
    rows = np.union1d(sorting, filling)
    times = slice_times(profile, rows)
    inside, _ = points_inside(profile, times)
    needed = profile.of(work_named, scatters) & inside[queue.point]
    kept = place_mask(queue.point[needed], len(lane))
    work = np.flatnonzero(inside[queue.point] & ~needed)
    scattering = climb(parent, sorting[:1], mask_of(trace.names, SCATTERS.__contains__)[names])[0]
    yield Fix(
        id="deterministic",
        kind="deterministic",
        subject=Culprit("operator", trace.names[names[scattering]], *most_called_at(profile, sorting)),
        change=both(
            without_host_time(time_inside(profile, times)),
            without_waiting(inside),
            without_calls(inside & ~kept),
            with_durations(work, np.zeros(len(work), np.int64)),
        ),
        times=int(points_inside(profile, slice_times(profile, sorting))[1].sum()) / lane.steps,
    )


def _slow_movers(profile: Profile) -> dict[str, Speed]:
    """Generated kernels that mostly move data: what would be left of them at the device's peak."""
    if not one_dominates(profile, _DOMINANT_PERCENT):
        return {}
    rows = [row for row in profile.of(kernel_table).rows if row.category in MOVERS and row.bandwidth_percent]
    reached = {row.name: min(row.bandwidth_percent or 0, 100) / 100 for row in rows}
    return {name: Speed(share, (1 + share) / 2, share) for name, share in reached.items() if share < 1}


def _fused_attention(profile: Profile) -> Iterator[Fix]:
    """Attention that is written out as one operator: the same operations, and no matrix of weights in memory."""
    priced = [(one, speed) for one in profile.of(written_attention) if (speed := _fused(profile, one))]
    forward = [one for one, _ in priced if one.way == "forward"]
    if not forward:
        return
    work = np.concatenate([one.work for one, _ in priced])
    lengths = [len(one.work) for one, _ in priced]
    speed = Speed(*np.repeat(np.array([speed for _, speed in priced]), lengths, axis=0).T)
    for fix in _fix(profile, "attention", work, speed):
        file, line = _line(profile, forward[0]) or (fix.subject.file, fix.subject.line)
        subject = fix.subject._replace(file=file, line=line)
        yield replace(fix, subject=subject, times=len(forward) / profile.of(host_lane).steps)


def _fused(profile: Profile, one: WrittenAttention) -> Speed | None:
    """What would be left of its time; more than 1 where it would take longer. None where the peaks of its device in its
    type are not known."""
    queue = profile.of(gpu_queue)
    peak = profile.of(_peaks).get(int(queue.device[one.work[0]]))
    kind = "bf16" if one.kind in HALF_TYPES else "fp32" if one.kind == "float" else ""
    tflop_s = getattr(peak, f"{kind}_tflop_s", None)
    if peak is None or not tflop_s or not peak.bandwidth_gb_s:
        return None
    least, now = max(_FUSED_NS, one.moved / peak.bandwidth_gb_s), max(int(queue.dur[one.work].sum()), 1)
    return Speed(*(max(least, one.flop / (1e3 * tflop_s * share)) / now for share in _FUSED[kind]))


def _peaks(profile: Profile) -> dict[int, DevicePeak]:
    """By device."""
    rows, _ = device_peaks(profile.trace, [*np.unique(profile.of(gpu_queue).device).tolist()])
    return {row.device: row for row in rows}


def _line(profile: Profile, one: WrittenAttention) -> tuple[str, int] | None:
    """The user's line of the product behind the softmax, where compiled code tells it: the last of those told with it,
    since what its argument was made of comes first."""
    row = profile.of(gpu_queue).row[[one.product]]
    for launched in profile.of(kernel_launches):
        places = places_in(launched.index, row)
        if frames := profile.of(extern_lines)[launched.device].of(places[places >= 0]):
            return frames[-1].file, frames[-1].line
    return None


def _has_tf32(profile: Profile) -> bool:
    """Ampere and later; the header of the trace tells."""
    rows = device_properties(profile.trace)
    majors = [row.get("computeMajor") for row in rows if "NVIDIA" in str(row.get("name"))]
    return any(isinstance(major, int) and major >= 8 for major in majors)


def _kernels(
    profile: Profile, kind: FixKind, chosen: Callable[[str], bool], speed: Speed, name: str = ""
) -> Iterator[Fix]:
    """Kernels by name."""
    names, queue = profile.trace.names, profile.of(gpu_queue)
    wanted = mask_of(names, chosen)
    yield from _fix(profile, kind, np.flatnonzero(wanted[profile.trace.name[queue.row]]), speed, name)


def _overlapped(profile: Profile) -> Iterator[Fix]:
    """What of collectives waits for other ranks is not known here."""
    queue, named = profile.of(gpu_queue), mask_of(profile.trace.names, communicates)
    work = np.flatnonzero(named[profile.trace.name[queue.row]])
    return overlapped(profile, work, queue.dur[work])


def overlapped(profile: Profile, work: Int64s, last: Int64s) -> Iterator[Fix]:
    """The last so many ns of these collectives beside the compute of their thread: before them they may wait, which
    overlaps with nothing that would help."""
    share = beside_compute(profile, work, last)
    return _fix(profile, "communication", work, Speed(1 - SAVED * share, 1.0, 1 - share), part=last)


def _under(profile: Profile, kind: FixKind, operator: str, speed: Speed) -> Iterator[Fix]:
    """Kernels that are launched inside of an operator."""
    trace, queue, lane = profile.trace, profile.of(gpu_queue), profile.of(host_lane)
    wanted = mask_of(trace.names, operator.__eq__)[trace.name]
    below = climb(trace.parent, lane.row[queue.point].astype(np.int64), wanted) >= 0
    yield from _fix(profile, kind, np.flatnonzero(below & profile.of(are_kernels)), speed, operator)


def _fix(
    profile: Profile,
    kind: FixKind,
    work: Int64s,
    speed: Speed,
    name: str = "",
    part: Int64s | None = None,
) -> Iterator[Fix]:
    """part: of each kernel's time, which alone goes; None for all."""
    if not len(work):
        return
    trace, queue, lane = profile.trace, profile.of(gpu_queue), profile.of(host_lane)
    largest = work[np.argmax(queue.dur[work])]
    goes = queue.dur[work] if part is None else part

    def left(share: Floats | float) -> Change:
        return with_durations(work, queue.dur[work] - goes + (goes * share).astype(np.int64))

    yield Fix(
        id=f"{kind}:{name}",
        kind=kind,
        subject=Culprit(
            "operator",
            name or trace.names[trace.name[queue.row[largest]]],
            *most_called_at(profile, lane.row[queue.point[work]]),
        ),
        change=left(speed.likely),
        times=len(work) / profile.of(host_lane).steps,
        surely=left(speed.most),
        perhaps=left(speed.least),
    )


GPU_FIXES = (_faster_kernels,)


# Many small collectives of parameters and gradients, as few large ones.


_SMALL_BYTES = 4 << 20  # a message of less is mostly the call
_BUCKET_BYTES = 25 << 20  # what DDP puts into one by default
_MANY = 16  # of a step


def _fewer_collectives(profile: Profile) -> Iterator[Fix]:
    """Small ones that move parameters and gradients, as if they were put together to those of a usual size."""
    trace, lane, queue = profile.trace, profile.of(host_lane), profile.of(gpu_queue)
    calls, moved = _movable(profile)
    small = moved < _SMALL_BYTES
    if small.sum() < _MANY * lane.steps:
        return
    left = ceil(moved[small].sum() / lane.steps / _BUCKET_BYTES) * lane.steps / float(small.sum())
    around = _handled(trace, calls[small])
    times = slice_times(profile, np.unique(around))
    points, _ = points_inside(profile, times)
    work = np.flatnonzero(points[queue.point] & profile.of(are_collectives))
    on_host = both(
        without_host_time((time_inside(profile, times) * (1 - left)).astype(np.int64)),
        shortened(points, left),
    )

    def on_gpu(share: float) -> Change:
        return both(on_host, with_durations(work, (queue.dur[work] * share).astype(np.int64)))

    yield Fix(
        id="small_collectives",
        kind="small_collectives",
        subject=Culprit("communication", trace.names[trace.name[calls[small][0]]], "", 0),
        change=on_gpu(left),
        times=float(small.sum()) / lane.steps,
        surely=on_gpu(1.0),
    )


def _movable(profile: Profile) -> tuple[Int64s, Int64s]:
    """The calls of c10d that no operator of a model asks for, and the bytes that each gives or takes; those are left
    out of which torch does not tell."""
    trace, lane = profile.trace, profile.of(host_lane)
    described = host_slices(trace, PARAM_COMMS.__eq__)
    described = described[(trace.ts[described] >= lane.begin[0]) & (trace.ts[described] < lane.begin[-1])]
    call = climb(trace.parent, described, mask_of(trace.names, is_group_call)[trace.name])
    types = [element_bytes(text) or -1 for text in [*(trace.texts.get("dtype") or ()), ""]]
    element = np.array(types)[codes_of(trace, "dtype", described)]
    moved = (
        np.maximum(codes_of(trace, "in_elements", described), codes_of(trace, "out_elements", described))
        * element
    )
    known = (call >= 0) & (moved >= 0) & (element > 0)
    order = np.argsort(trace.ts[call[known]], kind="stable")
    call, moved = call[known][order], moved[known][order]
    free = _is_free(profile, call)
    return call[free], moved[free]


def _is_free(profile: Profile, call: Int64s) -> Bools:
    """Whether it may be put together with others: DDP and FSDP2 do, and a loop of the user's that computes nothing
    between two of them. What an operator of a model asks for comes one after the other."""
    trace = profile.trace
    operator = climb(trace.parent, trace.parent[call], mask_of(trace.cats, OPERATOR.__eq__)[trace.cat])
    handed = climb(trace.parent, call, mask_of(trace.names, _hands_on)[trace.name])
    mergeable = mask_of(trace.names, lambda name: operation_of(name) in MERGEABLE)[trace.name[call]]
    return np.asarray(mergeable & ((handed >= 0) | ((operator < 0) & _in_a_row(profile, call))))


def _in_a_row(profile: Profile, call: Int64s) -> Bools:
    """Whether nothing is computed between a call and the one before or behind it. call: in order of time."""
    lane, queue = profile.of(host_lane), profile.of(gpu_queue)
    computing = profile.of(are_kernels) & ~profile.of(are_collectives)
    launches = np.sort(lane.begin[queue.point[computing]])
    before = np.searchsorted(launches, profile.trace.ts[call])
    same = np.concatenate(([False], before[1:] == before[:-1], [False]))
    return np.asarray((same[1:] | same[:-1])[: len(call)])


def _hands_on(name: str) -> bool:
    return is_of_fsdp(name) or reduces_gradients(name)


def _handled(trace: Trace, call: Int64s) -> Int64s:
    """All that FSDP2 does about each: its outermost label around it; the call itself where there is none."""
    labels, around = mask_of(trace.names, is_of_fsdp)[trace.name], call
    label = climb(trace.parent, call, labels)
    while (label >= 0).any():
        around = np.where(label >= 0, label, around)
        label = climb(trace.parent, np.where(label >= 0, trace.parent[label], -1), labels)
    return around


COLLECTIVE_FIXES = (_fewer_collectives,)
