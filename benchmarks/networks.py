"""The two networks whose compilation is measured, as large as torchvision's resnet18 and densenet121."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Residual(nn.Module):
    """Two convolutions and a shortcut."""

    def __init__(self, inside: int, width: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inside, width, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(width), nn.BatchNorm2d(width)
        straight = inside == width and stride == 1
        self.shortcut = (
            nn.Identity()
            if straight
            else nn.Sequential(nn.Conv2d(inside, width, 1, stride, bias=False), nn.BatchNorm2d(width))
        )

    def forward(self, x: Tensor) -> Tensor:
        """Add the shortcut to both convolutions."""
        y = self.norm2(self.second(self.norm1(self.first(x)).relu()))
        return (y + self.shortcut(x)).relu()


class Dense(nn.Module):
    """One layer of a dense block: its input is everything before it; it adds 32 channels."""

    def __init__(self, inside: int) -> None:
        super().__init__()
        self.norm1, self.narrow = nn.BatchNorm2d(inside), nn.Conv2d(inside, 128, 1, bias=False)
        self.norm2, self.grow = nn.BatchNorm2d(128), nn.Conv2d(128, 32, 3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Append the new channels to the input."""
        y = self.grow(self.norm2(self.narrow(self.norm1(x).relu())).relu())
        return torch.cat([x, y], 1)


def _stem() -> list[nn.Module]:
    return [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]


def _head(width: int) -> list[nn.Module]:
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 1000)]


def resnet18() -> nn.Module:
    """Return eight residual blocks of 64 to 512 channels."""
    widths = [64, 64, 128, 128, 256, 256, 512, 512]
    blocks = [
        Residual(before, width, 1 if before == width else 2) for before, width in zip([64, *widths], widths)
    ]
    return nn.Sequential(*_stem(), *blocks, *_head(512))


def densenet121() -> nn.Module:
    """Return dense blocks of 6, 12, 24 and 16 layers."""
    layers, width = _stem(), 64
    for number, count in enumerate((6, 12, 24, 16)):
        if number:
            layers += [
                nn.BatchNorm2d(width),
                nn.ReLU(),
                nn.Conv2d(width, width // 2, 1, bias=False),
                nn.AvgPool2d(2),
            ]
            width //= 2
        layers += [Dense(width + 32 * layer) for layer in range(count)]
        width += 32 * count
    return nn.Sequential(*layers, nn.BatchNorm2d(width), nn.ReLU(), *_head(width))


NETWORKS = {"resnet18": resnet18, "densenet121": densenet121}
