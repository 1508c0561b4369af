"""Copies that only change the order of numbers in memory, and work in too small pieces."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.diagnosis.program import SHAPES, STACKS, Machine, Step, program
from benchmarks.diagnosis.programs.models import mlp, no_grad


@program(
    "layout",
    "layout:channels_last",
    also=("nothing_compiled",),
    mending="model and images are both channels_last",
    recorded=SHAPES,
)
def images_in_the_other_layout(machine: Machine, mended: bool) -> Step:
    width, side = machine.pick(64, 4), machine.pick(112, 8)
    layers = [nn.Conv2d(width, width, 1 + 2 * (i % 2), padding=i % 2, bias=False) for i in range(6)]
    model = nn.Sequential(*layers).to(machine.device, torch.float16 if machine.cuda else torch.float32)
    x = machine.randn(machine.pick(64, 1), width, side, side, dtype=next(model.parameters()).dtype)
    if mended:
        x = x.contiguous(memory_format=torch.channels_last)
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch has no overload for it
    return no_grad(lambda: model(x))  # planted: images_in_the_other_layout


@program(
    "layout",
    "layout:contiguous",
    also=("nothing_compiled",),
    mending="no transposed copies: einsum takes the tensors as they lie",
    recorded=STACKS,
)
def transposed_copies(machine: Machine, mended: bool) -> Step:
    batch, length, width = machine.pick(64, 2), machine.pick(512, 8), machine.pick(512, 8)
    x = machine.randn(batch, length, width, dtype=torch.bfloat16)
    weight = machine.randn(width, width, dtype=torch.bfloat16)

    def mix(x: Tensor) -> Tensor:
        for _ in range(4):
            if not mended:
                x = x.transpose(1, 2).contiguous()
                x = x.transpose(1, 2).contiguous()  # planted: transposed_copies
            x = functional.linear(x, weight)
        return x

    return no_grad(lambda: mix(x))


@program(
    "tiny batch", "tiny_batch", also=("cuda_graphs",), mending="the samples go through the model as one batch"
)
def one_sample_at_a_time(machine: Machine, mended: bool) -> Step:
    width = machine.pick(512, 16)
    model = torch.compile(mlp(machine, 4, width))
    samples = machine.randn(32, width)

    def step() -> Tensor:
        if mended:
            result: Tensor = model(samples)
            return result
        return torch.cat([model(sample[None]) for sample in samples])  # planted: one_sample_at_a_time

    return no_grad(step)
