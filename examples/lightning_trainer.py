"""Lightning: its own profiler writes for the TORCH COMPILE tab.

    pip install lightning
    python examples/lightning_trainer.py --logdir runs
    tensorboard --logdir runs

`record_module_names=False` is necessary: with True, the default, Lightning puts hooks around every module, which dynamo
compiles with the model. The profiled program is then not the one that runs without a profiler.
"""

from __future__ import annotations

import argparse

import lightning
import torch
from lightning.pytorch.profilers import PyTorchProfiler
from torch import Tensor, nn
from torch.nn import functional
from torch.profiler import schedule
from torch.utils.data import DataLoader, TensorDataset

from tb_torchcompile_plugin import tensorboard_trace_handler


class Classifier(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.LayerNorm(256), nn.Linear(256, 10))

    def training_step(self, batch: list[Tensor], index: int) -> Tensor:
        inputs, labels = batch
        return functional.cross_entropy(self.layers(inputs), labels)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters())


def main() -> None:
    parser = argparse.ArgumentParser(description="Train with Lightning and profile it.")
    parser.add_argument("--logdir", default="runs")
    logdir = parser.parse_args().logdir

    profiler = PyTorchProfiler(
        on_trace_ready=tensorboard_trace_handler(logdir),
        schedule=schedule(wait=4, warmup=1, active=3, repeat=1),
        record_module_names=False,
        record_shapes=True,
    )
    samples = TensorDataset(torch.randn(640, 64), torch.randint(0, 10, (640,)))
    trainer = lightning.Trainer(
        max_epochs=1, profiler=profiler, logger=False, enable_checkpointing=False, enable_progress_bar=False
    )
    trainer.fit(torch.compile(Classifier()), DataLoader(samples, batch_size=32))


if __name__ == "__main__":
    main()
