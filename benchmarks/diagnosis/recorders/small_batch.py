"""A small transformer at batch 4, recorded eager, compiled and with CUDA graphs: program.py MODE FOLDER."""

import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.profiler import ProfilerActivity, profile, schedule

from tb_torchcompile_plugin import tensorboard_trace_handler

mode, out = sys.argv[1:3]
torch.manual_seed(0)
device = "cuda"


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.heads = heads

    def forward(self, x):
        b, s, w = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, s, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, s, w))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Net(nn.Module):
    def __init__(self, width=256, heads=4, layers=4):
        super().__init__()
        self.blocks = nn.Sequential(*[Block(width, heads) for _ in range(layers)])
        self.head = nn.Linear(width, 10)

    def forward(self, x):
        return self.head(self.blocks(x).mean(1))


def timed_steps(step, n=30):
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(n):
        step()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / n * 1e6


model = Net().to(device)
x = torch.randn(4, 64, 256, device=device)
if mode != "eager":
    model = torch.compile(model, mode="reduce-overhead" if mode == "cudagraphs" else None)


def step():
    with torch.no_grad():
        return model(x)


handler = tensorboard_trace_handler(out, worker_name=mode)
for _ in range(8):
    step()
torch.cuda.synchronize()
with profile(
    activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA],
    schedule=schedule(wait=1, warmup=2, active=3, repeat=1),
    on_trace_ready=handler,
    record_shapes=True,
) as prof:
    for _ in range(6):
        step()
        prof.step()
print(mode, "us per step unprofiled", [round(timed_steps(step), 1) for _ in range(3)])
