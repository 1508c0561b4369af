"""Rules about how far the devices reach: the memory of one, and several of them together."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tb_torchcompile_plugin.analysis.findings import thresholds
from tb_torchcompile_plugin.analysis.findings.context import RuleContext
from tb_torchcompile_plugin.analysis.findings.finding import Finding
from tb_torchcompile_plugin.analysis.findings.rule import Rule
from tb_torchcompile_plugin.analysis.memory.held import held_memory
from tb_torchcompile_plugin.analysis.words import plural
from tb_torchcompile_plugin.profile.gpu_work import gpu_work
from tb_torchcompile_plugin.torch_names.collectives import GPU_BACKENDS
from tb_torchcompile_plugin.torch_names.slices import DATA_PARALLEL


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
