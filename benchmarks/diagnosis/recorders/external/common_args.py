import argparse, os
import torch


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--mended", action="store_true")
    parser.add_argument("--out", default="runs")
    args = parser.parse_args()
    args.quick = bool(os.environ.get("QUICK"))
    args.device = "cuda" if torch.cuda.is_available() else "cpu"
    return args


def record(handler):
    from torch.profiler import ProfilerActivity, profile, schedule
    return profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], schedule=schedule(wait=1, warmup=2, active=4),
                   on_trace_ready=handler, record_shapes=True, with_stack=not os.environ.get("NOSTACK"))


if os.environ.get("GRAPHS"):
    _compile = torch.compile
    torch.compile = lambda model=None, **keywords: _compile(model, **{**keywords, "mode": "reduce-overhead"})
