"""Times and records programs, each as it is (`eager`), compiled with empty caches (`compiled`) and, two of them, once
more with the caches that this left (`warm`).

    python twins.py OUT_DIR [--only NAME …] [--quick] [--deadline SECONDS]

One process after the other, each forked from one that has imported the libraries but has not touched the GPU. Written:
OUT_DIR/PROGRAM/{eager,compiled,warm}/ with the recordings, OUT_DIR/PROGRAM/measured.json, and OUT_DIR/measured.json
with all of them. Each process measures, in this order:

* `first_s`: the seconds of each of the first steps, synchronized after each (before the first, the GPU's libraries are
  made ready);
* `steady`: steps as they run, in blocks that are synchronized at their ends only: mean of each block, median, mean;
* the recording: three steps of the same loop, right behind those. All steps run inside of the profiler, whose handler
  was made before the model was first called.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import statistics
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

FIRST, SETTLE_S, BLOCKS, PER_BLOCK, ACTIVE = 8, 0.8, 10, 25, 3
WARM = ("torchvision_resnet18_training", "transformers_gpt2_inference")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, for a try without a GPU")
    parser.add_argument("--deadline", type=float, default=420)
    options = parser.parse_args()
    options.out = options.out.resolve()
    started = time.monotonic()
    import_libraries()
    import programs

    print(f"imports {time.monotonic() - started:.1f} s", flush=True)
    results = {}
    for name in options.only or programs.NAMES:
        if time.monotonic() - started > options.deadline:
            print("out of time; left out:", name, flush=True)
            continue
        results[name] = twins(options, name)
        write(options.out / name / "measured.json", results[name])
        write(options.out / "measured.json", results)
        print(json.dumps({"program": name, **results[name]["verdict"]}), flush=True)
    print(f"all {time.monotonic() - started:.1f} s", flush=True)
    return 0


def import_libraries() -> None:
    for name in (
        "torch",
        "torchvision",
        "timm",
        "transformers.models.llama.modeling_llama",
        "transformers.models.gpt2.modeling_gpt2",
        "transformers.models.bert.modeling_bert",
        "torch_geometric.nn",
        "pytorch_lightning",
        "accelerate",
        "tb_torchcompile_plugin",
    ):
        try:
            if name != "torch" and not leaves_the_gpu_alone(name):
                print("not before the fork:", name, flush=True)
                continue
            __import__(name)
        except Exception as error:
            print("not here:", name, error, flush=True)


def leaves_the_gpu_alone(name: str) -> bool:
    """Whether a process that has imported it can be forked and use the GPU then: tried."""
    sys.stdout.flush()
    one = os.fork()
    if one == 0:
        try:
            __import__(name)
            two = os.fork()
            if two == 0:
                try:
                    import torch

                    torch.zeros(1, device="cuda" if os.path.exists("/dev/nvidia0") else "cpu")
                    os._exit(0)
                except BaseException:
                    os._exit(1)
            os._exit(1 if os.waitpid(two, 0)[1] else 0)
        except BaseException:
            os._exit(1)
    return os.waitpid(one, 0)[1] == 0


def write(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=1))


def twins(options: argparse.Namespace, name: str) -> dict[str, Any]:
    kinds = ("eager", "compiled", "warm") if name in WARM else ("eager", "compiled")
    caches = tempfile.mkdtemp()  # no context: a forked process would delete it when it ends
    result = {kind: in_a_process(options, name, kind, caches) for kind in kinds}
    shutil.rmtree(caches, ignore_errors=True)
    return {**result, "verdict": verdict(result)}


def in_a_process(options: argparse.Namespace, name: str, kind: str, caches: str) -> dict[str, Any]:
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    began = time.monotonic()
    process = context.Process(target=child, args=(sender, options, name, kind, caches))
    process.start()
    sender.close()
    try:
        answer = dict(receiver.recv()) if receiver.poll(180) else {"error": "no answer in 180 s"}
    except EOFError:
        answer = {"error": "ended without an answer"}
    process.join(10)
    if process.is_alive():
        process.kill()
        process.join()
    answer["process_s"] = round(time.monotonic() - began, 2)
    if "error" in answer:
        print(name, kind, answer["error"], flush=True)
    return answer


def child(pipe: Any, options: argparse.Namespace, name: str, kind: str, caches: str) -> None:
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.path.join(caches, "inductor")
    os.environ["TRITON_CACHE_DIR"] = os.path.join(caches, "triton")
    try:
        answer = Twin(options, name, kind).run()
    except BaseException:
        answer = {"error": traceback.format_exc()[-3000:]}
    pipe.send(answer)
    pipe.close()
    os._exit(exit_handlers())


def exit_handlers() -> int:
    """What the interpreter would do at its end, but for threads that libraries leave."""
    import atexit

    sys.stdout.flush()
    atexit._run_exitfuncs()
    return 0


class Done(Exception):
    """Ends a library's loop."""


