"""CUDA graphs and dynamic shapes: programs with one planted behaviour, their mended twins, and the truth that was counted.

    python program.py OUT_DIR [--only NAME ...] [--cpu]

Each program runs in a process of its own: `life` is a recording of its first steps, `steady` one of later steps, and
between them a loop is timed without a profiler. OUT_DIR/NAME/ holds the recordings, OUT_DIR/measured.json the truth.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path




LIFE, STEADY, TIMED = 14, 6, 60


def programs():
    import torch
    from torch import nn

    device = "cuda" if torch.cuda.is_available() and not os.environ.get("GRAPHS_CPU") else "cpu"
    torch.manual_seed(0)

    class Net(nn.Module):
        def __init__(self, width=128, depth=6):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))

        def forward(self, x):
            for layer in self.layers:
                x = torch.nn.functional.gelu(layer(x)) + x
            return x

    def net(**options):
        return Net(**options).to(device)

    def sizes(values):
        i = [0]

        def following():
            i[0] += 1
            return values[(i[0] - 1) % len(values)]

        return following

    def rows(n, width=128):
        return torch.randn(n, width, device=device)

    SIX = [32, 40, 48, 56, 64, 72]
    table = {}

    def program(build):
        table[build.__name__] = build
        return build

    @program
    def stable(mended):
        model = torch.compile(net(), mode="reduce-overhead")
        x = rows(32)

        def step():
            with torch.no_grad():
                return model(x)

        return step, {"kind": "replayed"}

    @program
    def sizes_static(mended):
        model = torch.compile(net(), mode="reduce-overhead", dynamic=False)
        size = sizes(SIX)

        def step():
            n = size()
            x = rows(n)
            with torch.no_grad():
                if mended:
                    return model(torch.nn.functional.pad(x, (0, 0, 0, 72 - n)))[:n]
                return model(x)  # planted: sizes_static

        return step, {"kind": "new shapes", "sizes": 1 if mended else 6}

    @program
    def sizes_dynamic(mended):
        model = torch.compile(net(), mode="reduce-overhead", dynamic=True)
        size = sizes(SIX)

        def step():
            n = size()
            x = rows(n)
            with torch.no_grad():
                if mended:
                    return model(torch.nn.functional.pad(x, (0, 0, 0, 72 - n)))[:n]
                return model(x)  # planted: sizes_dynamic

        return step, {"kind": "new shapes", "sizes": 1 if mended else 6}

    @program
    def sizes_without_end(mended):
        model = torch.compile(net(), mode="reduce-overhead", dynamic=True)
        size = sizes(list(range(33, 433)))

        def step():
            n = size()
            x = rows(n)
            with torch.no_grad():
                if mended:
                    return model(torch.nn.functional.pad(x, (0, 0, 0, 448 - n)))[:n]
                return model(x)  # planted: sizes_without_end

        return step, {"kind": "new shapes", "sizes": None}

    class Counting(Net):
        def __init__(self, in_place):
            super().__init__()
            self.in_place = in_place

        def forward(self, x, state):
            if self.in_place:
                state.add_(1)  # planted: mutated_input
            else:
                state = state + 1
            return super().forward(x) + state.mean()

    @program
    def mutated_input(mended):
        model = torch.compile(Counting(not mended).to(device), mode="reduce-overhead")
        x, state = rows(32), rows(1)

        def step():
            with torch.no_grad():
                return model(x, state)

        return step, {"kind": "skipped", "reason": "mutated inputs"}

    class OnTheHost(Net):
        def forward(self, x, state):
            bias = state.sum().to(x.device)  # planted: host_op
            return super().forward(x + bias)

    def host_op(mended):
        model = torch.compile(OnTheHost().to(device), mode="reduce-overhead")
        x, state = rows(32), torch.zeros(128, device=device if mended else "cpu")

        def step():
            with torch.no_grad():
                return model(x, state)

        return step

    @program
    def host_op_skipped(mended):
        torch._inductor.config.graph_partition = False
        return host_op(mended), {"kind": "skipped", "reason": "cpu device"}

    @program
    def host_op_partitioned(mended):
        return host_op(mended), {"kind": "partitioned"}

    @program
    def moved_parameters(mended):
        plain = net(depth=4)
        model = torch.compile(plain, mode="reduce-overhead")
        x, kept = rows(32), []

        def step():
            with torch.no_grad():
                if mended:
                    for p in plain.parameters():
                        p.copy_(p * 1.0)
                else:
                    for p in plain.parameters():
                        kept.append(p.data)
                        p.data = p.data.clone()  # planted: moved_parameters
                return model(x)

        return step, {"kind": "re-recorded", "reason": "static input address"}

    @program
    def output_kept(mended):
        model = torch.compile(net(), mode="reduce-overhead")
        x, kept = rows(32), []

        def step():
            with torch.set_grad_enabled(not mended):
                kept[:] = [model(x)]  # planted: output_kept
                return kept[0]

        return step, {"kind": "warming up", "reason": "pending backward"}

    @program
    def training(mended):
        plain = net()
        optimizer = torch.optim.SGD(plain.parameters(), lr=1e-3, foreach=True)
        model = torch.compile(plain, mode="reduce-overhead")
        x = rows(32)

        def step():
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss

        return step, {"kind": "replayed"}

    @program
    def shared_pool(mended):
        """Two functions in one step: the second is recorded behind the first."""
        first = torch.compile(net(depth=3), mode="reduce-overhead")
        second = torch.compile(net(depth=2), mode="reduce-overhead")
        x = rows(32)

        def step():
            torch.compiler.cudagraph_mark_step_begin()
            with torch.no_grad():
                return second(first(x)).sum()

        return step, {"kind": "replayed", "functions": 2}

    @program
    def varying_batch(mended):
        """Automatic dynamic: static first, then the size is a symbol. Mended: marked before the first call."""
        model = torch.compile(net())
        size = sizes([24, 17, 31, 24, 40, 24, 53, 31])

        def step():
            x = rows(size())
            if mended:
                torch._dynamo.mark_dynamic(x, 0)
            with torch.no_grad():
                return model(x)  # planted: varying_batch

        return step, {"kind": "dynamic", "compilations": 1 if mended else 2}

    @program
    def static_lengths(mended):
        """dynamic=False compiles each length anew until the limit. Mended: padded to buckets of 32."""
        model = torch.compile(net(), dynamic=False)
        size = sizes([17, 33, 65, 24, 40, 72, 90, 31, 50, 66, 81, 95])

        def step():
            n = size()
            x = rows(n)
            with torch.no_grad():
                if mended:
                    return model(torch.nn.functional.pad(x, (0, 0, 0, -n % 32)))[:n]
                return model(x)  # planted: static_lengths

        return step, {"kind": "static", "compilations": 3 if mended else 8}

    class Windowed(Net):
        def forward(self, x):
            n = x.shape[0]
            for _ in range(n // 32):  # planted: specialised_length
                x = x + 1
            return super().forward(x)

    class Whole(Net):
        def forward(self, x):
            return super().forward(x + x.shape[0] // 32)

    @program
    def specialised_length(mended):
        """The number of windows is a Python loop: each new quotient is compiled anew."""
        model = torch.compile((Whole if mended else Windowed)().to(device), dynamic=True)
        size = sizes([40, 70, 100, 41, 71, 101, 130, 160])

        def step():
            with torch.no_grad():
                return model(rows(size()))

        return step, {"kind": "specialised", "compilations": 1 if mended else 5}

    return table, device


NAMES = """stable sizes_static sizes_dynamic sizes_without_end mutated_input host_op_skipped host_op_partitioned
moved_parameters output_kept training shared_pool varying_batch static_lengths specialised_length""".split()
HEALTHY = ("stable", "training", "shared_pool", "host_op_partitioned")


class Truth:
    """Counts what torch's CUDA graph trees do, by compile id, function and what it is."""

    def __init__(self):
        from torch._inductor import cudagraph_trees

        self.counts, self.lines = Counter(), []
        manager, counts = cudagraph_trees.CUDAGraphTreeManager, self.counts

        def count(name, what, function_of):
            inner = getattr(manager, name)

            def counted(self, *args):
                function = function_of(args)
                counts[f"{self.id_to_compile_id.get(function)}/{function.id}/{what}"] += 1
                return inner(self, *args)

            setattr(manager, name, counted)

        count("record_function", "recorded", lambda a: a[1])
        count("run_eager", "warm_up", lambda a: a[1])
        count("execute_node", "replayed", lambda a: a[0].wrapped_function.id)

    def now(self):
        from torch._dynamo.utils import counters

        skips = counters["inductor"].get("cudagraph_skips", 0)
        return {**self.counts, **({"skips": skips} if skips else {})}


