"""The host does what it should leave to others."""

import math
import random

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.diagnosis.program import PLAIN, SHAPES, STACKS, Machine, Step, program
from benchmarks.diagnosis.programs.blind.nets import ViT, adamw, fast_float32
from benchmarks.diagnosis.programs.models import descend

MEAN, STD = np.array([0.485, 0.456, 0.406], np.float32), np.array([0.229, 0.224, 0.225], np.float32)


def augment(image: np.ndarray, side: int) -> np.ndarray:
    """A random crop, perhaps mirrored, of another brightness, normalized; channels first."""
    top, left = random.randrange(image.shape[0] - side), random.randrange(image.shape[1] - side)
    crop = image[top : top + side, left : left + side].astype(np.float32) / 255
    if random.random() < 0.5:
        crop = crop[:, ::-1]
    crop = np.clip(crop * random.uniform(0.8, 1.2), 0, 1) ** random.uniform(0.9, 1.1)
    return np.ascontiguousarray(((crop - MEAN) / STD).transpose(2, 0, 1))


@program(
    "host Python", "host:python", mending="the whole batch is augmented on the GPU, compiled", recorded=STACKS
)
def augmenting_with_numpy(machine: Machine, mended: bool) -> Step:
    side, rows = machine.pick(160, 32), machine.pick(48, 2)
    net = ViT(side, 16, machine.pick(384, 64), machine.pick(6, 1)).to(machine.device)
    model, optimizer = torch.compile(net), adamw(machine, net)
    photos = np.random.default_rng(0).integers(0, 256, (rows, side + 32, side + 32, 3), np.uint8)
    resident = torch.from_numpy(photos).to(machine.device)
    mean, std = (torch.from_numpy(part).to(machine.device) for part in (MEAN, STD))
    labels = torch.arange(rows, device=machine.device) % 100

    @torch.compile
    def augment_on_gpu(images: Tensor, chance: Tensor, top: Tensor, left: Tensor) -> Tensor:
        places = torch.arange(side, device=images.device)
        across = torch.where(chance[:, 0, None] < 0.5, places.flip(0), places) + left[:, None]
        down = places + top[:, None]
        crop = images[
            torch.arange(rows, device=images.device)[:, None, None], down[:, :, None], across[:, None]
        ]
        crop = (crop.float() / 255 * (0.8 + 0.4 * chance[:, 1, None, None, None])).clamp(0, 1)
        crop = crop ** (0.9 + 0.2 * chance[:, 2, None, None, None])
        return ((crop - mean) / std).permute(0, 3, 1, 2).contiguous()

    def transform_batch() -> Tensor:
        if mended:
            top, left = torch.randint(0, 32, (2, rows), device=machine.device)
            return augment_on_gpu(resident, torch.rand(rows, 3, device=machine.device), top, left)
        images = [augment(photo, side) for photo in photos]  # planted: augmenting_with_numpy
        return torch.from_numpy(np.stack(images)).to(machine.device)

    def train_step() -> None:
        images = transform_batch()
        with torch.autocast(machine.device.type, torch.bfloat16):
            loss = functional.cross_entropy(model(images), labels)
        descend(loss, optimizer)

    return train_step


