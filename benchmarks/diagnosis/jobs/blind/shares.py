"""The ranks do not get equal shares: of the tokens, of what the compiler does, of the time."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.nn import functional

from benchmarks.diagnosis.jobs.job import Rank, job
from benchmarks.diagnosis.jobs.parallel import (
    adam,
    batch,
    compiled,
    dtype,
    linear_layers,
    replicated,
    training,
)
from benchmarks.diagnosis.program import Step
from benchmarks.diagnosis.programs.models import Attention


class Exchange(torch.autograd.Function):
    """Sends rows to the ranks whose experts want them; the gradient goes the way back."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, outgoing: list[int], incoming: list[int]) -> Tensor:
        ctx.splits = outgoing, incoming
        return exchanged(rows, outgoing, incoming)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        outgoing, incoming = ctx.splits
        return exchanged(gradients[0], incoming, outgoing), None, None


def exchanged(rows: Tensor, outgoing: list[int], incoming: list[int]) -> Tensor:
    received = rows.new_empty(sum(incoming), rows.shape[1])
    dist.all_to_all_single(received, rows.contiguous(), incoming, outgoing)
    return received


class MixtureOfExperts(nn.Module):
    """One expert on each rank; a token goes to the one with the highest score. The router is frozen."""

    router: Tensor
    bias: Tensor

    def __init__(self, rank: Rank, width: int, preference: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.expert = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.register_buffer("router", torch.randn(width, rank.size) / width**0.5)
        self.register_buffer("bias", torch.linspace(0, preference, rank.size))

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.norm(x).flatten(0, 1)
        chosen = (tokens @ self.router + self.bias).argmax(-1)
        order = chosen.argsort()
        counts = torch.eq(chosen[:, None], torch.arange(self.bias.numel(), device=x.device)).sum(0)
        wanted = torch.empty_like(counts)
        dist.all_to_all_single(wanted, counts)
        outgoing, incoming = torch.stack([counts, wanted]).tolist()
        done = self.expert(Exchange.apply(tokens[order], outgoing, incoming))
        back = Exchange.apply(done, incoming, outgoing)
        return x + torch.zeros_like(back).index_copy(0, order, back).view_as(x)


class Sparse(nn.Module):
    """Attention and experts in turn."""

    def __init__(self, rank: Rank, depth: int, width: int, preference: float) -> None:
        super().__init__()
        self.attention = nn.ModuleList(Attention(width) for _ in range(depth))
        self.experts = nn.ModuleList(MixtureOfExperts(rank, width, preference) for _ in range(depth))
        self.to(rank.device, dtype(rank))
        for one in self.attention:
            one.compile()

    def forward(self, x: Tensor) -> Tensor:
        for attention, experts in zip(self.attention, self.experts):
            x = experts(attention(x))
        return x


@job("shares", "ep", "late:routing", mending="a router that sends as many tokens to each expert", late_rank=1)
def favourite_expert(rank: Rank, mended: bool) -> Step:
    preference = 0.0 if mended else 1.5  # planted: favourite_expert
    model = Sparse(rank, rank.pick(4, 1), rank.pick(1024, 16), preference)
    own = [name for name, _ in model.named_parameters() if ".expert." in name]
    ignore: Any = torch.nn.parallel.DistributedDataParallel._set_params_and_buffers_to_ignore_for_model
    ignore(model, own)
    return training(replicated(rank, model, broadcast_buffers=False), batch(rank, 32))


class Gated(nn.Module):
    """RMSNorm and SwiGLU written out, in float32 where precision matters."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))
        self.gate = nn.Linear(width, 2 * width, bias=False)
        self.up = nn.Linear(width, 2 * width, bias=False)
        self.down = nn.Linear(2 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        exact = x.float()
        exact = exact * torch.rsqrt(exact.pow(2).mean(-1, keepdim=True) + 1e-6) * self.scale.float()
        normal = exact.to(x.dtype)
        gate = self.gate(normal).float()
        hidden = gate * torch.sigmoid(gate) * self.up(normal).float()
        result: Tensor = x + self.down(hidden.to(x.dtype))
        return result


@job("shares", "fsdp2", "late:not_compiled", mending="every rank compiles", late_rank=1)
def compiled_on_main_rank(rank: Rank, mended: bool) -> Step:
    width = rank.pick(2048, 16)
    with rank.device:
        blocks: list[nn.Module] = [Gated(width).to(dtype(rank)) for _ in range(rank.pick(4, 2))]
    if rank.number == 0 or mended:  # planted: compiled_on_main_rank
        blocks = [compiled(block) for block in blocks]
    mesh, model = init_device_mesh(rank.device.type, (rank.size,)), nn.Sequential(*blocks)
    for block in model:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return training(model, batch(rank, 32, width=2048))


@job("shares", "pp", "pipeline:bubble", mending="the batch is cut into 8 microbatches")
def stages_in_turn(rank: Rank, mended: bool) -> Step:
    blocks = linear_layers(rank, 3, 2048)
    module = nn.Sequential(*(compiled(block) for block in blocks))
    stage = PipelineStage(module, rank.number, rank.size, rank.device)
    pieces = rank.pick(8, 2) if mended else 1  # planted: stages_in_turn
    schedule = ScheduleGPipe(stage, pieces, loss_fn=lambda y, t: functional.mse_loss(y.float(), t))
    x, optimizer = batch(rank, 32, width=2048), adam(module)
    target = torch.zeros_like(x, dtype=torch.float32)

    def step() -> None:
        if rank.number == 0:
            schedule.step(x)
        elif rank.number == rank.size - 1:
            schedule.step(target=target)
        else:
            schedule.step()
        optimizer.step()
        optimizer.zero_grad()

    return step
