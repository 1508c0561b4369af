"""A library makes a plan for each shape that it has not seen, and each step brings a new one."""

from itertools import count

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks.diagnosis.program import SHAPES, STACKS, Machine, Recorded, Step, program
from benchmarks.diagnosis.programs.models import convnet, no_grad


def attention_step(machine: Machine, mended: bool) -> Step:
    """Attention forward and backward, by cuDNN where it can; a length that was never seen at each step."""
    heads, size, longest = machine.pick(8, 2), 64, 1024
    lengths = count(65)
    backends = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]

    def step() -> None:
        length = longest if mended else next(lengths)
        x = machine.randn(4, heads, length, size, dtype=torch.bfloat16).requires_grad_()
        with sdpa_kernel(backends, set_priority=True):
            functional.scaled_dot_product_attention(
                x, x, x
            ).square().mean().backward()  # planted: attention_of_new_lengths

    return step


@program("new shapes", "plan_per_shape", mending="all are padded to the longest length", recorded=SHAPES)
def attention_of_new_lengths(machine: Machine, mended: bool) -> Step:
    return attention_step(machine, mended)


@program(
    "new shapes",
    "plan_per_shape",
    mending="all are padded to the longest length",
    recorded=Recorded(stacks=True, stock=True),
)
def attention_of_new_lengths_on_torchs_handler(machine: Machine, mended: bool) -> Step:
    return attention_step(machine, mended)


@program("new shapes", "cudnn_benchmark", mending="torch.backends.cudnn.benchmark stays off", recorded=STACKS)
def benchmark_of_new_sizes(machine: Machine, mended: bool) -> Step:
    torch.backends.cudnn.benchmark = not mended
    model, sides = convnet(machine, machine.pick(64, 4)), count(64)

    def step() -> Tensor:
        x = machine.randn(4, 3, next(sides), 160)
        result: Tensor = model(x)  # planted: benchmark_of_new_sizes
        return result

    return no_grad(step)
