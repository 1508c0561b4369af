"""`python -m benchmarks.functions_per_answer`: how many functions of the package are called to answer a question.

Prints a table of three ways through the code, with the distinct functions and files of the package on each:

- from the bytes of a trace file with one kernel to the row of this kernel in the `kernels` table, in one process,
- the first `overview` request about a trace that is already read, from the HTTP request to its answer,
- the same request again, when the answer is in memory.

Counts functions that have a name (no lambdas, no comprehensions) and are called in any thread of this process. Does
not count what runs only while modules are imported, or functions of libraries. Because work that one request leaves
behind may run during the next one, two runs may differ by a few functions.
"""

from __future__ import annotations

import json
import sys
import tarfile
import tempfile
import threading
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import CodeType, FrameType
from typing import Any
from unittest.mock import patch

import tb_torchcompile_plugin
from profiles import profile_of
from served import SPAN, ask_span, make_client, make_plugin
from tb_torchcompile_plugin.api.routes import ROUTES

PACKAGE = Path(tb_torchcompile_plugin.__file__).parent
RECORDING = Path(__file__).parents[1] / "tests" / "data" / "2.11.0" / "breaks" / "breaks.tar.xz"

Event = dict[str, Any]


def main() -> int:
    """Print the table."""
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(RECORDING) as archive:
            archive.extractall(folder, filter="data")
        with patch.dict("os.environ", TB_TORCHCOMPILE_CACHE=f"{folder}/cache"):
            _measure(Path(folder) / "breaks")
    return 0


def _measure(logdir: Path) -> None:
    trace = _trace_with_one_kernel(logdir)
    called = _start_recording()
    print(f"{'way through the code':<44}{'functions':>10}{'files':>7}")
    ROUTES["kernels"].ask(profile_of(trace))
    _print_row("one kernel: bytes of a trace -> its row", called)
    client = make_client(make_plugin(logdir))
    for question in ("span", "kernels"):  # reads the trace, and computes what every panel needs
        ask_span(client, SPAN, question)
    for state in ("first", "in memory"):
        called.clear()
        ask_span(client, SPAN, "overview")
        _print_row(f"overview request, {state}", called)


def _start_recording() -> set[CodeType]:
    """Return a set to which this thread, and those started from now on, add the code that they call."""
    called: set[CodeType] = set()

    def on_event(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            called.add(frame.f_code)

    threading.setprofile(on_event)
    sys.setprofile(on_event)
    return called


def _print_row(name: str, called: set[CodeType]) -> None:
    functions = [code for code in called.copy() if _is_function_of_package(code)]
    files = {code.co_filename for code in functions}
    print(f"{name:<44}{len(functions):>10}{len(files):>7}")


def _is_function_of_package(code: CodeType) -> bool:
    """Exclude lambdas and comprehensions, and bodies of modules and classes, which are the code not optimized."""
    is_named = bool(code.co_flags & CO_OPTIMIZED) and not code.co_name.startswith("<")
    return is_named and PACKAGE in Path(code.co_filename).parents


def _trace_with_one_kernel(logdir: Path) -> Path:
    """Write a trace with the first kernel of the recorded one, the calls around its launch, and the steps."""
    (recorded,) = logdir.glob("*.pt.trace.json")
    document = json.loads(recorded.read_text())
    events: list[Event] = document["traceEvents"]
    kernel = next(event for event in events if event.get("cat") == "kernel")
    (launch,) = [event for event in events if _launches(event, kernel)]
    selected = [event for event in events if _is_context(event, launch)]
    path = logdir.parent / recorded.name
    path.write_text(json.dumps({**document, "traceEvents": [*selected, kernel]}))
    return path


def _launches(event: Event, kernel: Event) -> bool:
    is_call = event.get("cat") in {"cuda_runtime", "cuda_driver"}
    return is_call and event["args"].get("correlation") == kernel["args"]["correlation"]


def _is_context(event: Event, launch: Event) -> bool:
    """Select metadata, steps, the launch itself and the calls that were open while it was made."""
    if event["ph"] != "X" or event["name"].startswith("ProfilerStep"):
        return event["ph"] in {"M", "X"}
    is_earlier = event["ts"] <= launch["ts"]
    is_later = event["ts"] + event["dur"] >= launch["ts"] + launch["dur"]
    return is_earlier and is_later and bool(event["tid"] == launch["tid"])


if __name__ == "__main__":
    sys.exit(main())
