"""What could the GPU do faster, or avoid?"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar, NamedTuple

import numpy as np

from tb_torchcompile_plugin.analysis import thresholds
from tb_torchcompile_plugin.analysis.causes import fix
from tb_torchcompile_plugin.analysis.causes.cause import Cause, PricedCause, SpanContext, Words
from tb_torchcompile_plugin.analysis.finding import Finding
from tb_torchcompile_plugin.analysis.formatting import percent
from tb_torchcompile_plugin.analysis.runtime.attention import UnfusedAttention, unfused_attention
from tb_torchcompile_plugin.analysis.runtime.kernel_rows import DATA_MOVING_CATEGORIES, extern_lines
from tb_torchcompile_plugin.analysis.runtime.kernels import kernel_table
from tb_torchcompile_plugin.analysis.runtime.memory import held_memory
from tb_torchcompile_plugin.analysis.runtime.roofline import (
    DevicePeak,
    argument_texts,
    device_peaks,
    launching_operators,
    shapes_in,
)
from tb_torchcompile_plugin.compile_log.summary_pb2 import Environment
from tb_torchcompile_plugin.profile import columns
from tb_torchcompile_plugin.profile.columns import Int64s
from tb_torchcompile_plugin.profile.gpu.launches import Device, kernel_launches
from tb_torchcompile_plugin.profile.gpu_work import device_properties, gpu_work
from tb_torchcompile_plugin.profile.model.attribution import most_called_at
from tb_torchcompile_plugin.profile.model.launch_sequence import gpu_queue, launch_sequence
from tb_torchcompile_plugin.profile.model.model import recorded_clock
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.torch_names import kernels, operators
from tb_torchcompile_plugin.torch_names.caches import NUMERICS
from tb_torchcompile_plugin.torch_names.slices import is_graph, is_optimizer


class Speed(NamedTuple):
    """The remaining share of kernel time, for all kernels or for each."""

    likely: columns.Floats | float
    most: columns.Floats | float
    least: columns.Floats | float


# Matrix products with tensor cores compared with none: on H100 and H200, large ones were measured 5 times as fast.
_TF32, _FLOAT32 = Speed(0.2, 0.5, 0.12), Speed(0.2, 0.5, 0.1)
_GONE = Speed(0.0, 0.1, 0.0)  # an unneeded change of layout disappears, or nearly; chosen on the recordings
# Some layers that normalize volumes change the layout (nn.InstanceNorm3d): in a U-Net nearly all copies remained.
_GONE_OF_VOLUMES = Speed(0.0, 1.0, 0.0)
# Shares of the device's peak that fused attention reaches, forward and backward: likely, least, most. bfloat16: median
# of 22 kernels of at least 500 positions on H100 and H200, four fifths of which are within the bounds. float32, without
# tensor cores: four kernels.
_FUSED_ATTENTION = {"bf16": (0.21, 0.1, 0.37), "fp32": (0.4, 0.28, 0.53)}
_FUSED_ATTENTION_NS = 8_000  # the shortest kernel in these recordings
_DOMINANT_PERCENT = 10.0  # of GPU time: smaller kernels are not examined; chosen on the recordings


class KernelsOfOperator(PricedCause):
    """Kernels of an operator that a step could avoid."""

    panel = "kernels"
    is_named_by_kernel = True
    operator: ClassVar[str]

    def fixes(self, profile: Profile) -> Iterator[fix.Fix]:
        launched_by = profile.of(launch_sequence).row[profile.of(gpu_queue).point].astype(np.int64)
        inside = fix.enclosing(profile.trace, launched_by, self.operator.__eq__) >= 0
        work = np.flatnonzero(inside & profile.of(fix.are_kernels))
        return faster(profile, self.kind, work, _GONE, self.operator)


class TensorCores(PricedCause):
    """Float32 matrix products run without tensor cores, on an NVIDIA GPU that supports TF32."""

    id = "fp32_matmul"
    kind = "tensor_cores"
    panel = "kernels"
    words = Words(
        "Float32 matrix products run without tensor cores{place}",
        'Set `torch.set_float32_matmul_precision("high")`, or use autocast with bfloat16',
        "With tensor cores",
    )

    def fixes(self, profile: Profile) -> Iterator[fix.Fix]:
        rows = [row for row in device_properties(profile.trace) if "NVIDIA" in str(row.get("name"))]
        majors = [row.get("computeMajor") for row in rows]
        if any(isinstance(major, int) and major >= 8 for major in majors):  # Ampere and later have TF32
            work = np.flatnonzero(fix.work_named(profile, kernels.is_plain_fp32_product))
            yield from faster(profile, self.kind, work, _TF32)


class DoublePrecision(PricedCause):
    """Matrix products run in float64."""

    id = "double_precision"
    panel = "kernels"
    words = Words(
        "Matrix products run in float64{place}",
        "Convert the tensors to float32: NumPy arrays are float64 by default",
        "In float32",
    )

    def fixes(self, profile: Profile) -> Iterator[fix.Fix]:
        work = np.flatnonzero(fix.work_named(profile, kernels.is_double_product))
        return faster(profile, self.kind, work, _FLOAT32)


class LayoutChanges(KernelsOfOperator):
    """Kernels that only change the layout of tensors."""

    id = "layout"
    operator = operators.CONTIGUOUS
    words = Words(
        "Tensors are copied into another memory layout {often} {each} ({name}){place}",
        "Keep one layout: `.to(memory_format=torch.channels_last)` for model and images, torch.channels_last_3d for "
        "volumes (5 dimensions). Avoid .contiguous() on views, and layers that return another layout",
        "Without these copies",
    )

    def fixes(self, profile: Profile) -> Iterator[fix.Fix]:
        convolutions = {*operators.WINDOWS, operators.CONVOLUTION_BACKWARD}
        windows = columns.host_slices(profile.trace, convolutions.__contains__)
        texts = {text for _, text in argument_texts(profile, "input_dims", windows)}
        has_volumes = any(len(shape) == 5 for text in texts for shape in shapes_in(text)[:1])
        speed = _GONE_OF_VOLUMES if has_volumes else _GONE
        work = np.flatnonzero(fix.work_named(profile, kernels.is_layout_change))
        yield from faster(profile, self.kind, work, speed)
        yield from super().fixes(profile)


class Casts(KernelsOfOperator):
    """Kernels that only change the type of tensors."""

    id = "casts"
    operator = operators.CAST
    words = Words(
        "Tensors are cast to another type {often} {each} ({name}){place}",
        "Keep one type: cast once, or use autocast inside compiled code",
        "Without these casts",
    )


class WeightCasts(PricedCause):
    """Kernels that inductor generated only cast tensors: autocast casts weights in each call.

    Only reported for programs without a backward pass and an optimizer.
    """

    id = "weight_casts"
    panel = "kernels"
    is_named_by_kernel = True
    words = Words(
        "Compiled kernels only cast tensors to another type, {often} {each} ({name})",
        "If these are weights, which autocast casts in each call, store them in the type of the computation: "
        "`model.to(torch.bfloat16)` before torch.compile",
        "Without these casts",
    )

    def fixes(self, profile: Profile) -> Iterator[fix.Fix]:
        trace = profile.trace
        if not any(len(columns.host_slices(trace, name)) for name in (operators.is_backward, is_optimizer)):
            work = np.flatnonzero(fix.work_named(profile, operators.is_generated_cast))
            yield from faster(profile, self.kind, work, _GONE)


class Joined(KernelsOfOperator):
    """Tensors are concatenated by copying (`torch.cat`), for example a growing cache."""

    id = "joined"
    operator = operators.JOIN
    words = Words(
        "Tensors are concatenated by copying {often} {each} ({name}){place}",
        "Allocate one tensor that is large enough and write into it: `buffer[:, :, n] = x` "
        "instead of torch.cat((buffer, x), 2)",
        "Without these copies",
    )


class WrittenOutAttention(PricedCause):
    """Attention runs as separate operators: a batched product, a softmax over its rows, and another product.

    For example with `attn_implementation="eager"`; needs [recorded shapes](#attention).
    """

    id = "attention"
    panel = "kernels"
    words = Words(
        "Attention runs as separate operators (product, softmax, product) {often} {each}{place}",
        "Use the fused operator, which does not store the attention weights: "
        "`torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)`. In transformers, set "
        'attn_implementation="sdpa"; in nn.MultiheadAttention, need_weights=False. The fused operator does not return '
        "the weights",
        "With scaled_dot_product_attention",
    )

    def fixes(self, profile: Profile) -> Iterator[fix.Fix]:
        parts = profile.of(unfused_attention)
        peaks = {row.device: row for row in profile.of(device_peaks)[0]}
        priced = [(part, speed) for part in parts if (speed := _attention_speed(profile, part, peaks))]
        forward = [part for part, _ in priced if part.way == "forward"]
        if not forward:
            return
        work = np.concatenate([part.work for part, _ in priced])
        lengths = [len(part.work) for part, _ in priced]
        speed = Speed(*np.repeat(np.array([speed for _, speed in priced]), lengths, axis=0).T)
        for fused in faster(profile, self.kind, work, speed):
            name, *line = fused.subject
            subject = name, *(_line(profile, forward[0]) or line)
            yield replace(fused, subject=subject, times=len(forward) / profile.of(launch_sequence).steps)


class Deterministic(PricedCause):
    """`torch.use_deterministic_algorithms` is on: operators that add at indices sort them first; new memory is filled.

    Detected by `aten::index_put_` inside `aten::scatter_add_`, `aten::index_add_` and others, or by any sort if the
    handler recorded that they are on. Not reported if it recorded that they are off.
    """

    id = "deterministic"
    panel = "operators"
    words = Words(
        "Deterministic algorithms are on: {name} sorts its indices first, {often} {each}{place}",
        "Turn deterministic algorithms off if results need not be bitwise reproducible: "
        "`torch.use_deterministic_algorithms(False)`",
        "Without them",
    )

    def fixes(self, profile: Profile) -> Iterator[fix.Fix]:
        environment = profile.summary.environment if profile.summary else Environment()
        is_on = environment.deterministic_algorithms
        if environment.HasField("deterministic_algorithms") and not is_on:
            return
        trace, queue, lane = profile.trace, profile.of(gpu_queue), profile.of(launch_sequence)
        sorting = columns.host_slices(trace, operators.SORTED_INSTEAD.__eq__)
        filling = columns.host_slices(trace, operators.FILLED.__eq__)
        filling = filling[columns.called_by(trace, filling, operators.ALLOCATES_ONLY.__contains__)]
        is_instead = columns.called_by(trace, sorting, operators.SCATTERS.__contains__)
        if len(filling):  # inductor calls it only in this mode, which fills new memory
            is_instead |= fix.enclosing(trace, sorting, is_graph) >= 0
        if is_on:  # for example the backward of an interpolation, which differs in this mode
            calls = lane.row[queue.point[profile.of(fix.work_named, operators.is_sort)]].astype(np.int64)
            is_instead |= np.isin(sorting, fix.enclosing(trace, calls, operators.SORTED_INSTEAD.__eq__))
        sorting = sorting[is_instead]
        if not len(sorting):
            return  # a program may add at indices, or fill memory, itself
        times = fix.slice_times(profile, np.union1d(sorting, filling))
        around = fix.enclosing(trace, sorting[:1], operators.SCATTERS.__contains__)[0]
        scattering = around if around >= 0 else sorting[0]
        subject = trace.names[trace.name[scattering]], *most_called_at(profile, sorting)
        change = fix.without_work(profile, times, profile.of(fix.work_named, operators.scatters))
        count = int(fix.points_inside(profile, fix.slice_times(profile, sorting))[1].sum())
        yield fix.Fix(count / lane.steps, change, subject=subject)


class LowBandwidthKernel(PricedCause):
    """One Triton kernel takes a share of GPU time and reaches less than a share of the peak bandwidth.

    Generated kernels and your own, not templates.
    """

    id = "kernel_low_bandwidth"
    kind = "roofline"
    panel = "kernels"
    is_named_by_kernel = True
    limits = ("kernel_percent", "kernel_bandwidth_percent")
    words = Words(
        "{name} uses only part of the memory bandwidth{place}",
        'Tune the kernel with `torch.compile(model, mode="max-autotune")`, use larger tensors, or let neighboring '
        "threads access neighboring elements",
        "At peak bandwidth",
    )

    def fixes(self, profile: Profile) -> Iterator[fix.Fix]:
        rows = [row for row in profile.of(kernel_table).rows if row.category in DATA_MOVING_CATEGORIES]
        spent_us = defaultdict[tuple[Device, str], float](float)
        for row in rows:
            spent_us[row.device, row.name] += row.time_us
        total_us = profile.trace.dur[profile.of(gpu_work).index].sum() / 1000
        if max(spent_us.values(), default=0.0) < _DOMINANT_PERCENT / 100 * total_us:
            return
        reached = {row.name: row.bandwidth_percent / 100 for row in rows if row.bandwidth_percent}
        for name, share in reached.items():
            if share < 1:
                speed = Speed(share, (1 + share) / 2, share)
                work = np.flatnonzero(fix.work_named(profile, name.__eq__))
                yield from faster(profile, self.kind, work, speed, name)

    def detect(self, context: SpanContext) -> Iterator[Finding]:
        profile = context.profile
        for row in profile.of(kernel_table).rows:
            share, bandwidth = context.gpu_share(row.time_us), row.bandwidth_percent
            is_large = row.category in DATA_MOVING_CATEGORIES and share >= thresholds.kernel_percent
            if not is_large or bandwidth is None or bandwidth >= thresholds.kernel_bandwidth_percent:
                continue
            saves_us = (row.alone_us or row.time_us) * (1 - bandwidth / 100)
            yield self.finding(
                f"{kernels.short_kernel(row.name)} takes {percent(share)} of GPU time at {percent(bandwidth)} of "
                "the peak memory bandwidth",
                f"{_tuning(profile)}. Its row in the Kernels panel shows its source and launches",
                {"gpu_share_percent": share, "bandwidth_percent": bandwidth, "gpu_us": row.time_us},
                by=context.best("roofline", row.name),
                saves_us=saves_us,
                share=context.share(saves_us),
                row=f"kernels:{row.key}",
            )


def _tuning(profile: Profile) -> str:
    """Return how to make a generated kernel faster: strict numerics forbid tuning some."""
    numerics = profile.summary.environment.settings.get(NUMERICS, "default") if profile.summary else "default"
    if numerics == "default":
        return 'Tune the kernel with `torch.compile(model, mode="max-autotune")`, or use larger tensors'
    return (
        f'Set `{NUMERICS} = "default"` if results need not equal those of eager code to the bit: "{numerics}" keeps '
        "each rounding or the order of reductions, which makes kernels slower"
    )


class DominantKernel(Cause):
    """One kernel that belongs neither to torch nor to a library takes a share of GPU time (warning).

    Determined by its name and by the operator that launches it. Its bandwidth is unknown, and the GPU is busy for a
    share of the step.
    """

    id = "dominant_kernel"
    panel = "kernels"
    limits = ("dominant_percent", "gpu_busy_percent")

    def detect(self, context: SpanContext) -> Iterator[Finding]:
        profile = context.profile
        lane, queue = profile.of(launch_sequence), profile.of(gpu_queue)
        if not len(lane):
            return
        clock = profile.of(recorded_clock)
        busy_ns = queue.dur[queue.device == clock.device].sum() / lane.steps
        if busy_ns < thresholds.gpu_busy_percent / 100 * clock.step:
            return
        row = max(profile.of(kernel_table).rows, key=lambda row: row.time_us, default=None)
        share = context.gpu_share(row.time_us) if row else 0.0
        if row is None or share < thresholds.dominant_percent:
            return
        is_written = row.category in (*DATA_MOVING_CATEGORIES, "normalization", "cpp", "other")
        if row.bandwidth_percent is not None or not is_written or _is_torchs(profile, row.name):
            return
        yield self.finding(
            f"{kernels.short_kernel(row.name)} takes {percent(share)} of GPU time, and the GPU is the bottleneck",
            "Check the memory accesses of the kernel: neighboring threads should access neighboring elements. Launch "
            "enough blocks for the whole GPU. Its row in the Kernels panel shows its launches",
            {"gpu_share_percent": share, "gpu_us": row.time_us, "launches": row.launches},
            severity="warning",
            row=f"kernels:{row.key}",
            where=[kernels.short_kernel(row.name)],
        )


class MemoryLimit(Cause):
    """Torch uses this share of a device's memory (warning; needs `profile_memory=True`)."""

    id = "memory_limit"
    panel = "memory"
    needs_records = False
    limits = ("memory_percent",)

    def detect(self, context: SpanContext) -> Iterator[Finding]:
        for device in context.profile.of(held_memory):
            share = device.share_percent or 0.0
            if share >= thresholds.memory_percent:
                yield self.finding(
                    device.sentence(),
                    "Use less memory: activation checkpointing (torch.utils.checkpoint), torch.autocast or smaller "
                    "batches",
                    {"held_bytes": device.held, "capacity_bytes": device.capacity, "share_percent": share},
                    severity="warning",
                )


def faster(
    profile: Profile, kind: str, work: Int64s, speed: Speed, name: str = "", part: Int64s | None = None
) -> Iterator[fix.Fix]:
    """Yield the fix that makes this work of the queue faster; `part`: affected ns of each kernel, None for all."""
    if not len(work):
        return
    trace, queue, lane = profile.trace, profile.of(gpu_queue), profile.of(launch_sequence)
    largest = trace.names[trace.name[queue.row[work[np.argmax(queue.dur[work])]]]]
    affected = queue.dur[work] if part is None else part
    yield fix.Fix(
        len(work) / lane.steps,
        *(
            fix.with_durations(work, queue.dur[work] - affected + (affected * share).astype(np.int64))
            for share in speed
        ),
        kind=kind,
        id=f"{kind}:{name}",
        subject=(name or largest, *most_called_at(profile, lane.row[queue.point[work]])),
    )


def _attention_speed(profile: Profile, part: UnfusedAttention, peaks: dict[int, DevicePeak]) -> Speed | None:
    """Return the remaining share of its time, above 1 if fusing is slower; None without the device's peaks."""
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
    """Return the user's line of the product after the softmax, if compiled code shows it."""
    row = profile.of(gpu_queue).row[[part.product]]
    for launched in profile.of(kernel_launches):
        indices = columns.indices_in(launched.index, row)
        if frames := profile.of(extern_lines)[launched.device].of(indices[indices >= 0]):
            return frames[-1].file, frames[-1].line  # after those of its arguments
    return None


def _is_torchs(profile: Profile, kernel: str) -> bool:
    """Whether only torch operators launch it, so that the user cannot change its memory accesses."""
    trace = profile.trace
    rows = profile.of(launching_operators)[fix.work_named(profile, kernel.__eq__)]
    return bool(len(rows) and (rows >= 0).all()) and all(
        operators.is_library_operator(trace.names[name]) for name in np.unique(trace.name[rows]).tolist()
    )
