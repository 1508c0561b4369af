"""Serves one image at a time with a timm ViT."""
import timm
import torch
from tb_torchcompile_plugin import tensorboard_trace_handler
from common_args import parse, record
from stopwatch import timed

args = parse()
device = args.device


@torch.inference_mode()
def main():
    handler = tensorboard_trace_handler(args.out)
    torch.manual_seed(0)
    model = timm.create_model("vit_tiny_patch16_224", pretrained=False).eval().to(device, torch.bfloat16)
    if args.mended:
        model = torch.compile(model, mode="reduce-overhead")
    else:
        model = torch.compile(model)
    requests = [torch.randn(1, 3, 224, 224, device=device, dtype=torch.bfloat16) for _ in range(8)]
    answers = []

    def serve(n, profiler=None):
        for i in range(n):
            scores = model(requests[i % len(requests)]).float().softmax(-1)
            answers.append(scores.topk(5).indices.cpu())
            if profiler:
                profiler.step()

    serve(6)
    timed(serve, steps=50)
    with record(handler) as profiler:
        serve(8, profiler)


if __name__ == "__main__":
    main()
