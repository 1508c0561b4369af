"""`python -m benchmarks`: read large traces with this project's reader and others, and print what it costs.

By default: synthetic traces of 1 GB in each layout, and, where TB_TORCHCOMPILE_RECORDINGS names a folder with it, the
recording of 815 MB, plain and gzip. CPU seconds vary with the load of the machine: compare rows of one run. Parsers of
JSON are measured next to it, those that are installed (pip install orjson pysimdjson).
"""

from __future__ import annotations

import argparse
import gzip
import importlib.util
import os
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from benchmarks import peers, synthetic
from benchmarks.measure import Measured, measure

_OURS = """
import sys
from tb_torchcompile_plugin.reader.trace.kineto import read_trace
trace = read_trace(sys.argv[1], workers={workers})
trace.launch_of(), trace.op_of()
print(trace.events, "events", *[notice.problem for notice in trace.notices])
"""
_STORED = """
import os, sys, time
from tb_torchcompile_plugin.reader.cache.store import open_trace
open_trace(sys.argv[1])
started = time.monotonic()
trace = open_trace(sys.argv[1])
print(f"opened again in {time.monotonic() - started:.3f} s")
"""
# Parsers alone, which make no table: the last is the least that reading the text can cost.
_PARSERS = {
    "json.load": "import json; json.loads(text)",
    "msgspec": "import msgspec; msgspec.json.decode(text)",
    "orjson": "import orjson; orjson.loads(text)",
    "simdjson": "import simdjson; simdjson.Parser().parse(text)",
}
_PARSE = "import sys; text = open(sys.argv[1], 'rb').read(); {}; print('parsed')"


def main() -> None:
    """Print one row per file and reader."""
    options = _options()
    folder = Path(tempfile.mkdtemp(prefix="tb_torchcompile_benchmark_", dir=options.folder))
    # A server would keep this; here every first opening must be a first one.
    os.environ["TB_TORCHCOMPILE_CACHE"] = str(folder / "cache")
    try:
        print(f"{'file':<28}{'MB':>6}  {'reader':<22}{'wall s':>8}{'CPU s':>8}{'peak MB':>9}  ")
        for path in _files(options, folder):
            _compare(path, options, folder)
    finally:
        shutil.rmtree(folder)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--megabytes", type=float, default=1000, help="size of the synthetic traces; 0: none")
    parser.add_argument(
        "--layouts", nargs="*", default=list(synthetic.LAYOUTS), choices=list(synthetic.LAYOUTS)
    )
    parser.add_argument("--trace", type=Path, action="append", default=[], help="a trace to read as well")
    parser.add_argument("--workers", type=int, nargs="*", default=[1, 2], help="numbers of processes to try")
    parser.add_argument("--no-gzip", action="store_true", help="do not repeat each file as .gz")
    parser.add_argument(
        "--no-json", action="store_true", help="leave out parsers of JSON, which need 4 GB for 1 GB"
    )
    peers.add_option(parser)
    parser.add_argument("--folder", type=Path, help="where to write the traces; needs room for two of them")
    return parser.parse_args()


def _files(options: argparse.Namespace, folder: Path) -> Iterator[Path]:
    recordings = os.environ.get("TB_TORCHCOMPILE_RECORDINGS")
    archive = Path(recordings or "") / "densenet_train_815mb.tar.xz"
    yield from options.trace
    if recordings and archive.exists() and not options.trace:
        with tarfile.open(archive) as packed:
            packed.extractall(folder, filter="data")
        yield from folder.glob("densenet_train_815mb/*.json")
        shutil.rmtree(folder / "densenet_train_815mb")
    for layout in options.layouts if options.megabytes else []:
        path = folder / f"synthetic-{layout}.json"
        synthetic.write(path, options.megabytes, layout)
        yield path
        path.unlink()


def _compare(path: Path, options: argparse.Namespace, folder: Path) -> None:
    _warm(path)
    parsers: dict[str, Measured] = {}
    for name, parse in _PARSERS.items() if not options.no_json else ():
        if importlib.util.find_spec(name.partition(".")[0]):
            parsers[name] = _row(path, name, [sys.executable, "-c", _PARSE.format(parse), str(path)], {})
    for workers in options.workers:
        program = _OURS.format(workers=workers)
        _row(path, f"this, {workers} process(es)", [sys.executable, "-c", program, str(path)], parsers)
    _row(path, "this, with the cache", [sys.executable, "-c", _STORED, str(path)], parsers)
    if not options.no_gzip and path.suffix != ".gz":
        packed = folder / f"{path.name}.gz"
        with path.open("rb") as source, gzip.open(packed, "wb", compresslevel=1) as target:
            shutil.copyfileobj(source, target, 1 << 20)
        program = _OURS.format(workers=max(options.workers))
        _row(
            packed,
            f"this, {max(options.workers)} process(es)",
            [sys.executable, "-c", program, str(packed)],
            parsers,
        )
        packed.unlink()
    for name, command in options.peer:
        _row(path, name, [*command, str(path)], parsers)


def _warm(path: Path) -> None:
    """Bring a file into the page cache, for all readers alike."""
    with path.open("rb") as file:
        while file.read(1 << 24):
            pass


def _row(path: Path, reader: str, command: list[str], parsers: Mapping[str, Measured]) -> Measured:
    cost = measure(command)
    note = cost.output.splitlines()[-1] if cost.output else ""
    if cost.failed:
        note = f"FAILED: {note}"
    else:
        ratios = [f"{cost.cpu_s / parser.cpu_s:.2f} x {name}" for name, parser in parsers.items()]
        note = "; ".join([note, *ratios])
    size = path.stat().st_size / 1e6
    name = path.name if len(path.name) < 28 else path.name[:12] + "…" + path.name[-14:]
    figures = f"{cost.wall_s:>8.2f}{cost.cpu_s:>8.2f}{cost.peak_mb:>9.0f}"
    print(f"{name:<28}{size:>6.0f}  {reader:<22}{figures}  {note}", flush=True)
    return cost


if __name__ == "__main__":
    main()
