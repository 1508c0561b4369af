"""Train a small compiled model with the TORCH COMPILE handler, and leave a logdir for TensorBoard.

    python examples/train.py --logdir runs
    tensorboard --logdir runs

It contains what real training code contains, so that the tab has something to show:

* a check in the middle of the model whose outcome depends on the data: a graph break;
* a data set that the batch size does not divide, so the last batch is shorter: a recompile;
* forward, backward and an optimizer. The first epoch is profiled, and the recompile with it.

It runs on the GPU if there is one, otherwise on the CPU.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator

# On the CPU, inductor names its C++ kernels in a profile only if this is set before it compiles.
os.environ.setdefault("TORCHINDUCTOR_CPP_ENABLE_KERNEL_PROFILE", "1")

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile, schedule

from tb_torchcompile_plugin import tensorboard_trace_handler  # the one line that differs from stock PyTorch

SAMPLES, BATCH, FEATURES, CLASSES = 304, 64, 256, 10
CYCLE = {"wait": 1, "warmup": 1, "active": 3}  # five steps, as many as an epoch has
EPOCHS = 2


class Block(nn.Module):
    """A residual block; its activation and norm are what inductor fuses."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        hidden: Tensor = self.down(functional.gelu(self.up(self.norm(x))))
        return x + hidden


class Classifier(nn.Module):
    """A block, a check, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.block = Block(FEATURES)
        self.head = nn.Linear(FEATURES, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.block(x)
        if x.abs().max() > 1e4:  # a value decides what comes next: torch.compile has to break the graph
            x = x.clamp(-1e4, 1e4)
        logits: Tensor = self.head(functional.gelu(x))
        return logits


def batches(device: str) -> Iterator[tuple[Tensor, Tensor]]:
    """One epoch. The last batch is shorter, because 64 does not divide 304."""
    samples = torch.randn(SAMPLES, FEATURES, device=device)
    labels = torch.randint(0, CLASSES, (SAMPLES,), device=device)
    yield from zip(samples.split(BATCH), labels.split(BATCH), strict=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a small compiled model and profile it.")
    parser.add_argument(
        "--logdir", default="runs", help="where the traces and compile summaries go (default: runs)"
    )
    logdir = parser.parse_args().logdir

    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if device == "cuda" else [])
    handler = tensorboard_trace_handler(logdir)  # from here on it records what torch.compile does

    model = Classifier().to(device)
    compiled = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    print(f"Training on {device}. The first step compiles, which takes a while ...", flush=True)
    with profile(
        activities=activities,
        schedule=schedule(**CYCLE, repeat=1),
        on_trace_ready=handler,
        record_shapes=True,
    ) as profiler:
        for epoch in range(EPOCHS):
            for x, y in batches(device):
                loss = functional.cross_entropy(compiled(x), y)
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                profiler.step()
            print(f"epoch {epoch + 1}: loss {loss.item():.3f}", flush=True)
    print(f"Wrote a trace and a compile summary of the first epoch into {logdir}.")


if __name__ == "__main__":
    main()
