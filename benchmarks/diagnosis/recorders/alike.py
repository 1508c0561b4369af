"""One small compiled program, the same in every run: what differs between two of its runs is noise.

    python program.py FOLDER

Two compiled functions, forward and backward, on the CPU, with the names of inductor's C++ kernels.
"""

import os
import sys

os.environ["TORCHINDUCTOR_CPP_ENABLE_KERNEL_PROFILE"] = "1"

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, schedule

from tb_torchcompile_plugin import tensorboard_trace_handler

torch.manual_seed(0)
torch.set_num_threads(1)
body = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 256), nn.LayerNorm(256))
batch = torch.randn(64, 256)


@torch.compile
def forward(x):
    return body(x)


@torch.compile
def loss_of(y):
    return (torch.softmax(y, -1) * y).sin().mean()


def step():
    body.zero_grad()
    loss_of(forward(batch)).backward()


for _ in range(3):
    step()
with profile(
    activities=[ProfilerActivity.CPU],
    schedule=schedule(wait=0, warmup=1, active=8, repeat=1),
    on_trace_ready=tensorboard_trace_handler(sys.argv[1], worker_name="alike"),
    profile_memory=True,
) as profiler:
    for _ in range(9):
        step()
        profiler.step()
