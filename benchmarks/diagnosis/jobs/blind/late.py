"""Rank 0 does what a main process does beside training: it saves, and it validates."""

import os
import tempfile
from itertools import count
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.nn import functional

from benchmarks.diagnosis.jobs.job import Rank, job
from benchmarks.diagnosis.jobs.parallel import (
    adam,
    batch,
    compiled,
    layers,
    linear_layers,
    replicated,
    tensor_parallel,
    training,
)
from benchmarks.diagnosis.program import Recorded, Step
from benchmarks.diagnosis.programs.models import train_step

SAVE_EVERY, VALIDATE_EVERY = 3, 2


def gathered(model: nn.Module) -> dict[str, Tensor]:
    """The whole parameters, on every rank."""
    state = model.state_dict()
    return {name: one.full_tensor() if isinstance(one, DTensor) else one for name, one in state.items()}


def save_checkpoint(rank: Rank, model: nn.Module, path: Path) -> None:
    state = gathered(model)
    if rank.number == 0:
        torch.save({name: one.cpu() for name, one in state.items()}, path)  # planted: saved_by_main_rank


@job(
    "late rank",
    "tp",
    "late:checkpoint",
    mending="no checkpoint inside the loop",
    late_rank=0,
    recorded=Recorded(stacks=True, steps=6),
)
def saved_by_main_rank(rank: Rank, mended: bool) -> Step:
    model = tensor_parallel(rank, linear_layers(rank, 3, 1024))
    train, numbers = training(model, batch(rank, 64)), count(1)
    path = Path(tempfile.gettempdir()) / f"last-{os.getpid()}.pt"

    def step() -> None:
        train()
        if next(numbers) % SAVE_EVERY == 0 and not mended:
            save_checkpoint(rank, model, path)

    return step


@torch.no_grad()
def validate(model: nn.Module, held_out: list[Tensor], target: Tensor) -> Tensor:
    """The mean loss on batches that training does not see."""
    model.eval()
    losses = [functional.mse_loss(model(x).float(), target) for x in held_out]
    model.train()
    return torch.stack(losses).mean()


@job(
    "late rank",
    "ddp",
    "late:validation",
    mending="each rank validates its share, and the losses are averaged",
    late_rank=0,
    recorded=Recorded(steps=6),
)
def validated_by_main_rank(rank: Rank, mended: bool) -> Step:
    model = replicated(rank, compiled(layers(rank)))
    x, numbers = batch(rank, 32), count(1)
    optimizer, target = adam(model), torch.zeros_like(x, dtype=torch.float32)
    held_out = [batch(rank, 32) for _ in range(8)]
    history: list[float] = []

    def step() -> None:
        train_step(model, optimizer, x, target)
        if next(numbers) % VALIDATE_EVERY:
            return
        if mended:
            loss = validate(model.module, held_out[rank.number :: rank.size], target)
            dist.all_reduce(loss)
            history.append(loss.item() / rank.size)
        elif rank.number == 0:
            history.append(validate(model.module, held_out, target).item())  # planted: validated_by_main_rank

    return step
