"""Python that runs while the GPU waits."""

import copy
import gc
import io
import json
from typing import Any

import torch
from torch import nn

from benchmarks.diagnosis.program import BOTH, STACKS, STOCK, Machine, Step, program
from benchmarks.diagnosis.programs.models import adam, mlp, train_step, trainer


def edit_distance(a: str, b: str) -> int:
    """How many letters differ, by the textbook."""
    row = list(range(len(b) + 1))
    for i, left in enumerate(a, 1):
        above = row[0]
        row[0] = i
        for j, right in enumerate(b, 1):
            fewest = above if left == right else above + 1
            if row[j] < fewest:
                fewest = row[j] + 1
            if row[j - 1] < fewest:
                fewest = row[j - 1] + 1
            above, row[j] = row[j], fewest
    return row[-1]


def training(machine: Machine) -> Step:
    return trainer(machine, mlp(machine, 4, machine.pick(512, 16)), machine.randn(64, machine.pick(512, 16)))


@program("host Python", "host:python", mending="the metric is computed after training", recorded=STACKS)
def metric_in_python(machine: Machine, mended: bool) -> Step:
    train, predicted = training(machine), "abcdefgh" * machine.pick(20, 2)

    def step() -> None:
        train()
        if not mended:
            edit_distance(predicted, predicted[::-1])  # planted: metric_in_python

    return step


@program("host Python", "host:unrecorded", mending="the bookkeeping is left out", recorded=STOCK)
def bookkeeping_without_stacks(machine: Machine, mended: bool) -> Step:
    train, seen = training(machine), {f"sample {i}": i for i in range(machine.pick(20_000, 200))}

    def step() -> None:
        train()
        if not mended:
            hardest = sorted(seen, key=lambda name: seen[name] * 7919 % 1009)
            seen.update(
                (name, rank) for rank, name in enumerate(hardest)
            )  # planted: bookkeeping_without_stacks

    return step


@program("host Python", "host:python", mending="the log is written at the end of an epoch", recorded=STACKS)
def logging_each_step(machine: Machine, mended: bool) -> Step:
    train, history = training(machine), [i / 7 for i in range(machine.pick(20_000, 100))]
    log = io.StringIO()

    def log_history() -> None:
        log.seek(0)
        log.write(json.dumps(history))

    def step() -> None:
        train()
        if not mended:
            log_history()  # planted: logging_each_step

    return step


def backward(model: Any, x: torch.Tensor) -> None:
    model(x).square().mean().backward()


@program(
    "host Python",
    "eager:per_parameter_loop",
    mending="torch.nn.utils.clip_grad_norm_ handles all parameters at once",
)
def clipping_each_parameter(machine: Machine, mended: bool) -> Step:
    model = mlp(machine, machine.pick(24, 2), machine.pick(128, 16))
    compiled, optimizer = torch.compile(model), adam(machine, model)
    x = machine.randn(64, machine.pick(128, 16))

    def clip_gradients() -> None:
        for parameter in model.parameters():
            assert parameter.grad is not None
            norm = parameter.grad.norm()
            parameter.grad.mul_(torch.clamp(1.0 / (norm + 1e-6), max=1.0))  # planted: clipping_each_parameter

    def step() -> None:
        backward(compiled, x)
        if mended:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        else:
            clip_gradients()
        optimizer.step()
        optimizer.zero_grad()

    return step


@program(
    "host Python",
    "eager:per_parameter_loop",
    mending="torch._foreach_lerp_ updates all averages at once",
    recorded=BOTH,
)
def averaging_each_parameter(machine: Machine, mended: bool) -> Step:
    model: nn.Module = mlp(machine, machine.pick(24, 2), machine.pick(128, 16))
    average = [parameter.detach().clone() for parameter in model.parameters()]
    compiled, optimizer = torch.compile(model), adam(machine, model)
    x = machine.randn(64, machine.pick(128, 16))

    @torch.no_grad()
    def update_average() -> None:
        for mean, parameter in zip(average, model.parameters()):
            mean.mul_(0.999).add_(parameter, alpha=0.001)  # planted: averaging_each_parameter

    def step() -> None:
        train_step(compiled, optimizer, x, torch.zeros_like(x))
        if mended:
            torch._foreach_lerp_(average, [p.detach() for p in model.parameters()], 0.001)
        else:
            update_average()

    return step


def many_objects(count: int) -> list[dict[str, list[int]]]:
    return [{"sample": [i], "label": [i % 10]} for i in range(count)]


@program("garbage collection", "gc", mending="no gc.collect()", recorded=STACKS)
def collecting_garbage(machine: Machine, mended: bool) -> Step:
    train, held = training(machine), many_objects(machine.pick(5_000, 100))

    def step() -> int:
        train()
        if not mended:
            gc.collect()  # planted: collecting_garbage
        return len(held)

    return step


@program("garbage collection", "host:unrecorded", also=("gc",), mending="no gc.collect()")
def collecting_garbage_without_stacks(machine: Machine, mended: bool) -> Step:
    return collecting_garbage(machine, mended)  # planted: collecting_garbage_without_stacks


@program(
    "host Python", "host:python", mending="the best weights are not copied at each step", recorded=STACKS
)
def copying_the_state(machine: Machine, mended: bool) -> Step:
    model = mlp(machine, machine.pick(24, 2), machine.pick(128, 16))
    train = trainer(machine, model, machine.randn(64, machine.pick(128, 16)))
    best: dict[str, Any] = {}

    def remember_best() -> None:
        best.update(copy.deepcopy(model.state_dict()))  # planted: copying_the_state

    def step() -> None:
        train()
        if not mended:
            remember_best()

    return step
