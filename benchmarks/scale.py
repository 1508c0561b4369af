"""`python -m benchmarks.scale`: report on inputs of unusual shapes, and on twice as much of the same.

CUDA graphs of 50,000 and 100,000 kernels, kernels on 150 and 300 streams, jobs of 32 and 64 ranks with 20 MB each. A
step that took the square of its input would show as a ratio of four.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks import synthetic
from benchmarks.measure import Measured, measure
from jobs import Does, training  # of the tests

_QUADRATIC = 3.0  # between 2, in proportion, and 4


def main() -> int:
    """Print one row per shape and size. Exit status 1 if a report failed or took the square of its input."""
    print(f"{'input':<40}{'MB':>8}{'wall s':>8}{'CPU s':>8}{'peak MB':>9}  times the CPU of half as much")
    return max(_compare(shape, half, write) for shape, half, write in _SHAPES)


def _compare(shape: str, half: int, write: Callable[[Path, int], object]) -> int:
    base = _row(shape, half, write, None)
    whole = _row(shape, 2 * half, write, base)
    return int(base.failed or whole.failed or whole.cpu_s > _QUADRATIC * base.cpu_s)


def _row(shape: str, count: int, write: Callable[[Path, int], object], half: Measured | None) -> Measured:
    with tempfile.TemporaryDirectory(prefix="tb_torchcompile_scale_") as name:
        folder = Path(name, "logdir")
        folder.mkdir()
        write(folder, count)
        megabytes = sum(path.stat().st_size for path in folder.iterdir()) / 1e6
        os.environ["TB_TORCHCOMPILE_CACHE"] = str(Path(name, "cache"))
        cost = measure([sys.executable, "-c", _REPORT, str(folder)])
    ratio = f"{cost.cpu_s / half.cpu_s:.2f}" if half else ""
    note = f"FAILED: {cost.output[-200:]}" if cost.failed else ratio
    figures = f"{megabytes:>8.0f}{cost.wall_s:>8.2f}{cost.cpu_s:>8.2f}{cost.peak_mb:>9.0f}"
    print(f"{f'{count:,} {shape}':<40}{figures}  {note}", flush=True)
    return cost


_REPORT = """
import os, sys
from tb_torchcompile_plugin.cli import main
with open(os.devnull, "w") as sys.stdout:
    status = main(["report", "--json", sys.argv[1]])
sys.exit(status)
"""


def _graphs(folder: Path, kernels: int) -> None:
    synthetic.write_graphs(folder / "w.1.pt.trace.json", kernels)


def _streams(folder: Path, streams: int) -> None:
    synthetic.write(folder / "w.1.pt.trace.json", streams / 3, streams=streams)


def _ranks(folder: Path, ranks: int) -> None:
    """Write the trace of one rank of such a job for each of them."""
    with tempfile.TemporaryDirectory() as whole:
        training(Path(whole), ranks, 40, lambda rank, _: Does(100_000, kernels=1500 * (rank == 0)))
        text = Path(whole, "rank0.1.pt.trace.json").read_text()
    for rank in range(ranks):
        named = text.replace('"rank": 0', f'"rank": {rank}', 1)
        (folder / f"rank{rank}.1.pt.trace.json").write_text(named)


_SHAPES = (
    ("kernels in a CUDA graph", 50_000, _graphs),
    ("streams", 150, _streams),
    ("ranks of 20 MB", 32, _ranks),
)

if __name__ == "__main__":
    sys.exit(main())
