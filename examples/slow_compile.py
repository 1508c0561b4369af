"""Compiles distinct blocks for about half a minute on a CPU: run `tb-torchcompile watch runs` or TensorBoard meanwhile.

python examples/slow_compile.py runs/slow 12
"""

import sys

import torch

from tb_torchcompile_plugin import CompileRecorder


class Block(torch.nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(width, width) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.nn.functional.gelu(layer(x)).softmax(-1) + x.tanh().cumsum(0)
        return x


folder, blocks = sys.argv[1], int(sys.argv[2])
with CompileRecorder(folder, on_progress=print):
    for width in range(16, 16 + blocks):
        block = torch.compile(Block(width), dynamic=False)
        block(torch.randn(8, width)).sum().backward()
