"""What torch 2.4 to 2.8 logs: `TORCH_TRACE=OUT python program.py basic|autograd|ddp [RANK STORE]`, on the CPU."""

import sys

import torch
import torch._dynamo as dynamo

torch.manual_seed(0)
case = sys.argv[1]


def mlp():
    return torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))


if case == "basic":
    model = torch.compile(mlp())
    for _ in range(2):
        model(torch.randn(8, 16)).sum().backward()

    @torch.compile
    def breaks(x):
        x = torch.sin(x)
        print("hi")
        x = x + 1
        if x.sum() > 0:
            x = x * 2
        v = x.sum().item()
        x = x.cos()
        dynamo.graph_break()
        return x + v

    breaks(torch.ones(8))

    @torch.compile(backend="aot_eager")
    def scaled(x, s):
        return x * s

    for i in range(12):
        scaled(torch.ones(4), i + 0.5) if i % 2 else scaled(torch.ones(4 + i), i)

    @torch.compile(backend="aot_eager")
    def limited(x, function):
        return function(x)

    for i in range(10):
        limited(torch.ones(4), (lambda i: lambda x: x + i)(i))

    auto = torch.compile(lambda x: x.relu() + 1, backend="aot_eager")
    for n in (4, 6, 10):
        auto(torch.ones(n))

    def bad(graph, inputs):
        raise RuntimeError("the backend's <b>own</b> error")

    dynamo.config.suppress_errors = True

    @torch.compile(backend=bad)
    def failing(x):
        return x + 1

    failing(torch.ones(3))
    dynamo.config.suppress_errors = False
    dynamo.reset()
    model = torch.compile(mlp())
    model(torch.randn(8, 16)).sum().backward()
elif case == "autograd":
    from torch._dynamo import compiled_autograd

    model = torch.compile(mlp(), backend="aot_eager")
    enable = getattr(compiled_autograd, "_enable", None) or compiled_autograd.enable
    with enable(lambda graph: torch.compile(graph, backend="aot_eager")):
        model(torch.randn(8, 16)).sum().backward()
else:
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    rank, store = int(sys.argv[2]), sys.argv[3]
    dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=2)
    layers = torch.nn.Sequential(*[torch.nn.Linear(600, 600) for _ in range(3)])
    compiled = torch.compile(DistributedDataParallel(layers, bucket_cap_mb=1), backend="aot_eager")
    for size in (8, 6 if rank else 8):
        compiled(torch.ones(size, 600)).sum().backward()
    dist.destroy_process_group()
