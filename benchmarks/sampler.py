"""`python -m benchmarks.sampler [--device cuda]`: measure what sampling costs while profiling, and what it names.

Each program runs in a process of its own. There blocks of steps are profiled without samples, with them and with
stacks, in turn and in another order each time, each after a block of unprofiled steps. Printed are medians over the
repeats: a step by the clock and in CPU time of all threads, and how much longer it is than without samples. CPU time is
what to compare where others use the machine; it does not contain waiting for the interpreter lock, wall time does.

"right": of the time between operators in gaps longer than 2 % of a step, the share in which the sampled function is the
one that the stacks show at the same place of a step. Memory is that of the samples of one minute of recording.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tb_torchcompile_plugin.api.session import Session
from tb_torchcompile_plugin.profile.intervals import Intervals, subtract, union, within
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.samples import lines_of, samples
from tb_torchcompile_plugin.profile.steps import StepWindows
from tb_torchcompile_plugin.torch_names.python_frames import frame_of, is_user_function
from tb_torchcompile_plugin.torch_names.slices import CALL_CATS, PYTHON_FUNCTION, RUNTIME_CATS, is_step

Step = Callable[[], object]
Gap = tuple[str, str, int]  # names of the operators around it, and which of those in its step
MODES = ("plain", "sampled", "stacks")
ROW_BYTES = 26
LONG_GAP = 0.02  # of a step
INSTANTS = 50  # of a gap, at which the stack is looked up


# -- programs -----------------------------------------------------------------------------------------------------


def precision(scores: list[float]) -> float:
    """Return a metric as people write it first."""
    total = 0.0
    for rank, score in enumerate(sorted(scores), 1):
        total += score / rank
    return total


def metric(torch: Any, device: str) -> Step:
    """An eager network, and a metric in Python between its operators."""
    layers = [torch.nn.Linear(128, 128) for _ in range(8)]
    model, data = torch.nn.Sequential(*layers).to(device), torch.randn(64, 128, device=device)

    def step() -> None:
        loss = model(data).square().mean()
        loss.backward()
        precision(data.flatten().tolist())
        model.zero_grad()

    return step


def launch_bound(torch: Any, device: str) -> Step:
    """A compiled network whose kernels are far shorter than their launches."""
    layers = [torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.LayerNorm(32)) for _ in range(24)]
    model, data = torch.nn.Sequential(*layers).to(device), torch.randn(8, 32, device=device)
    compiled = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)

    def step() -> None:
        compiled(data).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def tokenize(text: str, known: dict[str, int]) -> list[int]:
    """Return the numbers of the words, letter by letter."""
    tokens, word = [], ""
    for letter in text:
        if letter.isspace():
            tokens.append(known.setdefault(word, len(known)))
            word = ""
        else:
            word += letter.lower()
    return tokens


def loader(torch: Any, device: str) -> Step:
    """A loop that tokenizes its batch itself."""
    text, known = "the quick brown fox jumps over the lazy dog " * 600, dict[str, int]()
    table = torch.nn.Embedding(64, 64).to(device)

    def step() -> None:
        tokens = torch.tensor(tokenize(text, known), device=device)
        table(tokens).square().mean().backward()

    return step


def two_threads(torch: Any, device: str) -> Step:
    """The same, in a thread that is one batch ahead."""
    text, known = "the quick brown fox jumps over the lazy dog " * 600, dict[str, int]()
    layers = [torch.nn.Linear(256, 256) for _ in range(8)]
    model = torch.nn.Sequential(*layers).to(device)
    data = torch.randn(256, 256, device=device)

    def step() -> None:
        ahead = threading.Thread(target=tokenize, args=(text, known))
        ahead.start()
        precision(data[:64].flatten().tolist())
        model(data).square().mean().backward()
        ahead.join()

    return step


PROGRAMS = {program.__name__: program for program in (metric, launch_bound, loader, two_threads)}


# -- one program in a process -------------------------------------------------------------------------------------


class Block(NamedTuple):
    """What a block of steps took, each in ms."""

    wall_ms: float
    cpu_ms: float


def timed(step: Step, steps: int, end: Step) -> Block:
    """Return the median step by the clock, and the mean one in CPU time. end: what ends a step."""
    walls, cpu = [], time.process_time()
    for _ in range(steps):
        begin = time.perf_counter()
        step()
        walls.append(time.perf_counter() - begin)
        end()
    return Block(1000 * statistics.median(walls), 1000 * (time.process_time() - cpu) / steps)


def measured(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Return the blocks by mode, and how many samples a second were taken and right."""
    import torch

    is_cuda = options.device == "cuda"
    work = PROGRAMS[options.child](torch, options.device)

    def step() -> None:
        work()
        if is_cuda:
            torch.cuda.synchronize()

    for _ in range(10):
        step()
    blocks: dict[str, list[Block]] = {mode: [] for mode in ("unprofiled", *MODES)}
    for repeat in range(options.repeats):
        for offset in range(len(MODES)):
            mode = MODES[(repeat + offset) % len(MODES)]
            blocks["unprofiled"].append(timed(step, options.steps, lambda: None))
            blocks[mode].append(profiled(torch, step, options, folder / f"{mode}{repeat}", mode))
    right = right_share(profile_in(folder / "stacks0"), profile_in(folder / "sampled0"))
    rows, ns = zip(*(kept(folder / f"sampled{repeat}") for repeat in range(options.repeats)))
    return {"blocks": blocks, "right": right, "rows_per_minute": 60e9 * sum(rows) / sum(ns)}


