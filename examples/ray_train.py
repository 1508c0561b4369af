"""Ray Train: each worker records some steps into one folder, which the panel Ranks joins.

    pip install 'ray[train]'
    python examples/ray_train.py --logdir runs
    tensorboard --logdir runs

On several machines use a folder that all of them can write. `runs` may be a store (s3://…) for TensorBoard, not for
torch's profiler, which writes files: then upload the folder when training ends.
"""

from __future__ import annotations

import argparse
import os
from typing import Any

import ray
import torch
from ray.train import ScalingConfig, get_context
from ray.train.torch import TorchTrainer, get_device, prepare_model
from torch import nn
from torch.nn import functional

from tb_torchcompile_plugin import profile_steps


def train_on_worker(config: dict[str, Any]) -> None:
    rank = get_context().get_world_rank()
    steps = profile_steps(config["logdir"], f"rank{rank}")  # before the model is first called
    module: nn.Module = prepare_model(nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 10)))
    model, optimizer = torch.compile(module), torch.optim.AdamW(module.parameters())
    device = get_device()
    with steps:
        for _ in range(12):
            inputs, labels = torch.randn(32, 64, device=device), torch.randint(0, 10, (32,), device=device)
            functional.cross_entropy(model(inputs), labels).backward()
            optimizer.step()
            optimizer.zero_grad()
            steps.step()


def main() -> None:
    parser = argparse.ArgumentParser(description="Train with Ray and profile it.")
    parser.add_argument("--logdir", default="runs")
    logdir = os.path.abspath(parser.parse_args().logdir)

    ray.init()
    workers = ScalingConfig(num_workers=2, use_gpu=torch.cuda.is_available())
    TorchTrainer(train_on_worker, train_loop_config={"logdir": logdir}, scaling_config=workers).fit()


if __name__ == "__main__":
    main()
