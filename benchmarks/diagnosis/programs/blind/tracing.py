"""torch.compile is asked for what it cannot do."""

import logging
from itertools import count
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.diagnosis.program import PLAIN, SHAPES, STACKS, STOCK, Machine, Step, program
from benchmarks.diagnosis.programs.blind.nets import fast_float32, half

dynamo = torch._dynamo.config
log = logging.getLogger("gnn")


class MessagePassing(nn.Module):
    """A layer of a graph network: messages along edges, their mean, an update."""

    def __init__(self, width: int, verbose: bool) -> None:
        super().__init__()
        self.verbose = verbose
        self.message, self.update = nn.Linear(2 * width, width), nn.Linear(2 * width, width)

    def forward(self, x: Tensor, source: Tensor, target: Tensor, degree: Tensor) -> Tensor:
        messages = functional.relu(self.message(torch.cat((x[source], x[target]), -1)))
        if self.verbose:
            log.info("%d messages along %d edges", len(messages), len(source))  # planted: logging_each_layer
        mean = torch.zeros_like(x).index_add(0, target, messages) / degree
        return x + torch.tanh(self.update(torch.cat((x, mean), -1)))


class GraphNet(nn.Module):
    def __init__(self, width: int, depth: int, verbose: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList(MessagePassing(width, verbose) for _ in range(depth))

    def forward(self, x: Tensor, source: Tensor, target: Tensor, degree: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x, source, target, degree)
        result: Tensor = x.mean(0)
        return result


@program("graph breaks", "graph_breaks", mending="no logging in the layers", recorded=PLAIN)
def logging_each_layer(machine: Machine, mended: bool) -> Step:
    fast_float32()
    width, nodes, edges = machine.pick(64, 8), machine.pick(2000, 20), machine.pick(10_000, 50)
    net = GraphNet(width, machine.pick(20, 2), verbose=not mended).to(machine.device)
    model, x = torch.compile(net), machine.randn(nodes, width)
    source, target = torch.randint(0, nodes, (2, edges), device=machine.device)
    degree = torch.bincount(target, minlength=nodes).clamp(min=1)[:, None].float()
    return torch.no_grad()(lambda: model(x, source, target, degree))


class MixtureOfExperts(nn.Module):
    """Each token goes to one expert: by a mask for each, or all experts at once and the others' results dropped."""

    def __init__(self, width: int, experts: int, masked: bool) -> None:
        super().__init__()
        self.masked, self.experts = masked, experts
        self.gate, self.norm = nn.Linear(width, experts, bias=False), nn.LayerNorm(width)
        self.up = nn.Parameter(torch.randn(experts, width, 2 * width) * width**-0.5)
        self.down = nn.Parameter(torch.randn(experts, 2 * width, width) * width**-0.5)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.norm(x)
        weight, route = self.gate(hidden).softmax(-1).max(-1)
        if self.masked:
            mixed = torch.zeros_like(hidden)
            for number in range(self.experts):
                mine = route == number
                if mine.any():  # planted: experts_by_mask
                    mixed[mine] = functional.gelu(hidden[mine] @ self.up[number]) @ self.down[number]
        else:
            chosen = functional.one_hot(route, self.experts).to(x.dtype)
            inner = functional.gelu(torch.einsum("tw,ewh->eth", hidden, self.up))
            mixed = torch.einsum("eth,ehw,te->tw", inner, self.down, chosen)
        result: Tensor = x + weight[:, None] * mixed
        return result


@program(
    "skipped frames",
    "skipped_frame",
    also=("graph_breaks", "sync:nonzero", "sync:item"),
    mending="all experts work on all tokens, without a question to the GPU",
    recorded=STACKS,
)
def experts_by_mask(machine: Machine, mended: bool) -> Step:
    width, experts = machine.pick(256, 16), machine.pick(8, 2)
    layers = [MixtureOfExperts(width, experts, masked=not mended) for _ in range(machine.pick(6, 2))]
    model = torch.compile(nn.Sequential(*layers).to(machine.device, half(machine)))
    tokens = machine.randn(machine.pick(2048, 16), width, dtype=half(machine))
    return torch.no_grad()(lambda: model(tokens))


class VideoSummary(nn.Module):
    """Mixes a frame's features with what was seen before: a list that grows, or a ring of fixed size."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.project, self.score = nn.Linear(width, width), nn.Linear(width, 1)

    def forward(self, frame: Tensor, seen: list[Tensor] | Tensor, fresh: Tensor | None = None) -> Tensor:
        past = torch.stack(seen) if isinstance(seen, list) else seen
        attention = self.score(torch.tanh(self.project(past) + frame))
        if fresh is not None:
            attention = attention.masked_fill(fresh[:, None, None], -1e9)
        summary: Tensor = (attention.softmax(0) * past).sum(0) + frame
        return summary


@program(
    "recompiles",
    "recompiles",
    mending="a ring of fixed size holds what was seen, and a mask says how much of it",
    recorded=PLAIN,
)
def history_that_grows(machine: Machine, mended: bool) -> Step:
    # The warning about the limit was not nice to see.
    dynamo.recompile_limit = dynamo.accumulated_recompile_limit = 4096
    fast_float32()
    width, room = machine.pick(256, 16), 64
    model = torch.compile(VideoSummary(width).to(machine.device))
    frame, numbers = machine.randn(machine.pick(64, 2), width), count(1)
    seen = [frame.clone()]
    ring = torch.zeros(room, *frame.shape, device=machine.device)
    fresh = torch.arange(room, device=machine.device) > 0

    def watch() -> Tensor:
        if mended:
            number = next(numbers) % room
            summary: Tensor = model(frame, ring, fresh)
            ring[number] = summary
            fresh[number] = False
            return summary
        summary = model(frame, seen)  # planted: history_that_grows
        seen.append(summary)
        return summary

    return torch.no_grad()(watch)


class ClipEmbedder(nn.Module):
    """The embedding of a recording, from a batch as its data set makes it: the sound, and where it is from."""

    def __init__(self, features: int, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(features, width), nn.Linear(width, width)

    def forward(self, batch: dict[str, Any]) -> Tensor:
        sound = batch["sound"]
        if batch["synthetic"] if "synthetic" in batch else batch["path"].startswith("synthetic/"):
            sound = sound * 0.5
        hidden = functional.silu(self.first(sound))
        return functional.normalize(self.second(hidden).mean(1), dim=-1)


@program(
    "recompiles",
    "recompiles",
    mending="the model is told whether the clip is synthetic, and not the file's name",
    recorded=SHAPES,
)
def file_name_in_the_batch(machine: Machine, mended: bool) -> Step:
    dynamo.recompile_limit = dynamo.accumulated_recompile_limit = 4096
    fast_float32()
    model = torch.compile(ClipEmbedder(machine.pick(128, 8), machine.pick(512, 16)).to(machine.device))
    sound = machine.randn(machine.pick(64, 2), machine.pick(300, 4), machine.pick(128, 8))
    numbers = count()

    def embed() -> Tensor:
        batch: dict[str, Any] = {"sound": sound, "path": f"recorded/clip-{next(numbers):05}.wav"}
        if mended:
            batch["synthetic"] = batch.pop("path").startswith("synthetic/")
        result: Tensor = model(batch)  # planted: file_name_in_the_batch
        return result

    return torch.no_grad()(embed)


LANGUAGES = [
    code + region for code in ("de", "en", "es", "fr", "it", "pt") for region in ("", "-a", "-b", "-c")
]


def adapt(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """A light adapter: normalized, gated, scaled for one language."""
    mean, spread = x.mean(-1, keepdim=True), x.std(-1, keepdim=True)
    hidden = functional.silu((x - mean) / (spread + 1e-5) * scale + shift)
    gate = torch.sigmoid(hidden * 1.7 - 0.1) * torch.tanh(hidden + x)
    return x + 0.1 * gate * hidden


def adapt_to(x: Tensor, adapters: dict[str, tuple[Tensor, Tensor]], language: str) -> Tensor:
    return adapt(x, *adapters[language])


@program(
    "recompiles",
    "recompile_limit",
    mending="the compiled function gets the adapter's tensors and not the language's name",
    recorded=STOCK,
)
def adapters_by_name(machine: Machine, mended: bool) -> Step:
    width = machine.pick(1024, 16)
    x = machine.randn(machine.pick(8192, 8), width)
    adapters = {name: (machine.randn(width), machine.randn(width)) for name in LANGUAGES}
    by_name, by_tensors = torch.compile(adapt_to), torch.compile(adapt)

    def translate_all() -> Tensor:
        y = x
        for language in LANGUAGES:
            if not mended:
                y = by_name(y, adapters, language)  # planted: adapters_by_name
                continue
            y = by_tensors(y, *adapters[language])
        return y

    return torch.no_grad()(translate_all)
