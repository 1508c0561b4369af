"""A graph so small that checking whether it may be used takes longer than it."""

import torch
from torch import Tensor

from benchmarks.diagnosis.program import Machine, Step, program
from benchmarks.diagnosis.programs.models import no_grad


@program("guards", "guards", mending="the sum of the settings is a number that is computed before")
def thousands_of_settings(machine: Machine, mended: bool) -> Step:
    settings = {f"weight_{i}": i % 7 for i in range(machine.pick(3000, 20))}
    fixed = float(sum(settings.values()))

    @torch.compile
    def scaled(x: Tensor) -> Tensor:
        total = fixed if mended else float(sum(settings[name] for name in settings))
        return torch.tanh(x * total)

    x = machine.randn(64, 64)

    def step() -> None:
        for _ in range(8):
            scaled(x)

    return no_grad(step)


@program("guards", "guards", mending="one stacked tensor in place of a thousand")
def thousands_of_parameters(machine: Machine, mended: bool) -> Step:
    # A list in the caller's hands: of a module's own parameters torch checks next to nothing.
    count = 1 if mended else machine.pick(1000, 10)
    scales = [machine.randn(machine.pick(1000, 10) // count, 8) for _ in range(count)]

    @torch.compile
    def scaled(x: Tensor, scales: list[Tensor]) -> Tensor:
        return x * scales[0].sum() + sum(len(scale) for scale in scales)

    x = machine.randn(64, 8)

    def step() -> None:
        for _ in range(8):
            scaled(x, scales)

    return no_grad(step)
