"""What slows the GPU down: communication, a slow kernel, little memory, or how several GPUs are used?"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tb_torchcompile_plugin.analysis import thresholds
from tb_torchcompile_plugin.analysis.causes.fix import work_named
from tb_torchcompile_plugin.analysis.causes.rule import SpanContext, SpanRule
from tb_torchcompile_plugin.analysis.finding import Finding
from tb_torchcompile_plugin.analysis.formatting import counted, duration, often, percent, plural
from tb_torchcompile_plugin.analysis.runtime.cuda_graphs import asks_for_graphs
from tb_torchcompile_plugin.analysis.runtime.gpu_utilization import utilization
from tb_torchcompile_plugin.analysis.runtime.kernel_rows import MOVERS, one_dominates
from tb_torchcompile_plugin.analysis.runtime.kernels import kernel_table
from tb_torchcompile_plugin.analysis.runtime.memory import held_memory
from tb_torchcompile_plugin.analysis.runtime.op_shapes import launching
from tb_torchcompile_plugin.profile.gpu.graph_runs import graph_runs
from tb_torchcompile_plugin.profile.gpu.launches import launch_calls
from tb_torchcompile_plugin.profile.gpu_work import gpu_work
from tb_torchcompile_plugin.profile.model.clock import recorded_clock
from tb_torchcompile_plugin.profile.model.gpu_queue import gpu_queue
from tb_torchcompile_plugin.profile.model.launch_sequence import host_lane
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.torch_names.collectives import GPU_BACKENDS
from tb_torchcompile_plugin.torch_names.kernels import short_kernel
from tb_torchcompile_plugin.torch_names.operators import is_library_operator
from tb_torchcompile_plugin.torch_names.slices import DATA_PARALLEL

# Kernel categories that come with torch or a library: the user does not write them.
_NOT_WRITTEN = (
    "gemm",
    "convolution",
    "attention",
    "communication",
    "memcpy",
    "memset",
    "triton_template",
    "aten",
)


class ExposedCommunication(SpanRule, id="communication", panel="gpu_utilization"):
    """Communication that nothing overlaps."""

    def evaluate(self, context: SpanContext) -> Iterator[Finding]:
        """Yield one finding for all of it."""
        used = context.profile.of(utilization)
        us = used.verdict.communication_us if used else 0.0
        share = context.share(us)
        if share < thresholds.communication_percent:
            return
        yield self.finding(
            context,
            f"Communication that nothing overlaps takes {duration(us / context.step_count)} {context.where}, "
            f"{percent(share)} of it",
            "Let it overlap with backward: smaller DDP buckets (bucket_cap_mb), FSDP prefetching; and compare ranks, "
            "for waiting for a slower one looks the same",
            {"communication_us_per_step": us / context.step_count, "share_percent": share},
            saves_us=us,
            by=context.best("communication"),
        )


class SlowKernel(SpanRule, id="kernel_low_bandwidth", panel="kernels"):
    """A generated kernel that mostly moves data, slowly; matrix products are bound by arithmetic instead."""

    def evaluate(self, context: SpanContext) -> Iterator[Finding]:
        """Yield a finding for each kernel with a large share of the GPU time."""
        if not one_dominates(context.profile, thresholds.kernel_percent):
            return
        for row in context.profile.of(kernel_table).rows:
            share, bandwidth = context.gpu_share(row.time_us), row.bandwidth_percent
            if row.category not in MOVERS or share < thresholds.kernel_percent:
                continue
            if bandwidth is None or bandwidth >= thresholds.kernel_bandwidth_percent:
                continue
            yield self.finding(
                context,
                f"{short_kernel(row.name)} takes {percent(share)} of the GPU time at {percent(bandwidth)} of the "
                "memory bandwidth",
                'Tune it: torch.compile(model, mode="max-autotune"), or larger tensors; '
                f"{_where_shown(row.name)} shows its source and launches",
                {"gpu_share_percent": share, "bandwidth_percent": bandwidth, "gpu_us": row.time_us},
                by=context.best("roofline", row.name),
                code='torch.compile(model, mode="max-autotune")',
                saves_us=(row.alone_us or row.time_us) * (1 - bandwidth / 100),
                row=f"kernels:{row.key}",
            )


class CudaGraphsUsed(SpanRule, id="cuda_graphs_used", panel="cuda_graphs"):
    """Launches that are left where CUDA graphs are in use."""

    def evaluate(self, context: SpanContext) -> Iterator[Finding]:
        """Yield one finding for all of them."""
        profile, calls = context.profile, context.profile.of(launch_calls)
        if not calls.replay.any():
            return
        if not profile.of(graph_runs).replayed.any() and profile.of(asks_for_graphs):
            return  # each was launched where it was recorded, and never again: another rule says why
        counts = [calls.between(begin, end) for begin, end in zip(*context.windows)]
        replays, launches = sum(row.replays for row in counts), sum(row.launches for row in counts)
        if not replays or launches == replays:
            return
        steps = context.step_count
        yield self.finding(
            context,
            f"CUDA graphs are replayed {often(replays / steps)} {context.where}, and "
            f"{counted((launches - replays) / steps, 'launch is', 'launches are')} still made one by one",
            "What launches them runs eager, or torch skipped CUDA graphs for it: compile it, too",
            {
                "replays_per_step": replays / steps,
                "launches_per_step": (launches - replays) / steps,
                "launch_call_us_per_step": sum(row.time_ns for row in counts) / 1000 / context.step_count,
            },
            severity="info",
        )


class DominantKernel(SpanRule, id="dominant_kernel", panel="kernels"):
    """A kernel of the user's that takes most of the GPU time, of which the data that it moves is unknown."""

    def evaluate(self, context: SpanContext) -> Iterator[Finding]:
        """Yield the largest kernel where the GPU is the bottleneck."""
        profile = context.profile
        lane, queue = profile.of(host_lane), profile.of(gpu_queue)
        if not len(lane):
            return
        clock = profile.of(recorded_clock)
        busy_ns = queue.dur[queue.device == clock.device].sum() / lane.steps
        if busy_ns < thresholds.gpu_bound_percent / 100 * clock.step:
            return
        row = max(profile.of(kernel_table).rows, key=lambda row: row.time_us, default=None)
        share = context.gpu_share(row.time_us) if row else 0.0
        if row is None or share < thresholds.dominant_percent:
            return
        if row.bandwidth_percent is not None or row.category in _NOT_WRITTEN or _is_torchs(profile, row.name):
            return
        yield self.finding(
            context,
            f"{short_kernel(row.name)} takes {percent(share)} of the GPU's time, and the GPU sets the pace of a step",
            "Look at how it reads and writes: neighbouring threads, neighbouring numbers; enough blocks for the whole "
            f"GPU. {_where_shown(row.name)} shows its launches",
            {"gpu_share_percent": share, "gpu_us": row.time_us, "launches": row.launches},
            severity="warning",
            row=f"kernels:{row.key}",
            where=[short_kernel(row.name)],
        )


