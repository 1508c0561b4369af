"""The host waits for the GPU where it need not, so that the GPU then waits for the host."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from benchmarks.diagnosis.program import BOTH, SHAPES, STACKS, Machine, Step, program
from benchmarks.diagnosis.programs.models import Block, adam, mlp, no_grad

PARTS = 16  # micro-batches in a step


def scores(machine: Machine) -> tuple[Callable[[Tensor], Tensor], Tensor]:
    """A compiled model whose GPU time for one micro-batch is near the host's time to launch it."""
    width, rows = machine.pick(512, 16), machine.pick(8192, 8)
    model = mlp(machine, machine.pick(4, 1), width, torch.bfloat16)
    x = machine.randn(rows, width, dtype=torch.bfloat16)
    return torch.compile(model), x


@program("sync", "sync:item", mending="the count stays on the GPU until the end of the step", recorded=STACKS)
def item_each_micro_batch(machine: Machine, mended: bool) -> Step:
    model, x = scores(machine)

    def step() -> float:
        right = torch.zeros((), device=machine.device)
        for _ in range(PARTS):
            hits = (model(x).argmax(1) == 0).sum()
            if mended:
                right += hits
            else:
                right += hits.item()  # planted: item_each_micro_batch
        return float(right)

    return no_grad(step)


@program("sync", "sync:item", mending="torch._foreach_norm and one number on the GPU", recorded=SHAPES)
def item_each_parameter(machine: Machine, mended: bool) -> Step:
    model = mlp(machine, machine.pick(24, 2), machine.pick(128, 16))
    compiled, optimizer = torch.compile(model), adam(machine, model)
    x = machine.randn(64, machine.pick(128, 16))

    def gradient_norm() -> object:
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        if mended:
            return torch.stack(torch._foreach_norm(gradients)).square().sum().sqrt()
        squares = 0.0
        for gradient in gradients:
            squares += gradient.norm().item() ** 2  # planted: item_each_parameter
        return squares**0.5

    def step() -> None:
        compiled(x).square().mean().backward()
        gradient_norm()
        optimizer.step()
        optimizer.zero_grad()

    return step


@contextmanager
def stopwatch(machine: Machine, times: list[float], exact: bool) -> Iterator[None]:
    """Adds the seconds that its body took; exact means that it waits for the GPU."""
    start = time.perf_counter()
    yield
    if exact and machine.cuda:
        torch.cuda.synchronize()  # planted: synchronizing_for_a_timer
    times.append(time.perf_counter() - start)


@program("sync", "sync:device", mending="the timers do not wait for the GPU", recorded=BOTH)
def synchronizing_for_a_timer(machine: Machine, mended: bool) -> Step:
    model, x = scores(machine)
    times: list[float] = []

    def step() -> None:
        times.clear()
        for _ in range(PARTS):
            with stopwatch(machine, times, exact=not mended):
                model(x).argmax(1)

    return no_grad(step)


@program("sync", "sync:copy", mending="predictions are kept on the GPU and copied once")
def predictions_to_the_host(machine: Machine, mended: bool) -> Step:
    model, x = scores(machine)

    def step() -> Tensor:
        kept = []
        for _ in range(PARTS):
            best = model(x).argmax(1)
            kept.append(best if mended else best.cpu())  # planted: predictions_to_the_host
        return torch.cat(kept).cpu()

    return no_grad(step)


@program(
    "sync",
    "sync:nonzero",
    mending="each expert gets an equal share of the rows, whose numbers are known before",
)
def nonzero_for_each_expert(machine: Machine, mended: bool) -> Step:
    width, rows, count = machine.pick(512, 16), machine.pick(4096, 32), machine.pick(24, 4)
    experts = [torch.compile(Block(width, 2).to(machine.device), dynamic=not mended) for _ in range(count)]
    x, route = machine.randn(rows, width), torch.arange(rows, device=machine.device) % count
    shares = [(route == expert).nonzero().squeeze(1) for expert in range(count)]

    def step() -> Tensor:
        out = torch.zeros_like(x)
        for number, expert in enumerate(experts):
            chosen = shares[number]
            if not mended:
                chosen = (route == number).nonzero().squeeze(1)  # planted: nonzero_for_each_expert
            out.index_add_(0, chosen, expert(x[chosen]))
        return out

    return no_grad(step)