def profiled(torch: Any, step: Step, options: argparse.Namespace, folder: Path, mode: str) -> Block:
    """Return what profiled steps took."""
    from tb_torchcompile_plugin import tensorboard_trace_handler
    from tb_torchcompile_plugin.writer.recorder import recorder

    recorder()._sampler.forget()  # each file has its own samples
    schedule = torch.profiler.schedule(wait=0, warmup=1, active=options.steps, repeat=1)
    handler = tensorboard_trace_handler(folder, "w", sample=mode == "sampled")
    with torch.profiler.profile(
        schedule=schedule, on_trace_ready=handler, with_stack=mode == "stacks"
    ) as prof:
        step()
        prof.step()
        block = timed(step, options.steps - 1, prof.step)
        step()
        prof.step()
    return block


# -- what was named -----------------------------------------------------------------------------------------------


def profile_in(folder: Path) -> Profile:
    """Return the only span of a folder."""
    session = Session([("", str(folder))])
    (run,) = session.runs().runs
    (worker,) = run.workers
    return session.profile(run.run, worker.worker, worker.spans[0].span)


def kept(folder: Path) -> tuple[int, int]:
    """Return how many rows of samples were taken, and in which time (ns)."""
    summary = profile_in(folder).summary
    assert summary is not None
    steps = profile_in(folder).of(StepWindows).windows
    return len(summary.python_samples.start_ns), steps.total_ns


def gaps(profile: Profile) -> tuple[int, Intervals, list[Gap]]:
    """Return the thread of the steps, and its gaps between operators that are longer than a part of a step."""
    trace, steps = profile.trace, profile.of(StepWindows)
    track = int(steps.tracks[0])
    calls = trace.select(cat=(*CALL_CATS, *RUNTIME_CATS))
    calls = calls[[trace.track[row] == track and not is_step(trace.names[trace.name[row]]) for row in calls]]
    starts, ends = trace.ts[calls], trace.ts[calls] + trace.dur[calls]
    idle = subtract(steps.windows, union(starts, ends))
    long = idle.ends - idle.starts > LONG_GAP * np.median(steps.windows.ends - steps.windows.starts)
    idle = Intervals(idle.starts[long], idle.ends[long])
    last = dict(zip(ends.tolist(), calls.tolist()))
    first = dict(zip(starts.tolist()[::-1], calls.tolist()[::-1]))
    step, number = within(steps.windows, idle.starts).tolist(), Counter[tuple[int, str, str]]()
    places = []
    for index, start, end in zip(step, idle.starts.tolist(), idle.ends.tolist()):
        before, after = (
            trace.names[trace.name[rows[at]]] if at in rows else ""
            for rows, at in ((last, start), (first, end))
        )
        places.append((before, after, number[index, before, after]))
        number[index, before, after] += 1
    return track, idle, places


