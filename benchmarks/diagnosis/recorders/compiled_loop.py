"""A small network that trains compiled on a CPU and is compiled again for another batch size, as this package's handler
records it.

    python program.py FOLDER
"""

import os
import sys

os.environ["TORCHINDUCTOR_CPP_ENABLE_KERNEL_PROFILE"] = "1"
os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, schedule

from tb_torchcompile_plugin import tensorboard_trace_handler

torch.manual_seed(0)
torch.set_num_threads(1)
net = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 8))
optimizer = torch.optim.SGD(net.parameters(), 1e-2)


@torch.compile(dynamic=False)
def loss_of(x, y):
    error = net(x) - y
    return (error * error).mean()


def step(batch):
    loss_of(torch.ones(batch, 32), torch.ones(batch, 8)).backward()
    optimizer.step()
    optimizer.zero_grad()


with profile(
    activities=[ProfilerActivity.CPU],
    schedule=schedule(wait=0, warmup=1, active=3, repeat=1),
    on_trace_ready=tensorboard_trace_handler(sys.argv[1], "compiled_loop"),
    record_shapes=True,
) as prof:
    for batch in (16, 16, 24, 16):
        step(batch)
        prof.step()
