"""transformers.Trainer: a callback records some steps for the TORCH COMPILE tab.

    pip install transformers accelerate
    python examples/transformers_trainer.py --logdir runs
    tensorboard --logdir runs

The model is created from a configuration, so that nothing is downloaded.
"""

from __future__ import annotations

import argparse
import tempfile
from typing import Any

import torch
from torch import Tensor
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

from tb_torchcompile_plugin import profile_steps


class ProfileSteps(TrainerCallback):
    """All that a training script of yours needs: `Trainer(..., callbacks=[ProfileSteps("runs")])`."""

    def __init__(self, logdir: str, **options: Any) -> None:
        self.steps = profile_steps(logdir, **options)

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        self.steps.start()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.steps.step()

    def on_train_end(self, *_: Any, **__: Any) -> None:
        self.steps.stop()


class Sentences(torch.utils.data.Dataset[dict[str, Tensor]]):
    def __len__(self) -> int:
        return 1000

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        words = torch.randint(0, 500, (32,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": words, "labels": words}


def main() -> None:
    parser = argparse.ArgumentParser(description="Train with transformers.Trainer and profile it.")
    parser.add_argument("--logdir", default="runs")
    logdir = parser.parse_args().logdir

    model = GPT2LMHeadModel(GPT2Config(n_layer=2, n_head=2, n_embd=64, vocab_size=500, n_positions=32))
    with tempfile.TemporaryDirectory() as output:
        arguments = TrainingArguments(
            output, max_steps=12, per_device_train_batch_size=4, torch_compile=True, report_to="none"
        )
        Trainer(model, arguments, train_dataset=Sentences(), callbacks=[ProfileSteps(logdir)]).train()


if __name__ == "__main__":
    main()
