"""`python -m benchmarks.jobs [RANKS …]`: CPU seconds of each question about jobs whose ranks are late in turn.

Each rank runs 40 steps of ten kernels and an all-reduce; its trace is written and read first.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))  # it makes jobs whose answers are known
from jobs import Does, host, training
from tb_torchcompile_plugin.analysis.ranks.job_findings import job_findings
from tb_torchcompile_plugin.analysis.ranks.job_report import job_report
from tb_torchcompile_plugin.job.as_early import job_clocks
from tb_torchcompile_plugin.job.instances import calls, clocks, instances, waits
from tb_torchcompile_plugin.job.job import Job
from tb_torchcompile_plugin.job.late import late
from tb_torchcompile_plugin.job.steps import job_steps

QUESTIONS = (calls, instances, clocks, waits, job_steps, late, job_clocks, job_findings, job_report)
LATE_NS, STEPS, KERNELS = 3_000_000, 40, 10


def make_job(folder: Path, ranks: int) -> Job:
    """Write and read a job in which another rank is late in each step."""
    chance = random.Random(1)

    def does(rank: int, step: int) -> Does:
        if rank == step * 7 % ranks:
            return Does(
                LATE_NS,
                lambda begin: [host("train.py(12): tokenize", begin, LATE_NS, "python_function")],
                KERNELS,
            )
        return Does(chance.randrange(200_000), kernels=KERNELS)

    return training(folder, ranks, STEPS, does)


def measure(ranks: int) -> None:
    """Print the CPU seconds of each question about a job."""
    with tempfile.TemporaryDirectory() as folder:
        started = cpu_s()
        job = make_job(Path(folder), ranks)
        print(f"{ranks} ranks: written and read in {cpu_s() - started:.2f} CPU s")
        for question in QUESTIONS:
            started = cpu_s()
            job.of(question)
            print(f"  {question.__name__:<14}{cpu_s() - started:8.2f}")


def cpu_s() -> float:
    """Return the CPU seconds of this process."""
    return sum(os.times()[:2])


def main() -> int:
    """Print the cost of jobs of several sizes."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.jobs", description=__doc__)
    parser.add_argument("ranks", nargs="*", type=int, default=[64, 512])
    for ranks in parser.parse_args().ranks:
        measure(ranks)
    return 0


if __name__ == "__main__":
    sys.exit(main())
