"""Nobody is late: the ranks wait for the wire."""

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook

from benchmarks.diagnosis.jobs.job import Rank, job
from benchmarks.diagnosis.jobs.parallel import Network, replicated
from benchmarks.diagnosis.program import Step
from benchmarks.diagnosis.programs.models import mlp, train_step

LOOPS, MIB = 30, 2**20


@job(
    "communication",
    "ddp",
    "communication:exposed",
    mending="buckets of 25 MiB, sent as bfloat16 while the backward goes on",
)
def exposed_communication(rank: Rank, mended: bool) -> Step:
    buckets = {} if mended else {"bucket_cap_mb": 100_000}  # planted: exposed_communication
    return trained(rank, rank.pick(512, 8), buckets, bf16_compress_hook if mended else None)


@job(
    "communication",
    "ddp",
    "communication:exposed",
    mending="buckets of 25 MiB, sent while the backward goes on",
)
def gradients_in_one_bucket(rank: Rank, mended: bool) -> Step:
    """Beside a backward that takes longer than the transfer."""
    buckets = {} if mended else {"bucket_cap_mb": 100_000}  # planted: gradients_in_one_bucket
    return trained(rank, rank.pick(2048, 8), buckets, None)


def trained(rank: Rank, rows: int, buckets: dict[str, int], hook: Callable[..., object] | None) -> Step:
    width = rank.pick(4096, 64)
    with rank.device:
        plain = Network(*mlp(rank, rank.pick(3, 2), width))
    spread = replicated(rank, plain, gradient_as_bucket_view=True, **buckets)
    if hook and rank.cuda:  # gloo has no such hook
        spread.register_comm_hook(None, hook)
    model, optimizer = (
        torch.compile(spread),
        torch.optim.SGD(spread.parameters(), lr=1e-4, fused=rank.cuda or None),
    )
    x = rank.randn(rows, width)
    target = torch.zeros_like(x)

    def step() -> Tensor:
        with torch.autocast(rank.device.type, torch.bfloat16):
            return train_step(model, optimizer, x, target)

    return step


def bus_bandwidth(rank: Rank, timing: dict[str, float]) -> dict[str, float]:
    """As nccl-tests count it, in GB/s: the bytes times 2 (n - 1) / n."""
    seconds = timing["step_us"] / 1e6 / LOOPS
    sent = size_mib(rank) * MIB * 2 * (rank.size - 1) / rank.size
    return {"busbw_gb_s": round(sent / seconds / 1e9, 2), "all_reduce_us": round(seconds * 1e6, 2)}


def size_mib(rank: Rank) -> int:
    return rank.pick(64, 1)


@job("communication", "", "", note=bus_bandwidth, timed_steps=10)
def nccl_loop(rank: Rank, mended: bool) -> Step:
    numbers = torch.zeros(size_mib(rank) * MIB // 4, device=rank.device)

    def step() -> None:
        for _ in range(LOOPS):
            dist.all_reduce(numbers)

    return step
