"""Train the example, open TensorBoard on it and on three shipped recordings, and print the address: `make demo`.

With --check it also requests what the tab needs, prints a summary, and stops.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

from tb_torchcompile_plugin.analysis.formatting import plural

ROOT = Path(__file__).resolve().parent.parent
ADDRESS = re.compile(r"TensorBoard \S+ at (http\S+/) ")
PATIENCE_S = 120
RECORDED_HERE = "recorded_here_cpu"
# Recordings of examples/walkthrough/reviews.py on an NVIDIA H200, by the names of the runs that show them.
SHIPPED = {
    "shipped_h200_eager": "eager_fixed",
    "shipped_h200_graph_breaks": "2_loader",
    "shipped_h200_fixed": "4_graphs",
}
# Libraries print warnings that a newcomer cannot act on: torch's profiler, and kineto at each start and stop.
QUIET = {"PYTHONWARNINGS": "ignore", "KINETO_LOG_LEVEL": "99"}


class DemoFailed(Exception):
    """Something did not answer as it should; the text says what."""


def main() -> int:
    """Train, then start TensorBoard on what was recorded."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="check that the tab answers, then stop")
    parser.add_argument("--logdir", type=Path, default=Path("runs/demo"))
    arguments = parser.parse_args()
    try:
        shutil.rmtree(arguments.logdir, ignore_errors=True)
        train(arguments.logdir / RECORDED_HERE)
        unpack_shipped(arguments.logdir)
        with tensorboard(arguments.logdir, any_port=arguments.check) as (process, address):
            if arguments.check:
                say(check(address))
                return 0
            say(
                f"{RECORDED_HERE} was trained just now; {', '.join(SHIPPED)} were recorded on an NVIDIA H200."
            )
            say(f"Open {address}#torch_compile in a browser. Control-C ends it.")
            for line in process.stderr or ():
                sys.stderr.write(line)
            return process.wait()
    except DemoFailed as error:
        print(f"The demo failed: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 0


def say(text: str) -> None:
    """Print a line that stands out from the programs' own output."""
    print(f"==> {text}", flush=True)


def train(folder: Path) -> None:
    """Run examples/train.py into `folder`, with an empty compile cache so that it really compiles."""
    say("Training a small model with torch.compile and the handler (about a minute) ...")
    cache = folder.parent.with_name(folder.parent.name + ".cache")
    shutil.rmtree(cache, ignore_errors=True)
    environment = {**os.environ, **QUIET, "TORCHINDUCTOR_CACHE_DIR": str(cache.resolve())}
    command = [sys.executable, str(ROOT / "examples" / "train.py"), "--logdir", str(folder)]
    if subprocess.run(command, env=environment, check=False).returncode != 0:
        raise DemoFailed("examples/train.py did not finish; its error is above")
    shutil.rmtree(cache, ignore_errors=True)


def unpack_shipped(logdir: Path) -> None:
    """Write the shipped recordings next to the run that was recorded here."""
    for run, recording in SHIPPED.items():
        with tarfile.open(
            ROOT / "tests" / "data" / "walkthrough" / recording / f"{recording}.tar.xz"
        ) as archive:
            archive.extractall(logdir, filter="data")
        (logdir / recording).rename(logdir / run)


@contextlib.contextmanager
def tensorboard(
    logdir: Path, any_port: bool = True, python: str = sys.executable
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A running TensorBoard and its address; it is stopped on the way out."""
    say("Starting TensorBoard ...")
    port = ["--port", "0"] if any_port else []
    command = [python, "-m", "tensorboard.main", "--logdir", str(logdir), *port]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        yield process, _address(process)
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10)
        process.kill()
        process.wait()
        if process.stderr:
            process.stderr.close()


def _address(process: subprocess.Popen[str]) -> str:
    said = []
    for line in process.stderr or ():
        if match := ADDRESS.search(line):
            return match[1]
        said.append(line)
    raise DemoFailed("TensorBoard did not start:\n" + "".join(said))


def check(address: str) -> str:
    """Request every route of the tab as a browser would; return a line with the result. Raises DemoFailed."""
    routes = f"{address}data/plugin/torch_compile/"
    wait_for_tabs(address, {"torch_compile", "pytorch_profiler"})
    if b"render" not in fetch(f"{routes}static/index.js"):
        raise DemoFailed("static/index.js is not the entry module")
    runs = {run["run"]: run for run in fetch_json(f"{routes}runs")["runs"]}
    if missing := {RECORDED_HERE, *SHIPPED} - set(runs):
        raise DemoFailed(f"these runs are not listed: {', '.join(sorted(missing))}")
    run = runs[RECORDED_HERE]
    worker = only(run["workers"], "worker")
    ids = {"run": run["run"], "worker": worker["worker"]}
    compiled = fetch_json(f"{routes}compile?{urlencode(ids)}")
    for what in ("compilations", "graph_breaks", "recompiles", "generated_kernels", "compile_times"):
        if not compiled[what]:
            raise DemoFailed(f"the compile summary has no {what}")
    spans = [fetch_span(routes, {**ids, "span": span["span"]}) for span in worker["spans"]]
    if len(spans) != 1 or not all(span["steps"] and span["kernel_categories"] for span in spans):
        raise DemoFailed("one profiler cycle with steps and kernels was expected")
    # Places, as the tab counts them.
    breaks = len({(row.get("file"), row.get("line"), row.get("reason")) for row in compiled["graph_breaks"]})
    return (
        f"The TORCH COMPILE tab answers: {plural(len(spans), 'profiler cycle')}, "
        f"{plural(compiled['distinct_compilations'], 'compilation')}, {plural(breaks, 'graph break')}, "
        f"{plural(len(compiled['recompiles']), 'recompile')}. "
        "The PyTorch profiler's tab is next to it."
    )


def wait_for_tabs(address: str, wanted: set[str]) -> None:
    """Plugins look through the logdir in the background, so a tab may take a moment to become active."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        listing = fetch_json(f"{address}data/plugins_listing")
        active = {name for name, plugin in listing.items() if plugin["enabled"]}
        if wanted <= active:
            return
        if time.monotonic() > deadline:
            raise DemoFailed(f"these tabs are not active: {', '.join(sorted(wanted - active))}")
        time.sleep(0.3)


def fetch(url: str) -> bytes:
    """Return the body of a page."""
    try:
        with urlopen(url, timeout=60) as response:
            return bytes(response.read())
    except URLError as error:
        raise DemoFailed(f"{url}: {error}") from error


def fetch_json(url: str) -> Any:
    """Return an answer."""
    return json.loads(fetch(url))


def fetch_span(routes: str, ids: dict[str, str]) -> Any:
    """Poll until the trace has been read, as the tab does."""
    deadline = time.monotonic() + PATIENCE_S
    while "progress" in (answer := fetch_json(f"{routes}span?{urlencode(ids)}")):
        if time.monotonic() > deadline:
            raise DemoFailed(f"the trace {answer['progress']['file']} is still being read")
        time.sleep(0.3)
    return answer


def only(rows: list[Any], name: str) -> Any:
    """Return the only row."""
    if len(rows) != 1:
        raise DemoFailed(f"one {name} was expected, there are {len(rows)}")
    return rows[0]


if __name__ == "__main__":
    sys.exit(main())
