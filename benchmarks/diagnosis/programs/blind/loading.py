"""Batches that come late."""

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

from benchmarks.diagnosis.program import PLAIN, Machine, Step, program
from benchmarks.diagnosis.programs.blind.nets import SpeechNet, adamw, fast_float32
from benchmarks.diagnosis.programs.models import descend


class Commands(Dataset[tuple[np.ndarray, int]]):
    """Spoken words of about a second, in memory."""

    def __init__(self, rate: int) -> None:
        self.waves = [np.sin(np.arange(rate - 31 * i) * (0.01 + i / 999)) for i in range(16)]

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        return self.waves[index % 16], index % 35


def collate_commands(samples: list[tuple[np.ndarray, int]]) -> tuple[Tensor, Tensor]:
    """Another speed, some noise, pre-emphasis; padded to the longest."""
    generator, waves = np.random.default_rng(len(samples)), []
    for wave, _ in samples:
        speed = generator.uniform(0.9, 1.1)
        places = np.arange(0, len(wave) - 1, speed)
        wave = np.interp(places, np.arange(len(wave)), wave)
        wave = wave + 0.01 * generator.standard_normal(len(wave))
        wave[1:] -= 0.97 * wave[:-1]
        waves.append(wave / np.abs(wave).max())
    batch = np.zeros((len(waves), 1, 18_000 if len(waves[0]) > 2000 else 1200), np.float32)
    for row, wave in zip(batch, waves):
        row[0, : len(wave)] = wave[: row.shape[1]]
    return torch.from_numpy(batch), torch.tensor([label for _, label in samples])


@program(
    "input",
    "input:dataset",
    also=("input:workers",),
    mending="eight workers, which stay, collate ahead",
    recorded=PLAIN,
)
def collating_waveforms(machine: Machine, mended: bool) -> Step:
    fast_float32()
    net = SpeechNet(1, machine.pick(128, 8), (8, 4, 4, 2)).to(machine.device)
    model, optimizer = torch.compile(net), adamw(machine, net)
    workers = machine.pick(8, 1) if mended else 0
    loader = DataLoader(
        Commands(machine.pick(16_000, 1000)),
        batch_size=machine.pick(32, 2),
        collate_fn=collate_commands,
        num_workers=workers,
        persistent_workers=workers > 0,
        prefetch_factor=4 if workers else None,
        pin_memory=machine.cuda,
    )
    batches = iter(loader)

    def train_one_batch() -> Tensor:
        waves, labels = next(batches)  # planted: collating_waveforms
        waves = waves.to(machine.device, non_blocking=True)
        labels = labels.to(machine.device, non_blocking=True)
        loss = functional.cross_entropy(model(waves), labels)
        return descend(loss, optimizer)

    return train_one_batch
