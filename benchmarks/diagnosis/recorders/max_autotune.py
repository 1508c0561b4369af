"""Recorded on an H200: `TORCH_TRACE=max_autotune/log python program.py max_autotune`."""

import sys

import torch

from tb_torchcompile_plugin import CompileRecorder

torch.manual_seed(0)
layer = torch.nn.TransformerEncoderLayer(256, 4, 512, dropout=0.0, batch_first=True).cuda().half()
x = torch.randn(8, 128, 256, device="cuda", dtype=torch.half)
with CompileRecorder(sys.argv[1], worker_name="h200"):
    compiled = torch.compile(layer, mode="max-autotune")
    for _ in range(4):
        compiled(x).sum().backward()
        layer.zero_grad()
    torch.cuda.synchronize()
