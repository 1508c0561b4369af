"""Decoding, with the keys and values kept the wrong way."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.diagnosis.program import BOTH, PLAIN, Machine, Step, program
from benchmarks.diagnosis.programs.blind.nets import Decoder, SwiGLU, half


class GrowingCache:
    """Keys and values of all tokens so far: a new tensor for each token, or room for all from the start."""

    def __init__(self, prompt: tuple[Tensor, Tensor], room: int) -> None:
        self.length = self.start = prompt[0].shape[2]
        self.room = [functional.pad(part, (0, 0, 0, room)) if room else part for part in prompt]
        self.kept = list(prompt)
        self.grows = room == 0

    def append(self, *new: Tensor) -> list[Tensor]:
        if self.grows:
            self.kept = [torch.cat(pair, dim=2) for pair in zip(self.kept, new)]  # planted: growing_cache
            return self.kept
        for part, fresh in zip(self.room, new):
            part[:, :, self.length : self.length + 1] = fresh
        self.length += 1
        return [part[:, :, : self.length] for part in self.room]

    def forget_the_answer(self) -> None:
        self.length = self.start
        self.kept = [part[:, :, : self.start] for part in self.room]


class Layer(nn.Module):
    """Attention in two halves: what comes before the cache, and what comes after."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.mlp = SwiGLU(width, 2 * width)

    def before(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = self.qkv(self.norm1(x)).view(len(x), 1, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        return q, k, v

    def after(self, x: Tensor, mixed: Tensor) -> Tensor:
        x = x + self.out(mixed.transpose(1, 2).reshape(x.shape))
        result: Tensor = x + self.mlp(self.norm2(x))
        return result


@program(
    "allocator",
    "growing_cat",
    also=("layout:contiguous",),
    mending="a cache with room for the whole answer, written in place",
    recorded=BOTH,
)
def growing_cache(machine: Machine, mended: bool) -> Step:
    width, heads, rows = machine.pick(1024, 32), machine.pick(16, 2), machine.pick(24, 2)
    prompt, tokens = machine.pick(4096, 8), machine.pick(6, 2)
    layers = [Layer(width, heads).to(machine.device, half(machine)) for _ in range(machine.pick(3, 1))]
    halves = [(torch.compile(layer.before), torch.compile(layer.after)) for layer in layers]
    shape = (rows, heads, prompt, width // heads)

    def cache() -> GrowingCache:
        keys, values = (machine.randn(*shape, dtype=half(machine)) for _ in range(2))
        return GrowingCache((keys, values), tokens if mended else 0)

    caches, start = [cache() for _ in layers], machine.randn(rows, 1, width, dtype=half(machine))

    def attend(q: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        return functional.scaled_dot_product_attention(q, keys, values)

    def answer() -> Tensor:
        x = start
        for _ in range(tokens):
            for (before, after), kept in zip(halves, caches):
                q, k, v = before(x)
                x = after(x, attend(q, *kept.append(k, v)))
        for kept in caches:
            kept.forget_the_answer()
        return x

    return torch.no_grad()(answer)


@program(
    "CUDA graphs",
    "cuda_graphs:skipped",
    mending="the cache belongs to the model, whose buffers may be changed in a CUDA graph",
    recorded=PLAIN,
)
def cache_as_an_argument(machine: Machine, mended: bool) -> Step:
    rows, width, heads, longest = machine.pick(4, 2), machine.pick(256, 32), 2, machine.pick(128, 8)
    depth = machine.pick(12, 1)
    net = Decoder(machine.pick(4096, 50), width, depth, rows, longest, heads)
    model = torch.compile(net.to(machine.device, half(machine)), mode="reduce-overhead")
    shape = (rows, heads, longest, width // heads)
    places = torch.arange(longest, device=machine.device).split(1)[: machine.pick(8, 2)]
    prompt = torch.ones(rows, 1, dtype=torch.long, device=machine.device)
    caches = [
        tuple(torch.zeros(shape, dtype=half(machine), device=machine.device) for _ in "kv")
        for _ in net.layers
    ]

    given = [] if mended else [caches]

    def generate() -> list[list[int]]:
        token, answer = prompt, []
        for place in places:
            token = model(token, place, *given).clone()  # planted: cache_as_an_argument
            answer.append(token)
        result: list[list[int]] = torch.cat(answer, 1).tolist()
        return result

    return torch.no_grad()(generate)
