"""A Triton kernel of the user's own that reads memory the wrong way round."""

import torch
from torch import Tensor

from benchmarks.diagnosis.program import SHAPES, Machine, Step, program
from benchmarks.diagnosis.programs.models import no_grad

try:
    import triton  # type: ignore[import-not-found]  # installed with a GPU only
    import triton.language as tl  # type: ignore[import-not-found]  # installed with a GPU only
except ImportError:  # torch for CPUs comes without
    triton = tl = None

__all__ = ["tl", "triton"]

if triton is not None:

    @triton.jit  # type: ignore[untyped-decorator]  # Triton has no types here
    def scale_rows(source, target, rows, columns, ACROSS: tl.constexpr):
        """Each program takes 256 numbers: one column's, or one row's."""
        place = tl.program_id(0) * 256 + tl.arange(0, 256)
        offsets = place if ACROSS else place % rows * columns + place // rows
        values = tl.load(source + offsets).to(tl.float32)
        tl.store(target + offsets, values * tl.sigmoid(values))


def scaled(x: Tensor, across: bool) -> Tensor:
    """X · sigmoid(x)."""
    if not x.is_cuda:
        return x * torch.sigmoid(x)
    out = torch.empty_like(x)
    grid = (x.numel() // 256,)
    scale_rows[grid](x, out, x.shape[0], x.shape[1], ACROSS=across)  # planted: strided_triton_kernel
    return out


@program("kernels", "slow_kernel", mending="neighbouring threads read neighbouring numbers")
def strided_triton_kernel(machine: Machine, mended: bool) -> Step:
    width = machine.pick(1024, 256)
    layer = torch.nn.Linear(width, width, device=machine.device, dtype=torch.bfloat16)
    model = torch.compile(torch.nn.Sequential(layer, torch.nn.Tanh()))
    x = machine.randn(machine.pick(32768, 8), width, dtype=torch.bfloat16)
    return no_grad(lambda: scaled(model(x), across=mended))


@program("kernels", "slow_kernel", mending="neighbouring threads read neighbouring numbers", recorded=SHAPES)
def strided_triton_kernel_compiled(machine: Machine, mended: bool) -> Step:
    width = machine.pick(2048, 256)
    x = machine.randn(machine.pick(8192, 8), width)

    @torch.compile
    def run(x: Tensor) -> Tensor:
        return scaled(torch.sin(x) + 1, across=mended).cos()

    return no_grad(lambda: run(x))
