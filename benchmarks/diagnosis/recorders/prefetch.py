"""A healthy program: ResNet-50 scores pictures that a stream of its own copies ahead, in bf16, with CUDA graphs."""

import torch
import torchvision
from torch.profiler import ProfilerActivity, profile, schedule

from tb_torchcompile_plugin import tensorboard_trace_handler

model = torchvision.models.resnet50(weights=None).to("cuda", torch.bfloat16)
model = model.to(memory_format=torch.channels_last).eval()
mean, std = (
    torch.tensor(numbers, device="cuda", dtype=torch.bfloat16).view(1, 3, 1, 1)
    for numbers in ([123.7, 116.3, 103.5], [58.4, 57.1, 57.4])
)


@torch.compile(mode="reduce-overhead")
def score(images):
    pictures = ((images.to(torch.bfloat16) - mean) / std).contiguous(memory_format=torch.channels_last)
    return model(pictures).float().softmax(-1).topk(5)


pool = [torch.randint(0, 256, (256, 3, 224, 224), dtype=torch.uint8).pin_memory() for _ in range(3)]
side = torch.cuda.Stream()


def fetch(number):
    with torch.cuda.stream(side):
        return pool[number % 3].to("cuda", non_blocking=True)


hits = torch.zeros((), device="cuda")
recording = profile(
    activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA],
    schedule=schedule(wait=8, warmup=2, active=3, repeat=1),
    on_trace_ready=tensorboard_trace_handler("runs"),
    record_shapes=True,
)
with torch.inference_mode(), recording:
    ahead = fetch(0)
    for number in range(16):
        torch.cuda.current_stream().wait_stream(side)
        ahead.record_stream(torch.cuda.current_stream())
        images, ahead = ahead, fetch(number + 1)
        hits += (score(images).indices[:, 0] == 7).sum()
        recording.step()
