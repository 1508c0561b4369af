"""Nothing is wrong: the ranks are as fast as each other, and the GPUs compute while they send."""

from benchmarks.diagnosis.jobs.job import Rank, job
from benchmarks.diagnosis.jobs.parallel import (
    batch,
    ddp,
    fsdp,
    layers,
    linear_layers,
    tensor_parallel,
    training,
)
from benchmarks.diagnosis.program import Step


@job("healthy", "ddp", "")
def healthy_ddp(rank: Rank, mended: bool) -> Step:
    return training(ddp(rank, layers(rank)), batch(rank, 64))


@job("healthy", "fsdp2", "")
def healthy_fsdp2(rank: Rank, mended: bool) -> Step:
    return training(fsdp(rank, layers(rank)), batch(rank, 64))


@job("healthy", "tp", "")
def healthy_tp(rank: Rank, mended: bool) -> Step:
    x = batch(rank, 16, width=4096)
    return training(tensor_parallel(rank, linear_layers(rank, 3, 4096)), x)
