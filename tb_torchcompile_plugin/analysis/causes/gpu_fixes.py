"""What could the GPU do faster, or without?"""

from collections.abc import Iterator
from dataclasses import replace
from math import ceil
from typing import NamedTuple

import numpy as np

from tb_torchcompile_plugin.analysis.causes.fix import (
    Bools,
    Fix,
    FixKind,
    FixMaker,
    are_kernels,
    enclosing,
    in_sequence,
    is_communication_kernel,
    occurs,
    points_inside,
    slice_times,
    time_inside,
    with_call_share,
    with_durations,
    without_host_time,
    without_host_work,
    work_named,
)
from tb_torchcompile_plugin.analysis.runtime.attention import UnfusedAttention, unfused_attention
from tb_torchcompile_plugin.analysis.runtime.kernel_code import extern_lines
from tb_torchcompile_plugin.analysis.runtime.kernel_rows import DATA_MOVING_CATEGORIES, has_dominant_kernel
from tb_torchcompile_plugin.analysis.runtime.kernels import kernel_table
from tb_torchcompile_plugin.analysis.runtime.op_shapes import argument_texts, shapes_in
from tb_torchcompile_plugin.analysis.runtime.roofline import DevicePeak, device_peaks
from tb_torchcompile_plugin.profile import columns
from tb_torchcompile_plugin.profile.gpu.launches import kernel_launches
from tb_torchcompile_plugin.profile.gpu_work import device_properties
from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.profile.model.attribution import most_called_at
from tb_torchcompile_plugin.profile.model.gpu_queue import OVERLAP_GAIN, gpu_queue, overlappable_share
from tb_torchcompile_plugin.profile.model.launch_sequence import launch_sequence
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.trace.kineto import Trace
from tb_torchcompile_plugin.reader.trace.nest import first_ancestor
from tb_torchcompile_plugin.torch_names import collectives, kernels, operators
from tb_torchcompile_plugin.torch_names.slices import OPERATOR, is_graph, is_optimizer


class Speed(NamedTuple):
    """The share that is left of the time of kernels, of all or by kernel."""

    likely: columns.Floats | float
    most: columns.Floats | float
    least: columns.Floats | float


class _Faster(NamedTuple):
    """Work of the GPU that a fix makes faster, or takes out."""

    kind: FixKind
    work: Bools  # of the queue
    speed: Speed
    name: str = ""


# Matrix products on tensor cores instead of without: measured on H100 and H200, large ones are 5 times as fast.
_TF32, _FLOAT32 = Speed(0.2, 0.5, 0.12), Speed(0.2, 0.5, 0.1)
_GONE = Speed(0.0, 0.1, 0.0)  # chosen by eye: a change of layout that is not needed is gone, or nearly
# Not all layers that normalize volumes keep their layout (nn.InstanceNorm3d does not): in a U-Net nearly all was left.
_GONE_OF_VOLUMES = Speed(0.0, 1.0, 0.0)
# Shares of a device's peak that fused attention reaches, forward and backward alike: most likely, at least, at most. In
# bfloat16 the median of 22 kernels of 500 positions and more in recordings on H100s and H200s, four fifths of which are
# between the others; in float32, outside of tensor cores, of four.
_FUSED_ATTENTION = {"bf16": (0.21, 0.1, 0.37), "fp32": (0.4, 0.28, 0.53)}
_FUSED_ATTENTION_NS = 8_000  # of the shortest ones in these recordings
# Chosen by eye on the external programs of docs/what_if.md, except for the bucket.
_DOMINANT_PERCENT = 10.0  # of the GPU time: kernels with a smaller share are not examined one by one
_SMALL_BYTES = 4 << 20  # a smaller message is mostly the call
_BUCKET_BYTES = 25 << 20  # DDP's default bucket (`bucket_cap_mb`)
_MANY = 16  # small collectives of a step


