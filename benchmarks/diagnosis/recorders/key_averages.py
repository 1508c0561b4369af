"""How torch's own table of operators and the trace of one and the same run were recorded.

    python program.py eager_shapes FOLDER

The first word of the mode is `eager` or `compiled`, the second `shapes` or `plain` (without `record_shapes` and `with_flops`).
"""

import json
import os
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.profiler import ProfilerActivity, profile, record_function

from tb_torchcompile_plugin import tensorboard_trace_handler

mode, out = sys.argv[1:3]
torch.manual_seed(0)


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


kind, shapes = mode.split("_")
handler = tensorboard_trace_handler(out, worker_name=f"key_averages_{mode}")
model = Net(256, 4, 2).cuda()
if kind == "compiled":
    model = torch.compile(model)
x, y = torch.randn(8, 64, 256, device="cuda"), torch.randint(0, 10, (8,), device="cuda")
optimizer = torch.optim.SGD(model.parameters(), 1e-3)


def step():
    with record_function("my forward"):
        loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()


for _ in range(4):
    step()
torch.cuda.synchronize()
with profile(
    activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA],
    on_trace_ready=handler,
    record_shapes=shapes == "shapes",
    with_flops=shapes == "shapes",
    profile_memory=True,
) as prof:
    for _ in range(2):
        step()
    torch.cuda.synchronize()

FIELDS = (
    "key count self_cpu_time_total cpu_time_total self_device_time_total device_time_total self_cpu_memory_usage "
    "cpu_memory_usage self_device_memory_usage device_memory_usage flops is_user_annotation"
).split()
for by in (False, True):
    rows = [
        {field: getattr(row, field, None) for field in FIELDS}
        | {"input_shapes": str(row.input_shapes), "device_type": str(row.device_type)}
        for row in prof.key_averages(group_by_input_shape=by)
    ]
    name = f"key_averages_{mode}.{'by_shape' if by else 'by_name'}.json"
    with open(os.path.join(out, name), "w") as file:
        json.dump(rows, file, indent=1)
