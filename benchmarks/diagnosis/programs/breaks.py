"""Dynamo gives up inside the model: graph breaks, frames that it skips, code that it is told to leave alone."""

import sys

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.diagnosis.program import SHAPES, STACKS, Machine, Step, program
from benchmarks.diagnosis.programs.models import Block, no_grad


class Talking(Block):
    """Prints its input's shape, as one does while looking for a bug."""

    talks = True

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(x)
        if self.talks:
            print("block", x.shape, file=sys.stderr)  # planted: printing_in_each_block
        return x + functional.gelu(self.up(x))[:, : x.shape[1]]


@program("graph breaks", "graph_breaks", mending="no print in the model")
def printing_in_each_block(machine: Machine, mended: bool) -> Step:
    width = machine.pick(256, 16)
    blocks = [Talking(width) for _ in range(machine.pick(24, 3))]
    for block in blocks:
        block.talks = not mended
    model, x = torch.compile(nn.Sequential(*blocks).to(machine.device)), machine.randn(64, width)
    return no_grad(lambda: model(x))


class Clamped(nn.Module):
    """Scales what has grown too large; whether it has is asked on the host, or by torch.where."""

    def __init__(self, width: int, on_host: bool) -> None:
        super().__init__()
        self.linear, self.on_host = nn.Linear(width, width), on_host

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.linear(x)) + x
        if self.on_host:
            if x.abs().max().item() > 1e4:  # planted: branching_on_an_item
                x = x / 2
            return x.cos()
        return torch.where(x.abs().max() > 1e4, x / 2, x).cos()


@program("graph breaks", "graph_breaks", mending="torch.where in place of .item() and if", recorded=STACKS)
def branching_on_an_item(machine: Machine, mended: bool) -> Step:
    width = machine.pick(256, 16)
    blocks = [Clamped(width, on_host=not mended) for _ in range(machine.pick(20, 3))]
    model, x = torch.compile(nn.Sequential(*blocks).to(machine.device)), machine.randn(128, width)
    return no_grad(lambda: model(x))


def rotate(x: Tensor, angle: float) -> Tensor:
    """Turns pairs of features."""
    a, b = x.chunk(2, dim=-1)
    turned = torch.full_like(a, angle)
    return torch.cat((a * turned.cos() - b * turned.sin(), a * turned.sin() + b * turned.cos()), dim=-1)


class Rotating(nn.Module):
    def __init__(self, width: int, disabled: bool) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.rotate = torch.compiler.disable(rotate) if disabled else rotate

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.tanh(self.rotate(self.linear(x), 0.1))  # planted: disabled_helper


@program("graph breaks", "graph_breaks", mending="without torch.compiler.disable", recorded=SHAPES)
def disabled_helper(machine: Machine, mended: bool) -> Step:
    width = machine.pick(256, 16)
    blocks = [Rotating(width, disabled=not mended) for _ in range(machine.pick(20, 3))]
    model, x = torch.compile(nn.Sequential(*blocks).to(machine.device)), machine.randn(64, width)
    return no_grad(lambda: model(x))


class Sampler(nn.Module):
    """Refines its input in rounds; a check of each round's result decides what follows."""

    def __init__(self, machine: Machine, on_host: bool) -> None:
        super().__init__()
        self.rounds, self.on_host = machine.pick(12, 3), on_host
        self.scale = nn.Parameter(torch.ones((), device=machine.device))

    def forward(self, x: Tensor) -> Tensor:
        for turn in range(self.rounds):
            x = torch.sin(x * self.scale) + 0.1 * torch.tanh(x) * torch.exp(-x * x) - turn * 1e-3
            small = x[0, 0] < -10.0
            if self.on_host:
                if small:  # planted: branch_in_a_loop
                    x = x * 0.5
            else:
                x = torch.where(small, x * 0.5, x)
        return x


@program(
    "skipped frames",
    "skipped_frame",
    mending="torch.where in place of the branch, so that dynamo can trace the loop",
)
def branch_in_a_loop(machine: Machine, mended: bool) -> Step:
    model = torch.compile(Sampler(machine, on_host=not mended))
    x = machine.randn(machine.pick(4096, 8), machine.pick(2048, 8))
    return no_grad(lambda: model(x))


def stretch(x: Tensor) -> Tensor:
    """The part that takes the time."""
    for power in range(1, 7):
        x = torch.tanh(x) * 0.9 + torch.sigmoid(x * power) * 0.1
    return x


class Stretching(nn.Module):
    def __init__(self, disabled: bool) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 64)
        self.stretch = torch.compiler.disable(stretch) if disabled else stretch

    def forward(self, x: Tensor) -> Tensor:
        return self.stretch(self.linear(x)).mean(-1)  # planted: disabled_hot_path


@program(
    "skipped frames",
    "graph_breaks",
    mending="without torch.compiler.disable on the part that takes the time",
    recorded=STACKS,
)
def disabled_hot_path(machine: Machine, mended: bool) -> Step:
    model = torch.compile(Stretching(disabled=not mended).to(machine.device))
    x = machine.randn(machine.pick(128, 1) * 1024, 64)
    return no_grad(lambda: model(x))
