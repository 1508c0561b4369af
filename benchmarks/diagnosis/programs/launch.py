"""The host cannot launch small kernels as fast as the GPU runs them: what CUDA graphs are for."""

import torch

from benchmarks.diagnosis.program import SHAPES, UNMARKED, Machine, Step, program
from benchmarks.diagnosis.programs.models import mlp, no_grad, train_step, transformer


def mode(mended: bool) -> str:
    return "reduce-overhead" if mended else "default"


@program("launch overhead", "cuda_graphs", mending='mode="reduce-overhead"')
def small_forward(machine: Machine, mended: bool) -> Step:
    width = machine.pick(128, 16)
    model = torch.compile(mlp(machine, machine.pick(32, 2), width, torch.bfloat16), mode=mode(mended))
    x = machine.randn(16, width, dtype=torch.bfloat16)
    return no_grad(lambda: model(x).argmax(1).cpu())


@program("launch overhead", "cuda_graphs", mending='mode="reduce-overhead"')
def small_forward_with_host_work(machine: Machine, mended: bool) -> Step:
    width = machine.pick(128, 16)
    model = torch.compile(mlp(machine, machine.pick(64, 2), width, torch.bfloat16), mode=mode(mended))
    x = machine.randn(16, width, dtype=torch.bfloat16)
    request = " ".join(str(i) for i in range(machine.pick(4000, 10)))

    def step() -> int:
        numbers = [int(word) * 31 % 997 for word in request.split()]
        best: int = model(x).argmax().item()
        return numbers[best % len(numbers)]

    return no_grad(step)


@program("launch overhead", "cuda_graphs", mending='mode="reduce-overhead"', recorded=SHAPES)
def small_transformer(machine: Machine, mended: bool) -> Step:
    width = machine.pick(256, 16)
    model = torch.compile(transformer(machine, machine.pick(12, 1), width, torch.bfloat16), mode=mode(mended))
    x = machine.randn(1, machine.pick(64, 8), width, dtype=torch.bfloat16)
    return no_grad(lambda: model(x).argmax(-1).cpu())


@program("launch overhead", "cuda_graphs", mending='mode="reduce-overhead"', recorded=UNMARKED)
def small_training(machine: Machine, mended: bool) -> Step:
    width = machine.pick(128, 16)
    model = mlp(machine, machine.pick(20, 2), width)
    compiled = torch.compile(model, mode=mode(mended))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True, capturable=machine.cuda)
    x = machine.randn(32, width)
    target = torch.zeros_like(x)
    return lambda: train_step(compiled, optimizer, x, target)
