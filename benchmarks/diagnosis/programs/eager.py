"""The model is compiled; what comes after it is not, and takes longer."""

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.diagnosis.program import SHAPES, STACKS, Machine, Step, program
from benchmarks.diagnosis.programs.models import adam, descend, mlp, no_grad


def focal_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Cross entropy with label smoothing, hard samples first, in many passes over the logits."""
    logarithms = logits.float().log_softmax(-1)
    probabilities = logarithms.exp()
    wanted = functional.one_hot(labels, logits.shape[-1]) * 0.9 + 0.1 / logits.shape[-1]
    weights = (1 - probabilities).square() * wanted
    entropy = -(probabilities * logarithms).sum(-1).mean()
    return -(weights * logarithms).sum(-1).mean() - 0.01 * entropy


@program("eager remainder", "eager:loss", mending="the loss is compiled", recorded=STACKS)
def loss_left_eager(machine: Machine, mended: bool) -> Step:
    width, words = machine.pick(512, 16), machine.pick(16384, 32)
    head = torch.nn.Linear(width, words, device=machine.device, dtype=torch.bfloat16)
    model = torch.nn.Sequential(mlp(machine, 2, width, torch.bfloat16), head)
    compiled, optimizer = torch.compile(model), adam(machine, model)
    loss_of = torch.compile(focal_loss) if mended else focal_loss
    x = machine.randn(machine.pick(4096, 8), width, dtype=torch.bfloat16)
    labels = torch.randint(0, words, (len(x),), device=machine.device)

    def step() -> None:
        descend(loss_of(compiled(x), labels), optimizer)  # planted: loss_left_eager

    return step


def boxes(raw: Tensor) -> Tensor:
    """Fifty small operators on the model's output."""
    centre, size = raw[:, :2].sigmoid(), raw[:, 2:4].exp()
    corners = torch.cat((centre - size / 2, centre + size / 2), -1)
    score = raw[:, 4:].softmax(-1).amax(-1)
    for threshold in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8):
        area = (corners[:, 2] - corners[:, 0]) * (corners[:, 3] - corners[:, 1])
        score = torch.where(area > threshold, score * (1 - threshold), score)
    return torch.cat((corners, score[:, None]), -1)


@program(
    "eager remainder", "eager:postprocessing", mending="the post-processing is compiled", recorded=SHAPES
)
def postprocessing_left_eager(machine: Machine, mended: bool) -> Step:
    width = machine.pick(256, 16)
    model, x = torch.compile(mlp(machine, 2, width)), machine.randn(machine.pick(1024, 8), width)
    decode = torch.compile(boxes) if mended else boxes

    def step() -> Tensor:
        result: Tensor = decode(model(x))  # planted: postprocessing_left_eager
        return result

    return no_grad(step)
