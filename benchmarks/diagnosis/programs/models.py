"""The networks that the programs train and run."""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.diagnosis.program import Machine, Step


class Block(nn.Module):
    """A residual block of two linear layers."""

    def __init__(self, width: int, factor: int = 4) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, factor * width)
        self.down = nn.Linear(factor * width, width)

    def forward(self, x: Tensor) -> Tensor:
        hidden: Tensor = self.down(functional.gelu(self.up(self.norm(x))))
        return x + hidden


def mlp(machine: Machine, depth: int, width: int, dtype: torch.dtype | None = None) -> nn.Sequential:
    """Residual blocks on the machine's device."""
    return nn.Sequential(*(Block(width) for _ in range(depth))).to(machine.device, dtype)


class Attention(nn.Module):
    """Self-attention of four heads."""

    def __init__(self, width: int, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        qkv = self.qkv(self.norm(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v)
        joined: Tensor = self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + joined


def transformer(machine: Machine, depth: int, width: int, dtype: torch.dtype | None = None) -> nn.Sequential:
    """Blocks of attention and linear layers on the machine's device."""
    layers = (layer for _ in range(depth) for layer in (Attention(width), Block(width)))
    return nn.Sequential(*layers).to(machine.device, dtype)


def convnet(machine: Machine, width: int, depth: int = 3) -> nn.Sequential:
    """Convolutions of 3 by 3 on images, ten classes."""
    layers: list[nn.Module] = [nn.Conv2d(3, width, 7, stride=4, padding=3), nn.ReLU()]
    for _ in range(depth):
        layers += [nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10)]
    return nn.Sequential(*layers).to(machine.device)


def adam(machine: Machine, model: nn.Module) -> torch.optim.Optimizer:
    """AdamW as one kernel for all parameters."""
    return torch.optim.AdamW(model.parameters(), lr=1e-4, fused=machine.cuda or None)


def train_step(
    model: Callable[[Tensor], Tensor], optimizer: torch.optim.Optimizer, x: Tensor, target: Tensor
) -> Tensor:
    """Forward, backward, optimizer; returns the loss."""
    return descend(functional.mse_loss(model(x).float(), target), optimizer)


def descend(loss: Tensor, optimizer: torch.optim.Optimizer) -> Tensor:
    """Backward and optimizer; returns the loss without its graph."""
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


def trainer(machine: Machine, model: nn.Module, x: Tensor) -> Step:
    """A loop's body that trains the compiled model on one batch over and over."""
    compiled, optimizer = torch.compile(model), adam(machine, model)
    target = torch.zeros_like(x, dtype=torch.float32)
    return lambda: train_step(compiled, optimizer, x, target)


def no_grad(step: Step) -> Step:
    """The step in inference mode of autograd."""
    return torch.no_grad()(step)


def total(tensors: Iterable[Tensor]) -> Tensor:
    """The sum of scalars that lie on the device."""
    return torch.stack(list(tensors)).sum()
