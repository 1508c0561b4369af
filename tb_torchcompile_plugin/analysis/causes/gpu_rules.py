"""Rules about the GPU: what it waits for, and what it runs."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tb_torchcompile_plugin.analysis import thresholds
from tb_torchcompile_plugin.analysis.causes.context import RuleContext
from tb_torchcompile_plugin.analysis.causes.rule import Rule
from tb_torchcompile_plugin.analysis.finding import Finding
from tb_torchcompile_plugin.analysis.formatting import counted, often, percent, plural
from tb_torchcompile_plugin.analysis.runtime.cuda_graphs import asks_for_graphs
from tb_torchcompile_plugin.analysis.runtime.gpu_utilization import utilization
from tb_torchcompile_plugin.analysis.runtime.kernel_rows import MOVERS, one_dominates
from tb_torchcompile_plugin.analysis.runtime.kernels import kernel_table
from tb_torchcompile_plugin.analysis.runtime.memory import held_memory
from tb_torchcompile_plugin.analysis.runtime.op_shapes import launching
from tb_torchcompile_plugin.profile.columns import mask_of
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

# Whoever multiplies matrices, attends or communicates has them, and does not write them; nor what torch brings.
_MADE_OF = (
    "gemm",
    "convolution",
    "attention",
    "communication",
    "memcpy",
    "memset",
    "triton_template",
    "aten",
)


class ExposedCommunication(Rule):
    id = "communication"
    panel = "gpu_utilization"

    def look(self, context: RuleContext) -> Iterator[Finding]:
        used = context.profile.of(utilization) if context.profile else None
        share = context.share(used.verdict.communication_us) if used else None
        if used is None or share is None or share < thresholds.communication_percent:
            return
        us = used.verdict.communication_us
        yield self.finding(
            context,
            f"Communication that nothing overlaps takes {context.each(us)}, {percent(share)} of it",
            "Let it overlap with backward: smaller DDP buckets (bucket_cap_mb), FSDP prefetching; and compare ranks, "
            "for waiting for a slower one looks the same",
            {"communication_us_per_step": context.each_us(us), "share_percent": share},
            saves_us=us,
            by=context.best("communication"),
        )


class SlowKernel(Rule):
    """A kernel of generated code that mostly moves data; what multiplies matrices is bound by arithmetic."""

    id = "kernel_low_bandwidth"
    panel = "kernels"

    def look(self, context: RuleContext) -> Iterator[Finding]:
        if context.profile is None or not one_dominates(context.profile, thresholds.kernel_percent):
            return
        for row in context.profile.of(kernel_table).rows:
            share, bandwidth = context.gpu_share(row.time_us), row.bandwidth_percent
            if row.category not in MOVERS or share is None or share < thresholds.kernel_percent:
                continue
            if bandwidth is None or bandwidth >= thresholds.kernel_bandwidth_percent:
                continue
            yield self.finding(
                context,
                f"{short_kernel(row.name)} takes {percent(share)} of the GPU time at {percent(bandwidth)} of the "
                "memory bandwidth",
                'Tune it: torch.compile(model, mode="max-autotune"), or larger tensors; '
                f"{_shown(row.name)} shows its source and launches",
                {"gpu_share_percent": share, "bandwidth_percent": bandwidth, "gpu_us": row.time_us},
                by=context.best("roofline", row.name),
                code='torch.compile(model, mode="max-autotune")',
                saves_us=(row.alone_us or row.time_us) * (1 - bandwidth / 100),
                row=f"kernels:{row.key}",
            )


class CudaGraphsUsed(Rule):
    """What is left to launch where CUDA graphs are on already."""

    id = "cuda_graphs_used"
    panel = "cuda_graphs"

    def look(self, context: RuleContext) -> Iterator[Finding]:
        calls = context.profile.of(launch_calls) if context.profile else None
        if context.profile is None or calls is None or not calls.replay.any():
            return
        if not context.profile.of(graph_runs).replayed.any() and context.profile.of(asks_for_graphs):
            return  # each was launched where it was recorded, and never again: another rule says why
        made = [calls.between(begin, end) for begin, end in zip(*context.windows)]
        replays, launches = sum(one.replays for one in made), sum(one.launches for one in made)
        if not replays or launches == replays:
            return
        steps = max(context.steps, 1)
        yield self.finding(
            context,
            f"CUDA graphs are replayed {often(replays / steps)} {context.where}, and "
            f"{counted((launches - replays) / steps, 'launch is', 'launches are')} still made one by one",
            "What launches them runs eager, or torch skipped CUDA graphs for it: compile it, too",
            {
                "replays_per_step": replays / steps,
                "launches_per_step": (launches - replays) / steps,
                "launch_call_us_per_step": context.each_us(sum(one.time_ns for one in made) / 1000),
            },
            severity="info",
        )


class DominantKernel(Rule):
    """One kernel sets the pace that neither torch nor a library brought, and nobody knows how much data it moves."""

    id = "dominant_kernel"
    panel = "kernels"

    def look(self, context: RuleContext) -> Iterator[Finding]:
        profile = context.profile
        if profile is None or not len(profile.of(host_lane)) or not _gpu_bound(profile):
            return
        row = max(profile.of(kernel_table).rows, key=lambda row: row.time_us, default=None)
        if row is None:
            return
        share = context.gpu_share(row.time_us)
        if share is None or share < thresholds.dominant_percent or row.bandwidth_percent is not None:
            return
        if row.category in _MADE_OF or _by_torch(profile, row.name):
            return
        yield self.finding(
            context,
            f"{short_kernel(row.name)} takes {percent(share)} of the GPU's time, and the GPU sets the pace of a step",
            "Look at how it reads and writes: neighbouring threads, neighbouring numbers; enough blocks for the whole "
            f"GPU. {_shown(row.name)} shows its launches",
            {"gpu_share_percent": share, "gpu_us": row.time_us, "launches": row.launches},
            saves_us=None,
            severity="warning",
            row=f"kernels:{row.key}",
            where=[short_kernel(row.name)],
        )


def _by_torch(profile: Profile, kernel: str) -> bool:
    """Whether operators of torch's own launch it, whatever it is called: nobody can change how it reads and writes."""
    trace, queue = profile.trace, profile.of(gpu_queue)
    mine = mask_of(trace.names, kernel.__eq__)[trace.name[queue.row]]
    rows = profile.of(launching)[mine]
    return bool(len(rows) and (rows >= 0).all()) and all(
        is_library_operator(trace.names[name]) for name in np.unique(trace.name[rows]).tolist()
    )