def _faster_kernels(profile: Profile) -> Iterator[Fix]:
    """Yield what would make work of the GPU faster, or needless."""
    trace, queue = profile.trace, profile.of(gpu_queue)
    launched_by = profile.of(launch_sequence).row[queue.point].astype(np.int64)
    windows = columns.host_slices(trace, {*operators.WINDOWS, operators.CONVOLUTION_BACKWARD}.__contains__)
    texts = {text for _, text in argument_texts(profile, "input_dims", windows)}
    has_volumes = any(len(shape) == 5 for text in texts for shape in shapes_in(text)[:1])
    layout_speed = _GONE_OF_VOLUMES if has_volumes else _GONE
    majors = [row.get("computeMajor") for row in device_properties(trace) if "NVIDIA" in str(row.get("name"))]
    rows = []
    if any(isinstance(major, int) and major >= 8 for major in majors):  # Ampere and later have TF32
        rows.append(_Faster("tensor_cores", work_named(profile, kernels.is_plain_fp32_product), _TF32))
    rows += [
        _Faster("double_precision", work_named(profile, kernels.is_double_product), _FLOAT32),
        _Faster("layout", work_named(profile, kernels.is_layout_change), layout_speed),
    ]
    in_operators: tuple[tuple[FixKind, str], ...] = (
        ("layout", operators.CONTIGUOUS),
        ("casts", operators.CAST),
        ("joined", operators.JOIN),
    )
    for kind, operator in in_operators:
        inside = enclosing(trace, launched_by, operator.__eq__) >= 0
        rows.append(_Faster(kind, inside & profile.of(are_kernels), _GONE, operator))
    # A program without a backward could keep its weights in the other type; training needs them in float32.
    if not len(columns.host_slices(trace, operators.is_backward)) and not len(
        columns.host_slices(trace, is_optimizer)
    ):
        rows.append(_Faster("weight_casts", work_named(profile, operators.is_generated_cast), _GONE))
    for row in rows:
        yield from _fix(profile, row.kind, np.flatnonzero(row.work), row.speed, row.name)


def _deterministic(profile: Profile) -> Iterator[Fix]:
    """Yield torch.use_deterministic_algorithms off: it sorts indices before adding at them, and fills new memory."""
    trace, queue, lane = profile.trace, profile.of(gpu_queue), profile.of(launch_sequence)
    sorting = columns.host_slices(trace, operators.SORTED_INSTEAD.__eq__)
    filling = columns.host_slices(trace, operators.FILLED.__eq__)
    filling = filling[columns.called_by(trace, filling, operators.ALLOCATES_ONLY.__contains__)]
    is_instead = columns.called_by(trace, sorting, operators.SCATTERS.__contains__)
    if len(filling):  # inductor calls it only in this mode, which fills what was allocated
        is_instead |= enclosing(trace, sorting, is_graph) >= 0
    sorting = sorting[is_instead]
    if not len(sorting):
        return  # a program may add at indices, or fill memory, on purpose
    times = slice_times(profile, np.union1d(sorting, filling))
    inside, _ = points_inside(profile, times)
    needed = profile.of(work_named, operators.scatters) & inside[queue.point]
    kept = columns.mask_at(queue.point[needed], len(lane))
    around = enclosing(trace, sorting[:1], operators.SCATTERS.__contains__)[0]
    scattering = around if around >= 0 else sorting[0]
    yield Fix(
        kind="deterministic",
        subject=(trace.names[trace.name[scattering]], *most_called_at(profile, sorting)),
        change=in_sequence(
            without_host_work(profile, times, kept),
            with_durations(np.flatnonzero(inside[queue.point] & ~needed), 0),
        ),
        times=int(points_inside(profile, slice_times(profile, sorting))[1].sum()) / lane.steps,
    )


def _slow_movers(profile: Profile) -> Iterator[Fix]:
    """Yield generated kernels that mostly move data, at the device's peak."""
    rows = [
        row
        for row in profile.of(kernel_table).rows
        if row.category in DATA_MOVING_CATEGORIES and row.bandwidth_percent
    ]
    reached = {row.name: min(row.bandwidth_percent or 0, 100) / 100 for row in rows}
    for name, share in reached.items():
        if share < 1:
            speed = Speed(share, (1 + share) / 2, share)
            work = np.flatnonzero(work_named(profile, name.__eq__))
            yield from _fix(profile, "roofline", work, speed, name)


