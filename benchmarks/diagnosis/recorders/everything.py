"""Everything that the profiler can record on a CPU, of two compiled steps with an eager optimizer.

    python program.py FOLDER

Next to the trace it writes what torch's own table shows for the same run: `key_averages.json`.
"""

import json
import os
import sys

os.environ["TORCHINDUCTOR_CPP_ENABLE_KERNEL_PROFILE"] = "1"

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function, schedule

from tb_torchcompile_plugin import tensorboard_trace_handler

folder = sys.argv[1]
FIELDS = (
    "key count self_cpu_time_total cpu_time_total self_device_time_total device_time_total self_cpu_memory_usage "
    "cpu_memory_usage self_device_memory_usage device_memory_usage flops is_user_annotation input_shapes"
).split()
handler = tensorboard_trace_handler(folder, worker_name="everything")
torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.head = nn.Linear(8 * 8 * 8, 10)

    def forward(self, x):
        return self.head(self.conv(x).relu().flatten(1))


net = Net()
compiled = torch.compile(net)
optimizer = torch.optim.AdamW(net.parameters(), 1e-3)
image = torch.randn(4, 3, 16, 16)


def step():
    with record_function("forward"):
        loss = compiled(image).sum() + net(image).sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()


def ready(prof):
    table = prof.key_averages()
    handler(prof)
    rows = [
        {field: getattr(row, field) for field in FIELDS} | {"device_type": str(row.device_type)} for row in table
    ]
    with open(os.path.join(folder, "key_averages.json"), "w") as file:
        json.dump(rows, file, indent=1)


for _ in range(2):
    step()
with profile(
    activities=[ProfilerActivity.CPU],
    schedule=schedule(wait=0, warmup=1, active=2, repeat=1),
    on_trace_ready=ready,
    record_shapes=True,
    profile_memory=True,
    with_stack=True,
    with_flops=True,
    with_modules=True,
) as prof:
    for _ in range(3):
        step()
        prof.step()
