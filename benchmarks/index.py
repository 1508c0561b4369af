"""`python -m benchmarks.index`: measure what one process and two need to write digests, and what peers need to read.

The traces are copies of a recorded job of two ranks (the recording `ddp`), each with a rank of its own. CPU seconds are
of a command and all its processes. Wall time shows how two processes scale only where nothing else runs: so each
number of processes is measured in turn.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks import peers
from benchmarks.measure import Measured, measure

_RANK = re.compile(rb'("distributedInfo"[^{]*\{[^{}]*?"rank":\s*)\d+(,\s*"world_size":\s*)\d+', re.DOTALL)


def main() -> int:
    """Print one row per number of processes, and one per peer."""
    options = _options()
    with _traces(options) as folder:
        traces = sorted(folder.glob("*.pt.trace.json"))
        print(
            f"{len(traces)} traces of {sum(trace.stat().st_size for trace in traces) / len(traces) / 1e6:.1f} MB"
        )
        print(f"{'':<24}{'wall s':>8}{'CPU s':>8}{'CPU s a trace':>15}{'peak MB':>9}")
        for _ in range(options.rounds):
            for workers in options.workers:
                _remove_digests(folder)
                _row(f"index, {workers} process(es)", _index(folder, workers), len(traces))
            for count in (number for number in options.workers if number > 1):
                _row(f"{count} commands of one", _apart(traces, count), len(traces))
        _row("index again", _index(folder, 1), len(traces))
        some = traces[: options.peer_traces]
        for name, command in options.peer:
            _row(name, measure([*command, *map(str, some)]), len(some))
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.index", description=__doc__)
    parser.add_argument("--traces", type=int, default=256)
    parser.add_argument("--workers", type=int, nargs="*", default=[1, 2], help="numbers of processes to try")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--peer-traces", type=int, default=16, help="how many of them peers read")
    peers.add_option(parser)
    parser.add_argument("--folder", type=Path, help="where to write the traces; needs room for all")
    if not os.environ.get("TB_TORCHCOMPILE_RECORDINGS"):
        parser.exit(message="left out: TB_TORCHCOMPILE_RECORDINGS names no folder with the recording\n")
    return parser.parse_args()


@contextmanager
def _traces(options: argparse.Namespace) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="tb_torchcompile_benchmark_", dir=options.folder))
    try:
        with tarfile.open(Path(os.environ["TB_TORCHCOMPILE_RECORDINGS"], "ddp.tar.xz")) as archive:
            archive.extractall(folder / "recorded", filter="data")
        recorded = sorted((folder / "recorded").rglob("*.pt.trace.json"))
        (folder / "job").mkdir()
        for rank in range(options.traces):
            header, trace = rb"\g<1>%d\g<2>%d" % (rank, options.traces), recorded[rank % len(recorded)]
            name = f"rank{rank}.{trace.name.partition('.')[2]}"
            (folder / "job" / name).write_bytes(_RANK.sub(header, trace.read_bytes(), count=1))
        yield folder / "job"
    finally:
        shutil.rmtree(folder)


def _index(folder: Path, workers: int) -> Measured:
    command = [sys.executable, "-m", "tb_torchcompile_plugin.cli", "index", str(folder)]
    return measure([*command, "--workers", str(workers)])


def _apart(traces: list[Path], count: int) -> Measured:
    """Run several commands at a time, each with a share of the traces in a folder of its own."""
    with tempfile.TemporaryDirectory(dir=traces[0].parents[1]) as folder:
        shares = [Path(folder, str(number)) for number in range(count)]
        for number, share in enumerate(shares):
            share.mkdir()
            for trace in traces[number::count]:
                os.link(trace, share / trace.name)
        each = f"{sys.executable} -m tb_torchcompile_plugin.cli index"
        commands = [f"{each} {share} --workers 1 & one{number}=$!" for number, share in enumerate(shares)]
        return measure(["sh", "-c", "\n".join([*commands, *(f"wait $one{n}" for n in range(count))])])


def _remove_digests(folder: Path) -> None:
    for path in folder.glob("*.pt.digest.pb"):
        path.unlink()


def _row(name: str, cost: Measured, traces: int) -> None:
    note = cost.output.splitlines()[-1] if cost.output else ""
    figures = f"{cost.wall_s:>8.1f}{cost.cpu_s:>8.1f}{cost.cpu_s / traces:>15.2f}{cost.peak_mb:>9.0f}"
    print(f"{name:<24}{figures}  {'FAILED: ' if cost.failed else ''}{note}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
