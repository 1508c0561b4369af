"""A small decoder that serves like an inference engine: one CUDA graph per batch size, captured under the profiler."""
import argparse, os, sys
import torch
from torch import nn
import torch.nn.functional as F
from torch.profiler import ProfilerActivity, profile, record_function

BOTH = [ProfilerActivity.CPU, ProfilerActivity.CUDA]


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x, keys, values):
        batch, width = x.shape
        q, k, v = self.qkv(x).view(batch, 3, self.heads, width // self.heads).unbind(1)
        keys[:batch, :, 0] = k
        values[:batch, :, 0] = v
        y = F.scaled_dot_product_attention(q.unsqueeze(2), keys[:batch], values[:batch])
        return self.out(y.reshape(batch, width))


class MLP(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        return self.down(F.silu(self.up(x)))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = MLP(width)

    def forward(self, x, keys, values):
        x = x + self.attention(self.norm1(x), keys, values)
        return x + self.mlp(self.norm2(x))


class Decoder(nn.Module):
    def __init__(self, width=1024, heads=16, depth=4, most=16, length=512, vocabulary=32000):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.keys = [torch.zeros(most, heads, length, width // heads) for _ in range(depth)]
        self.values = [torch.zeros(most, heads, length, width // heads) for _ in range(depth)]

    def forward(self, tokens):
        x = self.embed(tokens)
        for block, keys, values in zip(self.blocks, self.keys, self.values):
            x = block(x, keys, values)
        return self.head(x).argmax(-1)


class Runner:
    def __init__(self, model, sizes, folder, layout):
        self.model, self.sizes, self.graphs, self.folder, self.layout = model, sizes, {}, folder, layout
        self.pool = None

    def capture(self):
        if self.layout == "vllm":
            for size in reversed(self.sizes):
                with profile(activities=BOTH, record_shapes=True, with_stack=True) as prof:
                    self.capture_one(size)
                os.makedirs(f"{self.folder}/capture_traces", exist_ok=True)
                prof.export_chrome_trace(f"{self.folder}/capture_traces/bs_{size}_rank0.json.gz")
        else:
            with profile(activities=BOTH, record_shapes=True, with_stack=True) as prof:
                for size in reversed(self.sizes):
                    with record_function(f"capture bs={size}"):
                        self.capture_one(size)
            os.makedirs(f"{self.folder}/graph_capture_profile", exist_ok=True)
            prof.export_chrome_trace(f"{self.folder}/graph_capture_profile/cuda_graph_capture-DecodeCudaGraphRunner-TP-0.json.gz")

    def capture_one(self, size):
        tokens = torch.zeros(size, dtype=torch.long)
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for _ in range(2):
                self.model(tokens)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self.pool):
            out = self.model(tokens)
        self.pool = graph.pool()
        self.graphs[size] = (graph, tokens, out)

    def run(self, tokens):
        count = len(tokens)
        size = next((s for s in self.sizes if s >= count), None)
        with record_function(f"execute_context_0(0)_generation_{count}({count})"):
            if size is None:
                return self.model(tokens)
            graph, static, out = self.graphs[size]
            static[:count].copy_(tokens)
            graph.replay()
            return out[:count].cpu()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--layout", default="vllm")
    a = parser.parse_args()
    torch.set_default_device("cuda")
    torch.set_default_dtype(torch.bfloat16)
    torch.manual_seed(0)
    model = Decoder().eval()
    runner = Runner(model, [1, 2, 4, 8], a.folder, a.layout)
    with torch.inference_mode():
        runner.capture()
        for n in (1, 3, 8):
            runner.run(torch.randint(0, 32000, (n,)))
        from tb_torchcompile_plugin import tensorboard_trace_handler
        with profile(activities=BOTH, record_shapes=True, with_stack=False, schedule=torch.profiler.schedule(wait=1, warmup=1, active=6),
                     on_trace_ready=tensorboard_trace_handler(a.folder, worker_name=f"engine_rank0")) as prof:
            for n in (1, 1, 1, 2, 3, 5, 8, 12):
                for _ in range(3):
                    runner.run(torch.randint(0, 32000, (n,)))
                prof.step()
    torch.cuda.synchronize()
    print("done", a.layout)


main()
