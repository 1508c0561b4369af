"""CUDA graphs that are on, and do not serve."""

from itertools import count

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.diagnosis.program import SHAPES, Machine, Step, program
from benchmarks.diagnosis.programs.models import Block, mlp, no_grad


@program("CUDA graphs", "cuda_graphs:rerecord", mending="inputs are padded to one length", recorded=SHAPES)
def recording_each_length(machine: Machine, mended: bool) -> Step:
    width, longest = machine.pick(128, 16), 4096
    model = torch.compile(mlp(machine, machine.pick(12, 2), width), mode="reduce-overhead", dynamic=True)
    lengths = count(65)

    def step() -> Tensor:
        length = 64 + next(lengths) % longest
        x = machine.randn(length, width)
        if mended:
            x = functional.pad(x, (0, 0, 0, 512 - length)) if length < 512 else x[:512]
        result: Tensor = model(x)[:length].argmax(-1).cpu()  # planted: recording_each_length
        return result

    return no_grad(step)


class Counting(nn.Module):
    """Counts its calls in its input's last column: in place, or in a copy."""

    def __init__(self, width: int, depth: int, in_place: bool) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*(Block(width) for _ in range(depth)))
        self.in_place = in_place

    def forward(self, x: Tensor, state: Tensor) -> Tensor:
        if self.in_place:
            state.add_(1)  # planted: mutated_input
        else:
            state = state + 1
        result: Tensor = self.blocks(x) + state.mean()
        return result


@program("CUDA graphs", "cuda_graphs:skipped", mending="the state is not changed in place")
def mutated_input(machine: Machine, mended: bool) -> Step:
    width = machine.pick(128, 16)
    plain = Counting(width, machine.pick(32, 2), in_place=not mended).to(machine.device)
    model = torch.compile(plain, mode="reduce-overhead")
    x, state = machine.randn(16, width), machine.randn(width)
    return no_grad(lambda: model(x, state).argmax(1).cpu())
