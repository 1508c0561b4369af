"""Train a classifier of reviews with torch.compile, and profile it: the program of the walkthrough (a GPU is needed).

    python examples/walkthrough/reviews.py --logdir runs/0_start
    python examples/walkthrough/reviews.py --logdir runs/1_precision --fixes precision

Without fixes it is slow for four reasons that are common in real training code. Each fix is one change.
"""

from __future__ import annotations

import argparse
import random
import string

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile, schedule
from torch.utils.data import DataLoader, Dataset

from tb_torchcompile_plugin import tensorboard_trace_handler

FIXES = ("precision", "loader", "check", "graphs")
LAYERS, WIDTH, HEADS, LENGTH, BATCH, WORDS = 6, 512, 8, 128, 64, 20_000
CYCLE = {"wait": 30, "warmup": 2, "active": 4}
STEPS = sum(CYCLE.values()) + 2
SEED = 0


class Reviews(Dataset[tuple[Tensor, int]]):
    """Random reviews as text; their words are looked up when a review is read."""

    def __init__(self, count: int) -> None:
        chosen = random.Random(SEED)
        self.vocabulary = {
            "".join(chosen.choices(string.ascii_lowercase, k=6)): number for number in range(WORDS)
        }
        words = list(self.vocabulary)
        self.reviews = [" ".join(chosen.choices(words, k=LENGTH)) for _ in range(count)]
        self.labels = [chosen.randrange(2) for _ in range(count)]

    def __len__(self) -> int:
        return len(self.reviews)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        words = [word.strip(string.punctuation).lower() for word in self.reviews[index].split()]
        return torch.tensor([self.vocabulary.get(word, 0) for word in words]), self.labels[index]


class Attention(nn.Module):
    """Multi-head self-attention."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        query, key, value = self.project(x).view(batch, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value)
        result: Tensor = self.out(mixed.transpose(1, 2).reshape(batch, length, WIDTH))
        return result


class Layer(nn.Module):
    """A transformer layer that may check its values, which breaks the graph."""

    def __init__(self, checked: bool) -> None:
        super().__init__()
        self.checked = checked
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = Attention()
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.before(x))
        if self.checked and torch.isnan(x).any():
            raise ValueError("a layer diverged")
        result: Tensor = x + self.down(functional.gelu(self.up(self.between(x))))
        return result


class Classifier(nn.Module):
    """Embeds words, applies the layers, and classifies the mean."""

    def __init__(self, checked: bool) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.ModuleList(Layer(checked) for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, 2)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.words(tokens)
        for layer in self.layers:
            x = layer(x)
        result: Tensor = self.head(x.mean(1))
        return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--logdir", required=True)
    parser.add_argument("--fixes", nargs="*", default=[], choices=FIXES)
    parser.add_argument("--eager", action="store_true", help="do not compile: the baseline run")
    options = parser.parse_args()
    torch.manual_seed(SEED)
    if "precision" in options.fixes:
        torch.set_float32_matmul_precision("high")
    handler = tensorboard_trace_handler(options.logdir)
    ahead = "loader" in options.fixes
    loader = DataLoader(
        Reviews(BATCH * STEPS), BATCH, num_workers=4 * ahead, persistent_workers=ahead, pin_memory=ahead
    )
    model = Classifier(checked="check" not in options.fixes).cuda()
    mode = "reduce-overhead" if "graphs" in options.fixes else None
    called = model if options.eager else torch.compile(model, mode=mode)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    with profile(
        activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA],
        schedule=schedule(**CYCLE, repeat=1),
        on_trace_ready=handler,
        record_shapes=True,
    ) as profiler:
        for tokens, labels in loader:
            tokens, labels = tokens.cuda(non_blocking=True), labels.cuda(non_blocking=True)
            loss = functional.cross_entropy(called(tokens), labels)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            profiler.step()
    print(f"loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
