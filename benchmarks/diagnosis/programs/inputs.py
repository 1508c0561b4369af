"""The model waits for its data."""

import re
import zlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from benchmarks.diagnosis.program import STACKS, Machine, Step, program
from benchmarks.diagnosis.programs.models import Block, adam, convnet, train_step

WORDS = re.compile(r"\w+|[^\w\s]")
SENTENCE = "the quick brown fox jumps over the lazy dog, and then it sleeps in the warm afternoon sun. "


def tokenize(text: str, length: int) -> Tensor:
    """Words, cut into pieces of three letters, by number."""
    pieces = [word[i : i + 3] for word in WORDS.findall(text.lower()) for i in range(0, len(word), 3)]
    numbers = [sum(ord(letter) * 31**place for place, letter in enumerate(piece)) % 8192 for piece in pieces]
    return torch.tensor((numbers + [0] * length)[:length])


class Texts(Dataset[Tensor]):
    """Token numbers of one text; tokenized when it is asked for, or before."""

    def __init__(self, length: int, before: bool) -> None:
        self.length = length
        self.text = SENTENCE * max(1, length // 20)
        self.tokens = tokenize(self.text, length) if before else None

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> Tensor:
        return tokenize(self.text, self.length) if self.tokens is None else self.tokens


def classifier(machine: Machine, width: int) -> nn.Module:
    return nn.Sequential(nn.Embedding(8192, width), Block(width), Block(width)).to(machine.device)


@program("input", "input:dataset", mending="the texts are tokenized once, before training")
def tokenizing_in_the_loop(machine: Machine, mended: bool) -> Step:
    length, width = machine.pick(128, 16), machine.pick(256, 16)
    model = classifier(machine, width)
    compiled, optimizer = torch.compile(model), adam(machine, model)
    batches = iter(DataLoader(Texts(length, before=mended), batch_size=machine.pick(48, 4)))

    def step() -> None:
        tokens = next(batches).to(machine.device)  # planted: tokenizing_in_the_loop
        train_step(compiled, optimizer, tokens, torch.zeros((), device=machine.device))

    return step


class Images(Dataset[Tensor]):
    """Images that are stored packed; unpacking one takes milliseconds."""

    def __init__(self, side: int) -> None:
        pixels = torch.randint(0, 64, (3, side, side), dtype=torch.uint8)
        self.side, self.packed = side, zlib.compress(pixels.numpy().tobytes(), 6)

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> Tensor:
        for _ in range(2):  # the image and its mask
            raw = bytearray(zlib.decompress(self.packed))
        return torch.frombuffer(raw, dtype=torch.uint8).view(3, self.side, self.side)


@program("input", "input:workers", mending="twelve workers in place of one")
def too_few_workers(machine: Machine, mended: bool) -> Step:
    workers = machine.pick(12, 2) if mended else 1
    model = convnet(machine, machine.pick(64, 4))
    compiled, optimizer = torch.compile(model), adam(machine, model)
    loader = DataLoader(
        Images(machine.pick(224, 32)), machine.pick(16, 2), num_workers=workers, pin_memory=machine.cuda
    )
    batches: Iterator[Any] = iter(loader)
    target = torch.zeros((), device=machine.device)

    def step() -> None:
        images = next(batches).to(machine.device, non_blocking=True)  # planted: too_few_workers
        train_step(compiled, optimizer, images.float() / 64, target)

    return step


@program("input", "host_operator:normal_", mending="the noise is drawn on the GPU", recorded=STACKS)
def noise_on_the_cpu(machine: Machine, mended: bool) -> Step:
    model = convnet(machine, machine.pick(64, 4))
    compiled, optimizer = torch.compile(model), adam(machine, model)
    images = machine.randn(machine.pick(24, 2), 3, machine.pick(128, 16), machine.pick(128, 16))
    target = torch.zeros((), device=machine.device)

    def step() -> None:
        if mended:
            noise = torch.randn(images.shape, device=machine.device)
        else:
            noise = torch.randn(images.shape).to(machine.device)  # planted: noise_on_the_cpu
        train_step(compiled, optimizer, images + 0.1 * noise, target)

    return step