class Twin:
    """One program, as it is or compiled, in this process."""

    def __init__(self, options: argparse.Namespace, name: str, kind: str) -> None:
        import torch

        self.torch, self.quick, self.name, self.kind = torch, options.quick, name, kind
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.folder = options.out / name / kind
        self.records_from: int | None = None
        torch.manual_seed(0)
        torch.set_float32_matmul_precision("high")
        self.answer: dict[str, Any] = {"device": self.device_name(), "torch": torch.__version__}

    def device_name(self) -> str:
        cuda = self.torch.cuda
        return cuda.get_device_name() if self.device.type == "cuda" else "cpu"

    def wait(self) -> None:
        if self.device.type == "cuda":
            self.torch.cuda.synchronize()

    def ready_libraries(self) -> None:
        """cuBLAS, cuDNN and autograd's thread, which a program needs compiled or not."""
        torch = self.torch
        for dtype in (torch.float32, torch.bfloat16)[: 1 + (self.device.type == "cuda")]:
            weight = torch.nn.Parameter(torch.randn(64, 64, device=self.device, dtype=dtype))
            image = torch.randn(2, 8, 16, 16, device=self.device, dtype=dtype, requires_grad=True)
            kernel = torch.randn(8, 8, 3, 3, device=self.device, dtype=dtype)
            out = torch.nn.functional.conv2d(image, kernel).relu().sum() + (weight @ weight).sum()
            out.backward()
        torch.optim.AdamW([weight]).step()
        self.wait()

    def maybe(self, module: Any, **how: Any) -> Any:
        return module if self.kind == "eager" else self.torch.compile(module, **how)

    def run(self) -> dict[str, Any]:
        from programs import LOOPS, PROGRAMS

        from tb_torchcompile_plugin import tensorboard_trace_handler

        self.handler = tensorboard_trace_handler(str(self.folder), self.name)
        self.ready_libraries()
        began = time.perf_counter()
        loop = self.loop()
        if self.name in LOOPS:
            try:
                LOOPS[self.name](self.maybe, self.device, self.quick, lambda: self.one_more(loop))
            except Done:
                pass
        else:
            step = PROGRAMS[self.name](self.maybe, self.device, self.quick)
            self.answer["build_s"] = round(time.perf_counter() - began, 3)
            for _ in loop:
                step()
        return self.answer

    @staticmethod
    def one_more(loop: Any) -> None:
        try:
            next(loop)
        except StopIteration:
            raise Done from None

    def loop(self) -> Any:
        """Yields before each step of the program, all of them inside of the profiler, as users write it; and measures
        between them. The last steps before those that are recorded are the ones that are timed."""
        profiler = self.torch.profiler
        kinds = [profiler.ProfilerActivity.CPU]
        if self.device.type == "cuda":
            kinds.append(profiler.ProfilerActivity.CUDA)
        cycle = profiler.schedule(wait=10**9, warmup=2, active=ACTIVE, repeat=1)

        def when(number: int) -> Any:
            begins = self.records_from
            return cycle(number if begins is None or number < begins else 10**9 + number - begins)

        with profiler.profile(
            activities=kinds, schedule=when, on_trace_ready=self.handler, record_shapes=True
        ) as prof:
            for stage in (self.first, self.settled, self.steady):
                for _ in stage():
                    yield
                    prof.step()
            self.records_from = prof.step_num + 1
            for _ in range(1 + 2 + ACTIVE):
                yield
                prof.step()
        self.wait()

    def first(self) -> Any:
        """Steps that are waited for, one by one."""
        took = []
        for _ in range(FIRST):
            began = time.perf_counter()
            yield
            self.wait()
            took.append(time.perf_counter() - began)
        self.answer["first_s"] = [round(s, 6) for s in took]

    def settled(self) -> Any:
        """A while, so that clocks of host and GPU are what they are in a long loop."""
        until = time.perf_counter() + (0.05 if self.quick else SETTLE_S)
        while time.perf_counter() < until:
            yield
            self.wait()

    def steady(self) -> Any:
        blocks: list[float] = []
        self.wait()
        for _ in range(BLOCKS):
            began = time.perf_counter()
            for _ in range(3 if self.quick else PER_BLOCK):
                yield
            self.wait()
            blocks.append((time.perf_counter() - began) / (3 if self.quick else PER_BLOCK))
        self.answer["steady"] = {
            "steps": PER_BLOCK * BLOCKS,
            "mean_us": round(statistics.fmean(blocks) * 1e6, 3),
            "median_us": round(statistics.median(blocks) * 1e6, 3),
            "blocks_us": [round(s * 1e6, 3) for s in blocks],
        }


def verdict(result: dict[str, Any]) -> dict[str, Any]:
    """The truth: what compiling cost beyond steady steps, what a step gains, and after how many steps they are even.

    excess_s: of the first steps over as many steady ones; net_s: less eager's own. within noise: the 95 % interval of
    the difference of the blocks' means (Welch, t of 2.1) holds zero.
    """
    eager, compiled = result["eager"], result["compiled"]
    if "steady" not in eager or "steady" not in compiled:
        return {"failed": True}
    a, b = eager["steady"], compiled["steady"]
    gain = a["mean_us"] - b["mean_us"]
    spread = sum(statistics.variance(side["blocks_us"]) / len(side["blocks_us"]) for side in (a, b)) ** 0.5
    excess = {kind: excess_s(side) for kind, side in result.items() if "steady" in side}
    net = excess["compiled"] - excess["eager"]
    pays = gain > 2.1 * spread
    told: dict[str, Any] = {
        "eager_us": a["mean_us"],
        "compiled_us": b["mean_us"],
        "gain_us": round(gain, 3),
        "gain_error_us": round(2.1 * spread, 3),
        "excess_s": {kind: round(s, 4) for kind, s in excess.items()},
        "net_s": round(net, 4),
        "pays": pays,
        "break_even_steps": round(excess["compiled"] * 1e6 / gain) if pays else None,
        "break_even_steps_net": round(net * 1e6 / gain) if pays else None,
    }
    if "warm" in excess and pays:
        told["break_even_steps_warm"] = round(excess["warm"] * 1e6 / gain)
    return told


def excess_s(side: dict[str, Any]) -> float:
    """The first steps are synchronized one by one: what that costs a step is taken from the quickest of them."""
    first = side["first_s"]
    return sum(first) - len(first) * max(side["steady"]["median_us"] * 1e-6, min(first))


if __name__ == "__main__":
    sys.exit(main())
