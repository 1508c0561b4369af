"""Nothing is wrong: the GPU works all the time, on kernels that are as fast as can be expected."""

import torch
from torch import Tensor, nn

from benchmarks.diagnosis.program import BOTH, SHAPES, STOCK, Machine, Step, program
from benchmarks.diagnosis.programs.models import mlp, no_grad, trainer, transformer


@program("healthy", "", recorded=SHAPES)
def healthy_training(machine: Machine, mended: bool) -> Step:
    width = machine.pick(2048, 16)
    x = machine.randn(machine.pick(8192, 8), width, dtype=torch.bfloat16)
    return trainer(machine, mlp(machine, 3, width, torch.bfloat16), x)


@program("healthy", "")
def healthy_cuda_graphs(machine: Machine, mended: bool) -> Step:
    width = machine.pick(512, 16)
    model = torch.compile(
        transformer(machine, machine.pick(6, 1), width, torch.bfloat16), mode="reduce-overhead"
    )
    x = machine.randn(machine.pick(32, 1), machine.pick(256, 8), width, dtype=torch.bfloat16)
    return no_grad(lambda: model(x))


@program("healthy", "", recorded=STOCK)
def healthy_host_ahead(machine: Machine, mended: bool) -> Step:
    side = machine.pick(4096, 16)
    a, b = machine.randn(side, side, dtype=torch.bfloat16), machine.randn(side, side, dtype=torch.bfloat16)
    product = torch.compile(lambda x: torch.relu(x @ b))

    def step() -> Tensor:
        x = a
        for _ in range(12):
            x = product(x) * (1.0 / side)
        return x

    return no_grad(step)


@program("healthy", "", recorded=BOTH)
def healthy_inference(machine: Machine, mended: bool) -> Step:
    width = machine.pick(1024, 16)
    model: nn.Module = transformer(machine, machine.pick(4, 1), width, torch.bfloat16)
    compiled = torch.compile(model)
    x = machine.randn(machine.pick(16, 1), machine.pick(512, 8), width, dtype=torch.bfloat16)
    return no_grad(lambda: compiled(x))
