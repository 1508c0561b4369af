"""The optimizer takes longer than the model."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from benchmarks.diagnosis.program import STACKS, UNMARKED, Machine, Step, program
from benchmarks.diagnosis.programs.models import adam, mlp, train_step


def small(machine: Machine) -> tuple[nn.Module, torch.Tensor]:
    width = machine.pick(128, 16)
    return mlp(machine, machine.pick(24, 2), width), machine.randn(64, width)


@program("optimizer", "optimizer", mending="fused=True in place of foreach=False", recorded=UNMARKED)
def optimizer_in_a_loop(machine: Machine, mended: bool) -> Step:
    model, x = small(machine)
    compiled, target = torch.compile(model), torch.zeros_like(x)
    plain = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=False)
    optimizer = adam(machine, model) if mended else plain
    return lambda: train_step(compiled, optimizer, x, target)  # planted: optimizer_in_a_loop


class Lion(torch.optim.Optimizer):
    """One parameter after the other, or all at once."""

    def __init__(self, parameters: Iterable[nn.Parameter], foreach: bool) -> None:
        super().__init__(parameters, {"lr": 1e-4})
        self.foreach = foreach

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # it returns no loss
        parameters = [p for group in self.param_groups for p in group["params"] if p.grad is not None]
        for parameter in parameters:
            if not self.state[parameter]:
                self.state[parameter]["mean"] = torch.zeros_like(parameter)
        means = [self.state[parameter]["mean"] for parameter in parameters]
        gradients = [parameter.grad for parameter in parameters]
        if self.foreach:
            torch._foreach_lerp_(means, gradients, 0.1)
            torch._foreach_add_(parameters, torch._foreach_sign(means), alpha=-1e-4)
            return
        for parameter, gradient, mean in zip(parameters, gradients, means):
            mean.mul_(0.9).add_(gradient, alpha=0.1)
            parameter.add_(mean.sign(), alpha=-1e-4)  # planted: own_optimizer


@program(
    "optimizer",
    "optimizer",
    mending="the optimizer of one's own handles all parameters at once",
    recorded=STACKS,
)
def own_optimizer(machine: Machine, mended: bool) -> Step:
    model, x = small(machine)
    compiled, target = torch.compile(model), torch.zeros_like(x)
    optimizer = Lion(model.parameters(), foreach=mended)
    return lambda: train_step(compiled, optimizer, x, target)
