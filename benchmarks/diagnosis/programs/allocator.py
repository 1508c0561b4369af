"""GPU memory that is asked of the driver at each step."""

from itertools import count

import torch

from benchmarks.diagnosis.program import SHAPES, STACKS, Machine, Step, program
from benchmarks.diagnosis.programs.models import mlp, no_grad, trainer


@program("allocator", "allocator:empty_cache", mending="no torch.cuda.empty_cache()", recorded=STACKS)
def emptying_the_cache(machine: Machine, mended: bool) -> Step:
    width = machine.pick(1024, 16)
    train = trainer(
        machine,
        mlp(machine, 3, width, torch.bfloat16),
        machine.randn(machine.pick(4096, 8), width, dtype=torch.bfloat16),
    )

    def step() -> None:
        train()
        if not mended and machine.cuda:
            torch.cuda.empty_cache()  # planted: emptying_the_cache

    return step


@program(
    "allocator",
    "allocator:no_caching",
    mending="without PYTORCH_NO_CUDA_MEMORY_CACHING=1 in the environment",
    environment={"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"},
)
def no_caching(machine: Machine, mended: bool) -> Step:
    width = machine.pick(512, 16)
    model, x = torch.compile(mlp(machine, 8, width)), machine.randn(machine.pick(1024, 8), width)
    return no_grad(lambda: model(x))


@program(
    "allocator",
    "allocator:retry",
    mending="a buffer of the largest length serves all lengths, and large blocks may be split",
    recorded=SHAPES,
    environment={"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:256"},
)
def memory_almost_full(machine: Machine, mended: bool) -> Step:
    if machine.cuda:
        share = (4 << 30) / torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(share)
    width, unit = machine.pick(256, 16), machine.pick(1 << 20, 1 << 8)
    model, x = torch.compile(mlp(machine, 2, width)), machine.randn(1024, width)
    numbers = count()

    def buffer(units: int) -> torch.Tensor:
        whole = torch.empty(units * unit, dtype=torch.uint8, device=machine.device)
        whole[:unit].zero_()
        return whole

    def step() -> torch.Tensor:
        # Up to 1.9 GB twice, another length at each step: no cached block is near enough, and both do not fit.
        units = 1900 if mended else 1450 + next(numbers) * 97 % 450
        kept = buffer(units), buffer(units)  # planted: memory_almost_full
        result: torch.Tensor = model(x)
        del kept
        return result

    return no_grad(step)
