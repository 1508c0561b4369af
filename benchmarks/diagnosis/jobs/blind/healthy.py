"""Nothing is wrong: who waits, waits for a little while, as in any job."""

from contextlib import nullcontext
from itertools import count

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.diagnosis.jobs.job import Rank, job
from benchmarks.diagnosis.jobs.parallel import adam, batch, compiled, ddp, layers, replicated, training
from benchmarks.diagnosis.program import Step

MICRO_BATCHES, LOG_EVERY = 4, 10


@job("healthy", "ddp", "")
def shards_of_nearly_one_size(rank: Rank, mended: bool) -> Step:
    """Rank 1 has 3 % fewer samples; rank 0 prints the loss now and then."""
    train = training(ddp(rank, layers(rank)), batch(rank, 64 if rank.number == 0 else 62))
    numbers = count()

    def step() -> None:
        loss = train()
        if next(numbers) % LOG_EVERY == 0 and rank.number == 0:
            assert isinstance(loss, Tensor)
            print(f"loss {loss.item():.4f}")

    return step


@job("healthy", "ddp", "")
def accumulated_without_sync(rank: Rank, mended: bool) -> Step:
    """Gradients are sent with the last micro-batch, while its backward goes on."""
    model = replicated(rank, compiled(layers(rank, depth=3)), gradient_as_bucket_view=True)
    parts = [batch(rank, 32) for _ in range(MICRO_BATCHES)]
    optimizer, target = adam(model), torch.zeros_like(parts[0], dtype=torch.float32)

    def step() -> None:
        for number, x in enumerate(parts, 1):
            with model.no_sync() if number < MICRO_BATCHES else nullcontext():
                loss = functional.mse_loss(model(x).float(), target) / MICRO_BATCHES
                loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step
