"""Two ranks on a CPU that communicate by Gloo, in two groups: rank 1 comes 40 ms late to each step.

    python program.py FOLDER
"""

import os
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.profiler import ProfilerActivity, profile, schedule

from tb_torchcompile_plugin import tensorboard_trace_handler


def run(rank, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    data = dist.new_group([0, 1])
    gradient, norm = torch.ones(100_000), torch.ones(1)
    parts = [torch.empty(100_000) for _ in range(2)]

    @torch.compile
    def scaled(x):
        return torch.tanh(x) * 2

    scaled(gradient)
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=0, warmup=1, active=2, repeat=1),
        on_trace_ready=tensorboard_trace_handler(folder, f"rank{rank}"),
        record_shapes=True,
    ) as prof:
        for _ in range(3):
            gradient = scaled(gradient)
            time.sleep(0.04 * rank)
            dist.all_reduce(gradient)
            dist.all_gather(parts, gradient, group=data)
            dist.all_reduce(norm, group=data)
            prof.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    os.makedirs(sys.argv[1], exist_ok=True)
    mp.spawn(run, (os.path.abspath(sys.argv[1]),), nprocs=2)
    os.remove(os.path.join(sys.argv[1], "store"))
