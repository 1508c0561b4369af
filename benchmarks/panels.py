"""`python -m benchmarks.panels [TRACE]`: measure how long each panel waits for its first answer, from the cache.

Each question about a span of `api.routes` is asked in a fresh process, as by a browser that opens at that panel:
polled, while `span` is computed as well, which every panel needs. Without a trace it writes a synthetic one.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec

from benchmarks import synthetic
from tb_torchcompile_plugin.api.routes import ROUTES
from tb_torchcompile_plugin.reader.cache.store import is_stored, open_trace

LIMIT_S = 2
QUESTIONS = [
    name
    for name, route in ROUTES.items()
    if route.subject.name == "span"
    and issubclass(route.answer, msgspec.Struct)
    and all(parameter.optional for parameter in route.parameters)
]
_ASK = """
import json, os, sys, time
import msgspec
from tb_torchcompile_plugin.api.read_queue import Progress
from tb_torchcompile_plugin.api.routes import ROUTES, poll
from tb_torchcompile_plugin.api.session import Session
folder, file = os.path.split(sys.argv[1])
session = Session([("", folder)])
started, used = time.monotonic(), sum(os.times()[:2])
(ids,) = [
    {"run": run.run, "worker": worker.worker, "span": span.span}
    for run in session.runs().runs
    for worker in run.workers
    for span in worker.spans
    if os.path.basename(span.trace_file) == file
]
while isinstance(answer := poll(session, ROUTES[sys.argv[2]], ids), Progress):
    time.sleep(0.01)
body = msgspec.json.encode(answer)
print(json.dumps([time.monotonic() - started, sum(os.times()[:2]) - used, len(body)]), flush=True)
os._exit(0)  # other answers that are being computed do not count
"""


def main() -> int:
    """Print one row per question."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.panels", description=__doc__)
    parser.add_argument("trace", nargs="?", type=Path, help="a trace in a folder of its own")
    parser.add_argument("--megabytes", type=float, default=1000, help="size of the synthetic trace")
    parser.add_argument("--only", nargs="*", default=QUESTIONS, choices=QUESTIONS)
    options = parser.parse_args()
    if options.trace is not None:
        return measure(options.trace, options.only)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "synthetic.1.pt.trace.json"
        synthetic.write(path, options.megabytes)
        return measure(path, options.only)


def measure(path: Path, questions: list[str]) -> int:
    """Print what each question costs. Return 1 if one takes longer than the limit."""
    if not is_stored(str(path)):
        print("reading it for the first time", flush=True)
        open_trace(str(path))
    print(f"{'question':<26}{'wall s':>8}{'CPU s':>8}{'kB':>9}")
    slowest = 0.0
    for question in questions:
        wall, cpu, size = _ask(path, question)
        slowest = max(slowest, wall)
        print(f"{question:<26}{wall:8.2f}{cpu:8.2f}{size / 1000:9.0f}", flush=True)
    return int(slowest > LIMIT_S)


def _ask(path: Path, question: str) -> tuple[float, float, int]:
    """Return wall and CPU seconds from the first request to the answer, and its bytes."""
    command = [sys.executable, "-c", _ASK, str(path), question]
    wall, cpu, size = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    return wall, cpu, size


if __name__ == "__main__":
    sys.exit(main())
