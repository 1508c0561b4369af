"""torch.compile was meant to be used, and is not."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.diagnosis.program import SHAPES, STOCK, Machine, Step, program
from benchmarks.diagnosis.programs.models import adam, descend, no_grad


class Gated(nn.Module):
    """Little matrix work, much element-wise work."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(depth))

    def forward(self, x: Tensor) -> Tensor:
        for layer, norm in zip(self.layers, self.norms):
            hidden = layer(norm(x))
            x = x + functional.silu(hidden) * torch.sigmoid(hidden + 1) * torch.tanh(hidden) * 0.5
        return x


def gated(machine: Machine) -> tuple[Gated, Tensor]:
    width = machine.pick(128, 16)
    return Gated(width, machine.pick(3, 1)).to(machine.device), machine.randn(
        machine.pick(96, 1) * 1024, width
    )


@program("nothing compiled", "nothing_compiled", mending="the compiled model is the one that is called")
def result_never_used(machine: Machine, mended: bool) -> Step:
    model, x = gated(machine)
    compiled = torch.compile(model)  # planted: result_never_used
    if mended:
        return no_grad(lambda: compiled(x))
    return no_grad(lambda: model(x))


@program(
    "nothing compiled", "nothing_compiled", mending="the model is compiled as the loss is", recorded=SHAPES
)
def only_the_loss_compiled(machine: Machine, mended: bool) -> Step:
    model, x = gated(machine)
    optimizer = adam(machine, model)
    loss_of = torch.compile(functional.mse_loss)
    forward = torch.compile(model) if mended else model
    target = torch.zeros_like(x)

    def step() -> None:
        descend(loss_of(forward(x), target), optimizer)  # planted: only_the_loss_compiled

    return step


def soften(x: Tensor) -> Tensor:
    """Twelve element-wise operators."""
    for factor in (0.5, 0.7, 0.9):
        x = torch.tanh(x * factor) + torch.sigmoid(x - factor) * 0.1
    return x


@program(
    "nothing compiled",
    "nothing_compiled",
    mending="torch.compile fuses the element-wise operators",
    recorded=STOCK,
)
def elementwise_eager(machine: Machine, mended: bool) -> Step:
    x = machine.randn(machine.pick(4096, 8), machine.pick(4096, 8))
    run = torch.compile(soften) if mended else soften
    return no_grad(lambda: run(x))
