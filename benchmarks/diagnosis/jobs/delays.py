"""What makes one rank late: Python, and a neighbour on its GPU.

python3 -m benchmarks.diagnosis.jobs.delays cuda:1    # multiplies matrices until its parent is gone
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from benchmarks.diagnosis.jobs.job import Rank

LONGEST_S = 180


def augment(seconds: float) -> int:
    """Pure Python that takes so long on any machine."""
    until, total = time.perf_counter() + seconds, 0
    while time.perf_counter() < until:
        total += sum([number * number % 7 for number in range(2000)])
    return total


@contextmanager
def neighbour(rank: Rank) -> Iterator[None]:
    """Another process keeps the GPU of rank 1 busy."""
    if rank.number != 1:
        yield
        return
    command = [sys.executable, "-m", "benchmarks.diagnosis.jobs.delays", str(rank.device)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline(), "the neighbour did not start"
        yield
    finally:
        process.kill()
        process.wait()


def multiply(device: torch.device) -> None:
    """Matrices of the device's size, all the time; a word when it has begun."""
    side = 4096 if device.type == "cuda" else 256
    a = torch.randn(side, side, device=device, dtype=torch.bfloat16 if side == 4096 else torch.float32)
    parent, until, said = os.getppid(), time.monotonic() + LONGEST_S, False
    while os.getppid() == parent and time.monotonic() < until:
        for _ in range(50):
            a @ a
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        if not said:
            said = True
            print("busy", flush=True)


if __name__ == "__main__":
    multiply(torch.device(sys.argv[1]))
