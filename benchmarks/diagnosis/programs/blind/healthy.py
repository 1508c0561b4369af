"""Nothing is wrong."""

from itertools import cycle

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.diagnosis.program import BOTH, SHAPES, STACKS, STOCK, Machine, Step, program
from benchmarks.diagnosis.programs.blind.nets import (
    Decoder,
    Tower,
    UNet,
    ViT,
    adamw,
    contrastive,
    fast_float32,
    half,
)
from benchmarks.diagnosis.programs.models import descend


@program("healthy", "", recorded=SHAPES)
def healthy_unet(machine: Machine, mended: bool) -> Step:
    net = UNet(machine.pick(64, 4)).to(machine.device)
    net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch has no overload for it
    model, optimizer = torch.compile(net), adamw(machine, net)
    side = machine.pick(256, 16)
    images = machine.randn(machine.pick(16, 1), 3, side, side).contiguous(memory_format=torch.channels_last)

    def denoise() -> Tensor:
        noise = torch.randn_like(images)
        with torch.autocast(machine.device.type, torch.bfloat16):
            loss = functional.mse_loss(model(images + noise).float(), noise)
        return descend(loss, optimizer)

    return denoise


@program("healthy", "", recorded=STACKS)
def healthy_decoding(machine: Machine, mended: bool) -> Step:
    rows, width, longest = machine.pick(64, 2), machine.pick(2048, 64), machine.pick(512, 8)
    net = Decoder(machine.pick(32_000, 50), width, machine.pick(6, 1), rows, longest, machine.pick(16, 2))
    model = torch.compile(net.to(machine.device, half(machine)), mode="reduce-overhead")
    places = torch.arange(longest, device=machine.device).split(1)[: machine.pick(8, 2)]
    prompt = torch.ones(rows, 1, dtype=torch.long, device=machine.device)

    def generate() -> Tensor:
        token, kept = prompt, []
        for place in places:
            token = model(token, place).clone()
            kept.append(token)
        return torch.cat(kept, 1)

    return torch.no_grad()(generate)


@program("healthy", "", recorded=STOCK)
def healthy_contrastive(machine: Machine, mended: bool) -> Step:
    fast_float32()
    words, rows, length = machine.pick(30_000, 50), machine.pick(8192, 4), machine.pick(32, 4)
    towers = nn.ModuleList(Tower(words, machine.pick(1024, 16), machine.pick(6, 1)) for _ in range(2))
    towers = towers.to(machine.device)
    query_tower, document_tower = (torch.compile(tower) for tower in towers)
    loss_of, optimizer = torch.compile(contrastive), adamw(machine, towers)
    texts = [torch.randint(0, words, (2, rows, length)) for _ in range(4)]
    batches = cycle([text.pin_memory() for text in texts] if machine.cuda else texts)

    def train_step() -> Tensor:
        queries, documents = next(batches).to(machine.device, non_blocking=True)
        loss = loss_of(query_tower(queries), document_tower(documents))
        return descend(loss, optimizer)

    return train_step


@program("healthy", "", recorded=BOTH)
def healthy_vit(machine: Machine, mended: bool) -> Step:
    side = machine.pick(224, 32)
    net = ViT(side, 16, machine.pick(768, 64), machine.pick(6, 1)).to(machine.device, half(machine))
    model, optimizer = torch.compile(net), adamw(machine, net)
    images = machine.randn(machine.pick(128, 2), 3, side, side, dtype=half(machine))
    labels = torch.arange(len(images), device=machine.device) % 100

    def train_step() -> Tensor:
        loss = functional.cross_entropy(model(images).float(), labels)
        return descend(loss, optimizer)

    return train_step
