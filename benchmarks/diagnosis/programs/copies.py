"""Copies between the host's memory and the GPU's."""

import torch

from benchmarks.diagnosis.program import SHAPES, STACKS, Machine, Step, program
from benchmarks.diagnosis.programs.models import adam, mlp, no_grad, train_step


@program(
    "copies",
    "copy:unpinned",
    mending="the batch lies in pinned memory and is copied without waiting",
    recorded=SHAPES,
)
def unpinned_batches(machine: Machine, mended: bool) -> Step:
    width = machine.pick(512, 16)
    model = mlp(machine, 1, width, torch.bfloat16)
    compiled, optimizer = torch.compile(model), adam(machine, model)
    batch = torch.randn(machine.pick(48, 1) * 1024, width)
    batch = batch.pin_memory() if mended and machine.cuda else batch

    def step() -> None:
        x = batch.to(machine.device, non_blocking=mended)  # planted: unpinned_batches
        train_step(compiled, optimizer, x.bfloat16(), torch.zeros((), device=machine.device))

    return step


@program("copies", "copy:host_to_device", mending="the table stays on the GPU between steps", recorded=STACKS)
def table_copied_each_step(machine: Machine, mended: bool) -> Step:
    width = machine.pick(256, 16)
    model = torch.compile(mlp(machine, 2, width))
    on_host = torch.randn(machine.pick(64, 1) * 1024, width)
    resident = on_host.to(machine.device)
    chosen = torch.randint(0, len(on_host), (2048,), device=machine.device)

    def step() -> torch.Tensor:
        table = resident if mended else on_host.to(machine.device)  # planted: table_copied_each_step
        result: torch.Tensor = model(table[chosen])
        return result

    return no_grad(step)


@program("copies", "copy:device_to_host", mending="only the number that is used is copied")
def hidden_states_to_the_host(machine: Machine, mended: bool) -> Step:
    width = machine.pick(512, 16)
    model = torch.compile(mlp(machine, 2, width))
    x = machine.randn(machine.pick(24, 1) * 1024, width)

    def step() -> float:
        hidden: torch.Tensor = model(x)
        if mended:
            return float(hidden[0, 0])
        return float(hidden.cpu()[0, 0])  # planted: hidden_states_to_the_host

    return no_grad(step)
