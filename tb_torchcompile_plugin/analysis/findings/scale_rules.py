"""Rules about how far the devices reach: the memory of one, and several of them together."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tb_torchcompile_plugin.analysis.findings import thresholds
from tb_torchcompile_plugin.analysis.findings.context import RuleContext
from tb_torchcompile_plugin.analysis.findings.rule import Finding, Rule
from tb_torchcompile_plugin.analysis.memory.memory import capacities
from tb_torchcompile_plugin.analysis.words import percent, plural, significant
from tb_torchcompile_plugin.profile.gpu_work import gpu_work
from tb_torchcompile_plugin.profile.host.operator_calls import DEVICE_TYPES
from tb_torchcompile_plugin.torch_names.collectives import GPU_BACKENDS
from tb_torchcompile_plugin.torch_names.slices import DATA_PARALLEL


class MemoryLimit(Rule):
    """What the caching allocator holds counts: it is what fails to grow."""

    id = "memory_limit"
    panel = "memory"

    def look(self, context: RuleContext) -> Iterator[Finding]:
        if context.profile is None:
            return
        events, sizes = context.profile.trace.memory(), capacities(context.profile.trace)
        for device in np.unique(events["device_id"][np.isin(events["device_type"], DEVICE_TYPES)]).tolist():
            mine = np.isin(events["device_type"], DEVICE_TYPES) & (events["device_id"] == device)
            held = int(max(events["total_reserved"][mine].max(), events["total_allocated"][mine].max()))
            share = 100 * held / sizes[device] if sizes.get(device) else 0.0
            if share < thresholds.memory_percent:
                continue
            yield self.finding(
                context,
                f"torch holds {significant(held / 1e9)} GB of GPU {device}, {percent(share)} of its memory",
                "Keep less alive: activation checkpointing (torch.utils.checkpoint), torch.autocast, a smaller batch",
                {"held_bytes": held, "capacity_bytes": sizes[device], "share_percent": share},
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
