"""A small program with graph breaks, recompiles and dynamic shapes; also writes the compile summary of the same run.

    TORCH_LOGS=graph_breaks,recompiles,dynamic python train.py DIR [BACKEND]
"""

import os
import sys

import torch
import torch.distributed as dist

from tb_torchcompile_plugin import CompileRecorder

try:
    from tqdm import tqdm
except ImportError:
    tqdm = iter


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, x, scale):
        y = self.layer(x) * scale
        torch._dynamo.graph_break()
        if y.sum() > 100:
            y = y - 1
        print("loss of a batch")
        return y.relu().sum()


def skipped(x):
    for _ in range(2):
        torch._dynamo.graph_break()
        x = x + 1
    return x


def main(folder, backend="aot_eager"):
    rank = int(os.environ.get("RANK", 0))
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    torch.manual_seed(rank)
    torch._dynamo.config.recompile_limit = 3
    net = torch.compile(Net(), backend=backend)
    loop = torch.compile(skipped, backend=backend)
    batches = [(3, 1), (5, 1), (6, 2), (7, 3), (8, 4.5), (9, True)][: 6 - rank]
    with CompileRecorder(folder, worker_name=f"rank_{rank}"):
        for size, scale in tqdm(batches):
            net(torch.ones(size, 4), scale).backward()
        loop(torch.ones(2))


main(*sys.argv[1:])
