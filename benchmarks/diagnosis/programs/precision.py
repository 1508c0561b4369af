"""Numbers of a type that the GPU is slow with."""

import torch
from torch import Tensor

from benchmarks.diagnosis.program import SHAPES, STACKS, Machine, Step, program
from benchmarks.diagnosis.programs.models import mlp, no_grad, trainer


@program("precision", "tf32", mending='torch.set_float32_matmul_precision("high")', recorded=SHAPES)
def float32_matmuls(machine: Machine, mended: bool) -> Step:
    torch.set_float32_matmul_precision("high" if mended else "highest")
    width = machine.pick(1536, 16)
    return trainer(machine, mlp(machine, 3, width), machine.randn(machine.pick(3072, 8), width))


@program("precision", "float64", mending="the model is not turned into float64")
def float64_by_mistake(machine: Machine, mended: bool) -> Step:
    torch.set_float32_matmul_precision("high")
    width = machine.pick(1024, 16)
    dtype = torch.float32 if mended else torch.float64
    model = torch.compile(mlp(machine, 2, width, dtype))
    x = machine.randn(machine.pick(2048, 8), width, dtype=dtype)
    return no_grad(lambda: model(x))


@program("precision", "casts", mending="all stays in bfloat16", recorded=STACKS)
def casts_back_and_forth(machine: Machine, mended: bool) -> Step:
    width = machine.pick(256, 16)
    blocks = [torch.compile(block) for block in mlp(machine, 4, width, torch.bfloat16)]
    x = machine.randn(machine.pick(64, 1) * 1024, width, dtype=torch.bfloat16)

    def step() -> Tensor:
        y = x
        for block in blocks:
            y = block(y)
            for _ in range(0 if mended else 4):
                y = y.float().bfloat16()  # planted: casts_back_and_forth
        return y

    return no_grad(step)
