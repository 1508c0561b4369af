"""What made this recording: the program of `breaks`, run with the handler of this package on an NVIDIA H200.

usage: python program.py FOLDER
"""

import sys

import torch
from torch.profiler import ProfilerActivity, profile, schedule

from tb_torchcompile_plugin import tensorboard_trace_handler


def block():
    return torch.nn.Sequential(
        torch.nn.Linear(128, 128), torch.nn.ReLU(), torch.nn.Linear(128, 128), torch.nn.ReLU()
    )


class Breaks(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.m1, self.m2, self.m3, self.m4 = block(), block(), block(), block()

    def forward(self, x):
        a = self.m1(x)
        torch._dynamo.graph_break()
        b = self.m2(a)
        torch._dynamo.graph_break()
        if b.sum() > 0:
            b = b * 2
        c = self.m3(b)
        print("", end="")
        return self.m4(c)


device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
model = torch.compile(Breaks().to(device))
inputs = [torch.randn(128, 128, device=device) for _ in range(10)]
handler = tensorboard_trace_handler(sys.argv[1], worker_name="h200")

model(inputs[0]).sum().backward()  # compiled before the profile, as the documentation advises

with profile(
    activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA],
    schedule=schedule(wait=1, warmup=1, active=3, repeat=1),
    on_trace_ready=handler,
    with_stack=True,
) as profiler:
    for step in range(5):
        model(inputs[step]).sum().backward()
        profiler.step()
