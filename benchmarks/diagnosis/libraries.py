"""Loops of other libraries, written as their documentation shows. Each calls `watch` after every step."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.diagnosis.program import PLAIN, SHAPES, Machine, Recorded

if TYPE_CHECKING:
    from benchmarks.diagnosis.real import Watch

LOOPS: dict[str, Callable[[Machine, Watch], None]] = {}
RECORDED: dict[str, Recorded] = {}
STACKS_OF_THREE = Recorded(stacks=True, steps=3)
BOTH_OF_THREE = Recorded(stacks=True, shapes=True, steps=3)
MENDED = {  # what the first finding asks for
    "transformers_trainer_eager": "all batches are of one length",
    "transformers_trainer_compiled": "all batches are of one length",
    "lightning_module": "four workers load the batches",
    "torchvision_resnet50": 'mode="reduce-overhead"',
    "timm_vit_inference": "pictures lie in pinned memory and are copied without waiting",
    "geometric_gcn": "the graph is normalized once, before training",
    "accelerate_loop": 'mode="reduce-overhead"',
}


def loop(
    recorded: Recorded,
) -> Callable[[Callable[[Machine, Watch], None]], Callable[[Machine, Watch], None]]:
    """Registers the decorated function under its own name."""

    def register(function: Callable[[Machine, Watch], None]) -> Callable[[Machine, Watch], None]:
        LOOPS[function.__name__], RECORDED[function.__name__] = function, recorded
        return function

    return register


class Sentences(torch.utils.data.Dataset[dict[str, Tensor]]):
    """Token numbers; each sentence has a length of its own."""

    def __init__(self, longest: int, words: int) -> None:
        self.longest, self.words = longest, words

    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        length = self.longest // 2 + index * 37 % (self.longest // 2)
        return {"input_ids": torch.randint(1, self.words, (length,))}


def padded(sentences: list[dict[str, Tensor]], least: int = 0) -> dict[str, Tensor]:
    """A batch as long as its longest sentence, or longer."""
    ids = nn.utils.rnn.pad_sequence([sentence["input_ids"] for sentence in sentences], batch_first=True)
    ids = functional.pad(ids, (0, max(least - ids.shape[1], 0)))
    return {"input_ids": ids, "labels": ids.masked_fill(ids == 0, -100)}


def tiny_llama(machine: Machine, words: int, depth: int) -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    width = machine.pick(512, 32)
    config = LlamaConfig(
        vocab_size=words,
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=machine.pick(depth, 1),
        num_attention_heads=8,
        num_key_value_heads=8,
        max_position_embeddings=1024,
        use_cache=False,
        attn_implementation="sdpa",
    )
    model: nn.Module = LlamaForCausalLM(config)
    return model


def trained_by_transformers(machine: Machine, watch: Watch, **options: Any) -> None:
    from transformers import Trainer, TrainerCallback, TrainingArguments

    class AfterStep(TrainerCallback):  # type: ignore[misc]  # the library has no types here
        def on_step_end(self, *_: Any, **__: Any) -> None:
            watch()

    words = machine.pick(8192, 64)
    arguments = TrainingArguments(
        output_dir=tempfile.mkdtemp(),
        per_device_train_batch_size=machine.pick(8, 2),
        max_steps=1000,
        bf16=True,
        logging_steps=5,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=not machine.cuda,
        **options,
    )
    trainer = Trainer(
        model=tiny_llama(machine, words, depth=4 if not options else 2),
        args=arguments,
        train_dataset=Sentences(machine.pick(512, 16), words),
        data_collator=partial(padded, least=machine.pick(512, 16) if watch.mended else 0),
        callbacks=[AfterStep()],
    )
    trainer.train()


@loop(BOTH_OF_THREE)
def transformers_trainer_eager(machine: Machine, watch: Watch) -> None:
    trained_by_transformers(machine, watch)


@loop(STACKS_OF_THREE)
def transformers_trainer_compiled(machine: Machine, watch: Watch) -> None:
    trained_by_transformers(machine, watch, torch_compile=True)


def trained_by_lightning(
    machine: Machine, after_step: Callable[[], None], steps: int, profiler: Any = None, workers: int = 0
) -> None:
    import pytorch_lightning as lightning

    class Classifier(lightning.LightningModule):  # type: ignore[misc]  # the library has no types here
        def __init__(self, width: int) -> None:
            super().__init__()
            layers = [part for _ in range(4) for part in (nn.Linear(width, width), nn.ReLU())]
            self.model = torch.compile(nn.Sequential(*layers, nn.Linear(width, 10)))

        def forward(self, x: Tensor) -> Tensor:
            scores: Tensor = self.model(x)
            return scores

        def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
            x, labels = batch
            loss = functional.cross_entropy(self(x), labels)
            self.log("train_loss", loss)
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters(), lr=1e-3)

    class AfterStep(lightning.Callback):  # type: ignore[misc]  # the library has no types here
        def on_train_batch_end(self, *_: Any, **__: Any) -> None:
            after_step()

    width, rows = machine.pick(1024, 16), machine.pick(256, 4)
    data = torch.utils.data.TensorDataset(torch.randn(100 * rows, width), torch.randint(0, 10, (100 * rows,)))
    trainer = lightning.Trainer(
        accelerator="gpu" if machine.cuda else "cpu",
        devices=1,
        precision="bf16-mixed",
        max_steps=steps,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[AfterStep()],
        profiler=profiler,
    )
    loader = torch.utils.data.DataLoader(
        data,
        batch_size=rows,
        shuffle=True,
        num_workers=workers,
        pin_memory=workers > 0 and machine.cuda,
        persistent_workers=workers > 0,
    )
    trainer.fit(Classifier(width), loader)


@loop(STACKS_OF_THREE)
def lightning_module(machine: Machine, watch: Watch) -> None:
    trained_by_lightning(machine, watch, steps=1000, workers=4 if watch.mended else 0)


def recorded_by_lightning(machine: Machine, watch: Watch, **options: Any) -> None:
    from pytorch_lightning.profilers import PyTorchProfiler

    numbers = count()
    profiler = PyTorchProfiler(
        schedule=torch.profiler.schedule(wait=10, warmup=2, active=3, repeat=1),
        on_trace_ready=watch.handler,
        **options,
    )
    trained_by_lightning(machine, lambda: watch.warmed_up() if next(numbers) == 5 else None, 20, profiler)


@loop(Recorded(steps=3))
def lightning_with_its_profiler(machine: Machine, watch: Watch) -> None:
    recorded_by_lightning(machine, watch)


@loop(BOTH_OF_THREE)
def lightning_profiler_without_module_names(machine: Machine, watch: Watch) -> None:
    recorded_by_lightning(machine, watch, record_module_names=False, record_shapes=True, with_stack=True)


@loop(STACKS_OF_THREE)
def torchvision_resnet50(machine: Machine, watch: Watch) -> None:
    from torchvision import datasets, models, transforms

    side = machine.pick(224, 32)
    augment = transforms.Compose(
        [
            transforms.RandomResizedCrop(side),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
        ]
    )
    data = datasets.FakeData(20_000, (3, side + 32, side + 32), 1000, augment)
    loader = torch.utils.data.DataLoader(
        data, batch_size=machine.pick(64, 2), num_workers=machine.pick(4, 1), pin_memory=machine.cuda
    )
    network = models.resnet50() if not machine.quick else models.resnet18()
    mode = "reduce-overhead" if watch.mended else None
    model = torch.compile(network.to(machine.device, memory_format=torch.channels_last), mode=mode)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    for images, labels in loader:
        images = images.to(machine.device, memory_format=torch.channels_last, non_blocking=True)
        labels = labels.to(machine.device, non_blocking=True)
        with torch.autocast(machine.device.type, torch.bfloat16):
            loss = functional.cross_entropy(model(images), labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        watch()


@loop(SHAPES)
def timm_vit_inference(machine: Machine, watch: Watch) -> None:
    import timm

    name = "vit_tiny_patch16_224" if machine.quick else "vit_small_patch16_224"
    network = timm.create_model(name, pretrained=False).eval().to(machine.device)
    model, best = torch.compile(network), []
    pinned = watch.mended and machine.cuda
    for images in batches_of_images(machine.pick(64, 1), pinned):
        with torch.inference_mode(), torch.autocast(machine.device.type, torch.bfloat16):
            scores = model(images.to(machine.device, non_blocking=pinned))
        best.append(scores.float().softmax(-1).topk(5).indices.cpu())
        watch()


def batches_of_images(size: int, pinned: bool) -> Iterator[Tensor]:
    """The same few pictures over and over, on the host."""
    images = [torch.randn(size, 3, 224, 224, pin_memory=pinned) for _ in range(3)]
    for number in count():
        yield images[number % 3]


@loop(BOTH_OF_THREE)
def geometric_gcn(machine: Machine, watch: Watch) -> None:
    from torch_geometric.data import Data
    from torch_geometric.nn import GCNConv
    from torch_geometric.nn.conv.gcn_conv import gcn_norm

    class GCN(nn.Module):
        def __init__(self, width: int, hidden: int, classes: int) -> None:
            super().__init__()
            self.conv1 = GCNConv(width, hidden, normalize=not watch.mended)
            self.conv2 = GCNConv(hidden, classes, normalize=not watch.mended)

        def forward(self, x: Tensor, edge_index: Tensor, weight: Tensor | None) -> Tensor:
            x = self.conv1(x, edge_index, weight).relu()
            x = functional.dropout(x, p=0.5, training=self.training)
            scores: Tensor = self.conv2(x, edge_index, weight)
            return scores

    nodes, edges, width = machine.pick(20_000, 50), machine.pick(200_000, 200), machine.pick(256, 8)
    data = Data(
        x=torch.randn(nodes, width),
        edge_index=torch.randint(0, nodes, (2, edges)),
        y=torch.randint(0, 16, (nodes,)),
        train_mask=torch.rand(nodes) < 0.5,
    ).to(machine.device)
    network = GCN(width, machine.pick(256, 8), 16).to(machine.device)
    model = torch.compile(network)
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01, weight_decay=5e-4)
    edge_index, weight = data.edge_index, None
    if watch.mended:
        edge_index, weight = gcn_norm(data.edge_index, num_nodes=nodes)
    while True:
        optimizer.zero_grad()
        scores = model(data.x, edge_index, weight)
        loss = functional.cross_entropy(scores[data.train_mask], data.y[data.train_mask])
        loss.backward()
        optimizer.step()
        watch()


@loop(PLAIN)
def accelerate_loop(machine: Machine, watch: Watch) -> None:
    from accelerate import Accelerator
    from accelerate.utils import TorchDynamoPlugin

    words = machine.pick(8192, 64)
    compiled = TorchDynamoPlugin(backend="inductor", mode="reduce-overhead" if watch.mended else "default")
    accelerator = Accelerator(mixed_precision="bf16", dynamo_plugin=compiled, cpu=not machine.cuda)
    model = tiny_llama(machine, words, depth=2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer)
    texts = Texts(machine.pick(256, 16), words)
    loader = torch.utils.data.DataLoader(texts, batch_size=machine.pick(16, 2), shuffle=True)
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    total = torch.zeros((), device=accelerator.device)
    for batch in loader:
        loss = model(**batch).loss
        total += loss.detach().float()
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        watch()


class Texts(Sentences):
    """Sentences of one length, with their labels."""

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        ids = torch.randint(1, self.words, (self.longest,))
        return {"input_ids": ids, "labels": ids}