class CartPole:
    """The usual pole on the usual cart, in plain Python."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.state = [random.uniform(-0.05, 0.05) for _ in range(4)]

    def step(self, action: int) -> tuple[list[float], float]:
        x, speed, angle, turning = self.state
        force = 10.0 if action else -10.0
        sine, cosine = math.sin(angle), math.cos(angle)
        push = (force + 0.05 * turning * turning * sine) / 1.1
        falling = (9.8 * sine - cosine * push) / (0.5 * (4.0 / 3.0 - 0.1 * cosine * cosine / 1.1))
        gain = push - 0.05 * falling * cosine / 1.1
        self.state = [x + 0.02 * speed, speed + 0.02 * gain, angle + 0.02 * turning, turning + 0.02 * falling]
        if abs(self.state[0]) > 2.4 or abs(self.state[2]) > 0.21:
            self.reset()
            return self.state, 0.0
        return self.state, 1.0


def cart_pole(state: Tensor, action: Tensor, fresh: Tensor) -> tuple[Tensor, Tensor]:
    """All poles at once."""
    x, speed, angle, turning = state.unbind(1)
    force = torch.where(action == 1, 10.0, -10.0)
    sine, cosine = angle.sin(), angle.cos()
    push = (force + 0.05 * turning * turning * sine) / 1.1
    falling = (9.8 * sine - cosine * push) / (0.5 * (4.0 / 3.0 - 0.1 * cosine * cosine / 1.1))
    gain = push - 0.05 * falling * cosine / 1.1
    moved = (x + 0.02 * speed, speed + 0.02 * gain, angle + 0.02 * turning, turning + 0.02 * falling)
    state = torch.stack(moved, 1)
    fallen = (state[:, 0].abs() > 2.4) | (state[:, 2].abs() > 0.21)
    return torch.where(fallen[:, None], fresh, state), (~fallen).float()


@program(
    "host Python",
    "host:unrecorded",
    also=("host:python",),
    mending="the environments are stepped on the GPU, all at once",
    recorded=PLAIN,
)
def python_environments(machine: Machine, mended: bool) -> Step:
    fast_float32()
    count, horizon = machine.pick(512, 4), machine.pick(8, 2)
    width = machine.pick(128, 8)
    policy = nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
    policy = policy.append(nn.Linear(width, 2)).to(machine.device)
    model, optimizer = torch.compile(policy), adamw(machine, policy)
    environments = [CartPole() for _ in range(count)]
    step_all = torch.compile(cart_pole)
    held = [0.1 * machine.randn(count, 4)]

    def rollout() -> tuple[Tensor, Tensor, Tensor]:
        seen, taken, rewards = [], [], []
        for _ in range(horizon):
            if mended:
                state = held[0]
            else:
                state = torch.tensor([environment.state for environment in environments]).to(machine.device)
            with torch.no_grad():
                action = model(state).softmax(-1).multinomial(1).squeeze(1)
            if mended:
                fresh = 0.05 * torch.randn_like(state)
                held[0], reward = step_all(state, action, fresh)
            else:
                pairs = zip(environments, action.tolist())
                gains = [
                    environment.step(number)[1] for environment, number in pairs
                ]  # planted: python_environments
                reward = torch.tensor(gains).to(machine.device)
            seen.append(state)
            taken.append(action)
            rewards.append(reward)
        return torch.cat(seen), torch.cat(taken), torch.cat(rewards)

    def policy_gradient() -> None:
        states, actions, rewards = rollout()
        chosen = model(states).log_softmax(-1).gather(1, actions[:, None]).squeeze(1)
        descend(-(chosen * (rewards - rewards.mean())).mean(), optimizer)

    return policy_gradient


class Recommender(nn.Module):
    """Bags of items that a user has seen, and an item: will they like it?"""

    def __init__(self, items: int, width: int) -> None:
        super().__init__()
        self.seen = nn.EmbeddingBag(items, width, mode="mean")
        self.item = nn.Embedding(items, width)
        self.mlp = nn.Sequential(
            nn.Linear(2 * width, 256), nn.ReLU(), nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 1)
        )

    def forward(self, bags: Tensor, items: Tensor) -> Tensor:
        score: Tensor = self.mlp(torch.cat((self.seen(bags), self.item(items)), -1)).squeeze(-1)
        return score


@program(
    "host operators",
    "host_operator:randperm",
    mending="the rows are drawn on the GPU, and only as many as are used",
    recorded=SHAPES,
)
def permutation_on_the_cpu(machine: Machine, mended: bool) -> Step:
    fast_float32()
    rows, items, size = machine.pick(1_000_000, 500), machine.pick(50_000, 50), machine.pick(4096, 8)
    bags = torch.randint(0, items, (rows, 20), device=machine.device)
    wanted = torch.randint(0, items, (rows,), device=machine.device)
    liked = (torch.rand(rows, device=machine.device) < 0.3).float()
    net = Recommender(items, machine.pick(64, 8)).to(machine.device)
    model, optimizer = torch.compile(net), adamw(machine, net)

    def train_on_a_sample() -> Tensor:
        if mended:
            batch = torch.randint(0, rows, (size,), device=machine.device)
        else:
            batch = torch.randperm(rows)[:size].to(machine.device)  # planted: permutation_on_the_cpu
        scores = model(bags[batch], wanted[batch])
        loss = functional.binary_cross_entropy_with_logits(scores, liked[batch])
        return descend(loss, optimizer)

    return train_on_a_sample
