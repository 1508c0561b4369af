"""One rank comes late, because its host is slow."""

import gc
from itertools import count

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from benchmarks.diagnosis.jobs.delays import augment
from benchmarks.diagnosis.jobs.job import Rank, job
from benchmarks.diagnosis.jobs.parallel import (
    adam,
    batch,
    ddp,
    dtype,
    fsdp,
    layers,
    linear_layers,
    tensor_parallel,
    training,
)
from benchmarks.diagnosis.program import STACKS, Step
from benchmarks.diagnosis.programs.inputs import Texts
from benchmarks.diagnosis.programs.models import train_step

LATE_S, IN_TURN_S = 0.018, 0.010


@job("late rank", "ddp", "late:python", mending="the Python is left out", late_rank=1)
def python_late_rank(rank: Rank, mended: bool) -> Step:
    train = training(ddp(rank, layers(rank)), batch(rank, 32))
    late = rank.number == 1 and not mended

    def step() -> None:
        if late:
            augment(LATE_S)  # planted: python_late_rank
        train()

    return step


@job("late rank", "fsdp2", "late:python", mending="the Python is left out", late_rank=1, recorded=STACKS)
def python_late_rank_with_stacks(rank: Rank, mended: bool) -> Step:
    train = training(fsdp(rank, layers(rank)), batch(rank, 32))
    late = rank.number == 1 and not mended
    losses: list[float] = []

    def step() -> None:
        if late:
            augment(LATE_S)  # planted: python_late_rank_with_stacks
        loss = train()
        assert isinstance(loss, Tensor)
        losses.append(loss.item())

    return step


@job("late rank", "ddp", "late:input", mending="the texts are tokenized once, before training", late_rank=1)
def late_loader(rank: Rank, mended: bool) -> Step:
    length, width, rows = rank.pick(512, 64), rank.pick(1024, 16), 16
    texts = Texts(length, before=mended or rank.number != 1)
    batches = iter(DataLoader(texts, batch_size=rows))
    embedding = torch.randn(8192, width, device=rank.device, dtype=dtype(rank))
    model = ddp(rank, layers(rank))
    optimizer, target = adam(model), torch.zeros(rows, length, width, device=rank.device)

    def step() -> Tensor:
        tokens = next(batches).to(rank.device)  # planted: late_loader
        return train_step(model, optimizer, embedding[tokens], target)

    return step


@job("late rank", "tp", "late:gc", mending="no collection in the loop", late_rank=0, recorded=STACKS)
def garbage_on_one_rank(rank: Rank, mended: bool) -> Step:
    x = batch(rank, 8, width=2048)
    train = training(tensor_parallel(rank, linear_layers(rank, 3, 2048)), x)
    late = rank.number == 0 and not mended
    gc.freeze()  # what the libraries hold would take longer than all else
    kept = [{"sample": [number]} for number in range(60_000)] if late else []

    def step() -> int:
        train()
        if late:
            gc.collect()  # planted: garbage_on_one_rank
        return len(kept)

    return step


@job("late rank", "tp", "late:python", mending="the Python is left out", late_rank=0)
def python_late_rank_of_split_layers(rank: Rank, mended: bool) -> Step:
    x = batch(rank, 8, width=2048)
    train = training(tensor_parallel(rank, linear_layers(rank, 3, 2048)), x)
    late = rank.number == 0 and not mended

    def step() -> None:
        if late:
            augment(LATE_S)  # planted: python_late_rank_of_split_layers
        train()

    return step


@job("late rank", "ddp", "late:sync", mending="rank 1 does not log", late_rank=1)
def sync_on_one_rank(rank: Rank, mended: bool) -> Step:
    model = ddp(rank, linear_layers(rank, 6, 1024))
    train, late = training(model, batch(rank, 16)), rank.number == 1 and not mended
    log: dict[str, list[float]] = {}

    def step() -> None:
        train()
        if late:
            for name, one in model.named_parameters():
                numbers = one.mean(), one.std(), one.min(), one.max()
                log[name] = [number.item() for number in numbers]  # planted: sync_on_one_rank

    return step


@job("late rank", "ddp", "late:rotating", mending="the Python is left out")
def rotating(rank: Rank, mended: bool) -> Step:
    train, turns = training(ddp(rank, layers(rank)), batch(rank, 32)), count()
    losses: list[float] = []

    def step() -> None:
        if next(turns) % rank.size == rank.number and not mended:
            augment(IN_TURN_S)  # planted: rotating
        loss = train()
        assert isinstance(loss, Tensor)
        losses.append(loss.item())  # else the host of who is not late runs ahead, and nobody waits

    return step
