"""Models spread over the ranks, compiled, and the loop that trains them."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

from benchmarks.diagnosis.jobs.job import Rank
from benchmarks.diagnosis.program import Step
from benchmarks.diagnosis.programs.models import mlp, train_step, transformer

BF16 = torch.bfloat16


class Network(nn.Sequential):
    """Its forward is the user's own, and not torch's: below DDP that is what gets compiled as a whole."""

    def forward(self, x: Tensor) -> Tensor:
        for layer in self:
            x = layer(x)
        return x


def layers(rank: Rank, depth: int = 2, width: int = 1024) -> Network:
    """Attention and linear layers in bfloat16; in float32 where they only have to run."""
    with rank.device:
        return Network(*transformer(rank, rank.pick(depth, 1), rank.pick(width, 16), dtype(rank)))


def linear_layers(rank: Rank, depth: int, width: int) -> Network:
    with rank.device:
        return Network(*mlp(rank, rank.pick(depth, 2), rank.pick(width, 16), dtype(rank)))


def batch(rank: Rank, rows: int, length: int = 512, width: int = 1024) -> Tensor:
    shape = rank.pick(rows, 4), rank.pick(length, length // 32), rank.pick(width, 16)
    return rank.randn(*shape, dtype=dtype(rank))


def dtype(rank: Rank) -> torch.dtype:
    return torch.float32 if rank.quick else BF16


def replicated(rank: Rank, model: nn.Module, **options: Any) -> DistributedDataParallel:
    """The model of DDP, not compiled yet."""
    places = [rank.device.index] if rank.cuda else None
    return DistributedDataParallel(model, device_ids=places, **options)


def compiled(model: nn.Module) -> nn.Module:
    """`torch.compile` says only that it returns something to call."""
    result: Any = torch.compile(model)
    assert isinstance(result, nn.Module)
    return result


def ddp(rank: Rank, model: nn.Module, **options: Any) -> nn.Module:
    return compiled(replicated(rank, model, **options))


def fsdp(rank: Rank, model: Network) -> nn.Module:
    """FSDP2 around each compiled layer: it gathers one while the one before is computed."""
    mesh = init_device_mesh(rank.device.type, (rank.size,))
    whole = nn.Sequential(*(compiled(layer) for layer in model))
    for layer in whole:
        fully_shard(layer, mesh=mesh)
    fully_shard(whole, mesh=mesh)
    return whole


def tensor_parallel(rank: Rank, model: Network) -> nn.Module:
    """Each linear block split by columns, then by rows: one all-reduce forward, and one backward."""
    mesh = init_device_mesh(rank.device.type, (rank.size,))
    for block in model:
        parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    return compiled(model)


def adam(model: nn.Module) -> torch.optim.Optimizer:
    """AdamW as one kernel for the parameters of each kind: split ones do not mix with whole ones."""
    split = [one for one in model.parameters() if isinstance(one, DTensor)]
    whole = [one for one in model.parameters() if not isinstance(one, DTensor)]
    groups = [{"params": group} for group in (split, whole) if group]
    return torch.optim.AdamW(groups, lr=1e-4, fused=True)


def training(model: nn.Module, x: Tensor) -> Step:
    """A loop's body that trains the model on one batch over and over."""
    optimizer, target = adam(model), torch.zeros_like(x, dtype=torch.float32)
    return lambda: train_step(model, optimizer, x, target)
