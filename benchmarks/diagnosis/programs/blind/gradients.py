"""Gradients that nobody needs, or that are looked at too closely."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.diagnosis.program import BOTH, STACKS, Machine, Recorded, Step, program
from benchmarks.diagnosis.programs.blind.nets import EncoderLayer, ViT, adamw, fast_float32, half
from benchmarks.diagnosis.programs.models import descend


class Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + functional.leaky_relu(self.linear(self.norm(x)), 0.2)


@program(
    "debugging left on",
    "debug:anomaly_mode",
    also=("sync:item",),
    mending="without torch.autograd.set_detect_anomaly(True)",
    recorded=STACKS,
)
def anomaly_mode_left_on(machine: Machine, mended: bool) -> Step:
    fast_float32()
    torch.autograd.set_detect_anomaly(not mended)  # planted: anomaly_mode_left_on
    width, depth = machine.pick(256, 16), machine.pick(10, 2)
    generator = nn.Sequential(*(Residual(width) for _ in range(depth))).to(machine.device)
    critic = nn.Sequential(*(Residual(width) for _ in range(depth)), nn.Linear(width, 1)).to(machine.device)
    for block in [*generator, *critic]:
        block.compile()
    for_generator, for_critic = adamw(machine, generator), adamw(machine, critic)
    real = machine.randn(machine.pick(512, 4), width)

    def play() -> None:
        fake = generator(torch.randn_like(real))
        (
            functional.softplus(critic(fake.detach())).mean() + functional.softplus(-critic(real)).mean()
        ).backward()
        for_critic.step()
        for_critic.zero_grad()
        functional.softplus(-critic(fake)).mean().backward()
        for_generator.step()
        for_generator.zero_grad()
        for_critic.zero_grad()

    return play


class MultiTask(nn.Module):
    """One trunk, and a head for each of four tasks."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.trunk = nn.Sequential(*(EncoderLayer(width, 8) for _ in range(depth)))
        self.heads = nn.ModuleList(nn.Linear(width, classes) for classes in (2, 5, 20, 50))

    def forward(self, x: Tensor) -> list[Tensor]:
        pooled = self.trunk(x).mean(1)
        return [head(pooled) for head in self.heads]


@program(
    "autograd", "autograd:repeated_backward", mending="one backward of the sum of the losses", recorded=BOTH
)
def backward_for_each_task(machine: Machine, mended: bool) -> Step:
    torch._functorch.config.donated_buffer = False  # what the error says that retain_graph=True needs
    width, rows, length = machine.pick(768, 16), machine.pick(32, 2), machine.pick(256, 4)
    net = MultiTask(width, machine.pick(4, 1)).to(machine.device, half(machine))
    model, optimizer = torch.compile(net), adamw(machine, net)
    x = machine.randn(rows, length, width, dtype=half(machine))
    label = torch.zeros(rows, dtype=torch.long, device=machine.device)

    def train_step() -> None:
        losses = [functional.cross_entropy(logits.float(), label) for logits in model(x)]
        if mended:
            torch.stack(losses).sum().backward()
        else:
            for loss in losses:
                loss.backward(retain_graph=True)  # planted: backward_for_each_task
        optimizer.step()
        optimizer.zero_grad()

    return train_step


@program(
    "autograd",
    "autograd:unused_gradients",
    mending="the teacher runs under torch.no_grad()",
    recorded=Recorded(shapes=True, marked=False),
)
def teacher_with_gradients(machine: Machine, mended: bool) -> Step:
    side = machine.pick(224, 32)
    teacher = ViT(side, 16, machine.pick(768, 64), machine.pick(6, 1)).to(machine.device)
    student = ViT(side, 16, machine.pick(192, 64), machine.pick(4, 1)).to(machine.device)
    taught, teaching = torch.compile(student), torch.compile(teacher)
    optimizer = adamw(machine, student)
    images = machine.randn(machine.pick(64, 2), 3, side, side)

    def distill() -> Tensor:
        with torch.autocast(machine.device.type, torch.bfloat16):
            if mended:
                with torch.no_grad():
                    wanted = teaching(images)
            else:
                wanted = teaching(images)  # planted: teacher_with_gradients
            scores = taught(images)
        loss = functional.kl_div(
            scores.float().log_softmax(-1), wanted.float().softmax(-1), reduction="batchmean"
        )
        return descend(loss, optimizer)

    return distill
