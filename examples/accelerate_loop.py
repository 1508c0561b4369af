"""Accelerate: `ProfileKwargs` hands the handler to torch's profiler.

    pip install accelerate
    accelerate launch examples/accelerate_loop.py --logdir runs
    tensorboard --logdir runs

Each process writes its own trace into one folder; the panel Ranks joins them.
"""

from __future__ import annotations

import argparse

import torch
from accelerate import Accelerator
from accelerate.utils import ProfileKwargs
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from tb_torchcompile_plugin import tensorboard_trace_handler


def main() -> None:
    parser = argparse.ArgumentParser(description="Train with Accelerate and profile it.")
    parser.add_argument("--logdir", default="runs")
    logdir = parser.parse_args().logdir

    profiled = ProfileKwargs(
        schedule_option={"wait": 4, "warmup": 1, "active": 3, "repeat": 1},
        on_trace_ready=tensorboard_trace_handler(logdir),  # before anything is compiled
        record_shapes=True,
    )
    accelerator = Accelerator(kwargs_handlers=[profiled])
    layers = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.LayerNorm(256), nn.Linear(256, 10))
    model = torch.compile(layers)  # before DistributedDataParallel is put around it, which breaks the graph
    samples = TensorDataset(torch.randn(640, 64), torch.randint(0, 10, (640,)))
    model, optimizer, loader = accelerator.prepare(
        model, torch.optim.AdamW(layers.parameters()), DataLoader(samples, batch_size=32)
    )
    with accelerator.profile() as profiler:
        for inputs, labels in loader:
            accelerator.backward(functional.cross_entropy(model(inputs), labels))
            optimizer.step()
            optimizer.zero_grad()
            profiler.step()


if __name__ == "__main__":
    main()
