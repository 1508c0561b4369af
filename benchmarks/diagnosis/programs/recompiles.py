"""Compiling again and again, or having done so too often."""

from itertools import count

import torch
from torch import Tensor, nn

from benchmarks.diagnosis.program import STOCK, Machine, Step, program
from benchmarks.diagnosis.programs.models import no_grad

torch_dynamo_config = torch._dynamo.config


class Scheduled(nn.Module):
    """Its temperature changes at each step: a number, or a tensor."""

    def __init__(self, machine: Machine, as_tensor: bool) -> None:
        super().__init__()
        self.linear = nn.Linear(256, 256)
        start = torch.zeros((), device=machine.device) if as_tensor else 0
        self.temperature: Tensor | int = start

    def forward(self, x: Tensor) -> Tensor:
        return torch.softmax(self.linear(x) / (1 + self.temperature), -1)


@program("recompiles", "recompiles", mending="the attribute that changes is a tensor")
def changing_attribute(machine: Machine, mended: bool) -> Step:
    torch_dynamo_config.recompile_limit = torch_dynamo_config.accumulated_recompile_limit = 10_000
    plain = Scheduled(machine, as_tensor=mended).to(machine.device)
    model, x = torch.compile(plain), machine.randn(1024, 256)

    def step() -> Tensor:
        plain.temperature += 1  # planted: changing_attribute
        result: Tensor = model(x)
        return result

    return no_grad(step)


class Schedule:
    """What the user passes with each batch."""

    def __init__(self) -> None:
        self.phase = 0


def warp(x: Tensor, schedule: Schedule) -> Tensor:
    """Element-wise work; the phase is a number that dynamo guards on."""
    for turn in range(1, 7):
        x = torch.sin(x * turn) + torch.tanh(x) * (1 + schedule.phase % 3)
    return x


@program(
    "recompiles",
    "recompile_limit",
    mending="the phase, of which only the remainder matters, is reduced before the call",
)
def limit_hit(machine: Machine, mended: bool) -> Step:
    torch_dynamo_config.automatic_dynamic_shapes = False
    run, schedule = torch.compile(warp), Schedule()
    x, phases = machine.randn(machine.pick(4096, 8), machine.pick(1024, 8)), count()
    for _ in range(12):
        schedule.phase = next(phases) % 3 if mended else next(phases)
        no_grad(lambda: run(x, schedule))()

    def step() -> Tensor:
        phase = next(phases)
        schedule.phase = phase % 3 if mended else phase  # planted: limit_hit
        result: Tensor = run(x, schedule)
        return result

    return no_grad(step)


@program("recompiles", "recompiles", mending="the number that changes is passed as a tensor", recorded=STOCK)
def changing_float_on_torchs_handler(machine: Machine, mended: bool) -> Step:
    torch_dynamo_config.recompile_limit = torch_dynamo_config.accumulated_recompile_limit = 10_000
    torch_dynamo_config.specialize_float = True
    numbers, x = count(), machine.randn(512, 512)

    @torch.compile
    def scaled(x: Tensor, scale: Tensor | float) -> Tensor:
        return torch.tanh(x * scale).sum(-1)

    def step() -> Tensor:
        scale = 1.0 + next(numbers) / 8
        if mended:
            return scaled(x, torch.full((), scale, device=machine.device))
        return scaled(x, scale)  # planted: changing_float_on_torchs_handler

    return no_grad(step)
