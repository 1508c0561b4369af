"""What the sixteen programs share: arguments, a clock, and the profiler as the README shows it."""
import argparse, functools, json, os, statistics, sys, time
import torch
from torch.profiler import ProfilerActivity, profile, schedule


def arguments():
    p = argparse.ArgumentParser()
    p.add_argument("--mended", action="store_true")
    p.add_argument("--mode", choices=["time", "record", "warm"], default="time")
    p.add_argument("--out", default="runs")
    p.add_argument("--tiny", action="store_true")
    args = p.parse_args()
    args.device = "cpu" if args.tiny else "cuda"
    if args.tiny:
        real = torch.compile
        torch.compile = lambda f=None, mode=None, **kw: real(f, **{**kw, "backend": "aot_eager"})
        torch.cuda.synchronize = lambda *a: None
    return args


class Clock:
    """Stands where the profiler stands, and times rounds of steps with nothing recorded."""
    def __init__(self, warm, per, rounds):
        self.warm, self.per, self.n, self.t0, self.times = warm, per, 0, None, []
        self.total = warm + per * rounds

    def __enter__(self):
        return self

    def __exit__(self, *e):
        if e[0] is None:
            print("RESULT " + json.dumps({"ms": round(statistics.median(self.times), 3) if self.times else None,
                                          "rounds": [round(t, 3) for t in self.times],
                                          "gib": round(torch.cuda.max_memory_allocated() / 2**30, 2)}), flush=True)

    def step(self):
        self.n += 1
        if self.n >= self.warm and (self.n - self.warm) % self.per == 0:
            torch.cuda.synchronize()
            now = time.perf_counter()
            if self.t0 is not None:
                self.times.append((now - self.t0) * 1e3 / self.per)
            self.t0 = now


def profiler(args, stack, wait=8, active=3, per=20, rounds=4):
    if args.mode == "record":
        from tb_torchcompile_plugin import tensorboard_trace_handler
        acts = [ProfilerActivity.CPU] + ([] if args.tiny else [ProfilerActivity.CUDA])
        prof = profile(activities=acts, schedule=schedule(wait=wait, warmup=2, active=active, repeat=1),
                       on_trace_ready=tensorboard_trace_handler(args.out, use_gzip=False), with_stack=stack, record_shapes=True)
        prof.total = wait + 2 + active + 3
        return prof
    if args.tiny or args.mode == "warm":
        return Clock(wait, 1, 1)
    return Clock(max(wait + 2, 12), per, rounds)
