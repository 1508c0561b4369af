"""Every rank is slow for the same reason, which is its own."""

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

from benchmarks.diagnosis.jobs.job import Rank, job
from benchmarks.diagnosis.jobs.parallel import ddp
from benchmarks.diagnosis.program import Step
from benchmarks.diagnosis.programs.models import convnet, descend

MEAN, DEVIATION = 0.45, 0.22


def prepared(images: Tensor, side: int) -> Tensor:
    """Scaled to the size that the model wants, and normalized."""
    scaled = functional.interpolate(
        images.float() / 255, (side, side), mode="bicubic", antialias=True, align_corners=False
    )
    return (scaled - MEAN) / DEVIATION


class Photos(Dataset[tuple[Tensor, int]]):
    """As many photos as anybody asks for; `side` is what they are scaled to here, 0 for not at all."""

    def __init__(self, original: int, side: int) -> None:
        shape = 8, 3, original, original
        self._photos, self._side = torch.randint(0, 256, shape, dtype=torch.uint8), side

    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        photo = self._photos[index % len(self._photos)]
        if self._side:
            photo = prepared(photo[None], self._side)[0]  # planted: photos_scaled_by_host
        return photo, index % 10


@job("both", "ddp", "input:host", mending="bytes are loaded, and scaled on the GPU")
def photos_scaled_by_host(rank: Rank, mended: bool) -> Step:
    side, rows = rank.pick(224, 32), rank.pick(32, 4)
    photos = Photos(rank.pick(256, 48), 0 if mended else side)
    loader = iter(DataLoader(photos, batch_size=rows))
    model = ddp(rank, convnet(rank, rank.pick(256, 8)))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)

    def step() -> Tensor:
        images, labels = next(loader)
        images, labels = images.to(rank.device), labels.to(rank.device)
        if mended:
            images = prepared(images, side)
        with torch.autocast(rank.device.type, torch.bfloat16):
            scores = model(images)
        return descend(functional.cross_entropy(scores.float(), labels), optimizer)

    return step