def _fused_attention(profile: Profile) -> Iterator[Fix]:
    """Yield attention as one operator: the same operations, and no matrix of weights in memory."""
    parts = profile.of(unfused_attention)
    peaks = {row.device: row for row in profile.of(device_peaks)[0]}
    known = [(part, speed) for part in parts if (speed := _attention_speed(profile, part, peaks))]
    forward = [part for part, _ in known if part.way == "forward"]
    if not forward:
        return
    work = np.concatenate([part.work for part, _ in known])
    lengths = [len(part.work) for part, _ in known]
    speed = Speed(*np.repeat(np.array([speed for _, speed in known]), lengths, axis=0).T)
    for made in _fix(profile, "attention", work, speed):
        name, *line = made.subject
        subject = name, *(_line(profile, forward[0]) or line)
        yield replace(made, subject=subject, times=len(forward) / profile.of(launch_sequence).steps)


def _attention_speed(profile: Profile, part: UnfusedAttention, peaks: dict[int, DevicePeak]) -> Speed | None:
    """Return what would be left of its time, more than 1 where fusing is slower; None without the device's peaks."""
    queue = profile.of(gpu_queue)
    peak = peaks.get(int(queue.device[part.work[0]]))
    kind = "bf16" if part.kind in operators.HALF_TYPES else "fp32" if part.kind == "float" else ""
    tflop_s = getattr(peak, f"{kind}_tflop_s", None)
    if peak is None or not tflop_s or not peak.bandwidth_gb_s:
        return None
    least = max(_FUSED_ATTENTION_NS, part.moved / peak.bandwidth_gb_s)
    now = max(int(queue.dur[part.work].sum()), 1)
    return Speed(*(max(least, part.flop / (1e3 * tflop_s * share)) / now for share in _FUSED_ATTENTION[kind]))


def _line(profile: Profile, part: UnfusedAttention) -> tuple[str, int] | None:
    """Return the user's line of the product after the softmax, where compiled code shows it."""
    row = profile.of(gpu_queue).row[[part.product]]
    for launched in profile.of(kernel_launches):
        indices = columns.indices_in(launched.index, row)
        if frames := profile.of(extern_lines)[launched.device].of(indices[indices >= 0]):
            return frames[-1].file, frames[-1].line  # those of its argument come first
    return None


def _all_overlapped(profile: Profile) -> Iterator[Fix]:
    """Yield all collectives overlapped: how long they wait for other ranks is not known here."""
    work = np.flatnonzero(profile.of(work_named, is_communication_kernel))
    return overlap_collectives(profile, work, profile.of(gpu_queue).dur[work])


def overlap_collectives(profile: Profile, work: Int64s, last: Int64s) -> Iterator[Fix]:
    """Yield these collectives overlapped with compute, each for its last ns: before those it may only wait."""
    share = overlappable_share(profile, work, last)
    return _fix(profile, "communication", work, Speed(1 - OVERLAP_GAIN * share, 1.0, 1 - share), part=last)


def _fix(
    profile: Profile, kind: FixKind, work: Int64s, speed: Speed, name: str = "", part: Int64s | None = None
) -> Iterator[Fix]:
    """Yield this work made faster; `part`: ns of each kernel that change, None for all."""
    if not len(work):
        return
    trace, queue, lane = profile.trace, profile.of(gpu_queue), profile.of(launch_sequence)
    largest = trace.names[trace.name[queue.row[work[np.argmax(queue.dur[work])]]]]
    affected = queue.dur[work] if part is None else part
    change, conservative, optimistic = (
        with_durations(work, queue.dur[work] - affected + (affected * share).astype(np.int64))
        for share in speed
    )
    yield Fix(
        id=f"{kind}:{name}",
        kind=kind,
        subject=(name or largest, *most_called_at(profile, lane.row[queue.point[work]])),
        change=change,
        times=len(work) / lane.steps,
        conservative=conservative,
        optimistic=optimistic,
    )