def _shown(kernel: str) -> str:
    """Where more is said of it: names of C++ kernels are nothing to type."""
    return f"tb-torchcompile kernel LOGDIR {kernel}" if kernel.isidentifier() else "Its row in Kernels"


def _gpu_bound(profile: Profile) -> bool:
    """Whether the GPU is busy nearly all of a step."""
    clock, queue = profile.of(recorded_clock), profile.of(gpu_queue)
    steps = profile.of(host_lane).steps
    mine = queue.device == clock.device
    return bool(queue.dur[mine].sum() / steps >= thresholds.gpu_bound_percent / 100 * clock.step)


GPU_RULES: tuple[Rule, ...] = (ExposedCommunication(), CudaGraphsUsed(), SlowKernel(), DominantKernel())


# Rules about how far the devices reach: the memory of one, and several of them together.


class MemoryLimit(Rule):
    """What the caching allocator holds counts: it is what fails to grow."""

    id = "memory_limit"
    panel = "memory"

    def look(self, context: RuleContext) -> Iterator[Finding]:
        if context.profile is None:
            return
        for one in context.profile.of(held_memory):
            share = one.share_percent
            if one.held is None or one.capacity is None or share is None or share < thresholds.memory_percent:
                continue
            yield self.finding(
                context,
                one.sentence(),
                "Keep less alive: activation checkpointing (torch.utils.checkpoint), torch.autocast, a smaller batch",
                {"held_bytes": one.held, "capacity_bytes": one.capacity, "share_percent": share},
                severity="warning",
            )


class DataParallel(Rule):
    id = "data_parallel"
    panel = "gpu_utilization"

    def look(self, context: RuleContext) -> Iterator[Finding]:
        if context.profile is None or DATA_PARALLEL not in context.profile.trace.names:
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


class SlowBackend(Rule):
    id = "slow_backend"
    panel = "gpu_utilization"

    def look(self, context: RuleContext) -> Iterator[Finding]:
        if context.profile is None or not len(context.profile.of(gpu_work).index):
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


SCALE_RULES: tuple[Rule, ...] = (MemoryLimit(), DataParallel(), SlowBackend())