def since(after, before):
    return {key: value - before.get(key, 0) for key, value in after.items() if value != before.get(key, 0)}


def pool_bytes():
    import torch

    if not torch.cuda.is_available():
        return None
    pools = Counter()
    for segment in torch.cuda.memory_snapshot():
        pools[str(tuple(segment.get("segment_pool_id", (0, 0))))] += segment["total_size"]
    return dict(pools)


def one(name, mended, out):
    import torch
    from torch.profiler import ProfilerActivity, profile, schedule

    from tb_torchcompile_plugin import tensorboard_trace_handler

    if os.environ.get("GRAPHS_QUICK"):
        real = torch.compile
        torch.compile = lambda model, mode=None, **options: real(model, backend="aot_eager", **options)
    label = f"{name}_mended" if mended else name
    folder = out / label
    truth = Truth()
    table, device = programs()
    handler = tensorboard_trace_handler(str(folder), label, use_gzip=True)
    wait = torch.cuda.synchronize if device == "cuda" else (lambda: None)
    activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * (device == "cuda")
    step, planted = table[name](mended)
    answer = {"name": name, "mended": mended, "device": device, "torch": torch.__version__, "planted": planted}

    def counted(steps):
        before = truth.now()
        for _ in range(steps):
            step()
        wait()
        return since(truth.now(), before)

    def recorded(steps, wait_steps):
        if mended:
            return counted(steps)
        before, cycle = None, schedule(wait=0, warmup=1, active=steps, repeat=1)
        with profile(activities=activities, schedule=cycle, on_trace_ready=handler, record_shapes=True) as prof:
            if wait_steps:
                step()
            else:
                torch.ones(8, device=device).add_(1)
            wait()
            before = truth.now()
            for _ in range(steps):
                prof.step()
                step()
            wait()
            after = truth.now()
            prof.step()
        return since(after, before)

    answer["life"] = recorded(LIFE, False)
    lock = open(out / "lock", "w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    for _ in range(8):
        step()
    wait()
    times, begun = [], time.perf_counter()
    for _ in range(TIMED):
        start = time.perf_counter()
        step()
        times.append((time.perf_counter() - start) * 1e6)
    wait()
    answer["step_us"] = round((time.perf_counter() - begun) * 1e6 / TIMED, 2)
    answer["median_host_us"] = round(sorted(times)[TIMED // 2], 2)
    answer["steady"] = recorded(STEADY, True)
    fcntl.flock(lock, fcntl.LOCK_UN)
    answer["all"], answer["pool_bytes"] = truth.now(), pool_bytes()
    from torch._dynamo.utils import counters

    answer["frames"] = dict(counters["frames"])
    answer["stats"] = dict(counters["stats"])
    (folder / "truth.json").write_text(json.dumps(answer))


def run(name, mended, options, out):
    environment = {**os.environ, "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    if options.cpu:
        environment |= {"CUDA_VISIBLE_DEVICES": "", "GRAPHS_CPU": "1", "OMP_NUM_THREADS": "1", "ONEDNN_MAX_CPU_ISA": "AVX2"}
    label = f"{name}_mended" if mended else name
    (out / label).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as cache, open(out / label / "log.txt", "w") as log:
        environment["TORCHINDUCTOR_CACHE_DIR"] = cache
        command = [sys.executable, __file__, str(out), "--one", name, *(["--mended"] if mended else [])]
        try:
            code = subprocess.run(command, env=environment, stdout=log, stderr=log, timeout=120).returncode
        except subprocess.TimeoutExpired:
            code = "timeout"
    if code != 0:
        return {"name": name, "mended": mended, "failed": code, "log": (out / label / "log.txt").read_text()[-1500:]}
    return json.loads((out / label / "truth.json").read_text())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--at-once", type=int, default=5)
    parser.add_argument("--one")
    parser.add_argument("--mended", action="store_true")
    options = parser.parse_args()
    out = options.out.absolute()
    out.mkdir(parents=True, exist_ok=True)
    if options.one:
        return one(options.one, options.mended, out)
    started = time.time()
    names = options.only or NAMES
    jobs = [(name, mended) for name in names for mended in ((False,) if name in HEALTHY else (False, True))]
    with ThreadPoolExecutor(options.at_once) as pool:
        rows = list(pool.map(lambda job: run(*job, options, out), jobs))
    (out / "lock").unlink(missing_ok=True)
    result = {"seconds": round(time.time() - started, 1), "programs": rows}
    (out / "measured.json").write_text(json.dumps(result, indent=1))
    for row in rows:
        print(row["name"], "mended" if row["mended"] else "planted", row.get("step_us", row.get("failed")), row.get("life"), flush=True)
    print(result["seconds"], "s", flush=True)


if __name__ == "__main__":
    main()