def fewer_collectives(profile: Profile) -> Iterator[Fix]:
    """Yield small collectives of parameters and gradients put together to the usual size."""
    trace, lane, queue = profile.trace, profile.of(launch_sequence), profile.of(gpu_queue)
    calls, moved = _movable(profile)
    calls, moved = calls[moved < _SMALL_BYTES], moved[moved < _SMALL_BYTES]
    if len(calls) < _MANY * lane.steps:
        return
    left = ceil(moved.sum() / lane.steps / _BUCKET_BYTES) * lane.steps / float(len(calls))
    times = slice_times(profile, np.unique(_with_fsdp_labels(trace, calls)))
    points, _ = points_inside(profile, times)
    work = np.flatnonzero(points[queue.point] & profile.of(work_named, is_communication_kernel))
    on_host = in_sequence(
        without_host_time((time_inside(profile, times) * (1 - left)).astype(np.int64)),
        with_call_share(points, left),
    )
    fewer = with_durations(work, (queue.dur[work] * left).astype(np.int64))
    yield Fix(
        kind="small_collectives",
        subject=(trace.names[trace.name[calls[0]]], "", 0),
        change=in_sequence(on_host, fewer),
        times=len(calls) / lane.steps,
        conservative=on_host,
    )


def _movable(profile: Profile) -> tuple[Int64s, Int64s]:
    """Return the calls of c10d that may be merged, and the bytes of each; without those of unknown size."""
    trace, lane = profile.trace, profile.of(launch_sequence)
    described = columns.host_slices(trace, collectives.PARAM_COMMS.__eq__)
    described = described[(trace.ts[described] >= lane.begin[0]) & (trace.ts[described] < lane.begin[-1])]
    call = enclosing(trace, described, collectives.is_group_call)
    types = [collectives.element_bytes(text) or -1 for text in [*(trace.texts.get("dtype") or ()), ""]]
    element = np.array(types)[columns.codes_of(trace, "dtype", described)]
    taken, given = (columns.codes_of(trace, column, described) for column in ("in_elements", "out_elements"))
    moved = np.maximum(taken, given) * element
    known = (call >= 0) & (moved >= 0) & (element > 0)
    order = np.argsort(trace.ts[call[known]], kind="stable")
    call, moved = call[known][order], moved[known][order]
    mergeable = _can_merge(profile, call)
    return call[mergeable], moved[mergeable]


def _can_merge(profile: Profile, call: Int64s) -> Bools:
    """Return which calls (in order of time) may be put together with others.

    Those of DDP and FSDP2, and of a loop of the user's that computes nothing in between. Those that an operator of a
    model asks for have to stay one after the other.
    """
    trace, queue = profile.trace, profile.of(gpu_queue)
    operator = first_ancestor(
        trace.parent, trace.parent[call], columns.mask_of(trace.cats, OPERATOR.__eq__)[trace.cat]
    )
    by_fsdp, by_ddp = (
        enclosing(trace, call, name) for name in (collectives.is_of_fsdp, operators.reduces_gradients)
    )
    mergeable = columns.mask_of(
        trace.names, lambda name: collectives.operation_of(name) in collectives.MERGEABLE
    )[trace.name[call]]
    computing = profile.of(are_kernels) & ~profile.of(work_named, is_communication_kernel)
    launches = np.sort(profile.of(launch_sequence).begin[queue.point[computing]])
    before = np.searchsorted(launches, trace.ts[call])
    same = np.concatenate(([False], before[1:] == before[:-1], [False]))
    in_a_row = (same[1:] | same[:-1])[: len(call)]  # nothing is computed before or after it
    return np.asarray(mergeable & ((by_fsdp >= 0) | (by_ddp >= 0) | ((operator < 0) & in_a_row)))


def _with_fsdp_labels(trace: Trace, call: Int64s) -> Int64s:
    """Return the outermost label of FSDP2 around each call; the call itself where there is none."""
    around, label = call, enclosing(trace, call, collectives.is_of_fsdp)
    while (label >= 0).any():
        around = np.where(label >= 0, label, around)
        label = enclosing(trace, np.where(label >= 0, trace.parent[label], -1), collectives.is_of_fsdp)
    return around


GPU_FIXES = (
    FixMaker(_faster_kernels),
    FixMaker(_deterministic, occurs(operators.SORTED_INSTEAD.__eq__)),
    FixMaker(_all_overlapped, occurs(is_communication_kernel)),
    FixMaker(_fused_attention, lambda profile: bool(profile.of(unfused_attention))),
    FixMaker(_slow_movers, lambda profile: has_dominant_kernel(profile, _DOMINANT_PERCENT)),
)
