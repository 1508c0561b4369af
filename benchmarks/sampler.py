"""`python -m benchmarks.sampler [--cuda]`: measure what sampling costs while profiling, and what it names.

Each program runs in a process of its own. In one recording blocks of steps without and with samples take turns
(without, with, with, without, and the other way around the next time), so that both meet the same noise and the same
profiler. Printed is how much longer the steps of a block take together, as a share of the time that they take without:
the median over all such pairs and its standard error, by the clock and in CPU time of all threads. Means, not medians
of steps: most short steps have no sample. Where Linux counts how long the thread waited for a processor, such waits do
not count as longer. A step with stacks is from a recording of its own, and from a block as long.

"right" and "wrong" are shares of the time between operators in gaps longer than 2 % of a step, in a recording of
`--steps` steps: the sampled function is the one that the stacks show at the same place of a step, or another. The rest
has no sample. Memory is that of the samples of one minute of recording.

It needs torch, protobuf and this package; "right" and "wrong" also what the package needs to read traces (numpy,
msgspec and others), and are left out without it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tb_torchcompile_plugin.writer.sampler import Sampler

if TYPE_CHECKING:
    from tb_torchcompile_plugin.profile.columns import Intervals
    from tb_torchcompile_plugin.profile.profile import Profile

Step = Callable[[], object]
Gap = tuple[str, str, int]  # names of the operators around it, and which of those in its step
ROW_BYTES = 26
BLOCK_S = 0.1  # some five samples
PATTERN = (0, 1, 1, 0, 1, 0, 0, 1)  # which blocks of a recording are sampled
STACK_REPEATS = 3  # of all: they are much slower, and so are their traces
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
    """An eager network, and a metric of about 20 ms in Python between its operators."""
    layers = [torch.nn.Linear(128, 128) for _ in range(8)]
    model, data = torch.nn.Sequential(*layers).to(device), torch.randn(64, 128, device=device)
    scores = torch.randn(60_000).tolist()

    def step() -> None:
        loss = model(data).square().mean()
        loss.backward()
        precision(scores)
        model.zero_grad()

    return step


def tiny_operators(torch: Any, device: str) -> Step:
    """Operators on one number each: nothing but launching."""
    one = torch.ones(1, device=device)

    def step() -> None:
        total = one
        for _ in range(1500):
            total = torch.add(total, one)
            total = total * 0.5

    return step


def compiled(torch: Any, device: str) -> Step:
    """A compiled network whose kernels are far shorter than their launches."""
    layers = [torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.LayerNorm(32)) for _ in range(24)]
    model, data = torch.nn.Sequential(*layers).to(device), torch.randn(8, 32, device=device)
    network = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)

    def step() -> None:
        network(data).square().mean().backward()
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


PROGRAMS = {program.__name__: program for program in (tiny_operators, compiled, loader, metric, two_threads)}


# -- one program in a process -------------------------------------------------------------------------------------


class Block(NamedTuple):
    """A step of a block, in ms."""

    wall_ms: float
    own_ms: float  # without waits for a processor
    cpu_ms: float


def timed(step: Step, steps: int) -> Block:
    """Return the mean step."""
    total = [0.0, 0.0, 0.0]
    for _ in range(steps):
        begin = clocks()
        step()
        total = [total + now - then for total, now, then in zip(total, clocks(), begin)]
    return Block(*(1000 * seconds / steps for seconds in total))


def clocks() -> tuple[float, float, float]:
    """Return wall time, that without waits of this thread for a processor, and CPU time of all threads (s)."""
    waited_ns, wall = 0, time.perf_counter()
    with contextlib.suppress(OSError), open(f"/proc/self/task/{threading.get_native_id()}/schedstat") as file:
        waited_ns = int(file.read().split()[1])
    return wall, wall - waited_ns / 1e9, time.process_time()


class Measured(NamedTuple):
    """What one program took."""

    blocks: dict[str, list[Block]]
    samples_per_s: float  # of the thread of the steps
    rows_per_minute: float
    shares: tuple[float, float] | None  # right, wrong


def measured(options: argparse.Namespace, folder: Path) -> Measured:
    """Return the blocks of each mode, and what the samples are worth."""
    import torch

    if not options.cuda:
        torch.set_num_threads(1)
    work = PROGRAMS[options.child](torch, "cuda" if options.cuda else "cpu")

    def step() -> None:
        work()
        if options.cuda:
            torch.cuda.synchronize()

    timed(step, 10)
    steps = math.ceil(1000 * BLOCK_S / timed(step, 10).wall_ms)
    blocks: dict[str, list[Block]] = {mode: [] for mode in ("unprofiled", "plain", "sampled", "stacks")}
    sampler, sampled_s = Sampler(), 0.0
    sampler.enabled = True
    for repeat in range(options.repeats):
        blocks["unprofiled"].append(timed(step, steps))
        with torch.profiler.profile() as prof:
            step()
            for is_sampled in PATTERN:
                sampler.follow(prof, records=is_sampled == 1)
                begin = time.perf_counter()
                blocks["sampled" if is_sampled else "plain"].append(timed(step, steps))
                sampled_s += is_sampled * (time.perf_counter() - begin)
                sampler.follow(prof, records=False)
        if repeat >= STACK_REPEATS:
            continue
        with torch.profiler.profile(with_stack=True):
            step()
            blocks["stacks"].append(timed(step, steps))
    rows, main = sampler._rows, sampler._threads.get(threading.get_native_id(), -1)
    count = sum(count for count, thread in zip(rows.samples, rows.thread) if thread == main)
    shares = named(torch, step, options, folder)
    return Measured(blocks, count / sampled_s, 60 * len(rows) / sampled_s, shares)


def named(torch: Any, step: Step, options: argparse.Namespace, folder: Path) -> tuple[float, float] | None:
    """Return which shares of long gaps have the right and a wrong name; None where no gap is long, or unknown."""
    for mode in ("stacks", "sampled"):
        record(torch, step, options, folder / mode, mode)
    try:
        return right_and_wrong(profile_in(folder / "stacks"), profile_in(folder / "sampled"))
    except ImportError as error:
        print(f"traces cannot be read here: {error}", file=sys.stderr)
        return None


def record(torch: Any, step: Step, options: argparse.Namespace, folder: Path, mode: str) -> None:
    """Write a recording of some steps."""
    from tb_torchcompile_plugin import tensorboard_trace_handler

    schedule = torch.profiler.schedule(wait=0, warmup=1, active=options.steps, repeat=1)
    handler = tensorboard_trace_handler(folder, "w", sample=True)
    with torch.profiler.profile(
        schedule=schedule, on_trace_ready=handler, with_stack=mode == "stacks"
    ) as prof:
        for _ in range(options.steps + 1):
            step()
            prof.step()


# -- what was named -----------------------------------------------------------------------------------------------


def profile_in(folder: Path) -> Profile:
    """Return the only span of a folder."""
    from tb_torchcompile_plugin.api.session import Session

    session = Session([("", str(folder))])
    (run,) = session.runs().runs
    (worker,) = run.workers
    return session.profile(run.run, worker.worker, worker.spans[0].span)


def gaps(profile: Profile) -> tuple[int, Intervals, list[Gap]]:
    """Return the thread of the steps, and its gaps between operators that are longer than a part of a step."""
    import numpy as np

    from tb_torchcompile_plugin.profile.columns import Intervals, subtract, union, within
    from tb_torchcompile_plugin.profile.steps import StepWindows
    from tb_torchcompile_plugin.torch_names.slices import CALL_CATS, RUNTIME_CATS, is_step

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
    import numpy as np

    from tb_torchcompile_plugin.torch_names.python_frames import frame_of, is_user_function
    from tb_torchcompile_plugin.torch_names.slices import PYTHON_FUNCTION

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


def right_and_wrong(stacks: Profile, sampled: Profile) -> tuple[float, float] | None:
    """Return the shares of the time in long gaps with the right and with a wrong name; None where no gap is long."""
    from tb_torchcompile_plugin.profile.samples import lines_of, samples

    truth, (track, idle, places) = functions_in(stacks), gaps(sampled)
    found, lines = lines_of(sampled, track, idle), sampled.of(samples).lines
    ns = Counter[str]()
    for place, line, start, end in zip(places, found.line.tolist(), *idle):
        if place in truth:
            is_right = line >= 0 and lines[line].function == truth[place]
            ns["none" if line < 0 else "right" if is_right else "wrong"] += int(end - start)
    return (ns["right"] / ns.total(), ns["wrong"] / ns.total()) if ns else None


# -- the table ----------------------------------------------------------------------------------------------------


def main() -> None:
    """Print a row for each program."""
    options = _options()
    if options.child:
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps(measured(options, Path(folder))))
        return
    print(
        f"{'cuda' if options.cuda else 'cpu'}, {options.repeats} repeats, {options.steps} steps for the names"
    )
    print(
        "| program | unprofiled | profiled | sampled | with stacks | samples per s | memory per minute | right, wrong |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for name in options.programs or [name for name in PROGRAMS if options.cuda or name != "compiled"]:
        print(_row(name, _child(name)), flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sampler", description=__doc__)
    parser.add_argument("--cuda", action="store_true", help="use the GPU")
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument(
        "--programs", nargs="*", choices=list(PROGRAMS), help="default: all; compiled with --cuda only"
    )
    parser.add_argument("--child", help=argparse.SUPPRESS)
    return parser.parse_args()


def _child(name: str) -> Measured:
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.sampler", *sys.argv[1:], "--child", name]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    blocks, *others = json.loads(done.stdout.splitlines()[-1])
    return Measured({mode: [Block(*block) for block in rows] for mode, rows in blocks.items()}, *others)


def _row(name: str, found: Measured) -> str:
    blocks = found.blocks
    cells = [name, *(f"{_median(blocks[mode]):.2f} ms" for mode in ("unprofiled", "plain"))]
    for mode in ("sampled", "stacks"):
        wall, cpu = (_slower(blocks, mode, index) for index in (1, 2))
        cells.append(f"{wall} (CPU {cpu})")
    cells += [f"{found.samples_per_s:.0f}", f"{ROW_BYTES * found.rows_per_minute / 1e6:.2f} MB"]
    shares = [f"{100 * share:.0f} %" for share in found.shares or ()]
    return f"| {' | '.join([*cells, ', '.join(shares) or '–'])} |"


def _median(blocks: list[Block]) -> float:
    return statistics.median(block.wall_ms for block in blocks)


def _slower(blocks: dict[str, list[Block]], mode: str, index: int) -> str:
    """Return the median over the pairs of how much longer a step is than the plain one next to it, and its error.

    Those of stacks are pairs with the first plain one of their repeat.
    """
    plain, step = blocks["plain"], len(PATTERN) // 2 if mode == "stacks" else 1
    pairs = zip(plain[::step], blocks[mode])
    low, middle, high = statistics.quantiles(
        (100 * (block[index] - base[index]) / base.wall_ms for base, block in pairs), n=4
    )
    # Of a median, with the quartiles in place of the standard deviation: 1.25 / 1.35.
    error = 0.93 * (high - low) / math.sqrt(len(blocks[mode]))
    return f"{middle:+.1f} ± {error:.1f} %"


if __name__ == "__main__":
    main()
