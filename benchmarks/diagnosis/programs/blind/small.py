"""Too little work at a time."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.diagnosis.program import STOCK, UNMARKED, Machine, Step, program
from benchmarks.diagnosis.programs.blind.nets import LanguageModel, ViT, adamw, fast_float32, half


class Streaming(nn.Module):
    """Gated recurrent layers over frames of sound, one frame at a time."""

    def __init__(self, features: int, width: int, depth: int) -> None:
        super().__init__()
        self.first = nn.Linear(features, width)
        self.gates = nn.ModuleList(nn.Linear(2 * width, 2 * width) for _ in range(depth))
        self.news = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(depth))
        self.head = nn.Linear(width, 12)

    def forward(self, frame: Tensor, states: Tensor) -> tuple[Tensor, Tensor]:
        x, after = torch.relu(self.first(frame)), []
        for state, gate, new in zip(states, self.gates, self.news):
            update, reset = gate(torch.cat((x, state), -1)).sigmoid().chunk(2, -1)
            candidate = torch.tanh(new(torch.cat((x, reset * state), -1)))
            x = update * state + (1 - update) * candidate
            after.append(x)
        return self.head(x), torch.stack(after)


@program("launch overhead", "cuda_graphs", mending='mode="reduce-overhead"', recorded=STOCK)
def streaming_frames(machine: Machine, mended: bool) -> Step:
    fast_float32()
    width, depth = machine.pick(256, 16), machine.pick(10, 2)
    net = Streaming(80, width, depth).eval().to(machine.device)
    model = torch.compile(net, mode="reduce-overhead") if mended else torch.compile(net)
    sound = machine.randn(machine.pick(20, 3), 1, 80)

    def listen() -> int:
        states = torch.zeros(depth, 1, width, device=machine.device)
        for frame in sound:
            scores, states = model(frame, states)  # planted: streaming_frames
            scores, states = scores.clone(), states.clone()
        return int(scores.argmax())

    return torch.no_grad()(listen)


@program(
    "tiny batch",
    "tiny_batch",
    also=("cuda_graphs",),
    mending="all sixteen texts are one batch: they fit",
    recorded=UNMARKED,
)
def accumulating_singles(machine: Machine, mended: bool) -> Step:
    words, length, texts = machine.pick(8192, 50), machine.pick(128, 8), machine.pick(16, 2)
    net = LanguageModel(words, machine.pick(512, 32), machine.pick(6, 1), length)
    net = net.to(machine.device, half(machine))
    model, optimizer = torch.compile(net), adamw(machine, net)
    corpus = torch.randint(0, words, (texts, length), device=machine.device)

    def fine_tune() -> None:
        optimizer.zero_grad()
        for batch in corpus.split(texts if mended else 1):  # planted: accumulating_singles
            logits = model(batch)[:, :-1].float()
            loss = functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
            (loss * len(batch) / texts).backward()
        optimizer.step()

    return fine_tune


@program("optimizer", "optimizer", mending="parameters of one rate share a group, and the optimizer is fused")
def group_for_each_parameter(machine: Machine, mended: bool) -> Step:
    side = machine.pick(96, 32)
    net = ViT(side, 16, machine.pick(192, 64), machine.pick(12, 2)).to(machine.device)
    model = torch.compile(net)
    images = machine.randn(machine.pick(64, 2), 3, side, side)
    labels = torch.arange(len(images), device=machine.device) % 100

    def rate(name: str) -> float:
        """Deeper layers learn faster."""
        parts = name.split(".")
        return 1e-3 * 0.75 ** (12 - int(parts[1]) if parts[0] == "blocks" else 0)

    groups: dict[tuple[float, float] | str, dict[str, object]] = {}
    for name, parameter in net.named_parameters():
        lr, decay = rate(name), 0.05 if parameter.ndim > 1 else 0.0
        group = groups.setdefault(
            (lr, decay) if mended else name, {"lr": lr, "weight_decay": decay, "params": []}
        )
        group["params"].append(parameter)  # type: ignore[attr-defined]  # to mypy, a group holds objects
    optimizer = torch.optim.AdamW(list(groups.values()), fused=True if mended and machine.cuda else None)

    def train_step() -> None:
        with torch.autocast(machine.device.type, torch.bfloat16):
            loss = functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()  # planted: group_for_each_parameter
        optimizer.zero_grad()

    return train_step
