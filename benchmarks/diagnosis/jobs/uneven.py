"""One rank comes late, because it has more to do: to compile, to compute, or on a GPU that is shared."""

from itertools import count
from typing import Any

import torch
from torch import Tensor

from benchmarks.diagnosis.jobs.delays import neighbour
from benchmarks.diagnosis.jobs.job import Rank, job
from benchmarks.diagnosis.jobs.parallel import adam, batch, ddp, fsdp, layers, training
from benchmarks.diagnosis.program import Recorded, Step
from benchmarks.diagnosis.programs.models import train_step

FEWER = Recorded(steps=3)
UNCHANGED = 8  # steps: each that changes takes seconds


def pooled(words: Tensor, rows: int) -> Tensor:
    """As many rows as the model wants, from a text of any length."""
    weights = torch.softmax(words.float().mean(-1, keepdim=True), 1)
    mean = (words * weights.to(words.dtype)).sum(1, keepdim=True)
    return torch.nn.functional.gelu(mean).expand(-1, rows, -1).contiguous()


def unlimited_recompiles() -> None:
    config = torch._dynamo.config
    for limit in ("recompile_limit", "accumulated_recompile_limit", "cache_size_limit"):
        if hasattr(config, limit):
            setattr(config, limit, 10_000)


@job(
    "uneven",
    "ddp",
    "late:recompile",
    mending="texts of one length",
    late_rank=1,
    recorded=FEWER,
    timed_steps=10,
)
def lone_recompile(rank: Rank, mended: bool) -> Step:
    unlimited_recompiles()
    pool, model = torch.compile(pooled, dynamic=False), ddp(rank, layers(rank))
    x, changing = batch(rank, 32), rank.number == 1 and not mended
    optimizer, target, lengths = adam(model), torch.zeros_like(x, dtype=torch.float32), count(32)

    def step() -> Tensor:
        length = next(lengths) if changing else 32
        words = rank.randn(x.shape[0], length, x.shape[2], dtype=x.dtype)
        with torch.no_grad():
            rows = pool(words, x.shape[1])  # planted: lone_recompile
        return train_step(model, optimizer, rows, target)

    return step


@job(
    "uneven",
    "ddp",
    "late:autotuning",
    mending="texts of one length",
    late_rank=1,
    recorded=Recorded(steps=2),
    timed_steps=1,
)
def tuning_on_one_rank(rank: Rank, mended: bool) -> Step:
    unlimited_recompiles()
    tuned: dict[str, Any] = {"max_autotune_pointwise": True}
    pool = torch.compile(pooled, dynamic=False, options=tuned)
    model, x = ddp(rank, layers(rank)), batch(rank, 32)
    optimizer, target = adam(model), torch.zeros_like(x, dtype=torch.float32)
    changing, steps = rank.number == 1 and not mended, count()

    def step() -> Tensor:
        number = next(steps)
        length = 32 + max(0, number - UNCHANGED) * changing
        words = rank.randn(x.shape[0], length, x.shape[2], dtype=x.dtype)
        with torch.no_grad():
            rows = pool(words, x.shape[1])  # planted: tuning_on_one_rank
        return train_step(model, optimizer, rows, target)

    return step


@job("uneven", "fsdp2", "late:work", mending="samples are shared out by their length", late_rank=1)
def uneven_work(rank: Rank, mended: bool) -> Step:
    planted = 512 if rank.number == 0 else 3584
    x = batch(rank, 48, 2048 if mended else planted)  # planted: uneven_work
    return training(fsdp(rank, layers(rank)), x)


@job("uneven", "ddp", "late:slow_gpu", mending="nobody else uses the GPU", late_rank=1, beside=neighbour)
def slow_gpu(rank: Rank, mended: bool) -> Step:
    return training(ddp(rank, layers(rank)), batch(rank, 48))