def functions_in(profile: Profile) -> dict[Gap, str]:
    """Return the user's function that ran for most of each gap, by the stacks."""
    trace, (track, idle, places) = profile.trace, gaps(profile)
    rows = trace.select(cat=(PYTHON_FUNCTION,))
    rows = rows[
        [trace.track[row] == track and is_user_function(trace.names[trace.name[row]]) for row in rows]
    ]
    found: dict[Gap, Counter[str]] = {}
    for place, start, end in zip(places, *idle):
        for time_ns in np.linspace(start, end, INSTANTS + 2)[1:-1]:
            around = rows[(trace.ts[rows] <= time_ns) & (trace.ts[rows] + trace.dur[rows] > time_ns)]
            frame = (
                frame_of(trace.names[trace.name[around[np.argmax(trace.ts[around])]]])
                if len(around)
                else None
            )
            found.setdefault(place, Counter())[frame.function if frame else ""] += 1
    return {place: counts.most_common(1)[0][0] for place, counts in found.items()}


def right_share(stacks: Profile, sampled: Profile) -> float | None:
    """Return the share of the time in long gaps that is named right; None where no gap is long."""
    truth, (track, idle, places) = functions_in(stacks), gaps(sampled)
    found, lines = lines_of(sampled, track, idle), sampled.of(samples).lines
    names = [lines[line].function if line >= 0 else None for line in found.line.tolist()]
    pairs = zip(places, names, (idle.ends - idle.starts).tolist())
    ns = [(ns, name == truth[place]) for place, name, ns in pairs if place in truth]
    whole = sum(part for part, _ in ns)
    return sum(part for part, is_right in ns if is_right) / whole if whole else None


# -- the table ----------------------------------------------------------------------------------------------------


def main() -> None:
    """Print a row for each program."""
    options = _options()
    if options.child:
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps(measured(options, Path(folder))))
        return
    print(f"{options.device}, {options.repeats} repeats of {options.steps} steps")
    print("| program | unprofiled | profiled | sampled | | with stacks | | memory per minute | right |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name in options.programs:
        print(_row(name, _child(name, options)), flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sampler", description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--programs", nargs="*", default=list(PROGRAMS), choices=list(PROGRAMS))
    parser.add_argument("--child", help=argparse.SUPPRESS)
    return parser.parse_args()


def _child(name: str, options: argparse.Namespace) -> dict[str, Any]:
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.sampler", "--child", name]
    numbers = ["--repeats", str(options.repeats), "--steps", str(options.steps)]
    done = subprocess.run(
        [*command, "--device", options.device, *numbers], stdout=subprocess.PIPE, text=True, check=True
    )
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def _row(name: str, answer: dict[str, Any]) -> str:
    blocks = {mode: [Block(*block) for block in rows] for mode, rows in answer["blocks"].items()}
    cells = [
        name,
        f"{_median(blocks['unprofiled'], 'wall_ms'):.2f} ms",
        f"{_median(blocks['plain'], 'wall_ms'):.2f} ms",
    ]
    for mode in ("sampled", "stacks"):
        slower = [f"{_slower(blocks, mode, name):+.1f} %" for name in ("wall_ms", "cpu_ms")]
        cells += [f"{_median(blocks[mode], 'wall_ms'):.2f} ms", f"{slower[0]} (CPU {slower[1]})"]
    right = answer["right"]
    cells += [
        f"{ROW_BYTES * answer['rows_per_minute'] / 1e6:.2f} MB",
        "–" if right is None else f"{100 * right:.0f} %",
    ]
    return f"| {' | '.join(cells)} |"


def _median(blocks: list[Block], name: str) -> float:
    return statistics.median(getattr(block, name) for block in blocks)


def _slower(blocks: dict[str, list[Block]], mode: str, name: str) -> float:
    """Return the median over the repeats of how much longer a step is than the plain one of its repeat, in percent."""
    pairs = zip(blocks["plain"], blocks[mode], strict=True)
    return statistics.median(
        100 * (getattr(block, name) / getattr(plain, name) - 1) for plain, block in pairs
    )


if __name__ == "__main__":
    main()
