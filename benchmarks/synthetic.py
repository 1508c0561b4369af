"""Write synthetic traces of any size in the layouts of Kineto: `python -m benchmarks.synthetic 1000 out.json`.

Training steps with nested ops, Python frames, launches, kernels and flows, with the fields that Kineto writes for
each and in about the proportions of real recordings. One block of steps is formatted once, as a template for times
and ids; the file repeats it. The same size and layout give the same bytes.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

_BASE_US = 4_374_058_865_586
_STEPS = 10
_STEP_US = 20_000
_HEAD = '{\n  "schemaVersion": 1,\n  "baseTimeNanoseconds": 1790857026000000000,\n  "traceEvents": [\n'
_TAIL = '\n  ],\n  "traceName": "synthetic"\n}\n'

Event = dict[str, Any]


class _Time(float):
    """µs since the start of the trace: differs from block to block."""


class _Id(int):
    """An id that differs from block to block."""


class _Template:
    """Collects what differs between blocks while a block is formatted as a %-template."""

    def __init__(self) -> None:
        self.values: list[float] = []

    def text(self, value: Any) -> str:
        if isinstance(value, _Time):
            self.values.append(value)
            return "%.3f"
        if isinstance(value, _Id):
            self.values.append(value)
            return "%d"
        plain = f"{value:.3f}" if isinstance(value, float) else json.dumps(value)
        return plain.replace("%", "%%")

    def pairs(self, event: Event, keys: tuple[str, ...], colon: str, comma: str) -> str:
        return comma.join(
            f'"{key}"'.replace("%", "%%") + colon + self.text(event[key]) for key in keys if key in event
        )


def _classic(event: Event, values: _Template) -> str:
    """Write as torch 2.11: names on one line, times on one, args on one."""
    text = "  {\n    " + values.pairs(event, ("ph", "cat", "name", "pid", "tid", "id"), ": ", ", ")
    text += ",\n    " + values.pairs(event, ("ts", "dur"), ": ", ", ")
    if "args" in event:
        args = values.pairs(event["args"], tuple(event["args"]), ": ", ", ")
        text += f',\n    "args": {{\n      {args}\n    }}'
    return text + "\n  }"


def _spread(event: Event, values: _Template) -> str:
    """Write as torch 2.13: a line for each key, args on one."""
    keys = ("ph", "cat", "name", "pid", "tid", "id", "ts", "dur")
    text = "  {\n    " + values.pairs(event, keys, ": ", ",\n    ")
    if "args" in event:
        args = values.pairs(event["args"], tuple(event["args"]), ": ", ", ")
        text += f'\n    ,\n    "args": {{\n      {args}\n    }}'
    return text + "\n  }"


def _compact(event: Event, values: _Template) -> str:
    """Write as torch 2.13 with use_python_export=True: a line for each event."""
    text = "{" + values.pairs(event, ("ph", "cat", "name", "pid", "tid", "id", "ts", "dur"), ":", ",")
    if "args" in event:
        text += ',"args":{' + values.pairs(event["args"], tuple(event["args"]), ": ", ", ") + "}"
    return text + "}"


LAYOUTS: dict[str, Callable[[Event, _Template], str]] = {
    "2.11": _classic,
    "2.13": _spread,
    "2.13-python": _compact,
}


def _events(draw: random.Random) -> Iterator[Event]:
    """Yield the events of a block, with times in µs since its start and ids from 1."""
    number = 0
    for step in range(_STEPS):
        at = float(step * _STEP_US)
        args = {"External id": _Id(number + 1), "Record function id": 0, "Ev Idx": _Id(number)}
        yield _slice("user_annotation", f"ProfilerStep#{step}", 424, at, _STEP_US - 10.0, args)
        while at < (step + 1) * _STEP_US - 120:
            number += 1
            yield from _op(draw, number, at)
            at += draw.uniform(60, 110)


def _op(draw: random.Random, number: int, at: float) -> Iterator[Event]:
    ids = {"External id": _Id(number), "Record function id": 0}
    dims = [[draw.choice([8, 64]), 128, 56, 56], [128, 128, 3, 3], [], [], [], [], [], [], []]
    shapes = {
        "Concrete Inputs": ["", "", "", "[1, 1]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1"],
        "Input type": ["float", "float", "", *["ScalarList"] * 3, "Scalar", "ScalarList", "Scalar"],
        "Input Strides": [[401408, 3136, 56, 1], [1152, 9, 3, 1], [], [], [], [], [], [], []],
        "Input Dims": dims,
        "Ev Idx": _Id(number),
    }
    op = draw.choice(["aten::mm", "aten::convolution", "aten::add_", "aten::native_batch_norm"])
    for depth in range(2):
        yield _frame(draw, number, depth, at)
    yield _slice("cpu_op", op, 424, at + 5, 40.0, ids | shapes)
    yield _slice("cpu_op", "aten::empty", 424, at + 6, 3.25, ids | {"Ev Idx": _Id(number)})
    yield from _launch(draw, number, at + 15)


def _one_graph(kernels: int) -> Iterator[Event]:
    """Yield a step that replays one CUDA graph of so many kernels, each of 2 µs."""
    args = {"External id": _Id(1), "Record function id": 0, "Ev Idx": _Id(0)}
    length = 2.5 * kernels + 100
    yield _slice("user_annotation", "ProfilerStep#1", 424, 0.0, length, args)
    call = {"External id": _Id(1), "cbid": 311, "correlation": _Id(1)}
    yield _slice("cuda_runtime", "cudaGraphLaunch", 424, 10.0, 30.0, call)
    yield _flow("s", 1, 424, 10.0)
    for node in range(kernels):
        device = {
            "device": 0,
            "context": 1,
            "stream": 7,
            "correlation": _Id(1),
            "graph id": 4,
            "graph node id": node,
        }
        name = f"triton_poi_fused_add_relu_{node % 300}"
        yield _slice(
            "kernel", name, 0, 50.0 + 2.5 * node, 2.0, device | {"grid": [2, 6, 1], "block": [128, 1, 1]}
        )


def _on_streams(draw: random.Random, streams: int) -> Iterator[Event]:
    """Yield the usual steps, whose kernels run on so many streams in turn."""
    for event in _events(draw):
        if event.get("cat") in ("kernel", "ac2g") and event["pid"] == 0:
            stream = event["args"]["correlation"] % streams if "args" in event else event["id"] % streams
            event["tid"] = stream
            if "args" in event:
                event["args"]["stream"] = stream
        yield event


def _frame(draw: random.Random, number: int, depth: int, at: float) -> Event:
    name = f"torch/nn/modules/module{draw.randint(0, 60)}.py({draw.randint(10, 999)}): forward_{draw.randint(0, 9)}"
    args = {"Python parent id": _Id(number - 1), "Python id": _Id(number), "Ev Idx": _Id(number)}
    return _slice("python_function", name, 424, at + depth, 55.0 - 2 * depth, args)


def _launch(draw: random.Random, number: int, at: float) -> Iterator[Event]:
    lambdas = "at::native::gpu_kernel_impl_nocast<at::native::direct_copy_kernel_cuda(Base&)::{lambda()#3}>"
    names = [
        f"triton_poi_fused_add_relu_{number % 300}",
        f"void at::native::elementwise_kernel<128, 2, {lambdas}>(int)",
    ]
    device = {"queued": 0, "device": 0, "context": 1, "stream": 7, "correlation": _Id(number)}
    sizes = {
        "registers per thread": 28,
        "shared memory": 4096,
        "blocks per SM": 0.090909,
        "warps per SM": 0.363636,
        "grid": [2, 6, 1],
        "block": [128, 1, 1],
        "est. achieved occupancy %": 1,
    }
    call = {"External id": _Id(number), "cbid": 211, "correlation": _Id(number)}
    yield _slice("cuda_runtime", "cudaLaunchKernel", 424, at, 9.126, call)
    yield _flow("s", number, 424, at)
    yield _slice(
        "kernel", draw.choice(names), 0, at + 15, 28.5, {"External id": _Id(number)} | device | sizes
    )
    yield _flow("f", number, 0, at + 15)


def _slice(cat: str, name: str, pid: int, ts: float, dur: float, args: dict[str, Any]) -> Event:
    where = {"pid": pid, "tid": 7 if pid == 0 else pid}
    return {"ph": "X", "cat": cat, "name": name, **where, "ts": _Time(ts), "dur": dur, "args": args}


def _flow(phase: str, number: int, pid: int, ts: float) -> Event:
    where = {"pid": pid, "tid": 7 if pid == 0 else pid}
    return {"ph": phase, "id": _Id(number), **where, "ts": _Time(ts), "cat": "ac2g", "name": "ac2g"}


def write(path: Path, megabytes: float, layout: str = "2.11", streams: int = 1) -> int:
    """Write a trace of about this size (10^6 bytes each). Return its number of events."""
    draw = random.Random(1)
    events = list(_on_streams(draw, streams) if streams > 1 else _events(draw))
    return _write(path, events, layout, _STEPS * _STEP_US, lambda size, _: size >= megabytes * 1e6)


def write_graphs(path: Path, kernels: int) -> int:
    """Write ten steps, each of which replays a CUDA graph of so many kernels. Return the number of events."""
    events = list(_one_graph(kernels))
    return _write(path, events, "2.11", events[0]["dur"], lambda _, steps: steps >= _STEPS)


def _write(
    path: Path, events: list[Event], layout: str, length_us: float, is_full: Callable[[int, int], bool]
) -> int:
    """Repeat the events, which take so long, until the file is full at this size and this number of blocks."""
    varying = _Template()
    template = ",\n".join(LAYOUTS[layout](event, varying) for event in events)
    ids = sum(event["ph"] == "s" for event in events)
    size = block = 0
    with path.open("w") as file:
        file.write(_HEAD)
        while not is_full(size, block):
            shift = _BASE_US + block * length_us
            values = (v + shift if isinstance(v, _Time) else v + block * ids for v in varying.values)
            text = (",\n" if block else "") + template % tuple(values)
            file.write(text)
            size, block = size + len(text), block + 1
        file.write(_TAIL)
    return block * len(events)


def main() -> None:
    """Write one trace."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("megabytes", type=float)
    parser.add_argument("path", type=Path)
    parser.add_argument("--layout", choices=LAYOUTS, default="2.11")
    options = parser.parse_args()
    print(write(options.path, options.megabytes, options.layout), "events")


if __name__ == "__main__":
    main()
