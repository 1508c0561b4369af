"""Small traces in Kineto's own words, for tests that need one exact situation."""

import json
from itertools import count
from pathlib import Path
from typing import Any

PID, MAIN, AUTOGRAD = 100, 100, 101
BASE_NS = 1_790_000_000_000_000_000
_correlations = count(1)
_APART = ("correlation", "Sequence number")  # other numbers in each step

Event = dict[str, Any]


def slice_(name: str, ts: float, dur: float, cat: str = "cpu_op", tid: int = MAIN, **args: Any) -> Event:
    """A host slice; times in µs."""
    return {"ph": "X", "cat": cat, "name": name, "pid": PID, "tid": tid, "ts": ts, "dur": dur, "args": args}


def step(number: int, ts: float, dur: float) -> Event:
    """A profiled step."""
    return slice_(f"ProfilerStep#{number}", ts, dur, "user_annotation")


def frame(name: str, ts: float, dur: float, tid: int = MAIN) -> Event:
    """A call of a Python function."""
    return slice_(name, ts, dur, "python_function", tid)


def region(compile_id: str, ts: float, dur: float, tid: int = MAIN) -> Event:
    """A call of a compiled region."""
    return slice_(f"Torch-Compiled Region: {compile_id}", ts, dur, tid=tid)


def in_steps(*make: Event, every: float, length: float | None = None, number: int = 3) -> list[Event]:
    """So many steps, one each `every` µs and so long, each with these events at these times from its begin on."""
    events: list[Event] = []
    for at in range(number):
        begin = every * at
        events.append(step(at, begin, every if length is None else length))
        for event in make:
            apart = {key: event["args"][key] + 100_000 * at for key in _APART if key in event["args"]}
            events.append(event | {"ts": event["ts"] + begin, "args": event["args"] | apart})
    return events


def kernel(
    name: str,
    ts: float,
    dur: float,
    *,
    device: int = 0,
    cat: str = "kernel",
    correlation: int = -1,
    stream: int = 7,
    **args: Any,
) -> Event:
    """A slice on a stream of a device."""
    args |= {"device": device, "stream": stream, "correlation": correlation}
    place = {"pid": device, "tid": stream}
    return {"ph": "X", "cat": cat, "name": name, **place, "ts": ts, "dur": dur, "args": args}


def compiled_call(compile_id: str, call: tuple[float, float], graph: tuple[float, float]) -> list[Event]:
    """A call of a compiled region with the graph in it: (start, duration) of each."""
    return [region(compile_id, *call), slice_(f"## Call CompiledFxGraph key{compile_id} ##", *graph)]


def memory_event(
    ts: float,
    size: int,
    total: int = 0,
    *,
    address: int = 1,
    reserved: int = 4096,
    device: int = 0,
    device_type: int = 1,
    tid: int = MAIN,
) -> Event:
    """An allocation of so many bytes, negative for a free; total: bytes that are allocated then."""
    args = {"Bytes": size, "Addr": address, "Device Type": device_type, "Device Id": device}
    args |= {"Total Allocated": total, "Total Reserved": reserved}
    place = {"pid": PID, "tid": tid, "ts": ts}
    return {"ph": "i", "s": "t", "cat": "cpu_instant_event", "name": "[memory]", **place, "args": args}


def launch(name: str, at: float, start: float, dur: float, tid: int = MAIN, **kwargs: Any) -> list[Event]:
    """A launch call of 1 µs and the kernel that it launches."""
    correlation = next(_correlations)
    call = slice_("cuLaunchKernelEx", at, 1, "cuda_driver", tid, correlation=correlation)
    return [call, kernel(name, start, dur, correlation=correlation, **kwargs)]


def write_trace(folder: Path, events: list[Event], name: str = "w.1.pt.trace.json", **header: Any) -> Path:
    """Write the events as one trace into a folder, which is made if need be; `header` adds top-level keys."""
    folder.mkdir(parents=True, exist_ok=True)
    document = {"schemaVersion": 1, "baseTimeNanoseconds": BASE_NS, **header, "traceEvents": events}
    path = folder / name
    path.write_text(json.dumps(document))
    return path
