"""Ten and more small programs, each as it is and compiled. `build(compiled, device, quick)` returns one step.

`maybe(module)` compiles or does not; everything else is the same in both twins. At least six are loops of libraries.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

Step = Callable[[], Any]
Maybe = Callable[..., Any]
PROGRAMS: dict[str, Callable[[Maybe, torch.device, bool], Step]] = {}


def program(build: Callable[[Maybe, torch.device, bool], Step]) -> Callable[[Maybe, torch.device, bool], Step]:
    PROGRAMS[build.__name__] = build
    return build


def trained(model: Any, parameters: Any, loss_of: Callable[[], Tensor], **options: Any) -> Step:
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, **options)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        loss_of().backward()
        optimizer.step()

    return step


@program
def tiny_linear_training(maybe: Maybe, device: torch.device, quick: bool) -> Step:
    """One layer: nothing to fuse, and the wrappers of compiled code around it."""
    network = nn.Linear(32, 8).to(device)
    model = maybe(network)
    x, y = torch.randn(16, 32, device=device), torch.randn(16, 8, device=device)
    return trained(model, network.parameters(), lambda: functional.mse_loss(model(x), y))


@program
def recurrent_cell(maybe: Maybe, device: torch.device, quick: bool) -> Step:
    """A compiled cell, called once for each position."""
    cell = nn.GRUCell(64, 64).to(device)
    head, model = nn.Linear(64, 1).to(device), maybe(cell)
    xs, y = torch.randn(8 if quick else 32, 16, 64, device=device), torch.randn(16, 1, device=device)

    def loss() -> Tensor:
        hidden = torch.zeros(16, 64, device=device)
        for x in xs:
            hidden = model(x, hidden)
        return functional.mse_loss(head(hidden), y)

    return trained(model, [*cell.parameters(), *head.parameters()], loss)


class Counted(nn.Module):
    """Blocks, and a helper between them that dynamo may not enter."""

    def __init__(self, width: int, blocks: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(width, width) for _ in range(blocks))
        self.seen: dict[int, int] = {}

    @torch._dynamo.disable  # type: ignore[misc]
    def count(self, number: int) -> None:
        self.seen[number] = self.seen.get(number, 0) + 1

    def forward(self, x: Tensor) -> Tensor:
        for number, block in enumerate(self.blocks):
            x = block(x)
            self.count(number)
        return x


class CountedByHand(Counted):
    """The same without a loop: torch goes on behind each break, where in a loop it leaves all of the frame eager."""

    def forward(self, x: Tensor) -> Tensor:
        b = self.blocks
        x = b[0](x).relu()
        self.count(0)
        x = b[1](x).relu()
        self.count(1)
        x = b[2](x).relu()
        self.count(2)
        x = b[3](x).relu()
        self.count(3)
        return b[3](x)


@program
def breaks_between_blocks(maybe: Maybe, device: torch.device, quick: bool) -> Step:
    """A graph break after each of a few small blocks."""
    network = CountedByHand(64, 4).to(device)
    model, x = maybe(network), torch.randn(32, 64, device=device)
    y = torch.randn(32, 64, device=device)
    return trained(model, network.parameters(), lambda: functional.mse_loss(model(x), y))


@program
def counting_between_blocks(maybe: Maybe, device: torch.device, quick: bool) -> Step:
    """A graph break after each layer."""
    network = Counted(64, 4 if quick else 16).to(device)
    model, x = maybe(network), torch.randn(32, 64, device=device)
    y = torch.randn(32, 64, device=device)
    return trained(model, network.parameters(), lambda: functional.mse_loss(model(x), y))


@program
def pointwise_chain(maybe: Maybe, device: torch.device, quick: bool) -> Step:
    """Bound by memory, and fused into one kernel."""
    size = (64, 64) if quick else (4096, 8192)
    x, y = torch.randn(size, device=device), torch.randn(size, device=device)

    def chain(x: Tensor, y: Tensor) -> Tensor:
        for _ in range(6):
            x = torch.sigmoid(x * y + 0.1) * x - 0.5 * y
        return x

    model = maybe(chain)

    def step() -> Tensor:
        with torch.no_grad():
            result: Tensor = model(x, y)
            return result

    return step


@program
def large_matmuls(maybe: Maybe, device: torch.device, quick: bool) -> Step:
    """Bound by matrix products of the library; nothing else to do."""
    width = 64 if quick else 8192
    network = nn.Sequential(*(nn.Linear(width, width, bias=False) for _ in range(4)))
    network = network.to(device, kind := torch.bfloat16 if device.type == "cuda" else torch.float32)
    model, x = maybe(network), torch.randn(width, width, device=device, dtype=kind)

    def step() -> Tensor:
        with torch.no_grad():
            result: Tensor = model(x)
            return result

    return step


@program
def transformers_llama_training(maybe: Maybe, device: torch.device, quick: bool) -> Step:
    from transformers import LlamaConfig, LlamaForCausalLM

    width, words = (32, 64) if quick else (768, 8192)
    config = LlamaConfig(
        vocab_size=words,
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=1 if quick else 3,
        num_attention_heads=4 if quick else 12,
        num_key_value_heads=4 if quick else 12,
        max_position_embeddings=1024,
        use_cache=False,
        attn_implementation="sdpa",
    )
    network = LlamaForCausalLM(config).to(device)
    model = maybe(network)
    ids = torch.randint(1, words, (2, 16) if quick else (16, 512), device=device)

    def loss() -> Tensor:
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            result: Tensor = model(input_ids=ids, labels=ids).loss
            return result

    return trained(model, network.parameters(), loss)


@program
def transformers_gpt2_inference(maybe: Maybe, device: torch.device, quick: bool) -> Step:
    from transformers import GPT2Config, GPT2LMHeadModel

    width, words = (32, 64) if quick else (512, 8192)
    config = GPT2Config(
        vocab_size=words, n_embd=width, n_layer=1 if quick else 4, n_head=4, n_positions=128, use_cache=False
    )
    network = GPT2LMHeadModel(config).eval().to(device)
    model = maybe(network)
    ids = torch.randint(1, words, (1, 16) if quick else (4, 64), device=device)

    def step() -> Tensor:
        with torch.no_grad():
            result: Tensor = model(input_ids=ids).logits[:, -1].argmax(-1).cpu()
            return result

    return step


@program
def torchvision_resnet18_training(maybe: Maybe, device: torch.device, quick: bool) -> Step:
    from torchvision import models

    network = models.resnet18().to(device, memory_format=torch.channels_last)
    model = maybe(network)
    side, rows = (32, 2) if quick else (224, 96)
    images = torch.randn(rows, 3, side, side, device=device).to(memory_format=torch.channels_last)
    labels = torch.randint(0, 1000, (rows,), device=device)

    def loss() -> Tensor:
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            return functional.cross_entropy(model(images), labels)

    return trained(model, network.parameters(), loss)


@program
def torchvision_mobilenet_inference(maybe: Maybe, device: torch.device, quick: bool) -> Step:
    from torchvision import models

    network = models.mobilenet_v3_small().eval().to(device)
    model = maybe(network)
    images = torch.randn(1, 3, 64 if quick else 224, 64 if quick else 224, device=device)

    def step() -> Tensor:
        with torch.no_grad():
            result: Tensor = model(images).argmax(-1).cpu()
            return result

    return step


@program
def timm_vit_inference(maybe: Maybe, device: torch.device, quick: bool) -> Step:
    import timm

    network = timm.create_model("vit_tiny_patch16_224", pretrained=False, depth=2 if quick else 8)
    network = network.eval().to(device, kind := torch.bfloat16 if device.type == "cuda" else torch.float32)
    model = maybe(network)
    images = torch.randn(1 if quick else 128, 3, 224, 224, device=device, dtype=kind)

    def step() -> Tensor:
        with torch.no_grad():
            result: Tensor = model(images).argmax(-1)
            return result

    return step


@program
def geometric_gcn_training(maybe: Maybe, device: torch.device, quick: bool) -> Step:
    from torch_geometric.nn import GCNConv

    class GCN(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.first, self.second = GCNConv(width, width), GCNConv(width, 16)

        def forward(self, x: Tensor, edges: Tensor) -> Tensor:
            scores: Tensor = self.second(self.first(x, edges).relu(), edges)
            return scores

    nodes, count, width = (50, 200, 8) if quick else (20_000, 200_000, 128)
    network = GCN(width).to(device)
    model = maybe(network)
    x, y = torch.randn(nodes, width, device=device), torch.randint(0, 16, (nodes,), device=device)
    edges = torch.randint(0, nodes, (2, count), device=device)
    return trained(
        model, network.parameters(), lambda: functional.cross_entropy(model(x, edges), y)
    )


@program
def accelerate_bert_training(maybe: Maybe, device: torch.device, quick: bool) -> Step:
    from accelerate import Accelerator
    from transformers import BertConfig, BertForSequenceClassification

    width = 32 if quick else 256
    config = BertConfig(
        vocab_size=64 if quick else 4096,
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=1 if quick else 3,
        num_attention_heads=4,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    accelerator = Accelerator(mixed_precision="bf16" if device.type == "cuda" else "no", cpu=device.type == "cpu")
    network = BertForSequenceClassification(config)
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-4)
    network, optimizer = accelerator.prepare(network, optimizer)
    model = maybe(network)
    ids = torch.randint(1, 64, (2, 16) if quick else (16, 128), device=accelerator.device)
    labels = torch.randint(0, 2, (len(ids),), device=accelerator.device)

    def step() -> None:
        loss = model(input_ids=ids, labels=labels).loss
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


def lightning_loop(
    maybe: Maybe, device: torch.device, quick: bool, after_step: Callable[[], None]
) -> None:
    """The loop is Lightning's: `after_step` is called before the first step and behind each; it ends the loop by an
    exception."""
    import pytorch_lightning as lightning

    width, rows = (16, 4) if quick else (512, 128)

    class Classifier(lightning.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            layers = [part for _ in range(8) for part in (nn.Linear(width, width), nn.LayerNorm(width), nn.GELU())]
            self.model = maybe(nn.Sequential(*layers, nn.Linear(width, 10)))

        def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
            return functional.cross_entropy(self.model(batch[0]), batch[1])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters(), lr=1e-3)

    class AfterStep(lightning.Callback):  # type: ignore[misc]
        def on_train_start(self, *_: Any, **__: Any) -> None:
            after_step()

        def on_train_batch_end(self, *_: Any, **__: Any) -> None:
            after_step()

    batch = (torch.randn(rows, width, device=device), torch.randint(0, 10, (rows,), device=device))
    trainer = lightning.Trainer(
        accelerator="gpu" if device.type == "cuda" else "cpu",
        devices=1,
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[AfterStep()],
    )
    loader = torch.utils.data.DataLoader([batch] * 100_000, batch_size=None)
    trainer.fit(Classifier(), loader)


LOOPS = {"lightning_training": lightning_loop}
NAMES = (*PROGRAMS, *LOOPS)
