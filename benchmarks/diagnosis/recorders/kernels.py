"""Record one program with the handler: python program.py MODE OUT"""

import sys

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.profiler import ProfilerActivity, profile, schedule

from tb_torchcompile_plugin import tensorboard_trace_handler

mode, out = sys.argv[1:3]
torch.manual_seed(0)
ACTIVITIES = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
handler = tensorboard_trace_handler(out, worker_name=mode)


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.heads = heads

    def forward(self, x):
        b, s, w = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, s, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, s, w))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Net(nn.Module):
    def __init__(self, width=256, heads=4, layers=4):
        super().__init__()
        self.blocks = nn.Sequential(*[Block(width, heads) for _ in range(layers)])
        self.head = nn.Linear(width, 10)

    def forward(self, x):
        return self.head(self.blocks(x).mean(1))


def cycle(step, warm=8, active=3, **kw):
    for _ in range(warm):
        step()
    torch.cuda.synchronize()
    with profile(
        activities=ACTIVITIES,
        schedule=schedule(wait=1, warmup=2, active=active, repeat=1),
        on_trace_ready=handler,
        **kw,
    ) as prof:
        for _ in range(3 + active):
            step()
            prof.step()
    torch.cuda.synchronize()


def training(model, x):
    y = torch.randint(0, 10, (len(x),), device="cuda")
    opt = torch.optim.SGD(model.parameters(), 1e-3)

    def step():
        opt.zero_grad()
        F.cross_entropy(model(x), y).backward()
        opt.step()

    return step


if mode == "low_bandwidth":  # a gather from random places: each number costs a sector of memory
    table = torch.randn(1 << 28, device="cuda")
    places = torch.randint(0, 1 << 28, (1 << 25,), device="cuda")
    gather = torch.compile(lambda t, i: t[i] * 2 + 1)
    cycle(lambda: gather(table, places), record_shapes=True)
elif mode == "attention":  # each way of attention, forward and backward, eager
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    cases = [
        (SDPBackend.FLASH_ATTENTION, torch.float16, False),
        (SDPBackend.FLASH_ATTENTION, torch.float16, True),
        (SDPBackend.EFFICIENT_ATTENTION, torch.float16, True),
        (SDPBackend.EFFICIENT_ATTENTION, torch.float32, False),
        (SDPBackend.CUDNN_ATTENTION, torch.bfloat16, True),
        (SDPBackend.MATH, torch.float32, False),
    ]

    def step():
        for backend, dtype, causal in cases:
            q, k, v = (
                torch.randn(4, 16, 1024 + 512 * causal, 64, device="cuda", dtype=dtype, requires_grad=True)
                for _ in range(3)
            )
            with sdpa_kernel(backend):
                F.scaled_dot_product_attention(q, k, v, is_causal=causal).sum().backward()

    step()
    with FlopCounterMode(display=False) as counter:
        step()
    print("flops", {str(k): v for k, v in counter.get_flop_counts()["Global"].items()})
    cycle(step, record_shapes=True)
elif mode in ("template", "template_shapes"):  # templates with inductor's own count
    model = torch.compile(Net(256, 4, 1).cuda().half(), mode="max-autotune-no-cudagraphs")
    x = torch.randn(8, 128, 256, device="cuda", dtype=torch.half)

    def step():
        with torch.no_grad():
            model(x)

    cycle(step, record_shapes=mode.endswith("shapes"))
elif mode == "training":
    x = torch.randn(64, 512, 1024, device="cuda", dtype=torch.bfloat16)
    cycle(training(torch.compile(Net(1024, 16, 2).cuda().bfloat16()), x), record_shapes=True)
elif mode in ("no_names", "no_names_graphs"):
    torch._inductor.config.triton.unique_kernel_names = False
    x = torch.randn(4, 64, 256, device="cuda")
    kind = "reduce-overhead" if mode.endswith("graphs") else None
    cycle(training(torch.compile(Net(256, 4, 1).cuda(), mode=kind), x))
elif mode in ("skips", "skips_parts"):
    torch._inductor.config.graph_partition = mode == "skips_parts"

    @torch.compile(mode="reduce-overhead")
    def mutates(x):
        x.add_(1)
        return x.sin() @ x

    @torch.compile(mode="reduce-overhead")
    def on_cpu(x, c):
        return x.cos() * 2 + 1, c + 1

    @torch.compile(mode="reduce-overhead")
    def fine(x):
        return (x.sin() @ x).relu()

    fixed = torch.zeros(64, 64, device="cuda")

    def step():
        with torch.no_grad():
            mutates(torch.randn(64, 64, device="cuda"))
            on_cpu(fixed, torch.ones(4))
            fine(fixed)

    cycle(step)
elif mode == "recompiles_inside":
    model = torch.compile(Net(256, 4, 1).cuda())
    seen = [0]

    def step():
        seen[0] += 1
        with torch.no_grad():
            model(torch.randn(4, 32 if seen[0] < 13 else 48, 256, device="cuda")).sum().item()

    cycle(step)
elif mode == "user_triton":
    import triton, triton.language as tl

    @triton.autotune(configs=[triton.Config({"BLOCK": 256}), triton.Config({"BLOCK": 1024})], key=["n"])
    @triton.jit
    def my_scale_kernel(x, out, n, BLOCK: tl.constexpr):
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + i, tl.load(x + i, i < n) * 3.0, i < n)

    def scale(x):
        out = torch.empty_like(x)
        my_scale_kernel[lambda m: (triton.cdiv(x.numel(), m["BLOCK"]),)](x, out, x.numel())
        return out

    compiled = torch.compile(lambda x: scale(x.sin()) + 1)
    x = torch.randn(1 << 20, device="cuda")

    def step():
        compiled(x)
        scale(x)

    cycle(step, record_shapes=True)
elif mode == "flex":
    from torch.nn.attention.flex_attention import flex_attention

    flex = torch.compile(flex_attention)
    q, k, v = (
        torch.randn(2, 8, 512, 64, device="cuda", dtype=torch.float16, requires_grad=True) for _ in range(3)
    )

    def score(s, b, h, qi, ki):
        return s + (qi - ki) * 0.1

    def step():
        flex(q, k, v, score_mod=score).sum().backward()

    cycle(step, record_shapes=True)
print("done", mode, flush=True)
