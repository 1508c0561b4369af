"""The ranks are equally fast, and talk more often than they have to."""

from contextlib import nullcontext

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn import functional

from benchmarks.diagnosis.jobs.job import Rank, job
from benchmarks.diagnosis.jobs.parallel import (
    adam,
    batch,
    compiled,
    dtype,
    linear_layers,
    replicated,
    training,
)
from benchmarks.diagnosis.program import Step
from benchmarks.diagnosis.programs.models import mlp

MICRO_BATCHES = 8


@job(
    "communication",
    "ddp",
    "communication:every_micro_batch",
    mending="no_sync() around all micro-batches but the last",
)
def accumulated(rank: Rank, mended: bool) -> Step:
    model = replicated(rank, compiled(linear_layers(rank, 3, 4096)))
    parts = [batch(rank, 1, 256, 4096) for _ in range(MICRO_BATCHES)]
    optimizer, target = adam(model), torch.zeros_like(parts[0], dtype=torch.float32)

    def backward(x: Tensor) -> None:
        loss = functional.mse_loss(model(x).float(), target) / MICRO_BATCHES
        loss.backward()  # planted: accumulated

    def step() -> None:
        for number, x in enumerate(parts, 1):
            with model.no_sync() if mended and number < MICRO_BATCHES else nullcontext():
                backward(x)
        optimizer.step()
        optimizer.zero_grad()

    return step


@job("communication", "fsdp2", "communication:many_small", mending="fully_shard around four blocks at a time")
def wrapped_one_by_one(rank: Rank, mended: bool) -> Step:
    width, mesh = rank.pick(512, 16), init_device_mesh(rank.device.type, (rank.size,))
    with rank.device:
        model = nn.Sequential(*(mlp(rank, 4, width, dtype(rank)) for _ in range(rank.pick(4, 1))))
    layers = [one for one in model.modules() if isinstance(one, (nn.Linear, nn.LayerNorm))]
    wrapped = list(model) if mended else layers
    for one in wrapped:
        fully_shard(one, mesh=mesh)  # planted: wrapped_one_by_one
    fully_shard(model, mesh=mesh)
    return training(model, batch(rank, 16, width=512))
