"""The networks that the blind programs train and run."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.diagnosis.program import Machine

Cache = list[tuple[Tensor, Tensor]]


def half(machine: Machine) -> torch.dtype:
    """What large models are computed in."""
    return torch.bfloat16 if machine.cuda else torch.float32


def fast_float32() -> None:
    torch.set_float32_matmul_precision("high")


class SwiGLU(nn.Module):
    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.gate_up = nn.Linear(width, 2 * hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        result: Tensor = self.down(functional.silu(gate) * up)
        return result


class DecoderLayer(nn.Module):
    """Attention to what lies in a cache of fixed length, then SwiGLU."""

    keys: Tensor
    values: Tensor

    def __init__(self, width: int, heads: int, batch: int, longest: int) -> None:
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_mlp = nn.RMSNorm(width), nn.RMSNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.mlp = SwiGLU(width, 3 * width)
        for name in ("keys", "values"):
            self.register_buffer(name, torch.zeros(batch, heads, longest, width // heads), persistent=False)

    def forward(
        self, x: Tensor, position: Tensor, mask: Tensor, cache: tuple[Tensor, Tensor] | None
    ) -> Tensor:
        keys, values = (self.keys, self.values) if cache is None else cache
        batch, length, width = x.shape
        qkv = self.qkv(self.before_attention(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        keys.index_copy_(2, position, k)
        values.index_copy_(2, position, v)
        mixed = functional.scaled_dot_product_attention(q, keys, values, attn_mask=mask)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        result: Tensor = x + self.mlp(self.before_mlp(x))
        return result


class Decoder(nn.Module):
    """The next token of each row, greedily."""

    def __init__(self, words: int, width: int, depth: int, batch: int, longest: int, heads: int) -> None:
        super().__init__()
        self.longest = longest
        self.embed = nn.Embedding(words, width)
        self.layers = nn.ModuleList(DecoderLayer(width, heads, batch, longest) for _ in range(depth))
        self.norm, self.head = nn.RMSNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, token: Tensor, position: Tensor, caches: Cache | None = None) -> Tensor:
        mask = (torch.arange(self.longest, device=token.device) <= position)[None, None, None]
        x = self.embed(token)
        for number, layer in enumerate(self.layers):
            x = layer(x, position, mask, None if caches is None else caches[number])
        best: Tensor = self.head(self.norm(x)).argmax(-1)
        return best


class EncoderLayer(nn.Module):
    """A layer of BERT's kind, or of GPT's where it is causal."""

    def __init__(self, width: int, heads: int, causal: bool = False) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc1, self.fc2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + self.proj(mixed.transpose(1, 2).reshape(batch, length, width))
        result: Tensor = x + self.fc2(functional.gelu(self.fc1(self.norm2(x))))
        return result


class LanguageModel(nn.Module):
    def __init__(self, words: int, width: int, depth: int, longest: int) -> None:
        super().__init__()
        self.embed, self.places = nn.Embedding(words, width), nn.Embedding(longest, width)
        self.layers = nn.ModuleList(EncoderLayer(width, 8, causal=True) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens) + self.places.weight[: tokens.shape[1]]
        for layer in self.layers:
            x = layer(x)
        logits: Tensor = self.head(self.norm(x))
        return logits


class ViT(nn.Module):
    """Patches, a class token, layers of attention, a head."""

    def __init__(self, side: int, patch: int, width: int, depth: int, classes: int = 100) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, stride=patch)
        self.cls = nn.Parameter(torch.zeros(1, 1, width))
        self.places = nn.Parameter(torch.randn(1, (side // patch) ** 2 + 1, width) * 0.02)
        heads = max(1, width // 64)
        self.blocks = nn.ModuleList(EncoderLayer(width, heads) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, images: Tensor) -> Tensor:
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat((self.cls.expand(len(x), -1, -1), x), dim=1) + self.places
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.head(self.norm(x[:, 0]))
        return logits


class DoubleConv(nn.Module):
    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, padding=1)
        self.conv2 = nn.Conv2d(after, after, 3, padding=1)
        self.norm1, self.norm2 = nn.GroupNorm(4, after), nn.GroupNorm(4, after)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.silu(self.norm1(self.conv1(x)))
        return functional.silu(self.norm2(self.conv2(x)))


class UNet(nn.Module):
    """Down, down, up, up, with what was seen on the way down."""

    def __init__(self, width: int, patch: int = 1) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, patch if patch > 1 else 3, stride=patch, padding=int(patch == 1))
        self.down1, self.down2 = DoubleConv(width, width), DoubleConv(width, 2 * width)
        self.middle = DoubleConv(2 * width, 4 * width)
        self.up2 = nn.ConvTranspose2d(4 * width, 2 * width, 2, stride=2)
        self.after2 = DoubleConv(4 * width, 2 * width)
        self.up1 = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.after1 = DoubleConv(2 * width, width)
        self.out = nn.Conv2d(width, 3 * patch * patch, 1)
        self.shuffle = nn.PixelShuffle(patch)

    def forward(self, x: Tensor) -> Tensor:
        first = self.down1(self.stem(x))
        second = self.down2(functional.max_pool2d(first, 2))
        lowest = self.middle(functional.max_pool2d(second, 2))
        x = self.after2(torch.cat((self.up2(lowest), second), 1))
        x = self.after1(torch.cat((self.up1(x), first), 1))
        result: Tensor = self.shuffle(self.out(x))
        return result


class SpeechNet(nn.Module):
    """Strided convolutions over a waveform or over features, as in wav2vec."""

    def __init__(self, channels: int, width: int, strides: tuple[int, ...], classes: int = 35) -> None:
        super().__init__()
        sizes = [channels] + [width] * len(strides)
        self.convs = nn.ModuleList(
            nn.Conv1d(a, b, 2 * stride + 1, stride, stride) for a, b, stride in zip(sizes, sizes[1:], strides)
        )
        self.norms = nn.ModuleList(nn.GroupNorm(1, width) for _ in strides)
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        for conv, norm in zip(self.convs, self.norms):
            x = functional.gelu(norm(conv(x)))
        logits: Tensor = self.head(x.mean(-1))
        return logits


class Tower(nn.Module):
    """A text's embedding: words, averaged, through a few layers, of length one."""

    def __init__(self, words: int, width: int, depth: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, width)
        parts = [part for _ in range(depth) for part in (nn.Linear(width, width), nn.GELU())]
        self.layers = nn.Sequential(*parts, nn.Linear(width, 128))

    def forward(self, tokens: Tensor) -> Tensor:
        return functional.normalize(self.layers(self.embed(tokens).mean(1)), dim=-1)


def contrastive(queries: Tensor, documents: Tensor) -> Tensor:
    """InfoNCE with the batch's other documents as negatives."""
    similar = queries @ documents.T * 20.0
    return functional.cross_entropy(similar, torch.arange(len(similar), device=similar.device))


def adamw(machine: Machine, *models: nn.Module, lr: float = 3e-4) -> torch.optim.Optimizer:
    parameters = [parameter for model in models for parameter in model.parameters()]
    return torch.optim.AdamW(parameters, lr=lr, fused=machine.cuda)
