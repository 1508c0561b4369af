"""Inference of a small compiled function on a CPU: torch's own handler, which writes the stacks of inductor's kernels,
and this package's one after the other in `on_trace_ready`.

    python program.py FOLDER
"""

import os
import sys

os.environ["TORCH_COMPILE_DEBUG_EXTEND"] = "1"
os.environ["TORCHINDUCTOR_CPP_ENABLE_KERNEL_PROFILE"] = "1"
os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"

import torch
from torch._inductor.profiler import inductor_trace_handler
from torch.profiler import ProfilerActivity, profile, schedule

from tb_torchcompile_plugin import tensorboard_trace_handler

torch.set_num_threads(1)
torchs = inductor_trace_handler(sys.argv[1], "two_handlers")
ours = tensorboard_trace_handler(sys.argv[1], "two_handlers")


@torch.compile
def scaled(x, weight):
    hidden = torch.relu(x @ weight)
    return hidden / hidden.sum(1, keepdim=True)


def ready(prof):
    torchs(prof)
    ours(prof)


x, weight = torch.ones(64, 32), torch.ones(32, 48)
with torch.no_grad():
    scaled(x, weight)
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=0, warmup=1, active=2, repeat=1),
        on_trace_ready=ready,
    ) as prof:
        for _ in range(3):
            scaled(x, weight)
            prof.step()
