"""Time and record the programs of the benchmark suite of diagnosis.

    python3 -m benchmarks.diagnosis.record --out /tmp/exam                  # on a machine with a GPU
    python3 -m benchmarks.diagnosis.record --out /tmp/exam --cpu --quick    # a check that they run

A batch of programs is built side by side, each in a process of its own; then one after the other is timed and
recorded while the others stand still. Written: `planted/NAME/` and `mended/NAME/` with the recordings,
`measured.json`, and each process's output in `logs/`. A program that fails is reported and left out.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.diagnosis.suite import Exam


def main() -> int:
    options = arguments()
    prepare(options)
    from benchmarks.diagnosis.one import jobs
    from benchmarks.diagnosis.programs import PROGRAMS
    from benchmarks.diagnosis.suite import Exam, described  # torch reads the environment when it is imported

    rows = {name: described(program) for name, program in PROGRAMS.items()}
    exam = Exam(options.out, options.start, options.cpu, options.limit, rows, partial(jobs, options))
    return run(exam, options)


def run(exam: Exam, options: argparse.Namespace) -> int:
    """Batch by batch, until the time is over. The exit status."""
    deadline = time.monotonic() + options.deadline
    try:
        for batch in batches(chosen(options, list(exam.rows)), options.batch):
            if time.monotonic() > deadline:
                print("out of time; not run:", *batch, flush=True)
                exam.left_out(batch)
            elif not exam.run(batch):
                print("no program of this batch ran: stopped", flush=True)
                return 1
    finally:
        exam.write()
        print(exam.summed_up(), flush=True)
    return 0


def arguments(description: str | None = __doc__) -> argparse.Namespace:
    return parser_of(description).parse_args()


def parser_of(description: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, no inductor")
    parser.add_argument("--only", nargs="*", help="names of programs")
    parser.add_argument("--part", default="1/1", help="1/2: every second program, from the first on")
    parser.add_argument("--batch", type=int, default=6, help="programs built side by side")
    parser.add_argument("--limit", type=float, default=90, help="seconds for building, and for timing, one")
    parser.add_argument("--deadline", type=float, default=500, help="no batch begins after so many seconds")
    parser.add_argument("--start", choices=("fork", "spawn"), default="fork")
    parser.add_argument("--mended-traces", action="store_true", help="record the mended programs, too")
    return parser


def prepare(options: argparse.Namespace) -> None:
    """What torch reads when it is imported: one cache for all, and no pool of compilers in each process."""
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(options.out.absolute() / "cache"))
    if options.cpu:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        # Virtual machines announce matrix instructions that they do not run.
        os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX2")


def chosen(options: argparse.Namespace, names: list[str]) -> list[str]:
    first, parts = (int(number) for number in options.part.split("/"))
    return options.only or names[first - 1 :: parts]


def batches(names: list[str], size: int) -> Iterator[list[str]]:
    return (names[i : i + size] for i in range(0, len(names), size))


if __name__ == "__main__":
    sys.exit(main())
