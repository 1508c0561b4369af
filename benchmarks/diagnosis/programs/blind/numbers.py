"""Kernels that should not run, or not so: eager ones, ones cut too small."""

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.diagnosis.program import PLAIN, STACKS, Machine, Step, program
from benchmarks.diagnosis.programs.blind.nets import UNet, half
from benchmarks.diagnosis.programs.kernels import tl, triton


def ddpm_update(x: Tensor, noise: Tensor, fresh: Tensor, alpha: Tensor, alpha_before: Tensor) -> Tensor:
    """One step back: the image that the noise implies, thresholded, and the posterior's mean and noise."""
    beta = 1 - alpha / alpha_before
    image = (x - (1 - alpha).sqrt() * noise) / alpha.sqrt()
    limit = image.abs().amax((1, 2, 3), keepdim=True).clamp(min=1.0)
    image = torch.tanh(image / limit) * limit.clamp(max=1.5)
    image = torch.where(image.abs() > 1.0, image.sign() * (1.0 + 0.1 * (image.abs() - 1.0)), image)
    mean = alpha_before.sqrt() * beta / (1 - alpha) * image
    mean = mean + (alpha / alpha_before).sqrt() * (1 - alpha_before) / (1 - alpha) * x
    return mean + (beta * (1 - alpha_before) / (1 - alpha)).sqrt() * fresh


@program(
    "eager remainder",
    "eager:sampler",
    also=("eager:postprocessing",),
    mending="the sampler's update is compiled as the network is",
    recorded=STACKS,
)
def sampler_left_eager(machine: Machine, mended: bool) -> Step:
    rows, side = machine.pick(32, 1), machine.pick(512, 32)
    net = UNet(machine.pick(32, 4), patch=8).eval().to(machine.device, half(machine))
    model, update = torch.compile(net), torch.compile(ddpm_update) if mended else ddpm_update
    alphas = torch.linspace(0.99, 0.1, 50, device=machine.device)
    start = machine.randn(rows, 3, side, side)

    def sample() -> Tensor:
        x = start
        for number in (40, 30, 20):
            noise = model(x.to(half(machine))).float()
            x = update(
                x, noise, torch.randn_like(x), alphas[number], alphas[number - 1]
            )  # planted: sampler_left_eager
        return x

    return torch.no_grad()(sample)


if triton is not None:

    @triton.jit  # type: ignore[untyped-decorator]  # Triton has no types here
    def swiglu_kernel(gate_up, out, hidden, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # Triton passes pointers
        """silu(gate) · up, of a row [gate, up]."""
        place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        row, column = place // hidden, place % hidden
        gate = tl.load(gate_up + row * 2 * hidden + column).to(tl.float32)
        up = tl.load(gate_up + row * 2 * hidden + hidden + column).to(tl.float32)
        tl.store(out + place, gate * tl.sigmoid(gate) * up)


def swiglu(gate_up: Tensor, block: int) -> Tensor:
    if not gate_up.is_cuda:
        gate, up = gate_up.chunk(2, -1)
        return functional.silu(gate) * up
    hidden = gate_up.shape[-1] // 2
    out = gate_up.new_empty(*gate_up.shape[:-1], hidden)
    swiglu_kernel[(out.numel() // block,)](gate_up, out, hidden, BLOCK=block)  # planted: tiny_triton_blocks
    return out


@program(
    "kernels",
    "slow_kernel",
    mending="a program of the kernel works on 1024 numbers in place of 16",
    recorded=PLAIN,
)
def tiny_triton_blocks(machine: Machine, mended: bool) -> Step:
    width, hidden, rows = machine.pick(1024, 16), machine.pick(4096, 32), machine.pick(8192, 4)
    block = 1024 if mended else 16
    weights = [
        (
            machine.randn(width, 2 * hidden, dtype=half(machine)),
            machine.randn(hidden, width, dtype=half(machine)),
        )
        for _ in range(2)
    ]
    x = machine.randn(rows, width, dtype=half(machine))
    normalized = torch.compile(lambda x: functional.rms_norm(x, (width,)))

    def forward() -> Tensor:
        y = x
        for up, down in weights:
            y = y + swiglu(normalized(y) @ up, block) @ down
        return y

    return torch.no_grad()(forward)
