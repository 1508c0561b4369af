"""The host asks the GPU too often."""

import torch
from torch import Tensor, nn

from benchmarks.diagnosis.program import SHAPES, STACKS, Machine, Step, program
from benchmarks.diagnosis.programs.blind.nets import Decoder, Tower, adamw, contrastive, fast_float32, half
from benchmarks.diagnosis.programs.models import descend


class Detector(nn.Module):
    """One stage, one scale: a box and a score for each class at each place."""

    def __init__(self, width: int, depth: int, classes: int) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(3, width, 7, stride=8, padding=3), nn.ReLU()]
        for _ in range(depth):
            layers += [nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
        self.backbone, self.head = nn.Sequential(*layers), nn.Conv2d(width, 4 + classes, 1)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        raw = self.head(self.backbone(images)).flatten(2).transpose(1, 2)
        scores, labels = raw[..., 4:].sigmoid().max(-1)
        centre, size = raw[..., :2], raw[..., 2:4].exp()
        return torch.cat((centre - size / 2, centre + size / 2), -1), scores, labels


@program(
    "sync",
    "sync:nonzero",
    also=("eager:postprocessing",),
    mending="the best hundred of each image, which the host sorts by class after one copy",
    recorded=STACKS,
)
def filtering_boxes(machine: Machine, mended: bool) -> Step:
    classes = machine.pick(20, 3)
    net = Detector(machine.pick(128, 4), machine.pick(12, 2), classes).eval().to(machine.device)
    model, side = torch.compile(net), machine.pick(512, 64)
    frames = [machine.randn(2, 3, side, side) for _ in range(8)]

    def boxes_by_class(boxes: Tensor, scores: Tensor, labels: Tensor) -> list[Tensor]:
        kept = []
        for number in range(classes):
            chosen = (labels == number) & (scores > 0.6)
            kept.append(boxes[chosen])  # planted: filtering_boxes
        return kept

    @torch.compile
    def best_hundred(boxes: Tensor, scores: Tensor, labels: Tensor) -> Tensor:
        best, places = scores.topk(min(100, scores.shape[1]))
        kept = boxes.gather(1, places[..., None].expand(-1, -1, 4))
        return torch.cat((kept, best[..., None], labels.gather(1, places)[..., None]), -1)

    def detect() -> object:
        if mended:
            return torch.stack([best_hundred(*model(frame)) for frame in frames]).cpu()
        return [boxes_by_class(*model(frame)) for frame in frames]

    return torch.no_grad()(detect)


@program("sync", "sync:item", mending="the tokens stay on the GPU until all are there", recorded=SHAPES)
def tokens_one_by_one(machine: Machine, mended: bool) -> Step:
    batch, width, words = machine.pick(48, 2), machine.pick(1024, 64), machine.pick(16384, 50)
    longest = machine.pick(256, 8)
    net = Decoder(words, width, machine.pick(6, 1), batch, longest, heads=machine.pick(16, 2))
    model = torch.compile(net.to(machine.device, half(machine)), mode="reduce-overhead")
    places = torch.arange(longest, device=machine.device).split(1)[: machine.pick(12, 3)]
    prompt = torch.ones(batch, 1, dtype=torch.long, device=machine.device)

    def generate() -> list[list[int]]:
        token, kept = prompt, []
        answers: list[list[int]] = [[] for _ in range(batch)]
        for place in places:
            token = model(token, place).clone()
            if mended:
                kept.append(token)
                continue
            for row, answer in enumerate(answers):
                answer.append(int(token[row, 0].item()))  # planted: tokens_one_by_one
        return torch.cat(kept, 1).tolist() if mended else answers

    return torch.no_grad()(generate)


@program(
    "copies",
    "copy:host_to_device",
    also=("sync:copy", "copy:unpinned"),
    mending="the samples are stacked on the host and copied at once",
    recorded=STACKS,
)
def samples_moved_one_by_one(machine: Machine, mended: bool) -> Step:
    fast_float32()
    words, length, rows = machine.pick(30_000, 50), machine.pick(64, 4), machine.pick(512, 4)
    towers = nn.ModuleList(Tower(words, machine.pick(256, 16), 3) for _ in range(2)).to(machine.device)
    query_tower, document_tower = (torch.compile(tower) for tower in towers)
    optimizer = adamw(machine, towers)
    queries = [torch.randint(0, words, (length,)) for _ in range(rows)]
    documents = [torch.randint(0, words, (length,)) for _ in range(rows)]

    def to_device(samples: list[Tensor]) -> Tensor:
        if mended:
            return torch.stack(samples).to(machine.device)
        return torch.stack(
            [sample.to(machine.device) for sample in samples]
        )  # planted: samples_moved_one_by_one

    def train_step() -> Tensor:
        loss = contrastive(query_tower(to_device(queries)), document_tower(to_device(documents)))
        return descend(loss, optimizer)

    return train_step