def _is_torchs(profile: Profile, kernel: str) -> bool:
    """Whether only torch's own operators launch it: the user cannot change how it reads and writes."""
    trace = profile.trace
    rows = profile.of(launching)[work_named(profile, kernel.__eq__)]
    return bool(len(rows) and (rows >= 0).all()) and all(
        is_library_operator(trace.names[name]) for name in np.unique(trace.name[rows]).tolist()
    )


def _where_shown(kernel: str) -> str:
    """Return where more about it is shown: names of C++ kernels cannot be typed."""
    return f"tb-torchcompile kernel LOGDIR {kernel}" if kernel.isidentifier() else "Its row in Kernels"


class MemoryLimit(SpanRule, id="memory_limit", panel="memory"):
    """Memory that the caching allocator holds nearly all of: it is what fails to grow."""

    def evaluate(self, context: SpanContext) -> Iterator[Finding]:
        """Yield a finding for each device."""
        for device in context.profile.of(held_memory):
            held, capacity, share = device.held, device.capacity, device.share_percent
            if held is None or capacity is None or share is None or share < thresholds.memory_percent:
                continue
            yield self.finding(
                context,
                device.sentence(),
                "Keep less alive: activation checkpointing (torch.utils.checkpoint), torch.autocast, a smaller batch",
                {"held_bytes": held, "capacity_bytes": capacity, "share_percent": share},
                severity="warning",
            )


class DataParallel(SpanRule, id="data_parallel", panel="gpu_utilization"):
    """One process that drives several GPUs."""

    def evaluate(self, context: SpanContext) -> Iterator[Finding]:
        """Yield one finding."""
        if DATA_PARALLEL not in context.profile.trace.names:
            return
        devices = len(np.unique(context.profile.of(gpu_work).device))
        if devices > 1:
            yield self.finding(
                context,
                f"One process drives {plural(devices, 'GPU')} through DataParallel, which copies the model each time",
                "Use torch.nn.parallel.DistributedDataParallel: a process for each GPU, started by torchrun",
                {"devices": devices},
                severity="warning",
            )


class SlowBackend(SpanRule, id="slow_backend", panel="gpu_utilization"):
    """Ranks with GPUs that communicate through the host."""

    def evaluate(self, context: SpanContext) -> Iterator[Finding]:
        """Yield one finding."""
        if not len(context.profile.of(gpu_work).index):
            return
        info = context.profile.trace.distributed
        backend, size = str(info.get("backend", "")), info.get("world_size")
        if not backend or any(name in backend for name in GPU_BACKENDS):
            return
        if isinstance(size, int) and size > 1:
            yield self.finding(
                context,
                f"{size} ranks with GPUs communicate through {backend}, by way of the host",
                'Use the GPUs\' own: torch.distributed.init_process_group("nccl")',
                {"ranks": size},
                severity="warning",
                code='torch.distributed.init_process_group("nccl")',
            )


GPU_RULES: tuple[SpanRule, ...] = (
    *(ExposedCommunication(), CudaGraphsUsed(), SlowKernel(), DominantKernel()),
    *(MemoryLimit(), DataParallel(), SlowBackend()),
)
