"""What made this recording, on an NVIDIA H200: the handler of this package is created anew in each cycle, after the
warm-up compiled everything; the model runs under CUDA graphs.

usage: python program.py FOLDER
"""

import sys

import torch
from torch.profiler import ProfilerActivity, profile, schedule

from tb_torchcompile_plugin import tensorboard_trace_handler

model = torch.nn.Sequential(
    torch.nn.Linear(256, 256), torch.nn.GELU(), torch.nn.LayerNorm(256), torch.nn.Linear(256, 256)
).cuda()
compiled = torch.compile(model, mode="reduce-overhead")
x = torch.randn(32, 256, device="cuda")


def step():
    torch.compiler.cudagraph_mark_step_begin()
    model.zero_grad(set_to_none=True)
    compiled(x).sum().backward()


def trace_handler(profiler):
    tensorboard_trace_handler(sys.argv[1], worker_name="late")(profiler)


for _ in range(5):
    step()

with profile(
    activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA],
    schedule=schedule(wait=1, warmup=1, active=2, repeat=2),
    on_trace_ready=trace_handler,
    record_shapes=True,
) as profiler:
    for _ in range(8):
        step()
        profiler.step()
