"""`python -m benchmarks.capture`: measure what recording costs a training job, on the GPU or, without one, on the CPU.

Pairs of fresh processes with empty caches compile one training step, with the recorder and without, in turn. Each then
times steady steps. Wall time counts, because compile workers are other processes; it varies by more than recording
costs, so the seconds that the recorder itself takes are printed next to it: taking records, reading and writing them.
With `--status` both processes record, one of them without a status file: the CPU seconds of the process count.
With `--notes` only: what it costs to note how long a step takes (at most 5 µs).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import timeit
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from benchmarks.networks import NETWORKS

_STEADY_STEPS = 50


def main() -> int:
    """Print the cost of each pair of processes, and their medians."""
    options = _options()
    if options.child:
        print(json.dumps(_train(options.network, options.child, status=not options.status)))
        return 0
    if options.notes:
        print(*(f"{name}: {us:.2f} µs a step" for name, us in _notes_us().items()), sep="\n")
        return 0
    runs: dict[bool, list[dict[str, Any]]] = {True: [], False: []}
    for pair in range(options.pairs):
        for recorded in (True, False) if pair % 2 else (False, True):
            runs[recorded].append(_child(options.network, recorded=recorded, status=options.status))
            print(f"pair {pair + 1}", "recorded" if recorded else "plain   ", runs[recorded][-1], flush=True)
    print("recorder_s: median", statistics.median(run["recorder_s"] for run in runs[True]))
    for name in ("compile_s", "compile_cpu_s", "step_us"):
        plain, recorded = (statistics.median(run[name] for run in runs[which]) for which in (False, True))
        ratio = statistics.median(b[name] / a[name] - 1 for a, b in zip(runs[False], runs[True]))
        print(f"{name}: plain {plain:.4g}, recorded {recorded:.4g}; median of the pairs {100 * ratio:+.1f} %")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--network", choices=sorted(NETWORKS), default="resnet18")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--status", action="store_true")
    parser.add_argument("--notes", action="store_true")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    return parser.parse_args()


def _child(network: str, *, recorded: bool, status: bool) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        child = f"{folder}/out" if recorded or status else "plain"
        command = [sys.executable, "-W", "ignore", "-m", "benchmarks.capture"]
        caches = {"TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor", "TRITON_CACHE_DIR": f"{folder}/triton"}
        result = subprocess.run(
            [*command, "--network", network, "--child", child, *(["--status"] if not recorded else [])],
            env={**os.environ, **caches},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        numbers: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
        return numbers


class _Spent:
    """How long the recorder blocks the training: each record that it takes, and the summary at the end.

    The CPU time of the thread that keeps the status file is counted by itself; it reads records for the summary.
    """

    def __init__(self, recorder: Any) -> None:
        self.seconds = self.status_cpu_s = 0.0
        recorder.status._run = self._thread_timed(recorder.status._run)
        for name in ("_queue", "write"):
            setattr(recorder, name, self._timed(getattr(recorder, name)))

    def _thread_timed(self, run: Callable[..., None]) -> Callable[..., None]:
        def timed(*args: Any) -> None:
            run(*args)
            self.status_cpu_s += time.thread_time()

        return timed

    def _timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **options: Any) -> Any:
            started = time.perf_counter()
            try:
                return function(*args, **options)
            finally:
                self.seconds += time.perf_counter() - started

        return timed


def _train(network: str, out: str, *, status: bool) -> dict[str, Any]:
    import torch

    from tb_torchcompile_plugin.writer.recorded_block import CompileRecorder
    from tb_torchcompile_plugin.writer.recorder import recorder

    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = NETWORKS[network]().to(device)
    compiled = torch.compile(model)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    images, target = torch.randn(8, 3, 64, 64, device=device), torch.randint(0, 1000, (8,), device=device)

    def step() -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(compiled(images), target).backward()
        optimizer.step()

    def seconds(steps: int) -> float:
        started = time.perf_counter()
        for _ in range(steps):
            step()
        if device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - started

    spent = _Spent(recorder())
    if not status:
        recorder().status.begin = lambda: None  # type: ignore[method-assign]  # to compare with no thread
    with nullcontext() if out == "plain" else CompileRecorder(out):
        used = time.process_time()
        numbers: dict[str, Any] = {"compile_s": round(seconds(1), 3)}
        numbers["compile_cpu_s"] = round(time.process_time() - used, 3)
        seconds(3)
        before = recorder().taken
        steady = _STEADY_STEPS if device == "cuda" else 5
        numbers["step_us"] = round(seconds(steady) / steady * 1e6, 1)
        numbers["records"] = recorder().taken - before
    numbers["recorder_s"] = round(spent.seconds, 3)
    numbers["status_cpu_s"] = round(spent.status_cpu_s, 3)
    numbers["summary_bytes"] = sum(path.stat().st_size for path in Path(out).glob("*.pb"))
    return numbers


def _notes_us() -> dict[str, float]:
    """Return what noting a step takes in µs: around an empty profiler step, and in an optimizer's hook."""
    import torch
    from torch.optim.optimizer import _global_optimizer_post_hooks

    from tb_torchcompile_plugin import tensorboard_trace_handler
    from tb_torchcompile_plugin.writer.step_notes import StepClock, noting

    prof = torch.profiler.profile(schedule=torch.profiler.schedule(wait=1, warmup=0, active=1))
    optimizer = torch.optim.SGD([torch.zeros(1)])
    empty_step = noting(lambda self: None, StepClock.entered, StepClock.returned)
    with tempfile.TemporaryDirectory() as out:
        tensorboard_trace_handler(out)
        (hook,) = _global_optimizer_post_hooks.values()
        return {
            "profiler.step": _call_us(lambda: empty_step(prof)),
            "optimizer.step": _call_us(lambda: hook(optimizer, (), {})),
        }


def _call_us(function: Callable[[], object]) -> float:
    """Return the fastest of 25 rounds: the machine is shared."""
    return min(timeit.repeat(function, number=10_000, repeat=25)) / 10_000 * 1e6


if __name__ == "__main__":
    sys.exit(main())
